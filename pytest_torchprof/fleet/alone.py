"""``python -m pytest_torchprof.fleet.alone``: one file in a process of its own, which may end as it likes."""

from __future__ import annotations

import os
import sys
import time
from typing import Final

import msgspec
from msgspec import Struct

from pytest_torchprof.fleet.bounded import Bounds, judge_within
from pytest_torchprof.fleet.judging import FileTask, Hindrance, Trouble
from pytest_torchprof.reasons.catalogue import AnyReason  # noqa: TC001 - msgspec reads the annotations
from pytest_torchprof.reasons.fleet import TookTooLong, TookTooMuchMemory, WorkerDied
from pytest_torchprof.system.processes import run

_GRACE_S: Final = 30.0
"""How long a process may take to begin and to end, beside the time that the file has."""


_OVERTIME: Final = (1, -14)
"""With what a process ends that takes too long: faulthandler's status, or the signal of an alarm."""


class _Errand(Struct, frozen=True):
    task: FileTask
    bounds: Bounds


class _Came(Struct, frozen=True):
    """What comes back: a record has no cause."""

    cause: Hindrance | None = None
    reason: AnyReason | None = None


def judge_alone(task: FileTask, bounds: Bounds) -> bytes | Trouble:
    """Return what a file comes to in a process of its own, whatever becomes of that."""
    errand = msgspec.json.encode(_Errand(task, bounds)).decode()
    began = time.monotonic()
    done = run([sys.executable, "-P", "-m", __name__, errand], limit_s=bounds.timeout_s + _GRACE_S)
    if done.status is None or (done.status in _OVERTIME and time.monotonic() - began >= bounds.timeout_s):
        return Trouble(cause=Hindrance.TIME, reason=TookTooLong(bounds.timeout_s * 1e6))
    if done.status != 0:
        return Trouble(cause=Hindrance.DEATH, reason=WorkerDied(done.status))
    answer = os.fsencode(done.output)
    came = msgspec.json.decode(answer, type=_Came)
    if came.cause is None:
        return answer
    reason = TookTooMuchMemory(bounds.memory_bytes) if came.cause is Hindrance.MEMORY else came.reason
    return Trouble(cause=came.cause, reason=reason)


def main(errand: str) -> int:
    """Run an errand; write the answer, and return the exit status."""
    asked = msgspec.json.decode(errand, type=_Errand)
    came = judge_within(asked.task, asked.bounds)
    sys.stdout.buffer.write(msgspec.json.encode(came) if isinstance(came, Trouble) else came)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
