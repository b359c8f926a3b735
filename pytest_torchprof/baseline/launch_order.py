"""A step's launch order as lines that people review: one per kernel, a repeated block written once.

A layer that a step launches twenty times is one `Block` of twenty rounds. If one round differs, its lines say in which
rounds they are launched, so that a kernel that was added, removed, renamed or moved makes a difference of one to three
lines, whichever round it is in. An order that changed is derived from the one before (`rewrite`), so that unchanged
launches keep their lines.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import chain, groupby
from typing import TYPE_CHECKING, Final

from msgspec import Struct, field

from pytest_torchprof.baseline.alignment import stretches

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_torchprof.baseline.entry import KernelRecord

# A block adds two lines of its own; it has to save more than that.
_LEAST_SAVED: Final = 3
# The most frequent distances between launches of one kernel: if a step repeats a block, its length is among the first.
_PERIODS: Final = 16


class Line(Struct, frozen=True):
    """One kernel of the order."""

    kernel: KernelRecord
    rounds: tuple[int, ...] | None = None
    """The rounds of its block in which it is launched, from 1; None stands for all of them."""


class Block(Struct, frozen=True):
    """Lines that are launched several times in a row."""

    rounds: int
    lines: tuple[Line, ...]


Order = tuple["Line | Block", ...]
"""A step's launch order as it is written."""


def launches(order: Order) -> tuple[KernelRecord, ...]:
    """Return the kernels of a step in launch order, each as often as it is launched."""
    return tuple(line.kernel for line, _ in _slots(order))


def write(step: Sequence[KernelRecord]) -> Order:
    """Return the launch order of a step with its repeated blocks written once."""
    order: list[Line | Block] = []
    at = 0
    for start, period, rounds in sorted(_repeats(step)):
        order += map(Line, step[at:start])
        order.append(Block(rounds, tuple(map(Line, step[start : start + period]))))
        at = start + period * rounds
    return (*order, *map(Line, step[at:]))


def rewrite(before: Order, step: Sequence[KernelRecord]) -> Order:
    """Return the launch order of a step in whichever form has fewer lines that differ from ``before``."""
    edited, fresh = _edit(before, step), write(step)
    return edited if _lines_that_differ(before, edited) <= _lines_that_differ(before, fresh) else fresh


def _slots(order: Order) -> Iterator[tuple[Line, tuple[int, int, int]]]:
    """Yield each launch's line with its position: the item of the order, the round, the line of the block."""
    for item_index, item in enumerate(order):
        if isinstance(item, Line):
            yield item, (item_index, 1, 0)
            continue
        in_rounds = [None if line.rounds is None else frozenset(line.rounds) for line in item.lines]
        for number in range(1, item.rounds + 1):
            for line_index, (line, rounds) in enumerate(zip(item.lines, in_rounds, strict=True)):
                if rounds is None or number in rounds:
                    yield line, (item_index, number, line_index)


def _repeats(step: Sequence[KernelRecord]) -> Iterator[tuple[int, int, int]]:
    """Yield the blocks that a step repeats, as (start, length, rounds), those that save most lines first."""
    numbers: dict[KernelRecord, int] = {}
    kernels = [numbers.setdefault(kernel, len(numbers)) for kernel in step]
    runs = [(start, stop, period) for period in _likely_periods(kernels) for start, stop in _periodic(kernels, period)]
    taken = bytearray(len(kernels))
    for start, stop, period in sorted(runs, key=lambda run: (-_saved(*run), run[0], run[2])):
        for is_taken, positions in groupby(range(start, stop), key=taken.__getitem__):
            free = [*positions]
            if not is_taken and _saved(free[0], free[-1] + 1, period) >= _LEAST_SAVED:
                rounds = len(free) // period
                taken[free[0] : free[0] + rounds * period] = b"\1" * (rounds * period)
                yield free[0], period, rounds


