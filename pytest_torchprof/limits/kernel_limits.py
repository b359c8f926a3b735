"""Limits on which kernels ran and which operators launched them; each must hold in every step."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_torchprof.codes import Code
from pytest_torchprof.errors import UnknownLimit
from pytest_torchprof.kernels.fields import bare, checked_operator
from pytest_torchprof.kernels.patterns import (
    NamePattern,
    Pattern,
    carried_by,
    compile_pattern,
    fused_match,
    hint,
    unfused_lines,
)
from pytest_torchprof.kernels.selectors import Operator, compile_op_pattern, hides_operators
from pytest_torchprof.limits.answers import StepAnswer, in_each_step, show_count
from pytest_torchprof.limits.compile_limits import lines_on_nothing
from pytest_torchprof.limits.limit import (
    MISSED,
    NOT_MEASURED,
    Limit,
    as_counts,
    as_groups,
    as_list,
    group_kernels,
    group_others,
    list_operators,
)
from pytest_torchprof.text import counted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pytest_torchprof.analysis.analysis import Analysis
    from pytest_torchprof.analysis.steps import StepProfile
    from pytest_torchprof.kernels.kernel import Kernel


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
    pattern: Pattern | Operator, count: tuple[int, int] | None, sure: int, unknown: int, noun: str
) -> Iterator[StepAnswer]:
    """Hold ``sure`` matches and ``unknown`` ones against a count; None asks for at least one."""
    low, high = count or (1, None)
    if sure + unknown < low or (high is not None and sure > high):
        yield StepAnswer(MISSED, f"{_matching(sure, noun)} {pattern}, expected {show_count(count)}")
    elif sure < low or (high is not None and sure + unknown > high):
        yield StepAnswer(NOT_MEASURED, _cannot_tell(pattern, unknown, noun), code=Code.MATCH_UNKNOWN)


def _cannot_tell(pattern: Pattern | Operator, unknown: int, noun: str) -> str:
    told = f"whether {pattern} matches cannot be told for {counted(unknown, noun)}"
    if isinstance(pattern, NamePattern) and pattern.names_operator:
        return f"{pattern} is an operator, for which ops, forbid_ops and op= ask, and no kernel's name here: {told}"
    return told


def _no_such_operator(analysis: Analysis, asked: Operator | None) -> StepAnswer | None:
    """Return that there is no operator as it is asked for: a name that nothing can have forbids nothing."""
    said = None if asked is None else analysis.launching.no_such_operator(asked)
    return None if said is None else StepAnswer(NOT_MEASURED, said, code=Code.NO_SUCH_OPERATOR, of_all_steps=True)


def _matching(count: int, noun: str) -> str:
    return f"{counted(count, noun)} {'matches' if count == 1 else 'match'}"


def _kernels(analysis: Analysis, step: StepProfile, counts: Counts) -> Iterator[StepAnswer]:
    for pattern, count in counts.items():
        verdicts = [pattern.verdict(kernel) for kernel in step.kernels]
        sure, unknown = verdicts.count(True), _unknown(step, verdicts)
        if not sure and count is not None and count[0] == 0 and (none := _no_such_operator(analysis, pattern.operator)):
            yield none
            continue
        for answer in _count_answers(pattern, count, sure, len(unknown), "kernel"):
            if answer.status == NOT_MEASURED:
                yield replace(answer, details=group_kernels(step, unknown))
                continue
            hits = [kernel for kernel, verdict in zip(step.kernels, verdicts, strict=True) if verdict]
            advice = hint(pattern, step.kernels) if not hits else None
            rows = (*group_kernels(step, hits), *group_others(step, hits))
            yield replace(answer, details=(*((advice,) if advice else ()), *rows))


def _unknown(step: StepProfile, verdicts: Iterable[bool | None]) -> list[Kernel]:
    return [kernel for kernel, verdict in zip(step.kernels, verdicts, strict=True) if verdict is None]


def _forbid_kernels(analysis: Analysis, step: StepProfile, patterns: list[Pattern]) -> Iterator[StepAnswer]:
    for pattern in patterns:
        verdicts = [pattern.verdict(kernel) for kernel in step.kernels]
        if hits := [kernel for kernel, verdict in zip(step.kernels, verdicts, strict=True) if verdict]:
            rows = group_kernels(step, hits, raw=True)
            yield StepAnswer(MISSED, f"{_matching(len(hits), 'kernel')} {pattern}", rows)
        elif none := _no_such_operator(analysis, pattern.operator):
            yield none
        elif unknown := _unknown(step, verdicts):
            told = _cannot_tell(pattern, len(unknown), "kernel")
            yield StepAnswer(NOT_MEASURED, told, group_kernels(step, unknown), Code.MATCH_UNKNOWN)


def _only_kernels(_analysis: Analysis, step: StepProfile, patterns: list[Pattern]) -> Iterator[StepAnswer]:
    matches = [(kernel, {pattern.verdict(kernel) for pattern in patterns}) for kernel in step.kernels]
    if others := [kernel for kernel, found in matches if found == {False}]:
        yield StepAnswer(MISSED, counted(len(others), "other kernel"), group_kernels(step, others, raw=True))
    elif unknown := [kernel for kernel, found in matches if True not in found]:
        told = f"whether they match cannot be told for {counted(len(unknown), 'kernel')}"
        yield StepAnswer(NOT_MEASURED, told, group_kernels(step, unknown), Code.MATCH_UNKNOWN)


def _op_hits(ops: Mapping[str, int], pattern: Operator) -> Counter[str]:
    return Counter({name: calls for name, calls in ops.items() if pattern.matches_op(name)})


def _of_unknown_operators(analysis: Analysis, step: StepProfile) -> int:
    """Return how many kernels of a step the recording does not tell the operators of."""
    no_operators = not len(analysis.trace.ops)
    # Of a graph's kernels only the launch of the graph is known.
    return sum(
        kernel.in_graph or (kernel.op is None and (kernel.launch is None or no_operators)) for kernel in step.kernels
    )


def _untold_operators(unknown: int) -> StepAnswer:
    told = f"which operator launched them cannot be told for {counted(unknown, 'kernel')}"
    return StepAnswer(NOT_MEASURED, told, code=Code.OPERATOR_UNKNOWN)


def _ops(analysis: Analysis, step: StepProfile, counts: OpCounts) -> Iterator[StepAnswer]:
    unknown = _of_unknown_operators(analysis, step)
    for pattern, count in counts.items():
        # What is asked for not at all is forbidden.
        hits = _op_hits(step.ops if count is None or count[1] else step.ops_that_ran, pattern)
        none = None if hits else _no_such_operator(analysis, pattern)
        if none is not None and count is not None and count[0] == 0:
            yield none
            continue
        for answer in _count_answers(pattern, count, hits.total(), unknown, "operator"):
            if answer.status == MISSED:
                lines = [none.measured] if none else _idle_operators(step, pattern)
                yield replace(answer, details=(*lines, *group_others(step, ())))
            else:
                yield _untold_operators(unknown)


def _idle_operators(step: StepProfile, pattern: Operator) -> list[str]:
    """Return a line on the matching operators that ran and launched no kernel, which are not counted."""
    idle = _op_hits(step.ops_that_ran, pattern) - _op_hits(step.ops, pattern)
    return [f"{counted(idle.total(), 'more call')} of {', '.join(idle)} launched no kernel"] if idle else []


def _forbid_ops(analysis: Analysis, step: StepProfile, patterns: list[Operator]) -> Iterator[StepAnswer]:
    for pattern in patterns:
        # What is forbidden must not run at all: .item() launches no kernel.
        if hits := _op_hits(step.ops_that_ran, pattern):
            launching = step.ops_of_work if analysis.trace.device_kind.has_launches else hits
            rows = list_operators(step, dict(hits.most_common()), launching)
            yield StepAnswer(MISSED, f"{_matching(hits.total(), 'operator')} {pattern}", rows)
        elif none := _no_such_operator(analysis, pattern):
            yield none
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
        if any(fused_match(kernel, group) for kernel in step.kernels):
            continue
        if any(map(hides_operators, step.kernels)):
            yield _hidden_operators(step)
            continue
        carried = f"{' and '.join(group)}{' together' if len(group) > 1 else ''}"
        eager = lines_on_nothing(analysis.compile)
        yield StepAnswer(
            MISSED,
            f"{'nothing was compiled, and ' if eager else ''}no kernel carries {carried}",
            (*eager, *unfused_lines(step.kernels)),
        )


def _not_fused(analysis: Analysis, step: StepProfile, groups: list[tuple[str, ...]]) -> Iterator[StepAnswer]:
    for group in groups:
        carried = [(kernel, ops) for kernel in step.kernels if (ops := carried_by(kernel, group))]
        if hits := [(kernel, ops) for kernel, ops in carried if len(set(map(bare, ops))) > 1]:
            together = " and ".join(hits[0][1])
            said = f"{counted(len(hits), 'kernel')} {'carries' if len(hits) == 1 else 'carry'} {together} together"
            yield StepAnswer(MISSED, said, group_kernels(step, [kernel for kernel, _ in hits], raw=True))
        elif any(map(hides_operators, step.kernels)):
            yield _hidden_operators(step)
        elif absent := _carried_by_none(step, group, [op for _, ops in carried for op in ops]):
            if eager := lines_on_nothing(analysis.compile):
                said = "nothing was compiled, so that nothing could be fused"
            else:
                said = f"no kernel carries {' or '.join(absent)}: what does not run is fused with nothing"
            yield StepAnswer(NOT_MEASURED, said, (*eager, *unfused_lines(step.kernels)), Code.NOTHING_TO_FUSE)


def _carried_by_none(step: StepProfile, group: Sequence[str], carried: Sequence[str]) -> list[str]:
    """Return the operators of a group that neither a kernel of Inductor's carries nor one of their own beside those."""
    # Where Inductor has made none of them, nothing was there to be fused, and each is in a kernel of its own anyhow.
    alone = {bare(kernel.op) for kernel in step.kernels if kernel.op} if carried else set()
    return [op for op in group if bare(op) not in {*map(bare, carried), *alone}]


def _hidden_operators(step: StepProfile) -> StepAnswer:
    hidden = [kernel for kernel in step.kernels if hides_operators(kernel)]
    told = f"which operators they carry cannot be told for {counted(len(hidden), 'kernel')} of Inductor's"
    return StepAnswer(NOT_MEASURED, told, group_kernels(step, hidden, raw=True), Code.OPERATOR_UNKNOWN)


KERNEL_LIMITS = (
    Limit(name="kernels", read=_read_counts, check=in_each_step(_kernels), per_step=True),
    Limit(name="forbid_kernels", read=_read_patterns, check=in_each_step(_forbid_kernels), per_step=True),
    Limit(name="only_kernels", read=_read_patterns, check=in_each_step(_only_kernels), per_step=True),
    Limit(name="ops", read=_read_op_counts, check=in_each_step(_ops), per_step=True),
    Limit(name="forbid_ops", read=_read_ops, check=in_each_step(_forbid_ops), per_step=True),
    Limit(name="fused", read=_read_fused, check=in_each_step(_fused), per_step=True),
    Limit(name="not_fused", read=_read_apart, check=in_each_step(_not_fused), per_step=True),
)
