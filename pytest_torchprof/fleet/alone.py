"""``python -m pytest_torchprof.fleet.alone``: files in a process of their own, which may end as it likes."""

from __future__ import annotations

import os
import sys
import time
from typing import Final

import msgspec
from msgspec import Struct

from pytest_torchprof.fleet.bounded import judge_within
from pytest_torchprof.fleet.bounds import Bounds
from pytest_torchprof.fleet.judging import Answers, FileTask, Hindrance, Tasks, Trouble
from pytest_torchprof.reasons import decoding  # noqa: TC001 - msgspec reads the annotations
from pytest_torchprof.reasons.fleet import TookTooLong, TookTooMuchMemory, WorkerDied
from pytest_torchprof.system.processes import run

_GRACE_S: Final = 30.0
"""How long a process may take to begin and to end, beside the time that the file has."""


_OVERTIME: Final = (1, -14)
"""With what a process ends that takes too long: faulthandler's status, or the signal of an alarm."""


class _Came(Struct, frozen=True):
    """The answer of the process: a record has no cause."""

    cause: Hindrance | None = None
    reason: decoding.AnyReason | None = None


def judge_alone(tasks: Tasks, bounds: Bounds) -> Answers:
    """Return the results of files from a process of their own, whatever becomes of that process."""
    given = [msgspec.json.encode(part).decode() for part in (bounds, *tasks)]
    began = time.monotonic()
    done = run([sys.executable, "-P", "-m", __name__, *given], limit_s=bounds.timeout_s * len(tasks) + _GRACE_S)
    # What it was writing when it ended has no end.
    answers = [_read(line, bounds) for line in os.fsencode(done.output).split(b"\n")[:-1]]
    if len(answers) == len(tasks):
        return answers
    if done.status is None or (done.status in _OVERTIME and time.monotonic() - began >= bounds.timeout_s):
        return [*answers, Trouble(cause=Hindrance.TIME, reason=TookTooLong(bounds.timeout_s * 1e6))]
    return [*answers, Trouble(cause=Hindrance.DEATH, reason=WorkerDied(done.status))]


def _read(line: bytes, bounds: Bounds) -> bytes | Trouble:
    came = msgspec.json.decode(line, type=_Came)
    if came.cause is None:
        return line
    reason = TookTooMuchMemory(bounds.memory_bytes) if came.cause is Hindrance.MEMORY else came.reason
    return Trouble(cause=came.cause, reason=reason)


def main(written: str, *tasks: str) -> int:
    """Judge files within bounds; write a line for each as soon as it is known, and return the exit status."""
    bounds = msgspec.json.decode(written, type=Bounds)
    for task in tasks:
        came = judge_within(msgspec.json.decode(task, type=FileTask), bounds)
        line = msgspec.json.encode(came) if isinstance(came, Trouble) else came
        sys.stdout.buffer.write(line + b"\n")
        sys.stdout.buffer.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
