"""Findings about the CPU's own time: when it was held up, and when nothing is recorded."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from itertools import accumulate
from operator import itemgetter
from typing import TYPE_CHECKING

from pytest_torchprof.analysis.steps import once
from pytest_torchprof.analysis.stretches import launched_soon
from pytest_torchprof.devices.kinds import CallKind
from pytest_torchprof.findings.catalogue.silence import CpuHeldUp, NothingRecorded
from pytest_torchprof.findings.events import Events
from pytest_torchprof.findings.finding import CPU_SIDE, HOST_PACE, LAUNCHES, Finding, Rule, Threshold
from pytest_torchprof.trace import intervals
from pytest_torchprof.trace.columns import where

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from pytest_torchprof.analysis.analysis import Analysis
    from pytest_torchprof.analysis.gpu_work import GpuWork
    from pytest_torchprof.analysis.stretches import Stretch
    from pytest_torchprof.trace.columns import Calls, Ranges
    from pytest_torchprof.trace.intervals import Spans

TIMES = Threshold("times", 50.0, "what takes fifty times as long as it usually does was not at work all that time")
LEAST = Threshold("count", 5, "a single call may be slow for a reason of its own")
VIEWS = Threshold("views", 3, "a view computes nothing: where some of them take a millisecond, something else ran")
HELD = Threshold("share", 0.05, "a twentieth of the time is worth a look at what else the machine does")

SILENT = Threshold("share", 0.1, "a tenth of the time without any event is more than the Python between operators")

_MOST_OF_IT = 0.75
"""The share of the time without events that a few gaps have to hold."""

_MOST_NAMED = 50
"""How many of the longest gaps are examined for what surrounds them."""

_VIEWS = frozenset(
    f"aten::{name}"
    for name in (
        *("alias", "as_strided", "detach", "expand", "permute", "reshape", "select", "slice", "split"),
        *("split_with_sizes", "squeeze", "t", "transpose", "unsqueeze", "view"),
    )
)
_ALLOCATING = frozenset({"aten::empty", "aten::empty_strided", "aten::empty_like"})


def _held_up(analysis: Analysis, at: Mapping[Threshold, float]) -> Iterator[Finding]:
    """Find calls and operators of any kind that usually take microseconds and took a millisecond."""
    trace, work = analysis.trace, analysis.gpu_work
    slow = _held_up_in(analysis, at)
    if not slow:
        return
    longest, usual = max(slow, key=lambda pair: (pair[0].ns, -pair[0].start))
    spent = sum(stretch.ns for stretch, _ in slow) / 1000
    yield CpuHeldUp(
        time_us=spent,
        share=_share_of(analysis, slow),
        count=len(slow),
        views=_views(analysis, slow),
        longest_us=longest.ns / 1000,
        longest=trace.names[longest.name],
        usual_us=usual / 1000,
        idle_us=_idle_us(work),
        events=Events(
            calls=tuple(stretch.member for stretch, _ in slow if stretch.is_call),
            ops=tuple(dict.fromkeys(stretch.member for stretch, _ in slow if not stretch.is_call)),
        ),
        saves_us=min(spent, _idle_us(work)),
    )


def _views(analysis: Analysis, slow: Sequence[tuple[Stretch, int]]) -> int:
    names = analysis.trace.names
    return sum(not stretch.is_call and names[stretch.name] in _VIEWS for stretch, _ in slow)


def _share_of(analysis: Analysis, slow: Sequence[tuple[Stretch, int]]) -> float:
    return analysis.gpu_work.share_during(intervals.merged((stretch.start, stretch.end) for stretch, _ in slow))


def _held_up_in(analysis: Analysis, at: Mapping[Threshold, float]) -> list[tuple[Stretch, int]]:
    """Return the stretches in which the CPU was held up; none if they are too few to say so."""
    candidates = list(_candidates(analysis))
    slow = _standing_still(analysis, candidates, at[TIMES]) if len(candidates) >= at[LEAST] else []
    enough = len(slow) >= at[LEAST] and _views(analysis, slow) >= at[VIEWS]
    return slow if enough and _share_of(analysis, slow) >= at[HELD] else []


@once
def is_held_up(analysis: Analysis) -> bool:
    """Return whether the CPU seems to be held up, by the default thresholds."""
    usual = {threshold: threshold.value for threshold in (TIMES, LEAST, VIEWS, HELD)}
    return len(analysis.trace.ops) > 0 and bool(_held_up_in(analysis, usual))


def _standing_still(analysis: Analysis, candidates: Sequence[Stretch], times: float) -> list[tuple[Stretch, int]]:
    """Return the stretches that are so many times as long as usual, each with the usual length in ns."""
    trace = analysis.trace
    usual_ns = {
        (is_call, name): ns
        for is_call, columns in ((True, trace.calls), (False, trace.ops))
        for name, ns in _usual_ns(columns, {each.name for each in candidates if each.is_call is is_call}).items()
    }
    compared = [(stretch, usual_ns[stretch.is_call, stretch.name]) for stretch in candidates]
    return [(stretch, usual) for stretch, usual in compared if stretch.ns >= times * usual]


@once
def held_up(analysis: Analysis) -> Spans:
    """Return when a thread was held up."""
    slow = _standing_still(analysis, list(_candidates(analysis)), TIMES.value)
    return intervals.merged((stretch.start, stretch.end) for stretch, _ in slow)


def _candidates(analysis: Analysis) -> Iterator[Stretch]:
    """Yield the long stretches of calls that neither wait nor compute on the CPU, and are not first calls."""
    trace, work, kinds = analysis.trace, analysis.gpu_work, analysis.trace.call_kinds
    operators = {stretch.member for stretch in work.long_stretches if not stretch.is_call}
    launching = operators.intersection(analysis.launching.op_of)
    launches = [stretch for stretch in work.stretches if stretch.is_call and kinds[stretch.name] is CallKind.LAUNCH]
    at_once = {stretch.member for stretch, _ in launched_soon(work.trace, launches)}
    for stretch in work.long_stretches:
        if stretch.is_call:
            is_meant = kinds[stretch.name] in (CallKind.OTHER, CallKind.QUERY) or stretch.member in at_once
        else:
            name = trace.names[stretch.name]
            is_meant = name in _VIEWS | _ALLOCATING or name.isidentifier() or stretch.member in launching
        if (
            is_meant
            and trace.step_at(stretch.start) >= 0
            and not intervals.within(intervals.span(stretch.start, stretch.end), work.set_up.spans)
        ):
            yield stretch


def _usual_ns(columns: Calls | Ranges, names: AbstractSet[int]) -> dict[int, int]:
    """Return by name the median length of the calls or operators of these names, their children included."""
    lengths: dict[int, list[int]] = {name: [] for name in names}
    start, end, named = columns.start, columns.end, columns.name
    for i in where(named, names):
        lengths[named[i]].append(end[i] - start[i])
    return {name: sorted(several)[len(several) // 2] for name, several in lengths.items()}


def _idle_us(work: GpuWork) -> float:
    """Return the idle time of the device that idled longest: no more can be gained."""
    return work.window_us - min((intervals.length(busy) for busy in work.busy.values()), default=0) / 1000


def _nothing_recorded(analysis: Analysis, at: Mapping[Threshold, float]) -> Iterator[Finding]:
    """Find time of the window in which neither the CPU nor a GPU has any event."""
    work, gaps = analysis.gpu_work, silent_times(analysis)
    silent_ns = sum(_lengths_ns(analysis))
    silent_us = silent_ns / 1000
    if not gaps or work.share_of_window(silent_us) < at[SILENT]:
        return
    longest_first_ns = _longest_first_ns(analysis)
    few, few_ns = next(
        (count, ns) for count, ns in enumerate(accumulate(longest_first_ns), 1) if ns >= _MOST_OF_IT * silent_ns
    )
    longest = _lengths_ns(analysis).index(longest_first_ns[0])
    ((after, before),) = _operators_around(analysis, [(gaps.starts[longest], gaps.ends[longest])])
    yield NothingRecorded(
        time_us=silent_us,
        share=work.share_of_window(silent_us),
        gaps=len(gaps),
        longest_us=longest_first_ns[0] / 1000,
        few=few,
        few_us=few_ns / 1000,
        few_least_us=longest_first_ns[few - 1] / 1000,
        after=after,
        before=before,
        stacks=len(analysis.trace.frames) > 0,
        events=Events(idled=(gaps.starts, gaps.ends, [-1] * len(gaps))),
    )


def _operators_around(analysis: Analysis, gaps: Sequence[tuple[int, int]]) -> list[tuple[str | None, str | None]]:
    """Return for each gap the outermost operator that ended last before it and the one that begins first after it."""
    names, ops = analysis.trace.names, analysis.trace.ops
    by_end, by_start = _outermost_in_order(analysis)
    around: list[tuple[str | None, str | None]] = []
    for start, end in gaps:
        ended = bisect_right(by_end, start, key=ops.end.__getitem__)
        begins = bisect_left(by_start, end, key=ops.start.__getitem__)
        around.append(
            (
                names[ops.name[by_end[ended - 1]]] if ended else None,
                names[ops.name[by_start[begins]]] if begins < len(by_start) else None,
            )
        )
    return around


@once
def _outermost_in_order(analysis: Analysis) -> tuple[list[int], list[int]]:
    """Return the outermost operators by their ends, and by their starts."""
    outermost, ops = analysis.gpu_work.outermost, analysis.trace.ops
    if analysis.trace.nesting.one_after_another:
        return outermost, outermost
    return sorted(outermost, key=ops.end.__getitem__), sorted(outermost, key=ops.start.__getitem__)


def silent_place(analysis: Analysis) -> tuple[str, str] | None:
    """Return the two outermost operators between which at least half of the time without events lies, in few long gaps.

    None if there are no such operators. The program's code between them does the same each time.
    """
    gaps = silent_times(analysis)
    lengths_ns = _lengths_ns(analysis)
    least_ns = _longest_first_ns(analysis)[:_MOST_NAMED][-1] if gaps else 0
    long = [i for i, ns in enumerate(lengths_ns) if ns >= least_ns]
    longest = [
        (gaps.starts[i], gaps.ends[i]) for i in sorted(long, key=lengths_ns.__getitem__, reverse=True)[:_MOST_NAMED]
    ]
    spent: Counter[tuple[str, str]] = Counter()
    for (start, end), (after, before) in zip(longest, _operators_around(analysis, longest), strict=True):
        if after is not None and before is not None:
            spent[after, before] += end - start
    place, ns = max(spent.items(), key=itemgetter(1), default=(None, 0))
    return place if 2 * ns >= sum(lengths_ns) else None


@once
def _lengths_ns(analysis: Analysis) -> list[int]:
    """Return the lengths of the times without an event, in their order."""
    return intervals.lengths(silent_times(analysis))


@once
def _longest_first_ns(analysis: Analysis) -> list[int]:
    """Return these lengths, the longest first."""
    return sorted(_lengths_ns(analysis), reverse=True)


@once
def silent_times(analysis: Analysis) -> Spans:
    """Return when, inside the window, no event ran, not even one of the profiler's own."""
    own, unrecorded = analysis.trace.overheads, analysis.gpu_work.unrecorded
    if not len(own):
        return unrecorded
    return intervals.without(unrecorded, intervals.union(own.start, own.end))


def silent_ns(analysis: Analysis, silent: Spans) -> int:
    """Return the length of times without an event, which most often are all that there are."""
    return sum(_lengths_ns(analysis)) if silent is silent_times(analysis) else intervals.length(silent)


RULES = (
    Rule(
        code="cpu-held-up",
        find=_held_up,
        needs=(CPU_SIDE, LAUNCHES),
        thresholds=(TIMES, LEAST, VIEWS, HELD),
        explains=HOST_PACE,
    ),
    Rule(
        code="nothing-recorded",
        find=_nothing_recorded,
        needs=(CPU_SIDE,),
        thresholds=(SILENT,),
        explains=HOST_PACE,
    ),
)
