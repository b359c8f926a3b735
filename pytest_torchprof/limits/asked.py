"""The limits that a test asks for, with their values and settings; and whether a measurement keeps them."""

from __future__ import annotations

import re
from itertools import permutations, product
from math import isfinite
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field
from msgspec.structs import replace

from pytest_torchprof.findings.queued import graphs_seem_cut
from pytest_torchprof.kernels.fields import bare
from pytest_torchprof.limits.communication_limits import needs_messages
from pytest_torchprof.limits.evidence import KernelsToDeclare
from pytest_torchprof.limits.limit import GPU, HOLDS, MISSED, Limit, Setting, Verdict, unmeasured
from pytest_torchprof.limits.number_limits import Bound
from pytest_torchprof.limits.written import RANGES
from pytest_torchprof.reasons.errors import TorchprofError, UnknownLimit, describe, refuse_huge
from pytest_torchprof.reasons.errors import hide_our_frames as __tracebackhide__  # noqa: F401  (read by pytest)
from pytest_torchprof.reasons.limits import ClocksLocked, FamilyUnknown, LaunchesWait, NothingRan
from pytest_torchprof.reasons.wrong_patterns import FunctionNotCalled
from pytest_torchprof.text.suggestions import keywords_like

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pytest_torchprof.analysis.analysis import Analysis
    from pytest_torchprof.analysis.steps import StepProfile
    from pytest_torchprof.reasons.reason import Reason


class Asked(Struct, frozen=True):
    """One limit with the value that a test gave it: as it was read, and as it was written."""

    limit: Limit
    value: Any
    written: object
    settings: Mapping[str, Any] = field(default_factory=dict)
    """The settings that change how it counts, as they were read."""

    @property
    def shown(self) -> str:
        """The value as a person reads it."""
        return self.written if isinstance(self.written, str) else repr(self.written)


def settings_of(limits: Iterable[Limit]) -> dict[str, Setting]:
    """Return the keywords that change how these limits count, by name."""
    return {setting.name: setting for limit in limits for setting in limit.settings}


def read_limits(
    given: Mapping[str, object],
    *,
    known: Iterable[Limit],
    defaults: Mapping[str, object] | None = None,
    more_to_come: bool = False,
) -> tuple[Asked, ...]:
    """Return the limits in ``given`` with their values and settings read; UnknownLimit names a bad keyword or value.

    ``defaults`` are settings for limits that take them and are given none. ``more_to_come``: other limits will be
    added, so that a setting may be given before its limit.
    """
    by_name = {limit.name: limit for limit in known}
    taken = settings_of(by_name[name] for name in given if name in by_name)
    given = {**{name: value for name, value in (defaults or {}).items() if name in taken}, **given}
    settings = {} if given.keys() <= by_name.keys() else settings_of(by_name.values())
    keywords: dict[str, Limit | Setting] = {**by_name, **settings}
    values = {}
    for name, value in given.items():
        keyword = keywords.get(name)
        if keyword is None:
            raise _no_limit(name, keywords)
        refuse_huge(name, value)
        try:
            values[name] = keyword.read(value)
        except UnknownLimit as problem:
            raise _refused(name, value, problem) from None
        except Exception as problem:  # noqa: BLE001 - of another plugin's limit: ``read=float`` raises what Python raises
            from pytest_torchprof.reasons.wrong_values import ReaderRaised  # noqa: PLC0415 - for what is refused alone

            raise _refused(name, value, UnknownLimit.because(ReaderRaised(describe(problem)))) from None
    asked = tuple(
        Asked(
            limit,
            values[name],
            given[name],
            {setting: values[setting] for setting in settings_of([limit]) if setting in given},
        )
        for name in given
        if (limit := by_name.get(name)) is not None
    )
    if settings and not more_to_come:
        _refuse_lone_settings(given, by_name.values())
    _refuse_contradictions(asked)
    return asked


def _refuse_lone_settings(given: Mapping[str, object], known: Iterable[Limit]) -> None:
    """Raise UnknownLimit where a setting is given without any of the limits that it is about."""
    for name in settings_of(known).keys() & given.keys():
        limits = [limit.name for limit in known if name in settings_of([limit])]
        if not given.keys() & limits:
            from pytest_torchprof.reasons.asked_wrongly import SettingAlone  # noqa: PLC0415 - for what is refused alone

            raise UnknownLimit.because(SettingAlone(name, tuple(limits)))


_ADDRESS = re.compile(r"<function ([\w.]+) at 0x[0-9a-f]+>")


