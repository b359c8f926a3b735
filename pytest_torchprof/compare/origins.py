"""The places in the user's code at which the kernels are launched that a baseline does not have."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from pytest_torchprof.baseline.entry import records
from pytest_torchprof.compare.change import WORSE, LaunchPlaces

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from pytest_torchprof.analysis.analysis import Analysis
    from pytest_torchprof.analysis.origin import Origin
    from pytest_torchprof.analysis.steps import StepProfile
    from pytest_torchprof.baseline import Entry, KernelRecord
    from pytest_torchprof.compare.change import Change
    from pytest_torchprof.compare.comparison import Comparison
    from pytest_torchprof.kernels.kernel import Kernel
    from pytest_torchprof.reasons.reason import Reason

MOST_KERNELS: Final = 40
"""The most kernels whose places are looked up for one comparison."""


class Blame(Struct, frozen=True, kw_only=True):
    """The places in the user's code that launch the kernels for which a test is worse than its baseline."""

    comparison: Comparison
    """The comparison, whose changes have their places."""
    first: tuple[str, int] | None = None
    """File and line of the first place."""
    sure: tuple[str, int] | None = None
    """File and line of the first place that launched what is worse for sure, or broke the graph."""
    unknown: tuple[Reason, ...] = ()
    """Why the places of some changes are not known."""


def blame(analysis: Analysis, new: Entry, comparison: Comparison) -> Blame:
    """Return the comparison with the places at which the kernels of its changes for the worse are launched.

    ``new`` was made from ``analysis``. If a step launches several kernels of one kind in a row, it cannot be
    known which of them is new; all are named then.
    """
    steps = {records(step.kernels): step for step in reversed(analysis.steps)}
    concerned = [change for change in comparison.changes if change.direction == WORSE and change.launches]
    located = {change: with_replay(change, steps[new.steps[change.step]]) for change in concerned}
    for change in concerned[:MOST_KERNELS]:
        step = new.steps[change.step]
        if (launched := _launch_places(change, step, steps[step], comparison.changes)) is not None:
            located[change] = replace(located[change], launched=launched)
    launches = [change.launched for change in located.values() if change.launched]
    first, sure = _lines(launches), _lines([launched for launched in launches if launched.is_sure])
    if broken := next(
        (change for change in comparison.changes if change.fails and change.what == "graph_breaks"), None
    ):
        breaks = [
            place for place in analysis.compile.graph_breaks or () if place.file is not None and place.line is not None
        ]
        located[broken] = replace(broken, breaks=tuple(breaks))
        # Where a graph breaks, other kernels run: the break is their cause.
        broken_at = [(str(place.file), place.line or 0) for place in breaks]
        first, sure = broken_at + first, broken_at + sure
    reasons = dict.fromkeys(steps[new.steps[change.step]].places.why_not for change in concerned)
    return Blame(
        comparison=replace(comparison, changes=tuple(located.get(change, change) for change in comparison.changes)),
        first=first[0] if first else None,
        sure=sure[0] if sure else None,
        unknown=tuple(reason for reason in reasons if reason),
    )


def _lines(launches: Iterable[LaunchPlaces]) -> list[tuple[str, int]]:
    """Return the files and lines of places, as far as their files are known."""
    places = (place for launched in launches for place in launched.places)
    return [(place.file, place.line) for place in places if place.file is not None]


def with_replay(change: Change, step: StepProfile) -> Change:
    """Return the change of a step, with whether a replay launched those of its kernels that have no operator."""
    if not (names := {kernel.name for kernel in change.after if kernel.op is None}):
        return change
    replayed = {kernel.name for kernel in step.kernels if kernel.in_graph and kernel.op is None}
    return replace(change, replayed=True) if names <= replayed else change


def _launch_places(
    change: Change, step: Sequence[KernelRecord], profile: StepProfile, changes: Sequence[Change]
) -> LaunchPlaces | None:
    """Return the places at which the kernels of a change are launched; None if they are not known."""
    places = _places(profile)
    same = [at for at, kernel in enumerate(step) if kernel == step[change.launches[0]]]
    if places is None:
        # The repeat launched them in another order, so it does not show which kernel is which.
        anywhere = _distinct(_all_places(profile, same))
        return LaunchPlaces(places=anywhere, certain=False) if anywhere else None
    here = _distinct(places[at] for at in change.launches)
    if not here:
        return None
    in_step = [other for other in changes if other.step == change.step]
    # If one kernel came and another of its kind moved, either may be the new one.
    if any(other.kind == "reordered" for other in in_step):
        alike = same
    else:
        came = {at for other in in_step if other.direction == WORSE for at in other.launches}
        alike = [at for at in _possible_indices(step, came) if at in same]
    others = _distinct(places[at] for at in alike)
    if {*map(str, others)} <= {*map(str, here)}:
        return LaunchPlaces(places=here)
    return LaunchPlaces(places=here, others=others, alike=len(alike))


def _places(step: StepProfile) -> list[Origin | None] | None:
    """Return the place of each kernel of a step, in order; None if the repeat launched them in another order."""
    if [(kernel.name, kernel.op) for kernel in step.kernels] != list(step.places.kernels):
        return None
    launched: Counter[tuple[str, str | None]] = Counter()
    return [_place(step, kernel, launched) for kernel in step.kernels]


def _all_places(step: StepProfile, launches: Iterable[int]) -> Iterator[Origin]:
    """Return all places at which kernels like these were launched."""
    work = {(step.kernels[at].name, step.kernels[at].op) for at in launches}
    return (origin for _, origin in step.places.of(work))


def _place(step: StepProfile, kernel: Kernel, launched: Counter[tuple[str, str | None]]) -> Origin | None:
    work = kernel.name, kernel.op
    origins_of = step.places.work.get(work, ())
    number = launched[work]
    launched[work] += 1
    return origins_of[number] if number < len(origins_of) else None


def _distinct(places: Iterable[Origin | None]) -> tuple[Origin, ...]:
    """Return the places, each printed form once."""
    return (*{str(place): place for place in places if place is not None}.values(),)


def _possible_indices(step: Sequence[KernelRecord], came: Collection[int]) -> list[int]:
    """Return the other indices that new kernels could have: shifted as far as the rest of the step stays the same."""
    could_be: set[int] = set()
    for first in (at for at in came if at - 1 not in came):
        begin, end = first, next(at for at in range(first, len(step) + 1) if at not in came)
        length = end - begin
        while begin and step[begin - 1] == step[begin - 1 + length]:
            begin -= 1
        while end < len(step) and step[end] == step[end - length]:
            end += 1
        could_be.update(range(begin, end))
    return sorted(could_be)
