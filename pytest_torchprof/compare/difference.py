"""Which kernels of one step are which of another's: what stayed, moved, was swapped for another, went and came."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import TYPE_CHECKING, Final, Literal

from pytest_torchprof.baseline.alignment import stretches
from pytest_torchprof.baseline.entry import STRUCTURAL, KernelRecord
from pytest_torchprof.kernels.names import without_index

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence

    Key = Callable[[KernelRecord], Hashable]


Names = Literal["normal", "exact", "structure"]
"""What makes two kernels the same: identity, raw name, or family, dtype and layout alone (other software)."""
Step = tuple[KernelRecord, ...]
Pair = tuple[KernelRecord, KernelRecord]


@dataclass(frozen=True, slots=True, kw_only=True)
class IdentityRule:
    """One way to tell kernels apart."""

    same: Key
    """What makes two kernels the same."""
    work: Key
    """What lets one kernel stand in another's place."""
    anywhere: tuple[Key, ...] = ()
    """What lets it do so wherever in the step it is launched, the best reason first."""
    alike: Key
    """By what a step's counterpart in the other measurement is chosen."""


def _kind_of_work(kernel: KernelRecord) -> Hashable:
    return (kernel.family, kernel.helper)


def _work(kernel: KernelRecord) -> Hashable:
    return (_kind_of_work(kernel), None if kernel.family in STRUCTURAL else kernel.op)


_IDENTITY: Final[Key] = attrgetter("identity")
_STRUCTURE: Final[Key] = attrgetter("structure")