def _saved(start: int, stop: int, period: int) -> int:
    return ((stop - start) // period - 1) * period


def _likely_periods(kernels: Sequence[int]) -> list[int]:
    last: dict[int, int] = {}
    distances: Counter[int] = Counter()
    for index, kernel in enumerate(kernels):
        if kernel in last:
            distances[index - last[kernel]] += 1
        last[kernel] = index
    return [distance for distance, _ in distances.most_common(_PERIODS)]


def _periodic(kernels: Sequence[int], period: int) -> Iterator[tuple[int, int]]:
    """Yield the stretches, as (start, stop), in which each kernel recurs after ``period`` launches."""
    again = map(int.__eq__, kernels, kernels[period:])
    for equal, pairs in groupby(enumerate(again), key=lambda pair: pair[1]):
        if equal:
            start = next(pairs)[0]
            yield start, start + 1 + sum(1 for _ in pairs) + period


class _EditedBlock(Struct):
    """A block while an order is edited: the rounds that keep each line, and the lines inserted after it by round."""

    kept: defaultdict[int, list[int]] = field(default_factory=lambda: defaultdict(list))
    behind: defaultdict[int, dict[int, list[KernelRecord]]] = field(default_factory=lambda: defaultdict(dict))


def _edit(before: Order, step: Sequence[KernelRecord]) -> Order:
    """Return ``before`` with removed launches taken out of their rounds, and new ones inserted into theirs."""
    slots = [*_slots(before)]
    blocks: defaultdict[int, _EditedBlock] = defaultdict(_EditedBlock)
    # The lines that are inserted before each item of the order; the last entry comes after all of them.
    in_front: defaultdict[int, list[KernelRecord]] = defaultdict(list)
    for (old, new), equal in stretches([line.kernel for line, _ in slots], step):
        if equal:
            for item, number, line in (slots[at][1] for at in old):
                blocks[item].kept[line].append(number)
        elif new:
            came = [step[at] for at in new]
            # After the last launch that it replaces, or after the launch that it follows.
            behind = (old.stop if old else old.start) - 1
            item, number, line = slots[behind][1] if behind >= 0 else (-1, 0, 0)
            following = slots[old.stop][1][0] if old.stop < len(slots) else len(before)
            within = bool(old) or item == following or line in blocks[item].behind
            if item >= 0 and isinstance(before[item], Block) and within:
                blocks[item].behind[line][number] = came
            else:
                in_front[following] += came
    items = ((*map(Line, in_front[index]), *_edited_item(item, blocks[index])) for index, item in enumerate(before))
    return (*chain.from_iterable(items), *map(Line, in_front[len(before)]))


def _edited_item(item: Line | Block, edited: _EditedBlock) -> tuple[Line | Block, ...]:
    if isinstance(item, Line):
        return (item,) if edited.kept else ()
    every = tuple(range(1, item.rounds + 1))
    lines: list[Line] = []
    for index, line in enumerate(item.lines):
        kept = tuple(edited.kept[index])
        if kept:
            lines.append(Line(line.kernel, None if kept == every else kept))
        rounds_of: defaultdict[tuple[KernelRecord, ...], list[int]] = defaultdict(list)
        for number, came in sorted(edited.behind[index].items()):
            rounds_of[tuple(came)].append(number)
        for kernels, rounds in rounds_of.items():
            lines += (Line(kernel, None if tuple(rounds) == every else tuple(rounds)) for kernel in kernels)
    return (Block(item.rounds, tuple(lines)),) if lines else ()


def _lines_that_differ(a: Order, b: Order) -> int:
    old, new = _written(a), _written(b)
    kept = sum(len(before) for (before, _), equal in stretches(old, new) if equal)
    return len(old) + len(new) - 2 * kept


def _written(order: Order) -> list[object]:
    """Return the contents of each line of a file."""
    lines: list[object] = []
    for item in order:
        lines += [item] if isinstance(item, Line) else [item.rounds, *item.lines, None]
    return lines
