"""The section at the end of a pytest run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_torchprof.report.results import HEADERS, KERNEL_HEADERS, BaselineState, Outcome, kernel_rows, row, where
from pytest_torchprof.text import printable

if TYPE_CHECKING:
    from pytest_torchprof.report.results import RunResults

MIN_NAME_WIDTH = 30
DROPPED = ("CPU/GPU", "launches", "breaks", "GPU time", "baseline")
"""Columns that a narrow terminal does without, the first one first; before them those that have nothing to show."""
_OUTCOMES = {
    Outcome.PASSED: "passed",
    Outcome.FAILED: "failed",
    Outcome.NOT_MEASURED: "not measured",
    Outcome.SKIPPED: "not judged",
    Outcome.XFAILED: "failed as expected",
}


def title(run: RunResults) -> str:
    """Return the section's heading: where it was measured, if anything was."""
    return f"torchprof: {where(run.environment)}" if run.environment else "torchprof"


def render(run: RunResults, *, width: int, verbosity: int = 0) -> str:
    """Return one row per measurement, then what changed, and with ``-v`` the kernels of those that failed.

    ``width`` is the terminal's, in columns; too long a name loses its beginning, and columns are left out.
    """
    parts = [_results(run, width)]
    for result in run.results:
        name = printable(result.name)
        if result.changes:
            parts.append("\n".join([f"{name}: against the baseline", *map(printable, result.changes)]))
        if verbosity > 0 and result.outcome is Outcome.FAILED and result.kernels:
            kernels = _table(
                [KERNEL_HEADERS, *kernel_rows(result)], ("left", "right", "right", "left"), (60, None, None, 30)
            )
            parts.append(f"{name}: kernels of the step with most\n{kernels}")
    parts += [
        printable(f"{unused.file}: {unused.words}") + (f"\n  do: {unused.remedy}" if unused.remedy else "")
        for unused in run.unused
    ]
    return "\n\n".join([*parts, closing(run)])


def _results(run: RunResults, width: int) -> str:
    columns = list(zip(HEADERS, *map(row, run.results), strict=True))
    empty = [header for header, *cells in columns if set(cells) == {"-"}]
    for header in (*(header for header in DROPPED if header in empty), *DROPPED):
        if _room(columns, width) >= min(MIN_NAME_WIDTH, _widest(columns[0])):
            break
        columns = [column for column in columns if column[0] != header]
    room = max(_room(columns, width), MIN_NAME_WIDTH)
    names = [HEADERS[0], *(_elided(name, room) for name in columns[0][1:])]
    align = {"test": "left", "baseline": "left", "verdict": "left"}
    rows = list(zip(names, *columns[1:], strict=True))
    return _table(rows, tuple(align.get(column[0], "right") for column in columns), (None,) * len(columns))


def _room(columns: list[tuple[str, ...]], width: int) -> int:
    """Return what the other columns leave for the tests' names."""
    return width - sum(2 + _widest(column) for column in columns[1:])


def _widest(column: tuple[str, ...]) -> int:
    return max(map(len, column))


def _elided(name: str, room: int) -> str:
    # The folder is the same for most tests, and the end of a name is what tells parameters and labels apart.
    file, colons, test = name.partition("::")
    short = f"{file.rpartition('/')[2]}{colons}{test}"
    return short if len(short) <= room else "..." + short[-(room - 3) :]


def _table(rows: list[tuple[str, ...]], align: tuple[str, ...], widths: tuple[int | None, ...]) -> str:
    from tabulate import tabulate  # noqa: PLC0415  (only a run with measurements pays for it)

    # The headers as a row of their own: tabulate pads real headers by two columns each, which costs a narrow terminal.
    text = tabulate(rows, tablefmt="plain", colalign=align, maxcolwidths=list(widths), disable_numparse=True)
    head, *body = text.splitlines()
    return "\n".join([head, "-" * max(map(len, (head, *body))), *body])


def closing(run: RunResults) -> str:
    """Return how many measurements came out how, in one line."""
    counts = [
        f"{number} {words}"
        for outcome, words in _OUTCOMES.items()
        if (number := sum(result.outcome is outcome for result in run.results))
    ]
    better = sum(result.baseline_state is BaselineState.BETTER for result in run.results)
    return ", ".join(counts) + (f"; {better} better, to keep: pytest --torchprof-baseline=update" if better else "")
