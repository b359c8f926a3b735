"""At the end of a run that is held against another commit: what could not be compared."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from pytest_torchprof.codes import Code, coded
from pytest_torchprof.errors import TorchprofError
from pytest_torchprof.report import BaselineState

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_torchprof.testing.session import RunState


def only_at_base(state: RunState) -> tuple[str, ...]:
    """Return what was measured at the other commit and not in this run, by test and label."""
    found: list[str] = []
    for file in _files(state):
        with suppress(TorchprofError):  # Its tests have said so.
            found += sorted(state.baselines.entries(file).keys() - state.compared_keys.get(file, set()))
    return tuple(found)


def nothing_compared(state: RunState) -> list[str]:
    """Return what is wrong with a run that has compared nothing; nothing where it has."""
    side = state.options.against
    compared = (result.baseline_state not in (None, BaselineState.NEW) for result in state.results.values())
    if side is None or any(compared):
        return []
    there, here = ("something" if one else "nothing" for one in (_files(state), state.results))
    said = (
        f"not measured: no test was measured both at {side.reference.shown} and in the working tree, so nothing was "
        f"compared; there {there} was measured, and here {here}"
    )
    return [coded(said, Code.NOTHING_COMPARED)]


def _files(state: RunState) -> list[Path]:
    folder = state.options.baseline_dir
    return [] if folder is None else sorted(folder.rglob("*.json"))
