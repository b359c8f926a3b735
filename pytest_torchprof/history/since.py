"""Since when a condition on a number holds: "kernels >= 6"."""

from __future__ import annotations

import operator
import re
from itertools import groupby
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import asdict

from pytest_torchprof.history.lanes import points_by_lane
from pytest_torchprof.history.series import EXACT
from pytest_torchprof.reasons.errors import TorchprofError
from pytest_torchprof.reasons.history_branches import NoCondition, NumberOfCondition
from pytest_torchprof.text.suggestions import choices_like

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from pytest_torchprof.history.points import Point
    from pytest_torchprof.history.series import Series

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
    gaps_before: int
    """How many runs before the first point, back to the last without it, do not tell whether it held."""
    gaps_until: int
    """How many runs before that at which it no longer holds, back to the last with it, do not tell so."""
    disagree: bool
    """Whether it holds in one and not in another run of the same commit with the same versions."""

    @property
    def is_sure(self) -> bool:
        """Whether nothing that was not measured can move its beginning or its end."""
        return not (self.gaps_before or self.gaps_until or self.disagree)


class ConditionAnswer(Struct, frozen=True, kw_only=True):
    """Where a condition holds in a series."""

    intervals: tuple[Interval, ...]
    """Oldest first."""
    known: int
    """How many points have the number."""
    newest_is_known: bool
    versions: Mapping[str, object] = {}
    """The values of its newest versions that differ from those side by side; empty where there are none."""

    @property
    def is_sure(self) -> bool:
        """Whether nothing that was not measured can make it another one."""
        return self.newest_is_known and all(interval.is_sure for interval in self.intervals)


def read_condition(text: str) -> Condition:
    """Return the condition in a text; TorchprofError says which form is expected, or which numbers there are."""
    if (match := _FORM.fullmatch(text)) is None:
        raise TorchprofError.because(NoCondition(text))
    name, sign, bound = match.groups()
    if name not in EXACT:
        raise TorchprofError.because(NumberOfCondition(text, name, *choices_like(name, EXACT)))
    return Condition(name, sign, float(bound))


def answers_of(series: Series, condition: Condition) -> list[ConditionAnswer]:
    """Return where a condition holds in a series, with each of the versions that are in use side by side.

    Points at which the number is not known are gaps.
    """
    lanes = list(points_by_lane(series)) or [[]]
    newest = [asdict(lane[-1].environment) for lane in lanes if lane]
    apart = [name for name in (newest[0] if newest else {}) if len({str(own[name]) for own in newest}) > 1]
    return [
        _answer(series, lane, condition, {name: getattr(lane[-1].environment, name) for name in apart})
        for lane in lanes
    ]


def _answer(
    series: Series, points: Iterable[Point], condition: Condition, versions: Mapping[str, object]
) -> ConditionAnswer:
    index_of = {run.uuid: at for at, run in enumerate(series.branch.runs)}
    gaps = list(series.unmeasured)
    known: list[tuple[Point, bool]] = []
    holds: bool | None = None
    for point in points:
        holds = condition.holds(point)
        if holds is None:
            gaps.append(index_of[point.run.uuid])
        else:
            known.append((point, holds))

    def gaps_between(earlier: Point | None, later: Point) -> int:
        """Return how many runs between two points do not tell, of other commits than theirs."""
        ends = {later.commit, None if earlier is None else earlier.commit}
        first = -1 if earlier is None else index_of[earlier.run.uuid]
        between = [at for at in gaps if first < at < index_of[later.run.uuid]]
        commits = [series.branch.runs[at].commit for at in between]
        return sum(commit is not None and commit.sha not in ends for commit in commits)

    intervals: list[Interval] = []
    for is_held, group in groupby(enumerate(known), lambda numbered: numbered[1][1]):
        if not is_held:
            continue
        own = [at for at, _ in group]
        first, last = known[own[0]][0], known[own[-1]][0]
        before = known[own[0] - 1][0] if own[0] else None
        until = known[own[-1] + 1][0] if own[-1] + 1 < len(known) else None
        ends = [(point, after) for point, after in ((before, first), (last, until)) if point and after]
        intervals.append(
            Interval(
                number=condition.number,
                before=before,
                first=first,
                until=until,
                gaps_before=gaps_between(before, first),
                gaps_until=0 if until is None else gaps_between(last, until),
                disagree=any(point.commit == after.commit and not point.moved(after) for point, after in ends),
            )
        )
    newest_is_known = holds is not None and not series.newest_is_lacking
    return ConditionAnswer(
        intervals=tuple(intervals), known=len(known), newest_is_known=newest_is_known, versions=versions
    )
