"""Limits on communication: which collectives, how much they send, and how much of their time computing hides."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_torchprof.kernels.names.kernelname import COLLECTIVES
from pytest_torchprof.limits.answers import StepAnswer, in_each_step
from pytest_torchprof.limits.evidence import WorkRow
from pytest_torchprof.limits.limit import (
    HOLDS,
    MISSED,
    NOT_MEASURED,
    Limit,
    Verdict,
    as_counts,
    fraction,
    longest_first,
    numbered_in_order,
    title_among,
    unmeasured,
)
from pytest_torchprof.limits.quantities import duration_us, size_bytes
from pytest_torchprof.limits.seen import CollectivesSeen, ExposedTime, HiddenShare, SentBytes
from pytest_torchprof.reasons.collectives import Gap
from pytest_torchprof.reasons.errors import UnknownLimit
from pytest_torchprof.reasons.findings import CollectiveTimesUnknown
from pytest_torchprof.reasons.job_limits import (
    CollectiveUntold,
    MessageSizesUnknown,
    NoCommunication,
)
from pytest_torchprof.reasons.wrong_values import NameOf, UnknownName, ValueForm, WrongValue
from pytest_torchprof.text import printable
from pytest_torchprof.text.suggestions import choices_like

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from pytest_torchprof.analysis.analysis import Analysis
    from pytest_torchprof.analysis.collectives import Collective, StepCommunication
    from pytest_torchprof.analysis.steps import StepProfile


def _read_collectives(value: object) -> dict[str, tuple[int, int] | None]:
    counts = as_counts(value)
    for name in counts:
        if name not in COLLECTIVES:
            raise UnknownLimit.because(
                UnknownName(NameOf.COLLECTIVE, repr(name), *choices_like(str(name), COLLECTIVES))
            )
    return {str(name): count for name, count in counts.items()}


def _step_communication(analysis: Analysis, step: StepProfile) -> StepCommunication:
    index = next(i for i, other in enumerate(analysis.steps) if other is step)
    return analysis.communication_of_steps[index]


def _rows(collectives: Iterable[Collective]) -> tuple[WorkRow, ...]:
    """Return one row per collective and size."""
    by_name: dict[tuple[str, int | None], list[Collective]] = defaultdict(list)
    for collective in collectives:
        by_name[collective.name or "communication", collective.message_bytes].append(collective)
    return numbered_in_order(
        WorkRow(
            count=len(members),
            name=name,
            full=name,
            time_us=sum(collective.duration_us or 0 for collective in members),
            size_bytes=size or 0,
            ops=tuple(printable(op) for op in dict.fromkeys(collective.operator for collective in members) if op),
        )
        for (name, size), members in by_name.items()
    )


def _largest_first(rows: Iterable[WorkRow]) -> tuple[WorkRow, ...]:
    """Return the rows in the order in which a limit on bytes shows them."""
    return tuple(sorted(rows, key=lambda row: -row.count * row.size_bytes))


def _collectives(
    analysis: Analysis, step: StepProfile, counts: Mapping[str, tuple[int, int] | None]
) -> Iterator[StepAnswer]:
    collectives = _step_communication(analysis, step).collectives
    names = Counter(collective.name for collective in collectives)
    unknown = [collective for collective in collectives if collective.name is None]
    for name, count in counts.items():
        low, high = count or (1, None)
        sure = names[name]
        if sure + len(unknown) < low or (high is not None and sure > high):
            yield StepAnswer(MISSED, CollectivesSeen(sure, name, low, high), _rows(collectives))
        elif sure < low or (high is not None and sure + len(unknown) > high):
            yield StepAnswer(NOT_MEASURED, evidence=_rows(unknown), reason=CollectiveUntold(name, len(unknown)))


def _max_comm_bytes(analysis: Analysis, most: int) -> Verdict:
    sums = [(step, _step_communication(analysis, step).collectives) for step in analysis.steps]
    known = [sum(collective.message_bytes or 0 for collective in collectives) for _, collectives in sums]
    worst = max(range(len(sums)), key=known.__getitem__)
    step, collectives = sums[worst]
    if known[worst] > most:
        return Verdict(
            number=known[worst],
            seen=(SentBytes(known[worst], len(collectives), beyond_bytes=most),),
            status=MISSED,
            evidence=_largest_first(_rows(collectives)),
            step=step.name,
            in_step=title_among(analysis, step),
        )
    unknown = [collective for _, collectives in sums for collective in collectives if collective.message_bytes is None]
    if unknown:
        reason = unknown[0].why_no_bytes or Gap.NO_GROUP_SIZE
        return unmeasured(MessageSizesUnknown(len(unknown), unknown[0].name or "?", reason), _rows(unknown))
    return Verdict(number=known[worst], seen=(SentBytes(known[worst], len(collectives)),), status=HOLDS)


class _Exposure(NamedTuple):
    """The most that may be exposed: a time in microseconds, or a share of the step."""

    most: float
    is_share: bool

    def of(self, step: StepCommunication) -> float:
        if not self.is_share:
            return step.exposed_us
        return step.exposed_us / step.span_us if step.span_us else 0.0

    def seen(self, step: StepCommunication) -> ExposedTime:
        share = self.of(step) if self.is_share else None
        return ExposedTime(step.exposed_us, step.time_us, share=share, span_us=step.span_us)


def _read_exposure(value: object) -> _Exposure:
    try:
        if isinstance(value, str):
            return _Exposure(duration_us(value), is_share=False)
        return _Exposure(fraction(value), is_share=True)
    except UnknownLimit:
        raise UnknownLimit.because(WrongValue(ValueForm.EXPOSURE, repr(value))) from None


def _unknown_time(steps: Iterable[StepCommunication]) -> Verdict | None:
    reason = next((step.why_no_time for step in steps if step.why_no_time is not None), None)
    if reason is None:
        return None
    return unmeasured(CollectiveTimesUnknown(reason))


def _max_exposed(analysis: Analysis, asked: _Exposure) -> Verdict:
    steps = analysis.communication_of_steps
    worst = max(range(len(steps)), key=lambda index: asked.of(steps[index]))
    communication, step = steps[worst], analysis.steps[worst]
    is_missed = asked.of(communication) > asked.most
    if not is_missed and (unknown := _unknown_time(steps)):
        return unknown
    return Verdict(
        number=asked.of(communication),
        bound=asked.most,
        unit="share" if asked.is_share else "us",
        seen=(asked.seen(communication),),
        status=MISSED if is_missed else HOLDS,
        **(_where(analysis, step, communication) if is_missed else {}),
    )


def _where(analysis: Analysis, step: StepProfile, communication: StepCommunication) -> dict[str, Any]:
    """Return the step, and the collectives that are not hidden completely, as the fields of a verdict."""
    rows = longest_first(_rows(collective for collective in communication.collectives if collective.exposed_us))
    return {"evidence": rows, "step": step.name, "in_step": title_among(analysis, step)}


def _min_overlap(analysis: Analysis, least: float) -> Verdict:
    steps = analysis.communication_of_steps
    known = {index: step.overlap for index, step in enumerate(steps) if step.overlap is not None}
    if not known:
        return _unknown_time(steps) or unmeasured(NoCommunication())
    worst = min(known, key=lambda index: known[index])
    communication, step = steps[worst], analysis.steps[worst]
    is_missed = known[worst] < least and communication.why_no_time is None
    if not is_missed and (unknown := _unknown_time(steps)):
        return unknown
    return Verdict(
        number=known[worst],
        seen=(HiddenShare(known[worst], communication.time_us),),
        status=MISSED if is_missed else HOLDS,
        **(_where(analysis, step, communication) if is_missed else {}),
    )


def _limit(name: str, read: Callable[[object], Any], check: Callable[..., Verdict], **more: Any) -> Limit:
    return Limit(name=name, read=read, check=check, located=False, per_step=True, families=("communication",), **more)


COMMUNICATION_LIMITS = (
    _limit("collectives", _read_collectives, in_each_step(_collectives)),
    _limit("max_comm_bytes", size_bytes, _max_comm_bytes, unit="bytes"),
    _limit("max_exposed_communication", _read_exposure, _max_exposed, on_time=True),
    _limit("min_overlap", fraction, _min_overlap, on_time=True, unit="share"),
)


def needs_messages(asked: Mapping[str, Any]) -> str | None:
    """Return a collective that ``collectives`` asks for and that cannot be there without a message."""
    wanted = asked.get("collectives") or {}
    return next((name for name, count in wanted.items() if name != "barrier" and (count or (1, None))[0] > 0), None)
