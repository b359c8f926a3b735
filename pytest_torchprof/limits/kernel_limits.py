"""Limits on which kernels ran; each must hold in every step."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from msgspec.structs import replace

from pytest_torchprof.kernels.patterns import (
    NamePattern,
    Pattern,
    Unmatched,
    compile_pattern,
    unmatched,
    without_tuning,
)
from pytest_torchprof.kernels.reply import ask, some
from pytest_torchprof.kernels.selectors import is_expression
from pytest_torchprof.limits.answers import StepAnswer, limit_in_each_step
from pytest_torchprof.limits.evidence import KernelsToDeclare, PatternAdvice
from pytest_torchprof.limits.limit import MISSED, NOT_MEASURED, as_list, counts_of, group_kernels
from pytest_torchprof.limits.matches import cannot_tell, count_answers, no_such_operator
from pytest_torchprof.limits.seen import ForbiddenMatches, OtherKernels
from pytest_torchprof.reasons.operators_untold import MatchesUntold, OperatorRanWithoutKernel

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_torchprof.analysis.analysis import Analysis
    from pytest_torchprof.analysis.steps import StepProfile
    from pytest_torchprof.kernels.kernel import Kernel
    from pytest_torchprof.limits.evidence import AnyEvidence, WorkRow


Counts = dict["Pattern", "tuple[int, int] | None"]


def _read_patterns(value: object) -> list[Pattern]:
    return [compile_pattern(entry) for entry in as_list(value)]


def _kernels(analysis: Analysis, step: StepProfile, counts: Counts) -> Iterator[StepAnswer]:
    for pattern, count in counts.items():
        matches = ask(step.kernels, pattern.verdict)
        unasked = not matches.yes and count is not None and count[0] == 0
        if unasked and not matches.not_known and (ran := _ran_without_kernel(step, pattern)):
            yield ran
            continue
        if unasked and (none := no_such_operator(analysis, pattern.operator)):
            yield none
            continue
        for answer in count_answers(pattern, count, len(matches.yes), matches.not_known, "kernel"):
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
    return tuple(replace(row, also_ran=True) for row in group_kernels(step, others))


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
            rows = group_kernels(step, matches.yes)
            yield StepAnswer(MISSED, ForbiddenMatches(len(matches.yes), "kernel", str(pattern)), rows)
        elif none := no_such_operator(analysis, pattern.operator):
            yield none
        elif unknown := matches.not_known:
            reason = cannot_tell(pattern, unknown, "kernel")
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
        yield StepAnswer(MISSED, OtherKernels(len(matches.no)), group_kernels(step, matches.no))
    elif unknown := matches.not_known:
        reason = MatchesUntold(len(unknown))
        yield StepAnswer(NOT_MEASURED, evidence=_not_known(analysis, step, unknown), reason=reason)


def _not_known(analysis: Analysis, step: StepProfile, kernels: Sequence[Kernel]) -> tuple[AnyEvidence, ...]:
    """Return rows of the kernels that may match, and advice on how to say what they are."""
    nameless = tuple(kernel.name for kernel in kernels if kernel.family is None and kernel.name.strip())
    asked = [KernelsToDeclare(nameless, tuple(analysis.unmatched_declarations))] if nameless else []
    return (*group_kernels(step, kernels), *asked)


KERNEL_LIMITS = (
    limit_in_each_step("kernels", partial(counts_of, compile_pattern), _kernels),
    limit_in_each_step("forbid_kernels", _read_patterns, _forbid_kernels),
    limit_in_each_step("only_kernels", _read_patterns, _only_kernels),
)