RULES: Final[dict[Names, IdentityRule]] = {
    "normal": IdentityRule(same=_IDENTITY, work=_work, alike=_IDENTITY),
    "exact": IdentityRule(same=attrgetter("name", "dtype", "layout"), work=_work, alike=_IDENTITY),
    # Kernels that kept their names are the same; of the others, only how many there are of each structure counts.
    "structure": IdentityRule(same=_IDENTITY, work=_STRUCTURE, anywhere=(_STRUCTURE, _kind_of_work), alike=_STRUCTURE),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """What there is to say about two steps; each kernel as often as it is launched."""

    stayed: tuple[Pair, ...]
    """The same kernel in the same place, perhaps under another name."""
    moved: tuple[Pair, ...]
    """The same kernel elsewhere in the step."""
    swapped: tuple[Pair, ...]
    """Another kernel that does the same kind of work in its place."""
    went: Step
    """What has no counterpart in the new step."""
    came: Step
    places: tuple[tuple[Step, Step], ...]
    """The same changes by their place in the step: what stood there, what stands there now."""

    @property
    def renamed(self) -> Counter[Pair]:
        """The kernels that count as the same under another name, Triton's index apart, and how often each."""
        pairs = Counter(pair for pair in (*self.stayed, *self.moved) if pair[0].name != pair[1].name)
        for was, now in list(pairs):
            if without_index(was.name) == without_index(now.name):
                del pairs[was, now]
        return pairs


def difference(old: Step, new: Step, rule: IdentityRule) -> Difference:
    """Compare two steps.

    What is launched less or more often goes or comes, wherever an alignment of the two puts it; the rest only moved.
    """
    were, are = keys(old, rule.same), keys(new, rule.same)
    stayed: list[Pair] = []
    blocks: list[tuple[range, range]] = []
    for (before, after), equal in stretches(were, are):
        if equal:
            stayed += zip(old[before.start : before.stop], new[after.start : after.stop], strict=True)
        else:
            blocks.append((before, after))
    losing, gaining = Counter(were) - Counter(are), Counter(are) - Counter(were)
    swaps: dict[int, int] = {}
    for before, after in blocks:
        leaving = [(i, rule.work(old[i]), were[i]) for i in before if losing[were[i]]]
        coming = [(j, rule.work(new[j]), are[j]) for j in after if gaining[are[j]]]
        swaps.update(_swaps(leaving, coming, losing, gaining))
    swapped_in = set(swaps.values())
    rest_of_old = (i for before, _ in blocks for i in before if i not in swaps)
    rest_of_new = (j for _, after in blocks for j in after if j not in swapped_in)
    went, moved_from = _split_surplus(rest_of_old, were, losing)
    came, moved_to = _split_surplus(rest_of_new, are, gaining)
    leaves, comes = {*went, *swaps}, {*came, *swapped_in}
    places = (
        (tuple(old[i] for i in before if i in leaves), tuple(new[j] for j in after if j in comes))
        for before, after in blocks
    )
    return _swap_anywhere(
        Difference(
            stayed=tuple(stayed),
            moved=tuple((old[i], new[j]) for i, j in _match(moved_from, moved_to, were, are)),
            swapped=tuple((old[i], new[j]) for i, j in swaps.items()),
            went=tuple(old[i] for i in went),
            came=tuple(new[j] for j in came),
            places=tuple(place for place in places if any(place)),
        ),
        rule.anywhere,
    )


def keys(step: Step, key: Key) -> list[Hashable]:
    """Return what ``key`` says of each kernel of a step, worked out once for each distinct one."""
    known = {kernel: key(kernel) for kernel in dict.fromkeys(step)}
    return [known[kernel] for kernel in step]


def most_alike(step: Step, others: Iterable[Step], rule: IdentityRule) -> Step:
    """Return which of the other measurement's steps a step is compared with: the first that differs least."""
    here = Counter(map(rule.alike, step))

    def unlike(other: Step) -> int:
        there = Counter(map(rule.alike, other))
        return ((here - there) + (there - here)).total()

    return min(others, key=unlike)


def _swaps(
    leaving: Iterable[tuple[int, Hashable, Hashable]],
    coming: Iterable[tuple[int, Hashable, Hashable]],
    losing: Counter[Hashable],
    gaining: Counter[Hashable],
) -> Iterator[tuple[int, int]]:
    """Yield which kernels of one place do the work of which; each is given as (index, work, identity)."""
    waiting: defaultdict[Hashable, deque[tuple[int, Hashable]]] = defaultdict(deque)
    for i, work, was in leaving:
        waiting[work].append((i, was))
    for j, work, now in coming:
        if gaining[now] and waiting[work] and losing[waiting[work][0][1]]:
            i, was = waiting[work].popleft()
            losing[was] -= 1
            gaining[now] -= 1
            yield i, j


def _split_surplus(
    indices: Iterable[int], identities: Sequence[Hashable], surplus: Counter[Hashable]
) -> tuple[list[int], list[int]]:
    """Return the first launches of what there is too much of, and the others."""
    first: list[int] = []
    others: list[int] = []
    for index in indices:
        is_surplus = surplus[identities[index]] > 0
        surplus[identities[index]] -= is_surplus
        (first if is_surplus else others).append(index)
    return first, others


def _match(
    old: Iterable[int], new: Iterable[int], were: Sequence[Hashable], are: Sequence[Hashable]
) -> Iterator[tuple[int, int]]:
    waiting: defaultdict[Hashable, deque[int]] = defaultdict(deque)
    for i in old:
        waiting[were[i]].append(i)
    for j in new:
        yield waiting[are[j]].popleft(), j


def _swap_anywhere(delta: Difference, reasons: Iterable[Key]) -> Difference:
    """Take what went and what came as swapped where a reason's key is the same, wherever in the step it was."""
    swapped, went, came = list(delta.swapped), Counter(delta.went), Counter(delta.came)
    for key in reasons:
        waiting: defaultdict[Hashable, deque[KernelRecord]] = defaultdict(deque)
        for kernel in went.elements():
            waiting[key(kernel)].append(kernel)
        for kernel in list(came.elements()):
            if waiting[key(kernel)]:
                was = waiting[key(kernel)].popleft()
                swapped.append((was, kernel))
                went[was] -= 1
                came[kernel] -= 1
    return replace(delta, swapped=tuple(swapped), went=tuple(went.elements()), came=tuple(came.elements()))
