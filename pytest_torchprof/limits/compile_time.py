"""The limit on the time that torch.compile takes, with the caches as they are, or with cold and with warm ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, get_args

from pytest_torchprof.limits.evidence import CachesUsed, CompilePart, was_used
from pytest_torchprof.limits.limit import HOLDS, MISSED, Verdict, positive_number, unmeasured
from pytest_torchprof.limits.seen import CompileTime
from pytest_torchprof.reasons.composed import Several
from pytest_torchprof.reasons.decoding import from_stored
from pytest_torchprof.reasons.errors import UnknownLimit
from pytest_torchprof.reasons.limits import NoCompileTimes, NothingCompiled, NotMeasuredWithCaches
from pytest_torchprof.reasons.wrong_values import ValueForm, WrongValue
from pytest_torchprof.trace.caches import CacheUses, ColdStart, Phase

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_torchprof.analysis.analysis import Analysis
    from pytest_torchprof.analysis.compilation import Compile
    from pytest_torchprof.limits.evidence import AnyEvidence
    from pytest_torchprof.reasons.reason import Reason

PHASES: Final[tuple[str, ...]] = get_args(Phase)


def read_compile_time(value: object) -> float | dict[str, float]:
    """Return seconds, or seconds for cold caches and for warm ones; or raise UnknownLimit."""
    if not isinstance(value, Mapping):
        return positive_number(value)
    if not value or any(phase not in PHASES for phase in value):
        raise UnknownLimit.because(WrongValue(ValueForm.COMPILE_TIME, repr(value)))
    return {phase: positive_number(value[phase]) for phase in PHASES if phase in value}


def max_compile_time(analysis: Analysis, asked: float | Mapping[str, float]) -> Verdict:
    """Return the verdict on each phase that is asked for: missed where one is, else not measured where one is not."""
    seen, caches = analysis.compile, analysis.compile.caches
    own = None if caches is None else caches.phase
    bounds: Mapping[str | None, float] = dict(asked.items()) if isinstance(asked, Mapping) else {own: asked}
    starts = {phase: _start(seen, phase) for phase in bounds}
    doubt = None if caches is None else from_stored(caches.doubt)
    unknown = {phase: reason for phase, start in starts.items() if (reason := _why_unknown(start, phase, doubt, own))}
    totals = {
        phase: start.time_us["total"]
        for phase, start in starts.items()
        if start and start.time_us and phase not in unknown
    }
    missed = [phase for phase, us in totals.items() if us > bounds[phase] * 1e6]
    if unknown and not missed:
        return unmeasured(Several.of(unknown.values()))
    return Verdict(
        seen=tuple(CompileTime(us / 1e6, phase) for phase, us in totals.items()),
        number=next(iter(totals.values())) / 1e6 if len(bounds) == 1 else None,
        status=MISSED if missed else HOLDS,
        evidence=tuple(line for phase in totals for line in _lines(starts[phase], phase if len(bounds) > 1 else None)),
    )


def _start(seen: Compile, phase: str | None) -> ColdStart | None:
    """Return the times and caches of a phase; None if the recording has none."""
    caches = seen.caches
    if caches is not None and phase == "cold" and caches.phase == "warm":
        return caches.cold
    if phase is not None and (caches is None or caches.phase != phase):
        return None
    return ColdStart(time_us=seen.time_us) if caches is None else ColdStart(time_us=seen.time_us, uses=caches.uses)


def _why_unknown(start: ColdStart | None, phase: str | None, doubt: Reason | None, own: str | None) -> Reason | None:
    if start is None:
        return NotMeasuredWithCaches(str(phase))
    if start.time_us is None:
        return NoCompileTimes()
    if not start.time_us.get("total"):
        return NothingCompiled()
    return doubt if phase == own else None


def _lines(start: ColdStart | None, phase: str | None) -> Iterator[AnyEvidence]:
    if start is None:
        return
    for part, us in sorted((start.time_us or {}).items(), key=lambda part: -part[1]):
        if us and part != "total":
            yield CompilePart(part, us, phase)
    if start.uses != CacheUses() and any(was_used(getattr(start.uses, name)) for name in CacheUses.__struct_fields__):
        yield CachesUsed(start.uses, phase)
