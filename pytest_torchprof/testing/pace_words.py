"""What the times of one measurement came to, against another commit's: in a result, in numbers and in words."""

from __future__ import annotations

import statistics
from dataclasses import asdict
from typing import TYPE_CHECKING, Literal

from msgspec.structs import replace

from pytest_torchprof.against.pairs import MOST_LOST
from pytest_torchprof.compare.pace import LEAST_PAIRS, slowdown
from pytest_torchprof.reasons.codes import Code, coded
from pytest_torchprof.report.result import Outcome, TimeChange, TimeComparison
from pytest_torchprof.text import counted, show_share, show_us

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_torchprof.against.pairs import TimedMeasurement
    from pytest_torchprof.against.side import Side
    from pytest_torchprof.compare.pace import TimePair
    from pytest_torchprof.report.result import Result


def told_aside(result: Result, verdict: Literal["new", "not judged", "not measured"], words: str) -> Result:
    """Return the result of a measurement whose times nobody takes, which says why."""
    return replace(result, against_time=TimeComparison(verdict=verdict, tolerance=result.time_share, words=words))


def concluded(result: Result, measured: TimedMeasurement, side: Side, *, seed: int, budget_s: float) -> Result:
    """Return the result with what its times came to, which may fail it."""
    pace = measured.pace
    if len(pace.pairs) < LEAST_PAIRS:
        return _not_measured(result, _why_too_few(measured, budget_s))
    lines = tuple(_lines(measured))
    told = replace(
        result,
        against_time=TimeComparison(
            verdict=pace.verdict,
            tolerance=result.time_share,
            words=lines[0].strip(),
            seed=seed,
            pairs=len(pace.all_pairs),
            confirming_pairs=len(pace.fresh),
            step=_figures(pace.all_pairs),
            kernels=_figures(measured.kernels) if len(measured.kernels) >= LEAST_PAIRS else None,
            disturbed=measured.disturbed,
        ),
    )
    undecided = f"    undecided: {_why_open(measured, budget_s)}"
    if pace.verdict == "ambiguous" and side.ambiguous_fails:
        said = f"times against {side.reference.shown} are ambiguous (--torchprof-against-ambiguous=fail):"
        remedy = "  do: run it again on a machine with less other work, with a larger --torchprof-against-budget"
        return _failed(told, Outcome.FAILED, [said, *lines, undecided, remedy])
    if pace.verdict != "worse":
        shown = lines if pace.verdict != "ambiguous" else (*lines, undecided)
        unseen = shown if pace.verdict == "same" else ()
        return replace(told, changes=(*told.changes, *shown), noise=(*told.noise, *unseen))
    allowed = f'tolerance={{"time": {slowdown(pace.all_pairs).share:.2f}}}'
    remedy = f"  do: make it faster, or allow so much in the marker: {allowed}"
    return _failed(told, Outcome.FAILED, [f"slower than at {side.reference.shown}:", *lines, remedy])


def _not_measured(result: Result, reason: str) -> Result:
    said = coded(f"not measured: its time against the other commit: {reason}", Code.NO_TIMES)
    told = told_aside(result, "not measured", reason)
    return _failed(told, Outcome.NOT_MEASURED, [said])


def _failed(told: Result, outcome: Outcome, lines: list[str]) -> Result:
    text = "\n".join(lines)
    if told.outcome.is_failure:
        return replace(told, message=f"{told.message}\n{text}", changes=(*told.changes, *lines))
    return replace(told, outcome=outcome, message=text)


def _figures(pairs: tuple[TimePair, ...]) -> TimeChange:
    """Return the medians on both sides, in microseconds, and how they differ, in shares."""
    base_us, here_us = _medians(pairs)
    return TimeChange(base_us=base_us, here_us=here_us, **asdict(slowdown(pairs)))


def _medians(pairs: tuple[TimePair, ...]) -> tuple[float, float]:
    return statistics.median(pair.base_us for pair in pairs), statistics.median(pair.here_us for pair in pairs)


def _lines(measured: TimedMeasurement) -> Iterator[str]:
    """Yield a line on the time of a step, and one on that of its kernels where they ran on a GPU."""
    pace = measured.pace
    fresh = f", {len(pace.fresh)} of them to confirm" if pace.fresh else ""
    pairs = f"{counted(len(pace.all_pairs), 'pair')} of processes{fresh}"
    floor = show_share(slowdown(pace.all_pairs).floor)
    yield f"    time {_movement(pace.all_pairs)}; {pairs}; processes of the same code differ by {floor}"
    if len(measured.kernels) >= LEAST_PAIRS:
        yield f"    kernel time {_movement(measured.kernels)}, as recorded in the same processes"
    for disturbance in measured.disturbed:
        yield f"    meanwhile {disturbance}"


def _movement(pairs: tuple[TimePair, ...]) -> str:
    base, here = _medians(pairs)
    found = slowdown(pairs)
    interval = f"95 % interval {found.low:+.1%} to {found.high:+.1%}"
    return f"{show_us(base)} -> {show_us(here)}, {found.share:+.1%} ({interval})"


def _why_too_few(measured: TimedMeasurement, budget_s: float) -> str:
    number = counted(len(measured.pace.pairs), "pair")
    if len(measured.lost) >= MOST_LOST:
        return f"{number} of processes, {LEAST_PAIRS} are needed: {measured.lost[-1]}"
    more = "give it more with --torchprof-against-budget, or fewer tests"
    return f"{number} of processes fit into the budget of {budget_s:g} s, {LEAST_PAIRS} are needed: {more}"


def _why_open(measured: TimedMeasurement, budget_s: float) -> str:
    pace = measured.pace
    if len(measured.lost) >= MOST_LOST:
        return f"further processes measured nothing: {measured.lost[-1]}"
    if pace.wanting:
        return f"the budget of {budget_s:g} s is spent"
    if pace.doubted:
        return f"it looked slower in {counted(len(pace.pairs), 'pair')}, and as many fresh ones did not confirm it"
    return f"so many pairs do not tell whether it is more than the {show_share(pace.allowed)} allowed"
