"""The operators that limits ask for: one that torch, if it is loaded, does not know is refused before the test."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pytest_torchprof.kernels.operator_checks import why_unregistered
from pytest_torchprof.kernels.patterns import NamePattern
from pytest_torchprof.kernels.selectors import Operator, Selector
from pytest_torchprof.limits.allowances import Allowance
from pytest_torchprof.limits.asked import Asked
from pytest_torchprof.reasons.errors import UnknownLimit

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


def refuse_unknown_operators(limits: Iterable[Asked]) -> None:
    """Raise UnknownLimit where a limit asks for an operator that torch, as loaded in this process, does not have."""
    for wanted in limits:
        for operator in _operators(wanted):
            if (why := why_unregistered(operator)) is not None:
                raise UnknownLimit.because(why).of_keyword(wanted.limit.name, wanted.shown)


def _operators(value: object) -> Iterator[Operator]:
    """Yield the operators in the value of a limit, however they are nested."""
    if isinstance(value, Operator):
        yield value
    elif isinstance(value, NamePattern | Selector | Allowance):
        if value.operator is not None:
            yield value.operator
    elif isinstance(value, Asked):
        yield from _operators(value.value)
        yield from _operators(value.settings)
    elif isinstance(value, Mapping):
        yield from _operators((*value.keys(), *value.values()))
    elif isinstance(value, list | tuple):
        for entry in value:
            yield from _operators(entry)
    elif isinstance(value, str) and "::" in value:
        # The operators of a fused kernel are kept as they are written.
        yield Operator(value.partition(".")[0])
