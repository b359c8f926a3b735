"""Limits on communication: which collectives, how much they send, and how much of their time computing hides."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_torchprof.errors import UnknownLimit
from pytest_torchprof.kernels.names.kernelname import COLLECTIVES
from pytest_torchprof.limits.answers import StepAnswer, in_each_step, show_count
from pytest_torchprof.limits.limit import (
    HOLDS,
    MISSED,
    NOT_MEASURED,
    Limit,
    Verdict,
    WorkRow,
    as_counts,
    fraction,
    in_order,
    in_step,
    unmeasured,
)
from pytest_torchprof.limits.quantities import duration_us, size_bytes
from pytest_torchprof.reasons.limits import (
    CollectiveTimesUnknown,
    CollectiveUntold,
    MessageSizesUnknown,
    NoCommunication,
)
from pytest_torchprof.text import counted, nearest, printable, show_bytes, show_share, show_us

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from pytest_torchprof.analysis.analysis import Analysis
    from pytest_torchprof.analysis.collectives import Collective, StepCommunication
    from pytest_torchprof.analysis.steps import StepProfile


def _read_collectives(value: object) -> dict[str, tuple[int, int] | None]:
    counts = as_counts(value)
    for name in counts:
        if name not in COLLECTIVES:
            raise UnknownLimit(f"{name!r} is no collective; {nearest(str(name), COLLECTIVES)}")
    return {str(name): count for name, count in counts.items()}


def _of_step(analysis: Analysis, step: StepProfile) -> StepCommunication:
    place = next(i for i, other in enumerate(analysis.steps) if other is step)
    return analysis.communication_of_steps[place]


def _rows(collectives: Iterable[Collective]) -> tuple[WorkRow, ...]:
    """Return one row per collective and size."""
    found: dict[tuple[str, int | None], list[Collective]] = defaultdict(list)
    for one in collectives:
        found[one.name or "communication", one.message_bytes].append(one)
    return in_order(
        WorkRow(
            count=len(members),
            name=name,
            full=name,
            time_us=sum(one.duration_us or 0 for one in members),
            note=show_bytes(size) if size else "",
            ops=tuple(printable(op) for op in dict.fromkeys(one.operator for one in members) if op),
        )
        for (name, size), members in found.items()
    )


def _collectives(
    analysis: Analysis, step: StepProfile, counts: Mapping[str, tuple[int, int] | None]
) -> Iterator[StepAnswer]:
    found = _of_step(analysis, step).collectives
    names = Counter(one.name for one in found)
    unknown = [one for one in found if one.name is None]
    for name, count in counts.items():
        low, high = count or (1, None)
        sure = names[name]
        if sure + len(unknown) < low or (high is not None and sure > high):
            yield StepAnswer(MISSED, f"{sure} x {name}, expected {show_count(count)}", _rows(found))
        elif sure < low or (high is not None and sure + len(unknown) > high):
            yield StepAnswer(NOT_MEASURED, details=_rows(unknown), reason=CollectiveUntold(name, len(unknown)))


def _max_comm_bytes(analysis: Analysis, most: int) -> Verdict:
    sums = [(step, _of_step(analysis, step).collectives) for step in analysis.steps]
    known = [sum(one.message_bytes or 0 for one in found) for _, found in sums]
    worst = max(range(len(sums)), key=known.__getitem__)
    step, found = sums[worst]
    shown, over = show_bytes(known[worst]), known[worst] - most
    shown += f" (beyond it by {over:,} B)" if over > 0 and shown == show_bytes(most) else ""
    said = f"{shown} in {counted(len(found), 'collective')}"
    if over > 0:
        return Verdict(
            number=known[worst],
            measured=said + in_step(analysis, step),
            status=MISSED,
            details=_rows(found),
            step=step.name,
        )
    unknown = [one for _, found in sums for one in found if one.message_bytes is None]
    if unknown:
        reason = unknown[0].why_no_bytes or "the size of its group is not known"
        return unmeasured(MessageSizesUnknown(len(unknown), unknown[0].name or "?", reason), _rows(unknown))
    return Verdict(number=known[worst], measured=said, status=HOLDS)


class _Exposure(NamedTuple):
    """The most that may be exposed: a time in microseconds, or a share of the step."""

    most: float
    is_share: bool

    def of(self, step: StepCommunication) -> float:
        if not self.is_share:
            return step.exposed_us
        return step.exposed_us / step.span_us if step.span_us else 0.0

    def say(self, step: StepCommunication) -> str:
        share = f" = {show_share(self.of(step))} of {show_us(step.span_us)}" if self.is_share else ""
        return f"{show_us(step.exposed_us)}{share} exposed, of {show_us(step.time_us)} of communication"


def _read_exposure(value: object) -> _Exposure:
    if isinstance(value, str):
        try:
            return _Exposure(duration_us(value), is_share=False)
        except UnknownLimit:
            raise UnknownLimit(f'expected a duration such as "1.5ms", or a share such as 0.1, got {value!r}') from None
    try:
        return _Exposure(fraction(value), is_share=True)
    except UnknownLimit:
        said = f'expected a duration such as "1.5ms", or a share of the step from 0 to 1, got {value!r}'
        raise UnknownLimit(said) from None


def _unknown_time(steps: Iterable[StepCommunication]) -> Verdict | None:
    reason = next((step.why_no_time for step in steps if step.why_no_time is not None), None)
    if reason is None:
        return None
    return unmeasured(CollectiveTimesUnknown(reason))


def _max_exposed(analysis: Analysis, asked: _Exposure) -> Verdict:
    steps = analysis.communication_of_steps
    worst = max(range(len(steps)), key=lambda place: asked.of(steps[place]))
    found, step = steps[worst], analysis.steps[worst]
    if asked.of(found) > asked.most:
        return Verdict(
            number=asked.of(found),
            measured=asked.say(found) + in_step(analysis, step),
            status=MISSED,
            details=_exposed_rows(found),
            step=step.name,
        )
    return _unknown_time(steps) or Verdict(number=asked.of(found), measured=asked.say(found), status=HOLDS)


def _exposed_rows(found: StepCommunication) -> tuple[WorkRow, ...]:
    return _rows(one for one in found.collectives if one.exposed_us)


def _min_overlap(analysis: Analysis, least: float) -> Verdict:
    steps = analysis.communication_of_steps
    known = {place: step.overlap for place, step in enumerate(steps) if step.overlap is not None}
    if not known:
        return _unknown_time(steps) or unmeasured(NoCommunication())
    worst = min(known, key=lambda place: known[place])
    found, step = steps[worst], analysis.steps[worst]
    said = f"{show_share(known[worst])} of {show_us(found.time_us)} of communication is hidden"
    if known[worst] < least and found.why_no_time is None:
        return Verdict(
            number=known[worst],
            measured=said + in_step(analysis, step),
            status=MISSED,
            details=_exposed_rows(found),
            step=step.name,
        )
    return _unknown_time(steps) or Verdict(number=known[worst], measured=said, status=HOLDS)


COMMUNICATION_LIMITS = tuple(
    Limit(
        name=name,
        read=read,
        check=check,
        on_time=on_time,
        located=False,
        per_step=True,
        families=("communication",),
    )
    for name, read, check, on_time in (
        ("collectives", _read_collectives, in_each_step(_collectives), False),
        ("max_comm_bytes", size_bytes, _max_comm_bytes, False),
        ("max_exposed_communication", _read_exposure, _max_exposed, True),
        ("min_overlap", fraction, _min_overlap, True),
    )
)


def needs_messages(asked: Mapping[str, Any]) -> str | None:
    """Return a collective that ``collectives`` asks for and that cannot be there without a message."""
    wanted = asked.get("collectives") or {}
    return next((name for name, count in wanted.items() if name != "barrier" and (count or (1, None))[0] > 0), None)
