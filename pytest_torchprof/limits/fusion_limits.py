"""Limits on which operators a kernel carries out together; each must hold in every step."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from msgspec.structs import replace

from pytest_torchprof.kernels.carried import carries, carries_all, doubts
from pytest_torchprof.kernels.fields import bare, checked_operator
from pytest_torchprof.kernels.reply import NO, YES, ask
from pytest_torchprof.limits.answers import StepAnswer, limit_in_each_step
from pytest_torchprof.limits.compile_limits import instead_of_compiling
from pytest_torchprof.limits.evidence import carried_by_kernels
from pytest_torchprof.limits.limit import MISSED, NOT_MEASURED, as_groups, as_list, group_kernels
from pytest_torchprof.limits.seen import CarriedByNone, CarriedTogether
from pytest_torchprof.reasons.errors import UnknownLimit
from pytest_torchprof.reasons.operators_untold import CarriedUntold, NothingToFuse
from pytest_torchprof.reasons.wrong_values import ValueForm, WrongValue

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_torchprof.analysis.analysis import Analysis
    from pytest_torchprof.analysis.steps import StepProfile
    from pytest_torchprof.kernels.kernel import Kernel


def _read_fused(value: object) -> list[tuple[str, ...]]:
    entries = as_groups(value)
    groups = [entries] if all(isinstance(entry, str) for entry in entries) else [as_list(entry) for entry in entries]
    for group in groups:
        if not all(isinstance(token, str) and token for token in group):
            raise UnknownLimit.because(WrongValue(ValueForm.FUSED, repr(value)))
    return [tuple(checked_operator(str(token)) for token in group) for group in groups]


def _read_apart(value: object) -> list[tuple[str, ...]]:
    groups = _read_fused(value)
    if any(len(set(map(bare, group))) < 2 for group in groups):
        raise UnknownLimit.because(WrongValue(ValueForm.NOT_FUSED, repr(value)))
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
        # Kernels that nothing has fused carry what launched them, at a line of the user's code.
        if eager:
            yield StepAnswer(MISSED, seen, (*eager, *(replace(row, also_ran=True) for row in group_kernels(step))))
        else:
            yield StepAnswer(MISSED, seen, tuple(carried_by_kernels(telling, step.places)))


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
            yield StepAnswer(
                NOT_MEASURED, evidence=(*eager, *carried_by_kernels(step.kernels, step.places)), reason=why
            )


def _carried_by_none(step: StepProfile, group: Sequence[str], carried: Sequence[str]) -> list[str]:
    """Return the operators of a group that no kernel carries, neither one of Inductor's nor one of their own."""
    # If Inductor made none of the kernels, nothing could be fused, and each operator is in a kernel of its own anyway.
    alone = {bare(kernel.op) for kernel in step.kernels if kernel.op} if carried else set()
    return [op for op in group if bare(op) not in {*map(bare, carried), *alone}]


def _untold_carried(step: StepProfile, unknown: Sequence[Kernel]) -> StepAnswer:
    doubted = tuple(sorted({op for kernel in unknown for op in doubts(kernel)}))
    why = CarriedUntold(len(unknown), doubted)
    return StepAnswer(NOT_MEASURED, evidence=group_kernels(step, unknown, raw=True), reason=why)


FUSION_LIMITS = (
    limit_in_each_step("fused", _read_fused, _fused, missed_by_more=False),
    limit_in_each_step("not_fused", _read_apart, _not_fused),
)
