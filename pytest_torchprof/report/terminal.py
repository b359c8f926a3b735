"""The section at the end of a pytest run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_torchprof.printable import printable
from pytest_torchprof.report.results import FAILED, NOT_MEASURED, PASSED, SKIPPED, XFAILED
from pytest_torchprof.report.table import HEADERS, KERNEL_HEADERS, kernel_rows, row, where

if TYPE_CHECKING:
    from pytest_torchprof.report.results import RunResults

NUMBERS_WIDTH = 66
"""What the columns beside the test's name take; the name has the rest of the screen."""
MIN_NAME_WIDTH = 30


def title(run: RunResults) -> str:
    """Return the section's heading: where it was measured."""
    return f"torchprof: {where(run.environment)}"


def render(run: RunResults, *, width: int) -> str:
    """Return one row per measurement, then what changed and the kernels of those that failed.

    ``width`` is the terminal's, in columns; a test's name too long for it loses its beginning.
    """
    room = max(width - NUMBERS_WIDTH, MIN_NAME_WIDTH)
    parts = [
        _table(
            [HEADERS, *((_elided(name, room), *numbers) for name, *numbers in map(row, run.results))],
            ("left", *("right",) * 5, "left", "left"),
            (None,) * 8,
        )
    ]
    for result in run.results:
        name = printable(result.name)
        if result.changes:
            parts.append("\n".join([f"{name}: against the baseline", *map(printable, result.changes)]))
        if result.outcome == FAILED and result.kernels:
            kernels = _table(
                [KERNEL_HEADERS, *kernel_rows(result)], ("left", "right", "right", "left"), (60, None, None, 30)
            )
            parts.append(f"{name}: kernels of the step with most\n{kernels}")
    parts += [
        f"{printable(file)}: entries of tests that are gone: {', '.join(map(printable, keys))}\n"
        "  do: torchprof baseline prune"
        for file, keys in run.gone.items()
    ]
    return "\n\n".join([*parts, closing(run)])


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
        f"{sum(result.outcome == outcome for result in run.results)} {said}"
        for outcome, said in (
            (PASSED, "kept"),
            (FAILED, "failed"),
            (NOT_MEASURED, "not measured"),
            (SKIPPED, "not judged"),
            (XFAILED, "failed as expected"),
        )
        if any(result.outcome == outcome for result in run.results)
    ]
    better = any((result.baseline or "").startswith("better") for result in run.results)
    return ", ".join(counts) + ("; keep what got better: pytest --torchprof-baseline=update" if better else "")
