"""The steps of a baseline's entry as JSON values: lists of kernels in launch order, repeated ones written once."""

from __future__ import annotations

from collections import Counter
from itertools import groupby
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
from msgspec import Meta, Struct

from pytest_torchprof.baseline.entry import KernelRecord
from pytest_torchprof.baseline.launch_order import Block, Line, launches, rewrite, write
from pytest_torchprof.reasons.step_flaws import StepFlaw

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pytest_torchprof.baseline.launch_order import Order

MOST_LAUNCHES: Final = 1_000_000
"""The most launches that the steps of an entry may have; nobody measures more."""
MOST_STEPS: Final = 10_000
"""The most steps of one entry; they differ from each other."""
MOST_NAMES: Final = 10_000
"""The most kernel names of one entry; no recording has more."""

# Closes each list of kernels, so that no other line gains or loses a comma when the last kernel comes or goes.
END: Final = "end"
_ROUNDS: Final = r"[1-9]\d{0,6}(-[1-9]\d{0,6})?"
# The name comes last: it may be thousands of characters long, and the rest should be visible.
_KERNEL_FIELDS: Final = ("family", "dtype", "layout", "operands", "helper", "op", "name")


class FlawedStepsError(ValueError):
    """Steps are no steps; the caller adds of which entry they are."""

    def __init__(self, flaw: StepFlaw, most: int | None = None, written: str | None = None) -> None:
        super().__init__(flaw.words(most, written))
        self.flaw, self.most, self.written = flaw, most, written


class KernelLine(KernelRecord, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A kernel as one line of the file has it."""

    only_in: Annotated[str, Meta(pattern=rf"\A{_ROUNDS}(, {_ROUNDS})*\Z")] | None = None
    """The rounds of its block in which it is launched, as "1-6, 8-20"; None stands for all of them."""


class RepeatedLines(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Kernels that a step launches several times in a row."""

    repeat: Annotated[int, Meta(ge=1, le=MOST_LAUNCHES)]
    kernels: tuple[Any, ...]
    """The kernels, each a `KernelLine`, and ``"end"``."""


# As in `form`: resolved here, since this module may no longer be in sys.modules when msgspec first looks.
msgspec.json.Decoder(RepeatedLines)


def orders_of(steps: Sequence[tuple[KernelRecord, ...]], before: Sequence[Order]) -> tuple[Order, ...]:
    """Return the written form of steps, with few lines that differ from those ``before``."""
    return tuple(_order_of(step, before) for step in steps)


def _order_of(step: tuple[KernelRecord, ...], before: Sequence[Order]) -> Order:
    kernels = Counter(step)

    def unlike(order: Order) -> int:
        others = Counter(launches(order))
        return ((kernels - others) + (others - kernels)).total()

    return rewrite(min(before, key=unlike), step) if before else write(step)


def plain_steps(orders: Iterable[Order]) -> list[list[Any]]:
    """Return steps as JSON values."""
    return [[*map(_plain_item, order), END] for order in orders]


def refuse_too_many(steps: Sequence[Sequence[object]]) -> None:
    """Raise FlawedStepsError if the steps of an entry, those of all its ranks, are more than anybody measures.

    This comes before any of it is unfolded: a few bytes can stand for any number of launches.
    """
    if sum(_most_launches(item) for step in steps for item in step) > MOST_LAUNCHES:
        raise FlawedStepsError(StepFlaw.TOO_MANY_LAUNCHES, MOST_LAUNCHES)
    if len(steps) > MOST_STEPS:
        raise FlawedStepsError(StepFlaw.TOO_MANY_ORDERS, MOST_STEPS)


def read_steps(steps: Sequence[Sequence[object]]) -> tuple[Order, ...]:
    """Return the steps that `plain_steps` turned into JSON values; ValueError for other values."""
    orders = tuple(tuple(map(_read_item, _items(step))) for step in steps)
    if len({kernel.name for order in orders for kernel in launches(order)}) > MOST_NAMES:
        raise FlawedStepsError(StepFlaw.TOO_MANY_NAMES, MOST_NAMES)
    return orders


def _items(values: Sequence[Any]) -> Sequence[Any]:
    if not values or values[-1] != END:
        raise FlawedStepsError(StepFlaw.NOT_CLOSED)
    return values[:-1]


def _read_item(value: object) -> Line | Block:
    if isinstance(value, dict) and "repeat" in value:
        block = msgspec.convert(value, RepeatedLines)
        lines = _items(block.kernels)
        if not lines:
            raise FlawedStepsError(StepFlaw.EMPTY_BLOCK)
        return Block(block.repeat, tuple(_read_line(line, block.repeat) for line in lines))
    if isinstance(value, dict) and "only_in" in value:
        raise FlawedStepsError(StepFlaw.OUTSIDE_BLOCK)
    return _read_line(value, 1)


def _read_line(value: object, repeat: int) -> Line:
    line = msgspec.convert(value, KernelLine)
    kernel = KernelRecord(**{name: getattr(line, name) for name in _KERNEL_FIELDS})
    if line.only_in is None:
        return Line(kernel)
    rounds: list[int] = []
    for text in line.only_in.split(", "):
        begin, _, end = text.partition("-")
        first, last = int(begin), int(end or begin)
        if not (rounds[-1] if rounds else 0) < first <= last:
            raise FlawedStepsError(StepFlaw.NOT_IN_ORDER, written=line.only_in)
        if last > repeat:
            raise FlawedStepsError(StepFlaw.BEYOND_REPEAT, repeat)
        rounds += range(first, last + 1)
    return Line(kernel, tuple(rounds))


def _most_launches(item: object) -> int:
    """Return the most launches that an item of a file can stand for."""
    if not isinstance(item, dict) or "repeat" not in item:
        return 1
    block = msgspec.convert(item, RepeatedLines)
    return block.repeat * len(block.kernels)


def _plain_item(item: Line | Block) -> dict[str, Any]:
    if isinstance(item, Block):
        return {"repeat": item.rounds, "kernels": [*map(_plain_item, item.lines), END]}
    only = {} if item.rounds is None else {"only_in": ", ".join(_ranges(item.rounds))}
    fields = {name: getattr(item.kernel, name) for name in _KERNEL_FIELDS}
    return {**only, **{name: value for name, value in fields.items() if value is not None}}


def _ranges(numbers: Iterable[int]) -> Iterator[str]:
    for _, run in groupby(enumerate(numbers), key=lambda pair: pair[1] - pair[0]):
        first, *others = (number for _, number in run)
        yield f"{first}-{others[-1]}" if others else f"{first}"
