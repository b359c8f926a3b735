"""Where in the user's code the kernels come from that a baseline does not have."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from pytest_torchprof.baseline.entry import records
from pytest_torchprof.compare.changes import WORSE
from pytest_torchprof.text import path_from_here, printable, printable_line

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from pytest_torchprof.analysis.analysis import Analysis
    from pytest_torchprof.analysis.source_lines import Origin
    from pytest_torchprof.analysis.steps import StepProfile
    from pytest_torchprof.baseline import Entry, KernelRecord
    from pytest_torchprof.compare.changes import Change
    from pytest_torchprof.kernels.kernel import Kernel
    from pytest_torchprof.trace.metadata import GraphBreak

MOST_KERNELS: Final = 5
"""Kernels with lines below a comparison."""
MOST_PLACES: Final = 5
"""Lines for each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Blame:
    """Where in the user's code what is worse than the baseline was launched."""

    places: Mapping[Change, tuple[str, ...]] = field(default_factory=dict)
    """Lines about the places of each change."""
    first: tuple[str, int] | None = None
    """File and line of the first of them."""
    unknown: tuple[str, ...] = ()
    """Why no lines are known, a line each."""


def blame(analysis: Analysis, new: Entry, changes: Iterable[Change]) -> Blame:
    """Return where the kernels of the changes for the worse are launched.

    ``analysis`` is what ``new`` was made of. Where a step launches alike kernels one after the other, which of them is
    new cannot be known; all are named then.
    """
    steps = {records(step.kernels): step for step in reversed(analysis.steps)}
    changes = tuple(changes)
    concerned = [change for change in changes if change.direction == WORSE and change.launches]
    # Of a kernel that came and one of its like that moved, either may be the new one.
    reordered = {change.step for change in changes if change.kind == "reordered"}
    lines: dict[Change, tuple[str, ...]] = {}
    blamed: list[Origin] = []
    for change in concerned[:MOST_KERNELS]:
        step = new.steps[change.step]
        places = _places(steps[step])
        same = [at for at, kernel in enumerate(step) if kernel == step[change.launches[0]]]
        if places is None:
            # The repeat launched them in another order: which is which it does not tell.
            if anywhere := _distinct(_anywhere(steps[step], same)):
                lines[change] = (f"    {change.what} from one of: {_joined(anywhere)}",)
                blamed += anywhere
            continue
        here = _distinct(places[at] for at in change.launches)
        if not here:
            continue
        blamed += here
        lines[change] = (f"    {change.what} from: {_joined(here)}",)
        came = {at for other in concerned if other.step == change.step for at in other.launches}
        alike = same if change.step in reordered else [at for at in _places_it_could_be(step, came) if at in same]
        others = _distinct(places[at] for at in alike)
        if not set(map(str, others)) <= set(map(str, here)):
            or_another = f"or another of these {len(alike)}, which cannot be told apart"
            lines[change] += (f"      {or_another}: {_joined(others)}",)
    found = [(one.file, one.line) for one in blamed if one.file is not None]
    if breaks := next((one for one in changes if one.fails and one.what == "graph_breaks"), None):
        placed = [one for one in analysis.compile.graph_breaks or () if one.file is not None and one.line is not None]
        lines[breaks] = tuple(_break_line(one) for one in placed[:MOST_PLACES])
        found += [(str(one.file), one.line or 0) for one in placed]
    reasons = dict.fromkeys(steps[new.steps[change.step]].places.why_not for change in concerned)
    return Blame(
        places=lines,
        first=found[0] if found else None,
        unknown=tuple(f"  lines: not known: {printable_line(reason)}" for reason in reasons if reason),
    )


def _break_line(found: GraphBreak) -> str:
    place = f"{path_from_here(found.file or '')}:{found.line}" + (f" in {found.function}" if found.function else "")
    return f"    graph break at: {printable_line(f'{place}: {found.reason}')}"


def _places(step: StepProfile) -> list[Origin | None] | None:
    """Return where each kernel of a step was launched, in order; None where the places are of another order."""
    if [(kernel.name, kernel.op) for kernel in step.kernels] != list(step.places.kernels):
        return None
    launched: Counter[tuple[str, str | None]] = Counter()
    return [_place(step, kernel, launched) for kernel in step.kernels]


def _anywhere(step: StepProfile, launches: Iterable[int]) -> Iterator[Origin]:
    """Return all places at which kernels like these were launched."""
    work = {(step.kernels[at].name, step.kernels[at].op) for at in launches}
    return (origin for _, origin in step.places.of(work))


def _place(step: StepProfile, kernel: Kernel, launched: Counter[tuple[str, str | None]]) -> Origin | None:
    work = kernel.name, kernel.op
    origins_of = step.places.work.get(work, ())
    number = launched[work]
    launched[work] += 1
    return origins_of[number] if number < len(origins_of) else None


def _distinct(places: Iterable[Origin | None]) -> list[Origin]:
    """Return the places, each once as it is told."""
    return [*{str(place): place for place in places if place is not None}.values()]


def _joined(places: Sequence[Origin]) -> str:
    left_out = len(places) - MOST_PLACES
    told = (printable(str(place)) for place in places[:MOST_PLACES])
    return "; ".join(told) + (f"; and {left_out} more" if left_out > 0 else "")


def _places_it_could_be(step: Sequence[KernelRecord], came: Collection[int]) -> list[int]:
    """Return the places that what came could have, too: shifted as far as the step stays the same without it."""
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
