"""The alignment of two sequences: the stretches that they have in common."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Sequence

# Time and memory grow with the square of the edits if the search goes edit by edit, and with the product of the
# lengths (64 at once) if it goes bit by bit. Sequences too long for both count as having nothing in common: their
# order no longer says anything.
_MOST_EDITS: Final = 300
_MOST_BITS: Final = 2**29

Stretch = tuple[range, range]
"""A stretch of the old sequence and the stretch of the new sequence that replaces it; either may be empty."""
Diagonal = tuple[int, int, int]
"""Start in the old sequence, start in the new one, length of the common stretch."""
Trail = tuple[Diagonal, "Trail"] | None


def stretches(before: Sequence[Hashable], after: Sequence[Hashable]) -> Iterator[tuple[Stretch, bool]]:
    """Yield the stretches of two sequences in order, and whether they are equal."""
    numbers: dict[Hashable, int] = {}
    old, new = ([numbers.setdefault(item, len(numbers)) for item in side] for side in (before, after))
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
    """Return the stretches that a shortest edit script keeps; None if the script is long.

    Myers, "An O(ND) difference algorithm and its variations" (1986), the greedy forward search: cheap if the two are
    nearly alike, which difflib's is not for steps that repeat one layer.
    """
    # For each diagonal the position reached on it, and the common stretches on the way there, the last one first.
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
    diagonals = []
    while path is not None:
        stretch, path = path
        diagonals.append(stretch)
    return diagonals[::-1]


def _common_by_bits(old: list[int], new: list[int]) -> list[Diagonal]:
    """Return a longest common subsequence of two that have little in common.

    Hyyrö, "Bit-parallel LCS-length computation revisited" (2004): a bit of a row is 0 where the common subsequence
    with the new sequence up to that row grows by that kernel of the old one.
    """
    if len(old) * len(new) > _MOST_BITS:
        return []
    bits_of: dict[int, int] = {}
    for i, item in enumerate(old):
        bits_of[item] = bits_of.get(item, 0) | 1 << i
    every = (1 << len(old)) - 1
    rows = [every]
    for item in new:
        row = rows[-1]
        matching = row & bits_of.get(item, 0)
        rows.append(((row + matching) | (row - matching)) & every)
    common: list[Diagonal] = []
    i, j = len(old), len(new)
    while i and j:
        if rows[j] >> (i - 1) & 1:
            i -= 1
        elif not rows[j - 1] >> (i - 1) & 1:
            j -= 1
        else:
            i, j = i - 1, j - 1
            if common and common[-1][:2] == (i + 1, j + 1):
                common[-1] = (i, j, common[-1][2] + 1)
            else:
                common.append((i, j, 1))
    return common[::-1]
