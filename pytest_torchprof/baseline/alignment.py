"""The alignment of two sequences: which stretches they have in common."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Sequence

# Searching edit by edit costs the square of the edits, bit by bit the product of the lengths, in time (64 at once) and
# in memory. Of sequences that are too long for either nothing is in common: their order says nothing any more.
_MOST_EDITS: Final = 300
_MOST_BITS: Final = 2**29

Stretch = tuple[range, range]
"""A stretch of the old sequence and the stretch of the new one that stands in its place; either may be empty."""
Diagonal = tuple[int, int, int]
"""Start in the old sequence, start in the new one, length of what both have."""


def stretches(before: Sequence[Hashable], after: Sequence[Hashable]) -> Iterator[tuple[Stretch, bool]]:
    """Yield the stretches of two sequences in order, and whether they are equal."""
    numbers: dict[Hashable, int] = {}
    old, new = ([numbers.setdefault(one, len(numbers)) for one in side] for side in (before, after))
    i = j = 0
    for i_equal, j_equal, length in [*_common(old, new), (len(old), len(new), 0)]:
        if i < i_equal or j < j_equal:
            yield (range(i, i_equal), range(j, j_equal)), False
        i, j = i_equal + length, j_equal + length
        yield (range(i_equal, i), range(j_equal, j)), True


def _common(old: list[int], new: list[int]) -> list[Diagonal]:
    were, are = Counter(old), Counter(new)
    edits_at_least = ((were - are) + (are - were)).total()
    near = _common_of_near(old, new) if edits_at_least <= _MOST_EDITS else None
    return _common_of_far(old, new) if near is None else near


def _common_of_near(old: list[int], new: list[int]) -> list[Diagonal] | None:
    """Return what a shortest edit script keeps, None where it is long.

    Myers, "An O(ND) difference algorithm and its variations" (1986), the greedy forward search: cheap where the two
    are nearly alike, which difflib's is not on steps that repeat one layer.
    """
    reach = {1: 0}
    history: list[dict[int, int]] = []
    for edits in range(min(len(old) + len(new), _MOST_EDITS) + 1):
        history.append(dict(reach))
        for diagonal in range(-edits, edits + 1, 2):
            i = _start(reach, diagonal, edits)
            j = i - diagonal
            while i < len(old) and j < len(new) and old[i] == new[j]:
                i += 1
                j += 1
            reach[diagonal] = i
            if i >= len(old) and j >= len(new):
                return _walk_back(history, diagonal, len(old))
    return None


def _start(reach: dict[int, int], diagonal: int, edits: int) -> int:
    """Return where on ``diagonal`` the search stands after one more edit."""
    if diagonal == -edits or (diagonal != edits and reach[diagonal - 1] < reach[diagonal + 1]):
        return reach[diagonal + 1]
    return reach[diagonal - 1] + 1


def _walk_back(history: list[dict[int, int]], diagonal: int, end: int) -> list[Diagonal]:
    found = []
    for edits in range(len(history) - 1, -1, -1):
        reach = history[edits]
        start = _start(reach, diagonal, edits)
        if end > start:
            found.append((start, start - diagonal, end - start))
        if edits == 0:
            break
        down = diagonal == -edits or (diagonal != edits and reach[diagonal - 1] < reach[diagonal + 1])
        diagonal += 1 if down else -1
        end = reach[diagonal]
    return found[::-1]


def _common_of_far(old: list[int], new: list[int]) -> list[Diagonal]:
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
