"""Whether what matches a pattern fits its count, or whether that is not known."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_torchprof.kernels.kernels import counted_names
from pytest_torchprof.kernels.patterns import NamePattern, Pattern
from pytest_torchprof.limits.answers import StepAnswer
from pytest_torchprof.limits.limit import MISSED, NOT_MEASURED
from pytest_torchprof.limits.seen import MatchesSeen
from pytest_torchprof.reasons.operators_untold import NameOfOperator, OperatorMatchUntold

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_torchprof.analysis.analysis import Analysis
    from pytest_torchprof.kernels.kernel import Kernel
    from pytest_torchprof.kernels.selectors import Operator
    from pytest_torchprof.reasons.reason import Reason


def count_answers(
    pattern: Pattern | Operator, count: tuple[int, int] | None, sure: int, untold: Sequence[Kernel], noun: str
) -> Iterator[StepAnswer]:
    """Yield where ``sure`` matches, and kernels that may match, do not fit a count; None asks for at least one."""
    unknown = len(untold)
    low, high = count or (1, None)
    if sure + unknown < low or (high is not None and sure > high):
        yield StepAnswer(MISSED, MatchesSeen(sure, noun, str(pattern), low, high))
    elif sure < low or (high is not None and sure + unknown > high):
        yield StepAnswer(NOT_MEASURED, reason=cannot_tell(pattern, untold, noun))


def cannot_tell(pattern: Pattern | Operator, untold: Sequence[Kernel], noun: str) -> Reason:
    """Return why it is not known whether these kernels match."""
    if isinstance(pattern, NamePattern) and pattern.names_operator:
        return NameOfOperator(str(pattern), len(untold))
    return OperatorMatchUntold(str(pattern), len(untold), noun, named=counted_names(untold))


def no_such_operator(analysis: Analysis, asked: Operator | None) -> StepAnswer | None:
    """Return the answer if no operator of the name exists: a name that nothing can have forbids nothing."""
    reason = None if asked is None else analysis.launching.operators.no_such_operator(asked)
    return None if reason is None else StepAnswer(NOT_MEASURED, reason=reason, of_all_steps=True)
