"""The process's first session of the profiler: opened before any other, and checked by kernels that it recorded."""

from __future__ import annotations

import os
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from pytest_torchprof.capture import cupti_users, reasons, torch_profiler_calls
from pytest_torchprof.capture.devices import before_use, why_unusable
from pytest_torchprof.capture.processes import ShowProgress, only_measurement, show_waits
from pytest_torchprof.capture.sentinel import look_for_losses
from pytest_torchprof.capture.session import Session, refuse_second_profiler
from pytest_torchprof.devices.kinds import kind_of
from pytest_torchprof.reasons.errors import NotMeasured

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pytest_torchprof.reasons.reason import Reason

# If an attempt loses all kernels of its sentinel, the next one's sentinel is longer.
_ATTEMPTS = 4
_DOING = "a few kernels before its first measurement"


def arm(device: str, show: ShowProgress = show_waits) -> None:
    """Make sure that this process records kernels of `device`; the first call opens a session, later ones are free.

    kineto registers with the GPU's tracing library once, for what the first session asks, so the earlier the better;
    and only the kernels of CUDA graphs that are captured afterwards are counted. Raises NotMeasured if another profiler
    runs, if the launched kernels are not in the recording, or if the device raises an error.
    """
    if not kind_of(device).has_launches:
        return
    refuse_second_profiler()
    try:
        reason = why_unusable(device)
        if reason is None:
            with only_measurement(device, show, doing=_DOING):
                reason = _probe(device)
    except NotMeasured:
        raise
    except Exception as error:  # noqa: BLE001 - a test that does not measure must not suffer from the device
        raise NotMeasured(reasons.of_device(device, error)) from None
    if reason:
        raise NotMeasured(cupti_users.with_others_in_cupti(reason))


@cache
def _probe(device: str) -> Reason | None:
    if any(_sees_the_sentinel(device) for _ in range(_ATTEMPTS)):
        return None
    return reasons.why_no_kernels(device, reasons.fresh_process(device))


def _sees_the_sentinel(device: str) -> bool:
    with TemporaryDirectory() as folder, Session(device) as session:
        session.finish()
        if not session.exportable:
            return False
        recording = Path(folder) / "probe.json"
        session.export(recording)
        return look_for_losses(recording)


@contextmanager
def before_others_record(begin: Callable[[], None]) -> Iterator[None]:
    """Call `begin` once, as soon as this process uses GPUs or starts a profiler; not in a fork of this process.

    Opening a session begins CUDA, and then no fork can use CUDA. So it is opened when somebody else begins CUDA, or
    when a first session without GPUs would leave all later ones without kernels.
    """
    process, begun = os.getpid(), False

    def once() -> None:
        nonlocal begun
        if not begun and os.getpid() == process:
            begun = True
            begin()

    with torch_profiler_calls.before_profilers(once), before_use(once):
        yield
