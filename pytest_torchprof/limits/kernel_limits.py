"""Limits on which kernels ran and which operators launched them; each must hold in every step."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from msgspec import structs

from pytest_torchprof.kernels.carried import carries, carries_all, doubts
from pytest_torchprof.kernels.fields import bare, checked_operator
from pytest_torchprof.kernels.kernels import counted_names
from pytest_torchprof.kernels.patterns import (
    NamePattern,
    Pattern,
    Unmatched,
    compile_pattern,
    unmatched,
    without_tuning,
)
from pytest_torchprof.kernels.reply import NO, YES, Reply, ask, some
from pytest_torchprof.kernels.selectors import Operator, compile_op_pattern, is_expression
from pytest_torchprof.limits.allowances import Allowance, read_allowances
from pytest_torchprof.limits.answers import StepAnswer, in_each_step
from pytest_torchprof.limits.compile_limits import instead_of_compiling
from pytest_torchprof.limits.evidence import (
    AllowedNothing,
    IdleOperators,
    KernelsToDeclare,
    PatternAdvice,
    WhyLine,
    what_each_carries,
)
from pytest_torchprof.limits.items import Item
from pytest_torchprof.limits.limit import (
    MISSED,
    NOT_MEASURED,
    Limit,
    Setting,
    Verdict,
    as_counts,
    as_groups,
    as_list,
    group_kernels,
    group_others,
    list_operators,
)
from pytest_torchprof.limits.seen import (
    CarriedByNone,
    CarriedTogether,
    ForbiddenMatches,
    MatchesSeen,
    OtherKernels,
)
from pytest_torchprof.reasons.errors import UnknownLimit
from pytest_torchprof.reasons.lines import LinesNotRecorded
from pytest_torchprof.reasons.operators_untold import (
    CarriedUntold,
    MatchesUntold,
    NameOfOperator,
    NothingToFuse,
    OperatorMatchUntold,
    OperatorRanWithoutKernel,
    OperatorUntold,
)
from pytest_torchprof.trace.columns import ABSENT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from pytest_torchprof.analysis.analysis import Analysis
    from pytest_torchprof.analysis.source_lines import Origin
    from pytest_torchprof.analysis.steps import StepProfile
    from pytest_torchprof.kernels.kernel import Kernel
    from pytest_torchprof.limits.evidence import AnyEvidence, WorkRow
    from pytest_torchprof.reasons.reason import Reason


Counts = dict["Pattern", "tuple[int, int] | None"]
OpCounts = dict["Operator", "tuple[int, int] | None"]


def _read_counts(value: object) -> Counts:
    return {compile_pattern(entry): count for entry, count in as_counts(value).items()}


def _read_patterns(value: object) -> list[Pattern]:
    return [compile_pattern(entry) for entry in as_list(value)]


def _read_op_counts(value: object) -> OpCounts:
    return {compile_op_pattern(entry): count for entry, count in as_counts(value).items()}


def _read_ops(value: object) -> list[Operator]:
    return [compile_op_pattern(entry) for entry in as_list(value)]


def _count_answers(
    pattern: Pattern | Operator, count: tuple[int, int] | None, sure: int, untold: Sequence[Kernel], noun: str
) -> Iterator[StepAnswer]:
    """Yield where ``sure`` matches, and kernels that may match, do not fit a count; None asks for at least one."""
    unknown = len(untold)
    low, high = count or (1, None)
    if sure + unknown < low or (high is not None and sure > high):
        yield StepAnswer(MISSED, MatchesSeen(sure, noun, str(pattern), low, high))
    elif sure < low or (high is not None and sure + unknown > high):
        yield StepAnswer(NOT_MEASURED, reason=_cannot_tell(pattern, untold, noun))


def _cannot_tell(pattern: Pattern | Operator, untold: Sequence[Kernel], noun: str) -> Reason:
    if isinstance(pattern, NamePattern) and pattern.names_operator:
        return NameOfOperator(str(pattern), len(untold))
    return OperatorMatchUntold(str(pattern), len(untold), noun, named=counted_names(untold))


def _no_such_operator(analysis: Analysis, asked: Operator | None) -> StepAnswer | None:
    """Return the answer if no operator of the name exists: a name that nothing can have forbids nothing."""
    reason = None if asked is None else analysis.launching.operators.no_such_operator(asked)
    return None if reason is None else StepAnswer(NOT_MEASURED, reason=reason, of_all_steps=True)


def _kernels(analysis: Analysis, step: StepProfile, counts: Counts) -> Iterator[StepAnswer]:
    for pattern, count in counts.items():
        matches = ask(step.kernels, pattern.verdict)
        unasked = not matches.yes and count is not None and count[0] == 0
        if unasked and not matches.not_known and (ran := _ran_without_kernel(step, pattern)):
            yield ran
            continue
        if unasked and (none := _no_such_operator(analysis, pattern.operator)):
            yield none
            continue
        for answer in _count_answers(pattern, count, len(matches.yes), matches.not_known, "kernel"):
            if answer.status == NOT_MEASURED:
                yield replace(answer, evidence=_not_known(analysis, step, matches.not_known))
                continue
            meant = unmatched(pattern, step.kernels) if not matches.yes else None
            too_many = len(matches.yes) > (count or (1, None))[0]
            rows = (
                *group_kernels(step, matches.yes),
                *(() if too_many else _in_their_place(step, pattern, matches.yes)),
            )
            yield replace(answer, evidence=(*((_advice_on(meant),) if meant else ()), *rows))


def _in_their_place(step: StepProfile, pattern: Pattern, matching: Sequence[Kernel]) -> tuple[WorkRow, ...]:
    """Return rows of the kernels that may have run in place of those of which there are too few.

    These are the kernels that compute the same in another way; if there are none, or if a name does not show it, all.
    """
    known = set(map(id, matching))
    akin = [kernel for kernel in step.kernels if pattern.is_akin(kernel)]
    others = [kernel for kernel in akin or step.kernels if id(kernel) not in known]
    return tuple(structs.replace(row, also_ran=True) for row in group_kernels(step, others))


_NAMES_IN_ADVICE = 3


def _advice_on(meant: Unmatched) -> PatternAdvice:
    named = meant.names.most_common(_NAMES_IN_ADVICE)
    return PatternAdvice(
        meant.pattern.written,
        is_expression(meant.pattern.written),
        str(meant.selector),
        len(meant.kernels),
        meant.noun,
        meant.asked,
        tuple((count, without_tuning(name)) for name, count in named),
        len(meant.names) - len(named),
    )


def _forbid_kernels(analysis: Analysis, step: StepProfile, patterns: list[Pattern]) -> Iterator[StepAnswer]:
    for pattern in patterns:
        matches = ask(step.kernels, pattern.verdict)
        if matches.yes:
            rows = group_kernels(step, matches.yes, raw=True)
            yield StepAnswer(MISSED, ForbiddenMatches(len(matches.yes), "kernel", str(pattern)), rows)
        elif none := _no_such_operator(analysis, pattern.operator):
            yield none
        elif unknown := matches.not_known:
            reason = _cannot_tell(pattern, unknown, "kernel")
            yield StepAnswer(NOT_MEASURED, evidence=_not_known(analysis, step, unknown), reason=reason)
        elif ran := _ran_without_kernel(step, pattern):
            yield ran


def _ran_without_kernel(step: StepProfile, pattern: Pattern) -> StepAnswer | None:
    """Return the answer if an operator that a pattern on kernels names ran and launched no kernel; else None."""
    if not isinstance(pattern, NamePattern) or not pattern.names_one_of(step.ops_that_ran):
        return None
    return StepAnswer(NOT_MEASURED, reason=OperatorRanWithoutKernel(str(pattern)))


def _only_kernels(analysis: Analysis, step: StepProfile, patterns: list[Pattern]) -> Iterator[StepAnswer]:
    matches = ask(step.kernels, lambda kernel: some(pattern.verdict(kernel) for pattern in patterns))
    if matches.no:
        yield StepAnswer(MISSED, OtherKernels(len(matches.no)), group_kernels(step, matches.no, raw=True))
    elif unknown := matches.not_known:
        reason = MatchesUntold(len(unknown))
        yield StepAnswer(NOT_MEASURED, evidence=_not_known(analysis, step, unknown), reason=reason)


def _not_known(analysis: Analysis, step: StepProfile, kernels: Sequence[Kernel]) -> tuple[AnyEvidence, ...]:
    """Return rows of the kernels that may match, and advice on how to say what they are."""
    nameless = tuple(kernel.name for kernel in kernels if kernel.family is None and kernel.name.strip())
    asked = [KernelsToDeclare(nameless, tuple(analysis.unmatched_declarations))] if nameless else []
    return (*group_kernels(step, kernels), *asked)


def _op_hits(ops: Mapping[str, int], pattern: Operator) -> Counter[str]:
    return Counter({name: calls for name, calls in ops.items() if pattern.matches_op(name)})


def _of_unknown_operators(analysis: Analysis, step: StepProfile) -> list[Kernel]:
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
    unknown = _of_unknown_operators(analysis, step)
    for pattern, count in counts.items():
        # An operator with a count of zero is forbidden.
        hits = _op_hits(step.ops if count is None or count[1] else step.ops_that_ran, pattern)
        none = None if hits else _no_such_operator(analysis, pattern)
        if none is not None and count is not None and count[0] == 0:
            yield none
            continue
        untold = [*unknown, *_undecided(analysis, step, pattern)]
        for answer in _count_answers(pattern, count, hits.total(), untold, "operator"):
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
        raise UnknownLimit(f"expected operators and lines, got {str(entry)!r}")
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
    return structs.replace(verdict, evidence=(*verdict.evidence, AllowedNothing(unused))) if unused else verdict


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
        elif not ran and (none := _no_such_operator(analysis, pattern)):
            yield none
        elif undecided := _undecided(analysis, step, pattern):
            yield _untold_operators(undecided)
    if unknown := _of_unknown_operators(analysis, step):
        yield _untold_operators(unknown)


def _read_fused(value: object) -> list[tuple[str, ...]]:
    entries = as_groups(value)
    groups = [entries] if all(isinstance(entry, str) for entry in entries) else [as_list(entry) for entry in entries]
    for group in groups:
        if not all(isinstance(token, str) and token for token in group):
            raise UnknownLimit(
                f'expected operator names such as ["add", "mul"], or a list of such lists, got {value!r}'
            )
    return [tuple(checked_operator(str(token)) for token in group) for group in groups]


def _read_apart(value: object) -> list[tuple[str, ...]]:
    groups = _read_fused(value)
    if any(len(set(map(bare, group))) < 2 for group in groups):
        raise UnknownLimit(
            f'expected two or more operators that no kernel may carry together, such as ["sum", "amax"], got {value!r}'
        )
    return groups


def _fused(analysis: Analysis, step: StepProfile, groups: list[tuple[str, ...]]) -> Iterator[StepAnswer]:
    for group in groups:
        matches = ask(step.kernels, partial(carries_all, group=group))
        if matches.yes:
            continue
        if matches.not_known:
            yield _untold_carried(step, matches.not_known)
            continue
        eager = instead_of_compiling(analysis.compile)
        seen = CarriedByNone(group, compiled=not eager)
        # First the kernels that carry one of them: the rest may not fit a screen.
        telling = sorted(step.kernels, key=lambda kernel: all(carries(kernel, op) is NO for op in group))
        yield StepAnswer(MISSED, seen, (*eager, *what_each_carries(telling)))


def _not_fused(analysis: Analysis, step: StepProfile, groups: list[tuple[str, ...]]) -> Iterator[StepAnswer]:
    for group in groups:
        named = list(dict.fromkeys(map(bare, group)))
        replies = [(kernel, {op: carries(kernel, op) for op in named}) for kernel in step.kernels]
        carried = [(kernel, [op for op, reply in by_op.items() if reply is YES]) for kernel, by_op in replies]
        unknown = [kernel for kernel, by_op in replies if sum(reply.may_be for reply in by_op.values()) > 1]
        if hits := [(kernel, ops) for kernel, ops in carried if len(ops) > 1]:
            seen = CarriedTogether(len(hits), tuple(hits[0][1]))
            yield StepAnswer(MISSED, seen, group_kernels(step, [kernel for kernel, _ in hits], raw=True))
        elif unknown:
            yield _untold_carried(step, unknown)
        elif absent := _carried_by_none(step, group, [op for _, ops in carried for op in ops]):
            eager = instead_of_compiling(analysis.compile)
            why = NothingToFuse(() if eager else tuple(absent))
            yield StepAnswer(NOT_MEASURED, evidence=(*eager, *what_each_carries(step.kernels)), reason=why)


def _carried_by_none(step: StepProfile, group: Sequence[str], carried: Sequence[str]) -> list[str]:
    """Return the operators of a group that no kernel carries, neither one of Inductor's nor one of their own."""
    # If Inductor made none of the kernels, nothing could be fused, and each operator is in a kernel of its own anyway.
    alone = {bare(kernel.op) for kernel in step.kernels if kernel.op} if carried else set()
    return [op for op in group if bare(op) not in {*map(bare, carried), *alone}]


