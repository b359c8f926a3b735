"""The section at the end of a pytest run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_torchprof.report.results import FAILED, NOT_MEASURED, PASSED, SKIPPED
from pytest_torchprof.report.table import HEADERS, KERNEL_HEADERS, kernel_rows, printable, row, where

if TYPE_CHECKING:
    from pytest_torchprof.report.results import RunResults

MAX_TEST_WIDTH = 48
"""A test id longer than this is wrapped, so that the numbers stay on the screen."""


def title(run: RunResults) -> str:
    """Return the section's heading: where it was measured."""
    return f"torchprof: {where(run.environment)}"


def render(run: RunResults) -> str:
    """Return one row per measurement, then the kernels of those that failed."""
    from tabulate import tabulate  # noqa: PLC0415  (only a run with measurements pays for it)

    parts = [
        tabulate(
            [row(result) for result in run.results],
            headers=HEADERS,
            tablefmt="simple",
            colalign=("left", *("right",) * 5, "left", "left"),
            maxcolwidths=[MAX_TEST_WIDTH, *(None,) * 7],
            disable_numparse=True,
        )
    ]
    for result in run.results:
        if result.changes:
            parts.append("\n".join([f"{printable(result.name)}: against the baseline", *map(printable, result.changes)]))
        if result.outcome == FAILED and result.kernels:
            kernels = tabulate(
                kernel_rows(result),
                headers=KERNEL_HEADERS,
                tablefmt="simple",
                disable_numparse=True,
                colalign=("left", "right", "right", "left"),
                maxcolwidths=[60, None, None, 30],
            )
            parts.append(f"{printable(result.name)}: kernels of the step with most\n{kernels}")
    return "\n\n".join([*parts, closing(run)])


def closing(run: RunResults) -> str:
    """Return how many measurements came out how, in one line."""
    counts = [
        f"{sum(result.outcome == outcome for result in run.results)} {said}"
        for outcome, said in (
            (PASSED, "kept"),
            (FAILED, "failed"),
            (NOT_MEASURED, "not measured"),
            (SKIPPED, "not judged"),
        )
        if any(result.outcome == outcome for result in run.results)
    ]
    better = any((result.baseline or "").startswith("better") for result in run.results)
    return ", ".join(counts) + ("; keep what got better: pytest --torchprof-baseline=update" if better else "")
