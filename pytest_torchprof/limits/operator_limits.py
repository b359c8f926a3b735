"""Limits on which operators ran and launched kernels; each must hold in every step."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING

from msgspec.structs import replace

from pytest_torchprof.kernels.kernels import counted_names
from pytest_torchprof.kernels.reply import YES, Reply, some
from pytest_torchprof.kernels.selectors import Operator, compile_op_pattern
from pytest_torchprof.limits.allowances import Allowance, read_allowances
from pytest_torchprof.limits.answers import StepAnswer, in_each_step, limit_in_each_step
from pytest_torchprof.limits.evidence import AllowedNothing, IdleOperators, WhyLine
from pytest_torchprof.limits.items import Item
from pytest_torchprof.limits.limit import (
    MISSED,
    NOT_MEASURED,
    Limit,
    Setting,
    Verdict,
    as_list,
    counts_of,
    group_kernels,
    group_others,
    list_operators,
)
from pytest_torchprof.limits.matches import count_answers, no_such_operator
from pytest_torchprof.limits.seen import ForbiddenMatches
from pytest_torchprof.reasons.errors import UnknownLimit
from pytest_torchprof.reasons.lines import LinesNotRecorded
from pytest_torchprof.reasons.operators_untold import OperatorUntold
from pytest_torchprof.reasons.wrong_values import ValueForm, WrongValue
from pytest_torchprof.trace.columns import ABSENT

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pytest_torchprof.analysis.analysis import Analysis
    from pytest_torchprof.analysis.origin import Origin
    from pytest_torchprof.analysis.steps import StepProfile
    from pytest_torchprof.kernels.kernel import Kernel


OpCounts = dict["Operator", "tuple[int, int] | None"]


def _read_ops(value: object) -> list[Operator]:
    return [compile_op_pattern(entry) for entry in as_list(value)]


def _op_hits(ops: Mapping[str, int], pattern: Operator) -> Counter[str]:
    return Counter({name: calls for name, calls in ops.items() if pattern.matches_op(name)})


def _kernels_of_unknown_operators(analysis: Analysis, step: StepProfile) -> list[Kernel]:
    """Return the kernels of a step whose operators the recording does not show."""
    if not analysis.trace.device_kind.has_launches:
        return []  # Each is an operator.
    no_operators = not len(analysis.trace.ops)
    # For a graph's kernels only the launch of the graph is known, unless the capture was seen too.
    return [
        kernel
        for kernel in step.kernels
        if not kernel.capture_known
        and (kernel.in_graph or (kernel.op is None and (kernel.launch is None or no_operators)))
    ]


def _undecided(analysis: Analysis, step: StepProfile, pattern: Operator) -> list[Kernel]:
    """Return the kernels that a matching operator may have launched, or just as well another one around it."""
    if not analysis.trace.captured.unsure:
        return []
    return [kernel for kernel in step.kernels if any(map(pattern.matches_op, kernel.unsure_ops))]


def _annotated(analysis: Analysis, step: StepProfile, pattern: Operator) -> list[Kernel]:
    """Return the kernels of graphs that are annotated with a matching operator: it ran, whatever launched them."""
    if not analysis.trace.captured.annotated:
        return []
    annotated = ((kernel, kernel.annotation.operator) for kernel in step.kernels if kernel.annotation is not None)
    return [kernel for kernel, operator in annotated if operator is not None and pattern.matches_op(operator)]


def _untold_operators(unknown: Sequence[Kernel]) -> StepAnswer:
    return StepAnswer(NOT_MEASURED, reason=OperatorUntold(len(unknown), named=counted_names(unknown)))


def _ops(analysis: Analysis, step: StepProfile, counts: OpCounts) -> Iterator[StepAnswer]:
    unknown = _kernels_of_unknown_operators(analysis, step)
    for pattern, count in counts.items():
        # An operator with a count of zero is forbidden.
        hits = _op_hits(step.ops if count is None or count[1] else step.ops_that_ran, pattern)
        none = None if hits else no_such_operator(analysis, pattern)
        if none is not None and count is not None and count[0] == 0:
            yield none
            continue
        untold = [*unknown, *_undecided(analysis, step, pattern)]
        for answer in count_answers(pattern, count, hits.total(), untold, "operator"):
            if answer.status != MISSED:
                yield _untold_operators(untold)
            elif hits.total() > (count or (1, None))[0]:
                yield replace(answer, evidence=list_operators(step, dict(hits.most_common()), hits))
            else:
                lines = [WhyLine(none.reason)] if none and none.reason else _idle_operators(step, pattern)
                yield replace(answer, evidence=(*lines, *list_operators(step, hits, hits), *group_others(step, ())))


def _idle_operators(step: StepProfile, pattern: Operator) -> list[IdleOperators]:
    """Return a line on the matching operators that ran and launched no kernel, which are not counted."""
    idle = _op_hits(step.ops_that_ran, pattern) - _op_hits(step.ops, pattern)
    return [IdleOperators(idle.total(), tuple(idle))] if idle else []


def _read_allowed_ops(value: object) -> tuple[Allowance, ...]:
    allowed = read_allowances(value)
    if entry := next((own for own in allowed if own.operator is None and not own.needs_lines), None):
        raise UnknownLimit.because(WrongValue(ValueForm.ALLOWED_OPERATOR, repr(str(entry))))
    return allowed


def _check_forbidden(analysis: Analysis, patterns: list[Operator], *, allow_ops: tuple[Allowance, ...] = ()) -> Verdict:
    """Return whether no operator ran that is forbidden and not allowed, with what nothing was allowed by."""
    verdict = in_each_step(partial(_forbid_ops, allow=allow_ops))(analysis, patterns)
    ran = {
        name for step in analysis.steps for name in step.ops_that_ran if any(own.matches_op(name) for own in patterns)
    }
    unused = tuple(
        str(entry)
        for entry in allow_ops
        if not any(_allows(entry, analysis, step, name) for step in analysis.steps for name in ran)
    )
    return replace(verdict, evidence=(*verdict.evidence, AllowedNothing(unused))) if unused else verdict


def _allows(entry: Allowance, analysis: Analysis, step: StepProfile, name: str) -> bool:
    """Return whether calls of an operator in a step are, or may be, allowed by an entry."""
    if entry.operator is not None:
        return entry.operator.matches_op(name)
    placed = step.places.of_operator(name)
    unplaced = sum(count for count, _ in placed) < step.ops_that_ran.get(name, 0)
    return unplaced or any(_is_from(entry, analysis, name, origin).may_be for _, origin in placed)


def _is_from(entry: Allowance, analysis: Analysis, name: str, origin: Origin) -> Reply:
    item = Item(name=name, op_name=name, op=ABSENT, call=ABSENT, time_us=0, origin=origin, is_placed=True)
    return entry.answers(analysis, [item])[0]


def _not_allowed(
    analysis: Analysis, step: StepProfile, hits: Counter[str], allow: Sequence[Allowance]
) -> tuple[Counter[str], Counter[str]]:
    """Return the calls that nothing allows, and those of which it is not known: no line of theirs is recorded."""
    left, unknown = Counter[str](), Counter[str]()
    lines = [entry for entry in allow if entry.needs_lines]
    for name, calls in hits.items():
        if any(entry.operator is not None and entry.operator.matches_op(name) for entry in allow):
            continue
        if not lines:
            left[name] = calls
            continue
        placed = step.places.of_operator(name)
        for count, origin in placed:
            reply = some(_is_from(entry, analysis, name, origin) for entry in lines)
            if reply is not YES:
                (unknown if reply.may_be else left)[name] += count
        unknown[name] += calls - sum(count for count, _ in placed)
    return +left, +unknown


def _forbid_ops(
    analysis: Analysis, step: StepProfile, patterns: list[Operator], *, allow: Sequence[Allowance]
) -> Iterator[StepAnswer]:
    for pattern in patterns:
        # A forbidden operator must not run at all: .item() launches no kernel.
        ran = _op_hits(step.ops_that_ran, pattern)
        hits, unknown_lines = _not_allowed(analysis, step, ran, allow)
        if unknown_lines and not hits:
            rows = list_operators(step, dict(unknown_lines.most_common()), unknown_lines)
            yield StepAnswer(NOT_MEASURED, evidence=rows, reason=LinesNotRecorded())
        elif hits:
            launching = step.ops_of_work if analysis.trace.device_kind.has_launches else hits
            rows = list_operators(step, dict(hits.most_common()), launching)
            yield StepAnswer(MISSED, ForbiddenMatches(hits.total(), "operator", str(pattern)), rows)
        elif kernels := _annotated(analysis, step, pattern):
            rows = group_kernels(step, kernels)
            yield StepAnswer(MISSED, ForbiddenMatches(len(kernels), "kernel", str(pattern)), rows)
        elif not ran and (none := no_such_operator(analysis, pattern)):
            yield none
        elif undecided := _undecided(analysis, step, pattern):
            yield _untold_operators(undecided)
    if unknown := _kernels_of_unknown_operators(analysis, step):
        yield _untold_operators(unknown)


OPERATOR_LIMITS = (
    limit_in_each_step("ops", partial(counts_of, compile_op_pattern), _ops, of_events_alone=True),
    Limit(
        name="forbid_ops",
        read=_read_ops,
        check=_check_forbidden,
        settings=(Setting(name="allow_ops", read=_read_allowed_ops),),
        per_step=True,
        families=(),
        of_events_alone=True,
    ),
)
