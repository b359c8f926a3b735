"""At the end of a run that is compared with another commit: what could not be compared."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from pytest_torchprof.against.measured import entry_files
from pytest_torchprof.against.pairs import TIMED, write_results
from pytest_torchprof.reasons.codes import Code, coded
from pytest_torchprof.reasons.errors import TorchprofError
from pytest_torchprof.report.result import NOTHING_COMPARED

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from pathlib import Path

    from pytest_torchprof.against.side import Side
    from pytest_torchprof.report import RunResults
    from pytest_torchprof.report.result import Result
    from pytest_torchprof.testing.baseline_files import BaselineFiles


def only_at_base(side: Side, baselines: BaselineFiles, compared: Mapping[Path, set[str]]) -> tuple[str, ...]:
    """Return the names of the measurements that only the other commit has, by test and label.

    ``compared`` has the keys of the entries that were compared here, by baseline file.
    """
    only_there: list[str] = []
    for file, test_file in entry_files(side.entries):
        with suppress(TorchprofError):  # Its tests have reported it.
            keys = baselines.entries(file).keys() - compared.get(file, set())
            only_there += [f"{test_file}::{key}" for key in sorted(keys)]
    return tuple(only_there)


def leave_times(side: Side, run: RunResults) -> None:
    """Write down the times that this process took; at the base, also whether any are to be taken."""
    if side.timed is not None:
        write_results(side.results, run)
    elif any(result.time_share is not None for result in run.results):
        (side.results / TIMED).touch()


def nothing_compared(side: Side, results: Collection[Result]) -> list[str]:
    """Return the problem of a run that has compared nothing; empty where it has compared something."""
    if any(result.baseline_state not in NOTHING_COMPARED for result in results):
        return []
    measured = (any(side.entries.rglob("*.json")), results)
    there, here = ("something" if is_measured else "nothing" for is_measured in measured)
    text = (
        f"not measured: no test was measured both at {side.reference.shown} and in the working tree, so nothing was "
        f"compared; there {there} was measured, and here {here}"
    )
    return [coded(text, Code.NOTHING_COMPARED)]
