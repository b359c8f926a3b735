"""The process's first profiler session: opened before a test needs it, and not earlier."""

from __future__ import annotations

from contextlib import contextmanager
from functools import cache, partial
from typing import TYPE_CHECKING

from pytest_torchprof import capture
from pytest_torchprof.capture import torch_profiler
from pytest_torchprof.capture.lockstep import OtherRanks
from pytest_torchprof.capture.rank import this_rank
from pytest_torchprof.reasons.errors import TorchprofError
from pytest_torchprof.testing.collection import OPTIONS
from pytest_torchprof.testing.progress import waits_of
from pytest_torchprof.testing.workers import PROGRESS, is_of_xdist, is_worker, nodeid_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pytest

    from pytest_torchprof.testing.session import RunState


@contextmanager
def armed(state: RunState, session: pytest.Session) -> Iterator[None]:
    """Open the process's first profiler session before a test needs it, if one will be measured.

    Not earlier: it begins CUDA, and tests that fork and use CUDA in the child can run until then.
    """
    if not state.options.enabled or state.options.replay is not None:
        yield
        return
    if not is_worker(session.config):
        state.recordings.clear_failures()
    if session.config.getoption("forked", default=False):
        # Each test runs in a fork of this process (pytest-forked), and CUDA must not have begun before it.
        yield
        return
    if not is_of_xdist(session.config):
        collected, announce = map(nodeid_of, session.items), session.config.stash.get(PROGRESS, None)
        state.run_beside(OtherRanks(state.options.rank_timeout_s, collected, announce))
    devices = sorted({item.stash[OPTIONS].device for item in session.items if OPTIONS in item.stash})
    state.arm_by(cache(partial(_arm, state, devices, session.config)))
    if not this_rank().alone:
        # torch's launcher gives each rank a device of its own.
        state.arm()
    if all(device == "cpu" for device in devices):
        yield
        return
    with capture.before_others_record(state.arm):
        yield


def _arm(state: RunState, devices: list[str], config: pytest.Config) -> None:
    for device in devices:
        try:
            picked = capture.pick_device(device)
            if not this_rank().alone:
                capture.live_device(picked).make_current()
            capture.arm(picked, partial(waits_of, config, "the run"))
            if picked != "cpu" and torch_profiler.lacks_file_only():
                state.note_slow_export()
        except TorchprofError as problem:
            # The tests that ask for it say so themselves; one that is skipped anyway must not stop the others.
            state.refuse_device(device, problem.reason)
