"""Since when a condition on a number holds: "kernels >= 6"."""

from __future__ import annotations

import operator
import re
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from pytest_torchprof.history.series import EXACT
from pytest_torchprof.reasons.codes import Code
from pytest_torchprof.reasons.errors import TorchprofError
from pytest_torchprof.text import nearest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pytest_torchprof.history.series import Point

_SIGNS: Final[dict[str, Callable[[float, float], bool]]] = {
    ">=": operator.ge,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
    ">": operator.gt,
    "<": operator.lt,
}
_FORM: Final = re.compile(r"\s*(\w+)\s*(>=|<=|==|!=|>|<)\s*(\d+(?:\.\d+)?)\s*", re.ASCII)


class Condition(Struct, frozen=True):
    """A condition on one number."""

    number: str
    sign: str
    bound: float

    def holds(self, point: Point) -> bool | None:
        """Whether it holds; None where the number is not known."""
        value = point.measured.counts.get(self.number)
        return None if value is None else _SIGNS[self.sign](value, self.bound)


class Interval(Struct, frozen=True, kw_only=True):
    """The points from which and up to which a condition holds."""

    number: str
    before: Point | None
    """The last point at which it did not hold; None if it holds from the first one on."""
    first: Point
    until: Point | None
    """The first point at which it no longer holds; None if it holds to the newest one."""


def read_condition(text: str) -> Condition:
    """Return the condition in a text; TorchprofError says which form is expected, or which numbers there are."""
    if (match := _FORM.fullmatch(text)) is None:
        problem = f"{text!r} is no condition: expected a number, a sign and a bound, such as 'kernels >= 6'"
        raise TorchprofError(problem, Code.BAD_USAGE)
    name, sign, bound = match.groups()
    if name not in EXACT:
        raise TorchprofError(f"{text!r}: unknown number {name!r}; {nearest(name, EXACT)}", Code.BAD_USAGE)
    return Condition(name, sign, float(bound))


def intervals_of(points: Iterable[Point], condition: Condition) -> list[Interval]:
    """Return where a condition holds, oldest first; points at which the number is not known tell nothing."""
    intervals: list[Interval] = []
    first: Point | None = None
    before: Point | None = None
    last_without: Point | None = None
    for point in points:
        holds = condition.holds(point)
        if holds and first is None:
            first, before = point, last_without
        if holds is False:
            if first is not None:
                intervals.append(Interval(number=condition.number, before=before, first=first, until=point))
                first = None
            last_without = point
    if first is not None:
        intervals.append(Interval(number=condition.number, before=before, first=first, until=None))
    return intervals
