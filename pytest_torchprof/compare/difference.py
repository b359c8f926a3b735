"""The correspondence of the kernels of two steps: those that stayed, moved, were swapped for others, went and came."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from operator import attrgetter
from typing import TYPE_CHECKING, Final, Literal, TypeVar

from msgspec import Struct

from pytest_torchprof.baseline.alignment import stretches
from pytest_torchprof.baseline.entry import STRUCTURAL, KernelRecord
from pytest_torchprof.kernels.names import without_index

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence

    Key = Callable[[KernelRecord], Hashable]


T = TypeVar("T")
Names = Literal["normal", "exact", "structure"]
"""The facts that make two kernels the same: identity, raw name, or only family, dtype and layout (other software)."""
Step = tuple[KernelRecord, ...]
Pair = tuple[KernelRecord, KernelRecord]


class IdentityRule(Struct, frozen=True, kw_only=True):
    """One rule by which kernels are the same or different."""

    same: Key
    """The key that the same kernels share."""
    work: Key
    """The key that a kernel shares with one that replaces it at the same position."""
    anywhere: tuple[Key, ...] = ()
    """The keys that it shares with one that replaces it at any position in the step, the best reason first."""
    alike: Key
    """The key by which a step's counterpart in the other measurement is chosen."""


def _kind_of_work(kernel: KernelRecord) -> Hashable:
    return (kernel.family, kernel.helper)


def _work(kernel: KernelRecord) -> Hashable:
    return (_kind_of_work(kernel), None if kernel.family in STRUCTURAL else kernel.op)


_IDENTITY: Final[Key] = attrgetter("identity")
_STRUCTURE: Final[Key] = attrgetter("structure")

RULES: Final[dict[Names, IdentityRule]] = {
    "normal": IdentityRule(same=_IDENTITY, work=_work, alike=_IDENTITY),
    "exact": IdentityRule(same=attrgetter("name", "dtype", "layout", "operands"), work=_work, alike=_IDENTITY),
    # Kernels that kept their names are the same; for the others, only their number by structure counts.
    "structure": IdentityRule(same=_IDENTITY, work=_STRUCTURE, anywhere=(_STRUCTURE, _kind_of_work), alike=_STRUCTURE),
}


class Difference(Struct, frozen=True, kw_only=True):
    """How two steps differ; each kernel is counted as often as it is launched."""

    stayed: tuple[Pair, ...]
    """The same kernel at the same position, perhaps under another name."""
    moved: tuple[Pair, ...]
    """The same kernel elsewhere in the step."""
    swapped: tuple[Pair, ...]
    """Another kernel that does the same kind of work at its position."""
    went: Step
    """The kernels without a counterpart in the new step."""
    came: Step
    swapped_at: tuple[int, ...]
    """The index in the new step of the new kernel of each pair in ``swapped``."""
    came_at: tuple[int, ...]
    places: tuple[tuple[Step, Step], ...]
    """The same changes by their position in the step: the kernels that were there, and those that are there now."""

    @property
    def renamed(self) -> Counter[Pair]:
        """The kernels that count as the same under another name, apart from Triton's index, with their numbers."""
        pairs = Counter(pair for pair in (*self.stayed, *self.moved) if pair[0].name != pair[1].name)
        for was, now in list(pairs):
            if without_index(was.name) == without_index(now.name):
                del pairs[was, now]
        return pairs


def difference(old: Step, new: Step, rule: IdentityRule) -> Difference:
    """Return how two steps differ by a rule.

    A kernel has gone or come if it is launched less or more often, wherever an alignment of the steps puts it;
    otherwise it only moved.
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
        leaving = ((i, rule.work(old[i])) for i in before if losing[were[i]])
        # Lazily, since each pair leaves less to gain.
        coming = ((j, rule.work(new[j])) for j in after if gaining[are[j]])
        for i, j in _paired(leaving, coming):
            if losing[were[i]] and gaining[are[j]]:
                losing[were[i]] -= 1
                gaining[are[j]] -= 1
                swaps[i] = j
    swapped_in = set(swaps.values())
    rest_of_old = [i for before, _ in blocks for i in before if i not in swaps]
    rest_of_new = [j for _, after in blocks for j in after if j not in swapped_in]
    went, came = _surplus(rest_of_old, were, losing), _surplus(rest_of_new, are, gaining)
    leaves, comes = {*went, *swaps}, {*came, *swapped_in}
    places = (
        (tuple(old[i] for i in before if i in leaves), tuple(new[j] for j in after if j in comes))
        for before, after in blocks
    )
    moved = _paired(
        ((i, were[i]) for i in rest_of_old if i not in leaves), ((j, are[j]) for j in rest_of_new if j not in comes)
    )
    # The best reason first, at any position in the step.
    went_by_kernel, came_by_kernel = _group(went, old), _group(came, new)
    for key in rule.anywhere:
        leaving = ((i, key(old[i])) for i in went_by_kernel if i not in swaps)
        coming = ((j, key(new[j])) for j in came_by_kernel if j not in swapped_in)
        swaps.update([*_paired(leaving, coming)])
        swapped_in = set(swaps.values())
    came_at = tuple(j for j in came if j not in swapped_in)
    return Difference(
        stayed=tuple(stayed),
        moved=tuple((old[i], new[j]) for i, j in moved),
        swapped=tuple((old[i], new[j]) for i, j in swaps.items()),
        went=tuple(old[i] for i in went if i not in swaps),
        came=tuple(new[j] for j in came_at),
        swapped_at=tuple(swaps.values()),
        came_at=came_at,
        places=tuple(place for place in places if any(place)),
    )


def keys(step: Step, key: Key) -> list[Hashable]:
    """Return the ``key`` of each kernel of a step, computed once for each distinct kernel."""
    known = {kernel: key(kernel) for kernel in dict.fromkeys(step)}
    return [known[kernel] for kernel in step]


def most_alike(step: Step, others: Iterable[Step], rule: IdentityRule) -> Step:
    """Return the step of the other measurement that a step is compared with: the first that differs least."""
    here = Counter(map(rule.alike, step))

    def unlike(other: Step) -> int:
        there = Counter(map(rule.alike, other))
        return ((here - there) + (there - here)).total()

    return min(others, key=unlike)


def _surplus(indices: Iterable[int], identities: Sequence[Hashable], surplus: Counter[Hashable]) -> list[int]:
    """Return the first launches of each surplus kernel, as many as are surplus."""
    seen: Counter[Hashable] = Counter()
    surplus_indices = []
    for index in indices:
        seen[identities[index]] += 1
        if seen[identities[index]] <= surplus[identities[index]]:
            surplus_indices.append(index)
    return surplus_indices


def _group(indices: Iterable[int], step: Step) -> list[int]:
    """Return the launches with those of each kernel adjacent, so that as few kernels as possible are swapped."""
    groups: defaultdict[KernelRecord, list[int]] = defaultdict(list)
    for index in indices:
        groups[step[index]].append(index)
    return [index for group in groups.values() for index in group]


def _paired(old: Iterable[tuple[T, Hashable]], new: Iterable[tuple[T, Hashable]]) -> Iterator[tuple[T, T]]:
    """Yield the pairs with the same key on either side, in order; both sides are given as (thing, key)."""
    waiting: defaultdict[Hashable, deque[T]] = defaultdict(deque)
    for item, key in old:
        waiting[key].append(item)
    for item, key in new:
        if waiting[key]:
            yield waiting[key].popleft(), item
