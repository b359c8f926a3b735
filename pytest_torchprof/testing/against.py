"""A measurement against its baseline: what is written, what fails the test, and from where that comes."""

from __future__ import annotations

import warnings
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_torchprof.capture.ranks import this_rank
from pytest_torchprof.errors import TorchprofWarning
from pytest_torchprof.testing.comparing import compared
from pytest_torchprof.text.escape import printable_line

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pytest_torchprof.compare import Comparison
    from pytest_torchprof.profile import Profile
    from pytest_torchprof.testing.measure import TestRun
    from pytest_torchprof.testing.measured import Measured

MOST_PLACED = 5
"""Kernels with lines below a comparison, and lines for each."""


@dataclass(frozen=True, slots=True)
class Against:
    """A comparison, in words for the table, and lines for the failure where it fails the test."""

    words: str
    failure: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()
    """What differs without failing the test."""


def against_baseline(run: TestRun, measured: Measured, profile: Profile, *, kept: bool) -> Against | None:
    """Compare with the baseline, or note what to write; None where no baseline is asked for or it cannot be."""
    settings = run.state.settings
    found = compared(run, measured, profile)
    if found is None:
        return None
    from msgspec.structs import replace  # noqa: PLC0415

    from pytest_torchprof import baseline  # noqa: PLC0415

    old, new, comparison = found
    file, key = run.comparing.place(measured.label, profile)
    run.state.compared.setdefault(str(file), set()).add(key)
    allowed = run.options.tolerance.allowed
    if kept and (settings.baseline == "update" or (settings.baseline == "add" and old is None)):
        if old is not None and "time" in allowed:
            new = replace(new, time=baseline.settled(old.time, new.time, allowed["time"]))
        if not this_rank().writes:
            return Against(f"left to rank 0 ({comparison.summary})")
        run.baseline_entries.append((str(file), key, baseline.plain(new)))
        return Against("written" if old is None else f"written ({comparison.summary})")
    failure = tuple(_failure_lines(run, profile, comparison, file))
    if comparison.verdict == "ambiguous" and not failure:
        # Where warnings are errors this one is none: only strict fails what the samples do not tell.
        with suppress(TorchprofWarning):
            warnings.warn(f"{run.nodeid}: {comparison.summary} against the baseline", TorchprofWarning, stacklevel=2)
    return Against(comparison.summary, failure, () if failure else comparison.lines)


def _failure_lines(run: TestRun, profile: Profile, comparison: Comparison, file: Path) -> list[str]:
    mode = run.state.settings.baseline
    accept = f'  do: mend it, or accept it: pytest "{run.nodeid}" --torchprof-baseline=update'
    if comparison.verdict == "worse" and mode != "update":
        return [
            f"worse than the baseline {run.state.shown(file)}:",
            *(f"  {line}" for line in comparison.lines),
            *_where_from(profile, comparison),
            accept,
        ]
    if comparison.fails(strict=mode == "strict") and mode != "update":
        if comparison.verdict == "ambiguous":
            said = f"ambiguous against the baseline {run.state.shown(file)} (strict):"
            return [said, *(f"  {line}" for line in comparison.lines), accept]
        write = f'  do: pytest "{run.nodeid}" --torchprof-baseline=add'
        return [f"no baseline for this test and device in {run.state.shown(file)} (strict)", write]
    return []


def _where_from(profile: Profile, comparison: Comparison) -> Iterator[str]:
    """Yield from where in the user's code the kernels come that the baseline has not, or has fewer of."""
    from pytest_torchprof.limits.rows import kernel_rows  # noqa: PLC0415

    step = max(profile.steps, key=lambda step: len(step.kernels))
    worse = {change.what for change in comparison.changes if change.direction == "worse"}
    rows = kernel_rows(step, [kernel for kernel in step.kernels if kernel.short in worse])
    for row in rows[:MOST_PLACED]:
        if row.places:
            yield f"    {row.name} from: {'; '.join(place for _, place in row.places[:MOST_PLACED])}"
    if rows and step.places.why_not:
        yield f"  lines: not known: {printable_line(step.places.why_not)}"