def _refused(name: str, value: object, problem: UnknownLimit) -> UnknownLimit:
    """Return the error for a value that cannot be read, with the value as it is written in the marker."""
    if isinstance(why := problem.reason, FunctionNotCalled) and callable(value):
        return UnknownLimit.because(replace(why, name=name))
    return problem.of_keyword(name, _ADDRESS.sub(r"\1", repr(value)))


def _no_limit(name: str, known: Iterable[str]) -> UnknownLimit:
    from pytest_torchprof.reasons.asked_wrongly import NoSuchLimit  # noqa: PLC0415 - for what is refused alone

    return UnknownLimit.because(NoSuchLimit(name, *keywords_like(name, known)))


def _refuse_contradictions(asked: Iterable[Asked]) -> None:
    """Raise UnknownLimit where two limits cannot both hold, whatever runs."""
    by_name = {each.limit.name: each for each in asked}
    bounds = [(each, each.limit.check) for each in by_name.values() if isinstance(each.limit.check, Bound)]
    for (most, upper), (least, lower) in permutations(bounds, 2):
        if upper.number is lower.number and upper.at_most and not lower.at_most and least.value > most.value:
            written = (f"{each.limit.name}={each.written!r}" for each in (most, least))
            from pytest_torchprof.reasons.asked_wrongly import BoundsContradict  # noqa: PLC0415 - for what is refused alone

            raise UnknownLimit.because(BoundsContradict(*written))
    for wanted, forbidden in (("kernels", "forbid_kernels"), ("ops", "forbid_ops")):
        if wanted not in by_name or forbidden not in by_name:
            continue
        counts = by_name[wanted].value
        both = [entry for entry in by_name[forbidden].value if entry in counts and (counts[entry] or (1, None))[0] > 0]
        if both:
            from pytest_torchprof.reasons.asked_wrongly import WantedAndForbidden  # noqa: PLC0415 - for what is refused alone

            raise UnknownLimit.because(WantedAndForbidden(repr(both[0]), wanted, forbidden))
    _refuse_both_fused_and_not(by_name)
    values = {name: each.value for name, each in by_name.items()}
    if values.get("max_comm_bytes") == 0 and (name := needs_messages(values)) is not None:
        from pytest_torchprof.reasons.asked_wrongly import CollectiveSends  # noqa: PLC0415 - for what is refused alone

        raise UnknownLimit.because(CollectiveSends(name))


def _refuse_both_fused_and_not(by_name: Mapping[str, Asked]) -> None:
    together, apart = (by_name[name].value if name in by_name else () for name in ("fused", "not_fused"))
    for group, other in product(together, apart):
        both = [op for op in group if bare(op) in set(map(bare, other))]
        if len(set(map(bare, both))) > 1:
            from pytest_torchprof.reasons.asked_wrongly import FusedAndNot  # noqa: PLC0415 - for what is refused alone

            raise UnknownLimit.because(FusedAndNot(tuple(both)))


def check_limits(analysis: Analysis, asked: Iterable[Asked]) -> tuple[Verdict, ...]:
    """Return one or several verdicts for each limit; a limit that could not be measured never holds."""
    limits = tuple(asked)
    if not limits:
        return ()
    idle = idle_step(analysis, limits)
    return tuple(answered(verdict, wanted) for wanted in limits for verdict in _verdicts(analysis, wanted, idle))


def refuse_none(limits: Mapping[str, object], call: str) -> None:
    """Raise TorchprofError for a call that is to set or check limits, and is given none: it would ask for nothing."""
    if not limits:
        from pytest_torchprof.reasons.misuse import CallWithout, Takes  # noqa: PLC0415 - for what is refused alone

        raise TorchprofError.because(CallWithout(call, Takes.LIMITS, "none"))


def answered(verdict: Verdict, wanted: Asked) -> Verdict:
    """Return the verdict as one on the limit that was asked for; a verdict that names its own limit keeps that name."""
    value = wanted.value
    # JSON has no infinity, and nothing exceeds it.
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)
    return replace(
        verdict,
        limit=verdict.limit or wanted.limit.name,
        expected=verdict.expected or wanted.shown,
        bound=float(value) if verdict.bound is None and is_number else verdict.bound,
        unit=verdict.unit or wanted.limit.unit,
    )


