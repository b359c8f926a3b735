"""The difference of two steps as sequences of kernels in launch order."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator, Sequence

    from pytest_torchprof.baseline.model import Row

# Steps further apart than this many single edits are compared by counts alone: their order says nothing any more, and
# the search costs the square of it (1,000 edits: about a second).
_MOST_EDITS: Final = 1000

Block = tuple[range, range]
"""A stretch of the old step and the stretch of the new one that stands in its place; either may be empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """What there is to say about two steps."""

    lost: Counter[Row] = field(default_factory=Counter)
    """Launches that have no counterpart in the new step."""
    gained: Counter[Row] = field(default_factory=Counter)
    replaced: Counter[tuple[Row, Row]] = field(default_factory=Counter)
    """Launches in whose place another kernel does the same kind of work."""
    renamed: Counter[tuple[Row, Row]] = field(default_factory=Counter)
    """Launches of what counts as the same kernel under another name."""
    moved: Counter[Row] = field(default_factory=Counter)
    """Launches that are there still, elsewhere in the step."""


def difference(
    old: Sequence[Row], new: Sequence[Row], same: Callable[[Row], Hashable], work: Callable[[Row], Hashable]
) -> Difference:
    """Compare two steps.

    Kernels for which ``same`` returns the same value are the same kernel; those with the same ``work`` can take each
    other's place.
    """
    made = Difference()
    were, are = [same(row) for row in old], [same(row) for row in new]
    # What is launched less or more often is lost or gained, wherever the edit script puts it; the rest only moved.
    losing, gaining = Counter(were) - Counter(are), Counter(are) - Counter(were)
    left_old: list[int] = []
    left_new: list[int] = []
    for (before, after), equal in _blocks(were, are):
        if equal:
            pairs = ((old[i], new[j]) for i, j in zip(before, after, strict=True))
            made.renamed.update((was, now) for was, now in pairs if was.name != now.name)
            continue
        waiting: defaultdict[Hashable, deque[int]] = defaultdict(deque)
        for i in before:
            if losing[were[i]]:
                waiting[work(old[i])].append(i)
        taken: set[int] = set()
        for j in after:
            candidates = waiting[work(new[j])] if gaining[are[j]] else ()
            if candidates and losing[were[candidates[0]]]:
                i = candidates.popleft()
                taken.add(i)
                losing[were[i]] -= 1
                gaining[are[j]] -= 1
                made.replaced[old[i], new[j]] += 1
            else:
                left_new.append(j)
        left_old += [i for i in before if i not in taken]
    _settle_the_rest(made, [(were[i], old[i]) for i in left_old], [(are[j], new[j]) for j in left_new], losing, gaining)
    return made


def _settle_the_rest(
    made: Difference,
    left_old: list[tuple[Hashable, Row]],
    left_new: list[tuple[Hashable, Row]],
    losing: Counter[Hashable],
    gaining: Counter[Hashable],
) -> None:
    moved_from: defaultdict[Hashable, deque[Row]] = defaultdict(deque)
    for token, row in left_old:
        if losing[token]:
            losing[token] -= 1
            made.lost[row] += 1
        else:
            moved_from[token].append(row)
    for token, row in left_new:
        if gaining[token]:
            gaining[token] -= 1
            made.gained[row] += 1
            continue
        made.moved[row] += 1
        was = moved_from[token].popleft()
        if was.name != row.name:
            made.renamed[was, row] += 1


def pair_anywhere(found: Difference, key: Callable[[Row], Hashable]) -> None:
    """Take what is lost and what is gained as replaced where ``key`` is the same, wherever in the step it is."""
    waiting: defaultdict[Hashable, deque[Row]] = defaultdict(deque)
    for row in found.lost.elements():
        waiting[key(row)].append(row)
    for row in list(found.gained.elements()):
        if waiting[key(row)]:
            was = waiting[key(row)].popleft()
            found.replaced[was, row] += 1
            found.lost[was] -= 1
            found.gained[row] -= 1
    for counts in (found.lost, found.gained):
        for row in [row for row, times in counts.items() if not times]:
            del counts[row]


def _blocks(were: Sequence[Hashable], are: Sequence[Hashable]) -> Iterator[tuple[Block, bool]]:
    """Return the stretches of two sequences in order, and whether they are equal."""
    i = j = 0
    for i_equal, j_equal, length in [*_equal_stretches(were, are), (len(were), len(are), 0)]:
        if i < i_equal or j < j_equal:
            yield (range(i, i_equal), range(j, j_equal)), False
        i, j = i_equal + length, j_equal + length
        yield (range(i_equal, i), range(j_equal, j)), True


def _equal_stretches(were: Sequence[Hashable], are: Sequence[Hashable]) -> list[tuple[int, int, int]]:
    """Return (start in old, start in new, length) of what a shortest edit script keeps.

    Myers, "An O(ND) difference algorithm and its variations" (1986), the greedy forward search: cheap where the two
    are nearly alike, which difflib's is not on steps that repeat one layer.
    """
    reach = {1: 0}
    history: list[dict[int, int]] = []
    for edits in range(min(len(were) + len(are), _MOST_EDITS) + 1):
        history.append(dict(reach))
        for diagonal in range(-edits, edits + 1, 2):
            i = _start(reach, diagonal, edits)
            j = i - diagonal
            while i < len(were) and j < len(are) and were[i] == are[j]:
                i += 1
                j += 1
            reach[diagonal] = i
            if i >= len(were) and j >= len(are):
                return _walk_back(history, diagonal, len(were))
    return []


def _start(reach: dict[int, int], diagonal: int, edits: int) -> int:
    """Return where on ``diagonal`` the search stands after one more edit."""
    if diagonal == -edits or (diagonal != edits and reach[diagonal - 1] < reach[diagonal + 1]):
        return reach[diagonal + 1]
    return reach[diagonal - 1] + 1


def _walk_back(history: list[dict[int, int]], diagonal: int, end: int) -> list[tuple[int, int, int]]:
    stretches = []
    for edits in range(len(history) - 1, -1, -1):
        reach = history[edits]
        start = _start(reach, diagonal, edits)
        if end > start:
            stretches.append((start, start - diagonal, end - start))
        if edits == 0:
            break
        down = diagonal == -edits or (diagonal != edits and reach[diagonal - 1] < reach[diagonal + 1])
        diagonal += 1 if down else -1
        end = reach[diagonal]
    return stretches[::-1]
