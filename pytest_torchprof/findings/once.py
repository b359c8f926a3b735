"""What several findings need of the same recording is computed once."""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_torchprof.analysis.analysis import Analysis

Value = TypeVar("Value")


def once(look: Callable[[Analysis], Value]) -> Callable[[Analysis], Value]:
    """Keep a function's result with the recording's GPU work; nobody may change what it returns."""

    @wraps(look)
    def kept(analysis: Analysis) -> Value:
        answers = analysis.gpu_work.answers
        if look not in answers:
            answers[look] = look(analysis)
        answer: Value = answers[look]
        return answer

    return kept
