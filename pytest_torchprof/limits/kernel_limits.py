"""Limits on which kernels ran and which operators launched them; each must hold in every step."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_torchprof.errors import UnknownLimit
from pytest_torchprof.kernels.patterns import Pattern, compile_pattern, fused_match, hint, unfused_lines
from pytest_torchprof.kernels.selectors import Operator, compile_op_pattern, is_nameless
from pytest_torchprof.limits.limit import (
    HOLDS,
    MISSED,
    NOT_MEASURED,
    Limit,
    Verdict,
    WorkRow,
    as_counts,
    as_list,
    kernel_rows,
    operator_rows,
    step_name,
)
from pytest_torchprof.text import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from pytest_torchprof.analysis.analysis import Analysis, StepProfile
    from pytest_torchprof.kernels.kernel import Kernel


@dataclass(frozen=True, slots=True)
class _Answer:
    """What one step says about one entry of a limit."""

    status: str
    measured: str
    details: tuple[str | WorkRow, ...] = ()


def _first_bad(analysis: Analysis, answers: Callable[[StepProfile], Iterable[_Answer]]) -> Verdict:
    """Judge every step; a missed one wins over one that could not be told, the first of its kind is shown."""
    worst: tuple[StepProfile, list[_Answer]] | None = None
    status = HOLDS
    for step in analysis.steps:
        bad = [answer for answer in answers(step) if answer.status != HOLDS]
        missed = any(answer.status == MISSED for answer in bad)
        if (missed and status != MISSED) or (bad and status == HOLDS):
            worst, status = (step, bad), MISSED if missed else NOT_MEASURED
    if worst is None:
        return Verdict(measured="as expected in every step", status=HOLDS)
    step, bad = worst
    shown = [answer for answer in bad if answer.status == status]
    where = f" in {step_name(analysis, step)}" if len(analysis.steps) > 1 else ""
    return Verdict(
        measured="; ".join(answer.measured for answer in shown) + where,
        status=status,
        details=tuple(dict.fromkeys(line for answer in shown for line in answer.details)),
        step=step.name,
    )


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


def _show_count(count: tuple[int, int] | None) -> str:
    if count is None:
        return "at least 1"
    return str(count[0]) if count[0] == count[1] else f"{count[0]} to {count[1]}"


def _count_answer(
    pattern: Pattern | Operator, count: tuple[int, int] | None, sure: int, unknown: int, noun: str
) -> _Answer:
    """Judge ``sure`` matches and ``unknown`` ones against a count; None asks for at least one."""
    low, high = count or (1, None)
    expected = _show_count(count)
    if sure + unknown < low or (high is not None and sure > high):
        return _Answer(MISSED, f"{_matching(sure, noun)} {pattern}, expected {expected}")
    if sure < low or (high is not None and sure + unknown > high):
        return _Answer(NOT_MEASURED, f"whether {pattern} matches cannot be told for {counted(unknown, noun)}")
    return _Answer(HOLDS, "")


def _matching(count: int, noun: str) -> str:
    return f"{counted(count, noun)} {'matches' if count == 1 else 'match'}"


def _kernels(analysis: Analysis, counts: Counts) -> Verdict:
    def answers(step: StepProfile) -> Iterable[_Answer]:
        for pattern, count in counts.items():
            verdicts = Counter(pattern.verdict(kernel) for kernel in step.kernels)
            answer = _count_answer(pattern, count, verdicts[True], verdicts[None], "kernel")
            if answer.status == HOLDS:
                yield answer
                continue
            advice = hint(pattern, step.kernels) if not verdicts[True] else None
            yield _Answer(answer.status, answer.measured, (*((advice,) if advice else ()), *kernel_rows(step)))

    return _first_bad(analysis, answers)


def _forbid_kernels(analysis: Analysis, patterns: list[Pattern]) -> Verdict:
    def answers(step: StepProfile) -> Iterable[_Answer]:
        for pattern in patterns:
            hits = [kernel for kernel in step.kernels if pattern.verdict(kernel)]
            if hits:
                rows = kernel_rows(step, hits, raw=True)
                yield _Answer(MISSED, f"{_matching(len(hits), 'kernel')} {pattern}", rows)
            elif unknown := sum(pattern.verdict(kernel) is None for kernel in step.kernels):
                said = f"whether {pattern} matches cannot be told for {counted(unknown, 'kernel')}"
                yield _Answer(NOT_MEASURED, said)

    return _first_bad(analysis, answers)


def _only_kernels(analysis: Analysis, patterns: list[Pattern]) -> Verdict:
    def answers(step: StepProfile) -> Iterable[_Answer]:
        others: list[Kernel] = []
        unknown = 0
        for kernel in step.kernels:
            verdicts = [pattern.verdict(kernel) for pattern in patterns]
            if True not in verdicts:
                if None in verdicts:
                    unknown += 1
                else:
                    others.append(kernel)
        if others:
            said = counted(len(others), "other kernel")
            yield _Answer(MISSED, said, kernel_rows(step, others, raw=True))
        elif unknown:
            yield _Answer(NOT_MEASURED, f"whether they match cannot be told for {counted(unknown, 'kernel')}")

    return _first_bad(analysis, answers)


def _op_hits(ops: Mapping[str, int], pattern: Operator) -> Counter[str]:
    return Counter({name: calls for name, calls in ops.items() if pattern.matches_op(name)})


def _of_unknown_operators(analysis: Analysis, step: StepProfile) -> int:
    """Return how many kernels of a step the recording does not tell the operators of."""
    no_operators = not len(analysis.trace.ops)
    # Of a graph's kernels only the launch of the graph is known.
    return sum(
        kernel.in_graph or (kernel.op is None and (kernel.launch is None or no_operators)) for kernel in step.kernels
    )


def _ops(analysis: Analysis, counts: OpCounts) -> Verdict:
    def answers(step: StepProfile) -> Iterable[_Answer]:
        unknown = _of_unknown_operators(analysis, step)
        for pattern, count in counts.items():
            answer = _count_answer(pattern, count, _op_hits(step.ops, pattern).total(), unknown, "operator")
            if answer.status == NOT_MEASURED:
                said = f"which operator launched them cannot be told for {counted(unknown, 'kernel')}"
                yield _Answer(NOT_MEASURED, said)
                continue
            yield _Answer(answer.status, answer.measured, kernel_rows(step) if answer.status != HOLDS else ())

    return _first_bad(analysis, answers)


def _forbid_ops(analysis: Analysis, patterns: list[Operator]) -> Verdict:
    def answers(step: StepProfile) -> Iterable[_Answer]:
        for pattern in patterns:
            # What is forbidden may as well be a copy: .item() launches no kernel.
            if hits := _op_hits(step.ops_of_work, pattern):
                rows = operator_rows(step, dict(hits.most_common()))
                yield _Answer(MISSED, f"{_matching(hits.total(), 'operator')} {pattern}", rows)
        if unknown := _of_unknown_operators(analysis, step):
            yield _Answer(NOT_MEASURED, f"which operator launched them cannot be told for {counted(unknown, 'kernel')}")

    return _first_bad(analysis, answers)


def _read_fused(value: object) -> list[tuple[str, ...]]:
    entries = as_list(value)
    groups = [entries] if all(isinstance(entry, str) for entry in entries) else [as_list(entry) for entry in entries]
    for group in groups:
        if not all(isinstance(token, str) and token for token in group):
            raise UnknownLimit(
                f'expected operator names such as ["add", "mul"], or a list of such lists, got {value!r}'
            )
    return [tuple(str(token) for token in group) for group in groups]


def _fused(analysis: Analysis, groups: list[tuple[str, ...]]) -> Verdict:
    def answers(step: StepProfile) -> Iterable[_Answer]:
        for group in groups:
            if any(fused_match(kernel, group) for kernel in step.kernels):
                continue
            if unknown := sum(map(is_nameless, step.kernels)):
                yield _Answer(NOT_MEASURED, f"which operators they carry cannot be told for {unknown} Triton kernels")
            else:
                yield _Answer(
                    MISSED, f"no kernel carries {' and '.join(group)} together", tuple(unfused_lines(step.kernels))
                )

    return _first_bad(analysis, answers)


KERNEL_LIMITS = (
    Limit(name="kernels", read=_read_counts, check=_kernels),
    Limit(name="forbid_kernels", read=_read_patterns, check=_forbid_kernels),
    Limit(name="only_kernels", read=_read_patterns, check=_only_kernels),
    Limit(name="ops", read=_read_op_counts, check=_ops),
    Limit(name="forbid_ops", read=_read_ops, check=_forbid_ops),
    Limit(name="fused", read=_read_fused, check=_fused),
)