def _untold_carried(step: StepProfile, unknown: Sequence[Kernel]) -> StepAnswer:
    doubted = tuple(sorted({op for kernel in unknown for op in doubts(kernel)}))
    why = CarriedUntold(len(unknown), doubted)
    return StepAnswer(NOT_MEASURED, evidence=group_kernels(step, unknown, raw=True), reason=why)


def _limit(
    name: str,
    read: Callable[[object], object],
    problems: Callable[..., Iterator[StepAnswer]],
    *,
    of_events_alone: bool = False,
) -> Limit:
    # These limits ask about each kernel, and take no answer for another.
    return Limit(
        name=name,
        read=read,
        check=in_each_step(problems),
        per_step=True,
        families=(),
        of_events_alone=of_events_alone,
    )


KERNEL_LIMITS = (
    _limit("kernels", _read_counts, _kernels),
    _limit("forbid_kernels", _read_patterns, _forbid_kernels),
    _limit("only_kernels", _read_patterns, _only_kernels),
    _limit("ops", _read_op_counts, _ops, of_events_alone=True),
    Limit(
        name="forbid_ops",
        read=_read_ops,
        check=_check_forbidden,
        settings=(Setting(name="allow_ops", read=_read_allowed_ops),),
        per_step=True,
        families=(),
        of_events_alone=True,
    ),
    _limit("fused", _read_fused, _fused),
    _limit("not_fused", _read_apart, _not_fused),
)
