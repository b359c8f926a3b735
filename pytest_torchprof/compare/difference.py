"""Which kernels of one step are which of another's: what stayed, moved, was swapped for another, went and came."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import TYPE_CHECKING, Final, Literal, TypeVar

from pytest_torchprof.baseline.entry import STRUCTURAL, KernelRecord
from pytest_torchprof.kernels.names import without_index

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence

    Key = Callable[[KernelRecord], Hashable]


# Time and memory grow with the square of the edits where the search goes edit by edit, and with the product of the
# lengths (64 at once) where it goes bit by bit. Sequences too long for both count as having nothing in common: their
# order says nothing any more.
_MOST_EDITS: Final = 300
_MOST_BITS: Final = 2**29

T = TypeVar("T")
Stretch = tuple[range, range]
"""A stretch of the old sequence and the stretch of the new one that stands in its place; either may be empty."""
Diagonal = tuple[int, int, int]
"""Start in the old sequence, start in the new one, length of what both have."""
Trail = tuple[Diagonal, "Trail"] | None

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
    """How two steps differ; each kernel stands there as often as it is launched."""

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

    A kernel goes or comes if it is launched less or more often, wherever an alignment of the steps puts it; any other
    only moved.
    """
    were, are = keys(old, rule.same), keys(new, rule.same)
    stayed: list[Pair] = []
    blocks: list[Stretch] = []
    for (before, after), equal in stretches(were, are):
        if equal:
            stayed += zip(old[before.start : before.stop], new[after.start : after.stop], strict=True)
        else:
            blocks.append((before, after))
    losing, gaining = Counter(were) - Counter(are), Counter(are) - Counter(were)
    swaps: dict[int, int] = {}
    for before, after in blocks:
        leaving = ((i, rule.work(old[i])) for i in before if losing[were[i]])
        # Lazily: each pair leaves less to gain.
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
    return _swap_anywhere(
        Difference(
            stayed=tuple(stayed),
            moved=tuple((old[i], new[j]) for i, j in moved),
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


def _surplus(indices: Iterable[int], identities: Sequence[Hashable], surplus: Counter[Hashable]) -> list[int]:
    """Return the first launches of what there is too much of, as many of each as there are too many."""
    seen: Counter[Hashable] = Counter()
    found = []
    for index in indices:
        seen[identities[index]] += 1
        if seen[identities[index]] <= surplus[identities[index]]:
            found.append(index)
    return found


def _paired(old: Iterable[tuple[T, Hashable]], new: Iterable[tuple[T, Hashable]]) -> Iterator[tuple[T, T]]:
    """Yield what has the same key on either side, in order; both are given as (thing, key)."""
    waiting: defaultdict[Hashable, deque[T]] = defaultdict(deque)
    for one, key in old:
        waiting[key].append(one)
    for one, key in new:
        if waiting[key]:
            yield waiting[key].popleft(), one


def _swap_anywhere(delta: Difference, reasons: Iterable[Key]) -> Difference:
    """Count kernels that went and came as swapped if a reason's key is the same, wherever in the step they ran."""
    swapped, went, came = list(delta.swapped), Counter(delta.went), Counter(delta.came)
    for key in reasons:
        left, right = ([(kernel, key(kernel)) for kernel in side.elements()] for side in (went, came))
        pairs = list(_paired(left, right))
        swapped += pairs
        went.subtract(was for was, _ in pairs)
        came.subtract(now for _, now in pairs)
    return replace(delta, swapped=tuple(swapped), went=tuple(went.elements()), came=tuple(came.elements()))


def stretches(before: Sequence[Hashable], after: Sequence[Hashable]) -> Iterator[tuple[Stretch, bool]]:
    """Yield the stretches of two sequences in order, and whether they are equal."""
    numbers: dict[Hashable, int] = {}
    old, new = ([numbers.setdefault(one, len(numbers)) for one in side] for side in (before, after))
    i = j = 0
    for i_equal, j_equal, length in [*_find_common(old, new), (len(old), len(new), 0)]:
        if i < i_equal or j < j_equal:
            yield (range(i, i_equal), range(j, j_equal)), False
        i, j = i_equal + length, j_equal + length
        yield (range(i_equal, i), range(j_equal, j)), True


def _find_common(old: list[int], new: list[int]) -> list[Diagonal]:
    were, are = Counter(old), Counter(new)
    edits_at_least = ((were - are) + (are - were)).total()
    near = _common_by_edits(old, new) if edits_at_least <= _MOST_EDITS else None
    return _common_by_bits(old, new) if near is None else near


def _common_by_edits(old: list[int], new: list[int]) -> list[Diagonal] | None:
    """Return what a shortest edit script keeps, None where it is long.

    Myers, "An O(ND) difference algorithm and its variations" (1986), the greedy forward search: cheap where the two
    are nearly alike, which difflib's is not on steps that repeat one layer.
    """
    # Of each diagonal how far it is reached, and what is common on the way there, the last stretch first.
    reached: dict[int, tuple[int, Trail]] = {1: (0, None)}
    for edits in range(min(len(old) + len(new), _MOST_EDITS) + 1):
        for diagonal in range(-edits, edits + 1, 2):
            down = diagonal == -edits or (diagonal != edits and reached[diagonal - 1][0] < reached[diagonal + 1][0])
            start, path = reached[diagonal + 1] if down else reached[diagonal - 1]
            start += not down
            end = start
            while end < len(old) and end - diagonal < len(new) and old[end] == new[end - diagonal]:
                end += 1
            if end > start:
                path = ((start, start - diagonal, end - start), path)
            reached[diagonal] = end, path
            if end >= len(old) and end - diagonal >= len(new):
                return _unwind(path)
    return None


def _unwind(path: Trail) -> list[Diagonal]:
    found = []
    while path is not None:
        stretch, path = path
        found.append(stretch)
    return found[::-1]


def _common_by_bits(old: list[int], new: list[int]) -> list[Diagonal]:
    """Return a longest common subsequence of two that have little in common.

    Hyyrö, "Bit-parallel LCS-length computation revisited" (2004): a bit of a row is 0 where the common subsequence
    with the new sequence up to that row grows by that kernel of the old one.
    """
    if len(old) * len(new) > _MOST_BITS:
        return []
    places: dict[int, int] = {}
    for i, one in enumerate(old):
        places[one] = places.get(one, 0) | 1 << i
    every = (1 << len(old)) - 1
    rows = [every]
    for one in new:
        row = rows[-1]
        matching = row & places.get(one, 0)
        rows.append(((row + matching) | (row - matching)) & every)
    found: list[Diagonal] = []
    i, j = len(old), len(new)
    while i and j:
        if rows[j] >> (i - 1) & 1:
            i -= 1
        elif not rows[j - 1] >> (i - 1) & 1:
            j -= 1
        else:
            i, j = i - 1, j - 1
            if found and found[-1][:2] == (i + 1, j + 1):
                found[-1] = (i, j, found[-1][2] + 1)
            else:
                found.append((i, j, 1))
    return found[::-1]
