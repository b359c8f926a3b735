"""Limits within a user's ranges: ``ranges={"decode": {"max_syncs": 0}}``, judged each time the range is entered."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from msgspec.structs import replace

from pytest_torchprof.analysis.annotated_ranges import without_annotation
from pytest_torchprof.analysis.range_view import RangeView
from pytest_torchprof.analysis.regions import regions_of
from pytest_torchprof.analysis.user_ranges import instead_of, user_ranges
from pytest_torchprof.kernels.kernels import counted_texts
from pytest_torchprof.limits.asked import Asked, check_limits, read_limits
from pytest_torchprof.limits.limit import Limit, Verdict, unmeasured
from pytest_torchprof.limits.written import RANGES
from pytest_torchprof.reasons.composed import OfRange
from pytest_torchprof.reasons.errors import UnknownLimit
from pytest_torchprof.reasons.limits import RangeNotInStep, RangeOfGraphUnknown, RangeOfLaunchesUnknown
from pytest_torchprof.reasons.wrong_values import OfWholeMeasurement, ValueForm, WrongValue
from pytest_torchprof.text.globs import fits, is_glob
from pytest_torchprof.trace.graph_annotations import is_of_graphs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_torchprof.analysis.analysis import Analysis
    from pytest_torchprof.reasons.reason import Reason

Within = Mapping[str, tuple[Asked, ...]]


def range_limit(known: Sequence[Limit]) -> Limit:
    """Return the limit ``ranges``, which takes the known limits that are judged by each step alone."""
    inside = [limit for limit in known if limit.per_step]
    others = {limit.name for limit in known if not limit.per_step}

    def read(value: object) -> Within:
        if not isinstance(value, Mapping) or not value:
            raise UnknownLimit.because(WrongValue(ValueForm.RANGES, repr(value)))
        return {_name(name): _in_range(name, limits) for name, limits in value.items()}

    def _in_range(name: str, limits: object) -> tuple[Asked, ...]:
        try:
            return _read_inside(limits)
        except UnknownLimit as problem:
            raise UnknownLimit.because(OfRange(name, problem.reason)) from None

    def _read_inside(limits: object) -> tuple[Asked, ...]:
        if not isinstance(limits, Mapping) or not limits:
            raise UnknownLimit.because(WrongValue(ValueForm.LIMITS, repr(limits)))
        if outer := next((word for word in limits if word in others), None):
            raise UnknownLimit.because(OfWholeMeasurement(outer))
        return read_limits(limits, known=inside)

    return Limit(name=RANGES, read=read, check=_check, on_gpu_work=False, located=False, families=())


def _name(name: object) -> str:
    if isinstance(name, str) and name.strip():
        return name
    raise UnknownLimit.because(WrongValue(ValueForm.RANGE, repr(name)))


def _check(analysis: Analysis, within: Within) -> tuple[Verdict, ...]:
    named = _named(analysis, within)
    return tuple(verdict for name, asked in named.items() for verdict in _check_range(analysis, name, asked))


def _named(analysis: Analysis, within: Within) -> Within:
    """Return the limits by the names of ranges for which the patterns stand.

    Of a limit that several have for a range, the one under its own name holds, else the last. A pattern that stands for
    none stays, and is not measured.
    """
    names = [name for name in user_ranges(analysis.trace) if any(fits(pattern, name) for pattern in within)]
    asked: dict[str, dict[str, Asked]] = {}
    for pattern, limits in sorted(within.items(), key=lambda own: own[0] in names):
        fitting = (
            [pattern] if pattern in names or not is_glob(pattern) else [own for own in names if fits(pattern, own)]
        )
        for name in fitting or [pattern]:
            asked.setdefault(name, {}).update({own.limit.name: own for own in limits})
    return {name: tuple(limits.values()) for name, limits in asked.items()}


def _check_range(analysis: Analysis, name: str, asked: Sequence[Asked]) -> tuple[Verdict, ...]:
    view = RangeView(analysis, name)
    unknown = _why_unknown(view)
    if unknown is None:
        return tuple(replace(verdict, range=name) for verdict in check_limits(view, asked))
    return tuple(unmeasured(unknown).on(wanted.limit.name, wanted.shown, within=name) for wanted in asked)


def _why_unknown(view: RangeView) -> Reason | None:
    """Return why limits within the range cannot be judged at all; None where they can."""
    trace = view.trace
    if view.without:
        meant, there = instead_of(trace, view.name)
        return RangeNotInStep(
            name=view.name,
            step=view.whole.title_of(view.without[0]),
            compiled=bool(regions_of(trace).regions),
            others=len(view.whole.steps) - len(view.without) if view.occurrences else 0,
            near=meant,
            there=there,
        )
    call_of = trace.links.call_of
    lost = sum(call_of[i] < 0 for step in view.whole.steps for i in step.part.gpu_ops)
    if lost:
        return RangeOfLaunchesUnknown(lost, view.name)
    if not is_of_graphs(view.name):
        return None
    unknown = without_annotation(trace, (i for step in view.whole.steps for i in step.part.gpu_ops))
    named = counted_texts(view.launching.decoded(i).short or trace.names[trace.gpu.name[i]] for i in unknown)
    return RangeOfGraphUnknown(view.name, len(unknown), named=named) if unknown else None