def idle_step(analysis: Analysis, asked: Iterable[Asked]) -> StepProfile | None:
    """Return the first step in which nothing ran on the device; None if that is intended, or if it is not known."""
    if analysis.kernels_unknown is not None or any(
        wanted.limit.name == "min_kernels" and wanted.value == 0 for wanted in asked
    ):
        return None
    return next((step for step in analysis.steps if not (step.kernels or step.memcpys or step.memsets)), None)


def nothing_known(analysis: Analysis, asked: Iterable[Asked]) -> Reason | None:
    """Return why the recording shows nothing, or not all, of what ran on the device; None where that is known."""
    idle = idle_step(analysis, asked)
    return analysis.kernels_unknown if idle is None else _nothing_ran(analysis, idle)


def something_ran(reason: Reason) -> Verdict:
    """Return the verdict on a measurement without limits of which it is not known whether anything ran."""
    return unmeasured(reason).on("min_kernels", "1")


def _nothing_ran(analysis: Analysis, step: StepProfile) -> Reason:
    return NothingRan(analysis.title_of(step))


def needs_flops(asked: Iterable[Asked]) -> bool:
    """Return whether floating-point operations are to be counted for one of these limits."""
    return any(wanted.limit.name == "min_mfu" for wanted in asked)


def of_events_alone(asked: Iterable[Asked]) -> bool:
    """Return whether these limits ask neither what operators were given nor what the compiler did."""
    return all(
        of_events_alone(limit for within in wanted.value.values() for limit in within)
        if wanted.limit.name == RANGES
        else wanted.limit.of_events_alone
        for wanted in asked
    )


def _verdicts(analysis: Analysis, wanted: Asked, idle: StepProfile | None) -> tuple[Verdict, ...]:
    blocked = _cannot_judge(analysis, wanted.limit)
    if blocked is not None:
        return (unmeasured(blocked),)
    return tuple(_unless_unsure(analysis, wanted, verdict, idle) for verdict in _given(analysis, wanted))


def _given(analysis: Analysis, wanted: Asked) -> tuple[Verdict, ...]:
    verdicts = wanted.limit.check(analysis, wanted.value, **wanted.settings)
    return verdicts if isinstance(verdicts, tuple) else (verdicts,)


def _unless_unsure(analysis: Analysis, wanted: Asked, verdict: Verdict, idle: StepProfile | None) -> Verdict:
    """Return the verdict, or *not measured* if it holds only because nothing ran, or depends on what is not known."""
    limit = wanted.limit
    if verdict.status == HOLDS and limit.needs == GPU and limit.on_gpu_work and idle is not None:
        return unmeasured(_nothing_ran(analysis, idle), step=idle.name)
    if verdict.status == HOLDS and (unless := _unless_not_known(analysis, wanted)) is not None:
        return unless
    if verdict.status == HOLDS and _may_be_missed_by_more(wanted) and (cut := graphs_seem_cut(analysis)) is not None:
        return unmeasured(cut, step=verdict.step)
    return replace(verdict, wants_lines=verdict.wants_lines or (verdict.status == MISSED and limit.located))


def _may_be_missed_by_more(wanted: Asked) -> bool:
    limit, value = wanted.limit, wanted.value
    # Where at least one of each is asked for, any number will do.
    asks_for_some = isinstance(value, dict) and all(count is None for count in value.values())
    return limit.needs == GPU and limit.on_gpu_work and limit.missed_by_more and not asks_for_some


def _unless_not_known(analysis: Analysis, wanted: Asked) -> Verdict | None:
    """Return *not measured* for a limit that holds but depends on kernels of no known family; else None."""
    for family in wanted.limit.families:
        supposed = analysis.supposing(family)
        if supposed is None:
            continue
        verdict = next((verdict for verdict in _given(supposed, wanted) if verdict.status != HOLDS), None)
        if verdict is not None:
            names = sorted(supposed.own_kernels.supposed)
            asked = KernelsToDeclare(tuple(names), tuple(analysis.unmatched_declarations))
            return unmeasured(FamilyUnknown(tuple(names), family), (asked,), step=verdict.step)
    return None


def _cannot_judge(analysis: Analysis, limit: Limit) -> Reason | None:
    """Return why this limit cannot be judged on this recording at all, or None."""
    if limit.needs != GPU:
        return None
    if analysis.doubt is not None:
        return analysis.doubt
    if limit.on_gpu_work and (hidden := analysis.kernels_unknown):
        return hidden
    if limit.on_time and (setting := analysis.trace.environment.launches_wait):
        return LaunchesWait(setting)
    if limit.on_time and analysis.trace.samples_hardware:
        return ClocksLocked()
    return None
