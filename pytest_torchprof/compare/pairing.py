"""Which kernels of one step are which of another's: in order where that can be told, else by count."""

from __future__ import annotations

from collections import Counter
from difflib import SequenceMatcher
from typing import TYPE_CHECKING, Final

from pytest_torchprof.compare.item import Item

if TYPE_CHECKING:
    from collections.abc import Sequence


# Aligning is quadratic in the worst case; longer steps are compared by counts.
_ALIGNED: Final = 3000

Pairs = list[tuple[Item, Item]]
Runs = list[tuple[tuple[Item, ...], tuple[Item, ...]]]


def paired(before: Sequence[Item], after: Sequence[Item]) -> tuple[Pairs, Runs, int]:
    """Return what stayed, what took each other's place, and how many of the first are in another place."""
    if max(len(before), len(after)) > _ALIGNED:
        return (*_counted_off(before, after), 0)
    pairs, runs = _aligned(before, after)
    elsewhere, runs = _without_moved(runs)
    return pairs + elsewhere, runs, len(elsewhere)


def _aligned(before: Sequence[Item], after: Sequence[Item]) -> tuple[Pairs, Runs]:
    """Pair what stayed, in launch order; what stands between is what took each other's place."""
    matcher = SequenceMatcher(
        None, [item.identity for item in before], [item.identity for item in after], autojunk=False
    )
    pairs: Pairs = []
    runs: Runs = []
    for tag, old, old_end, new, new_end in matcher.get_opcodes():
        if tag == "equal":
            pairs += zip(before[old:old_end], after[new:new_end], strict=True)
        else:
            runs.append((tuple(before[old:old_end]), tuple(after[new:new_end])))
    return pairs, runs


def _without_moved(runs: Runs) -> tuple[Pairs, Runs]:
    """Pair what left one place and came in another; return the pairs, and what is left in the places."""
    left = Counter(item.identity for old, _ in runs for item in old)
    came = Counter(item.identity for _, new in runs for item in new)
    both = left & came
    taken: list[list[Item]] = [[], []]
    kept: list[list[tuple[Item, ...]]] = [[], []]
    for side in (0, 1):
        waiting = Counter(both)
        for run in runs:
            stays = []
            for item in run[side]:
                if waiting[item.identity] > 0:
                    waiting[item.identity] -= 1
                    taken[side].append(item)
                else:
                    stays.append(item)
            kept[side].append(tuple(stays))
    by_identity = [sorted(items, key=lambda item: str(item.identity)) for items in taken]
    return list(zip(*by_identity, strict=True)), [run for run in zip(*kept, strict=True) if any(run)]


def _counted_off(before: Sequence[Item], after: Sequence[Item]) -> tuple[Pairs, Runs]:
    """Pair by identity, whatever the order; what is left over on either side is gone or more."""
    waiting: dict[tuple[str | None, ...], list[Item]] = {}
    for item in before:
        waiting.setdefault(item.identity, []).append(item)
    for items in waiting.values():
        items.reverse()
    pairs: Pairs = []
    left: list[Item] = []
    for item in after:
        stack = waiting.get(item.identity)
        if stack:
            pairs.append((stack.pop(), item))
        else:
            left.append(item)
    gone = [item for items in waiting.values() for item in reversed(items)]
    # One of each kind stands for all: their raw names may differ in what does not matter here.
    kinds: dict[tuple[str | None, ...], Item] = {}
    runs: Runs = [((), (kinds.setdefault((*item.identity, item.op), item),)) for item in left]
    runs += [((kinds.setdefault((*item.identity, item.op), item),), ()) for item in gone]
    return pairs, runs
