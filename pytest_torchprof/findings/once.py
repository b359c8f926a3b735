"""What several findings ask of the same recording, worked out once."""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_torchprof.analysis.analysis import Analysis

Value = TypeVar("Value")


def once(look: Callable[[Analysis], Value]) -> Callable[[Analysis], Value]:
    """Keep with a recording's GPU work what a function finds in it; nobody may change what it returns."""

    @wraps(look)
    def kept(analysis: Analysis) -> Value:
        answers = analysis.gpu_work.answers
        if look not in answers:
            answers[look] = look(analysis)
        answer: Value = answers[look]
        return answer

    return kept
