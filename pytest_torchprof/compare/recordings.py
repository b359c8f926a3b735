"""Two recordings of the same code compared: kernel by kernel, by their numbers, and by what they cost."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from pytest_torchprof.baseline.entry import records
from pytest_torchprof.compare.change import TWO_FILES, Change, OtherEnvironment
from pytest_torchprof.compare.comparison import Comparison, verdict_of
from pytest_torchprof.compare.cost import cost_of, exchanged
from pytest_torchprof.compare.difference import RULES, difference
from pytest_torchprof.compare.family_words import kind_of
from pytest_torchprof.compare.kernel_changes import reordering
from pytest_torchprof.compare.number_changes import median_changes
from pytest_torchprof.compare.origins import with_replay
from pytest_torchprof.compare.sameness import work_on_the_same
from pytest_torchprof.kernels.names import without_index
from pytest_torchprof.kernels.operand_types import recorded_types
from pytest_torchprof.kernels.reply import NO
from pytest_torchprof.reasons.composed import OfRecording
from pytest_torchprof.reasons.errors import NotMeasured

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pytest_torchprof.analysis.analysis import Analysis
    from pytest_torchprof.analysis.steps import StepProfile
    from pytest_torchprof.compare.change import Sides
    from pytest_torchprof.compare.difference import Difference

    Kinds = Mapping[StepProfile, frozenset[tuple[tuple[str, str | None], int]]]


def diff(before: Analysis, after: Analysis, sides: Sides = TWO_FILES) -> Comparison:
    """Compare two recordings of the same code, called as ``sides`` says; numbers are the medians over their steps.

    NotMeasured if one of them cannot be trusted.
    """
    for analysis in (before, after):
        if reason := analysis.doubt or analysis.kernels_unknown:
            raise NotMeasured(OfRecording(str(analysis.trace.path or ""), reason))
    kinds = _kinds((*before.steps, *after.steps))
    first, second = _compared_steps(before.steps, after.steps, kinds)
    delta = difference(records(first.kernels), records(second.kernels), RULES["normal"])
    differ = kinds[first] != kinds[second] or any(work_on_the_same(*pair) is NO for pair in delta.swapped)
    most = {max(analysis.steps, key=_count_kernels) for analysis in (before, after)}
    kernels = (with_replay(change, second) for change in _kernel_changes(delta))
    changes = (*kernels, *median_changes(before, after))
    sampled = (before.trace.samples_hardware, after.trace.samples_hardware)
    alike = (_steps_alike(first, before.steps, kinds), _steps_alike(second, after.steps, kinds))
    return Comparison(
        verdict=verdict_of(changes),
        kernels_differ=differ,
        changes=changes,
        environment=_other_devices(before, after, sides),
        same=dict(Counter(kind_of(kernel) for kernel, _ in (*delta.stayed, *delta.moved))),
        of_recordings=True,
        exchanged=exchanged(records(first.kernels), records(second.kernels)) if any(sampled) else (),
        cost=None if any(sampled) else cost_of(before, after, alike),
        steps=(first.name, second.name) if differ and {first, second} != most else None,
        sides=sides,
        sampled=sampled,
    )


def _kernel_changes(delta: Difference) -> Iterator[Change]:
    """Yield the replacements, then the renamings, then a change that says that kernels moved."""
    for (went, came), count in Counter(delta.places).items():
        yield Change(kind="replaced", what=(came or went)[0].short, before=went, after=came, times=count)
    renamed: dict[tuple[str, str], Change] = {}
    for (was, now), count in delta.renamed.items():
        names = was.name, now.name
        times = count + (renamed[names].times if names in renamed else 0)
        renamed[names] = Change(kind="renamed", what=now.short, before=(was,), after=(now,), times=times)
    yield from renamed.values()
    if delta.moved:
        yield reordering(delta)


def _compared_steps(
    before: Sequence[StepProfile], after: Sequence[StepProfile], kinds: Kinds
) -> tuple[StepProfile, StepProfile]:
    """Return the steps to compare: those with most kernels, or the first that the other measurement does not have.

    The order of the steps does not matter; how often each occurs counts only if there are as many on either side.
    """
    first, second = max(before, key=_count_kernels), max(after, key=_count_kernels)
    left, right = (Counter(kinds[step] for step in steps) for steps in (before, after))
    if len(before) != len(after):
        left, right = Counter(set(left)), Counter(set(right))
    alone, new = left - right, right - left
    if not alone and not new:
        return first, next(step for step in after if kinds[step] == kinds[first])
    if kinds[first] != kinds[second]:
        return first, second
    return (
        next((step for step in before if kinds[step] in alone), first),
        next((step for step in after if kinds[step] in new), second),
    )


def _steps_alike(step: StepProfile, others: Sequence[StepProfile], kinds: Kinds) -> Sequence[StepProfile]:
    """Return the steps that run the same kernels as ``step``."""
    return [other for other in others if kinds[other] == kinds[step]]


def _count_kernels(step: StepProfile) -> int:
    return len(step.kernels)


def _kinds(steps: Sequence[StepProfile]) -> Kinds:
    """Return how many kernels of each name and types each step runs; only by name if some types are unknown.

    One of two recordings may hold no operands.
    """
    counted = {
        step: Counter((without_index(kernel.name), recorded_types(kernel)) for kernel in step.kernels) for step in steps
    }
    of_unknown_types = {name for counts in counted.values() for name, types in counts if types is None}
    kinds = {}
    for step, counts in counted.items():
        kernels: Counter[tuple[str, str | None]] = Counter()
        for (name, types), count in counts.items():
            kernels[name, None if name in of_unknown_types else types] += count
        kinds[step] = frozenset(kernels.items())
    return kinds


def _other_devices(before: Analysis, after: Analysis, sides: Sides) -> OtherEnvironment | None:
    first, second = (
        ", ".join(dict.fromkeys(device.name for device in analysis.trace.devices if device.name))
        for analysis in (before, after)
    )
    if not first or not second or first == second:
        return None
    return OtherEnvironment(sides=sides, keys=("gpu",), old={"gpu": first}, new={"gpu": second})
