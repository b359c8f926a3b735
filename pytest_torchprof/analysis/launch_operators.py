"""The innermost operator around each launch: when it was made, or, in a CUDA graph, when it was captured."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_torchprof.trace.columns import ABSENT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_torchprof.trace import Trace


def around_launches(trace: Trace) -> Sequence[int]:
    """Return for each GPU operation the operator around the call that launched it or its graph, ABSENT without one."""
    call_of = trace.links.call_of
    calls = dict.fromkeys(call_of)
    calls.pop(ABSENT, None)
    around = trace.nesting.around_each(trace.calls, calls)
    around[ABSENT] = ABSENT
    return [around[call] for call in call_of]


def launching_operators(trace: Trace, around: Sequence[int]) -> Sequence[int]:
    """Return the operators that launched them, given those ``around``: of a graph whose capture is known its own."""
    captured = trace.captured
    if not captured.of:
        return around
    operators, inside = list(around), trace.nesting.around_each(captured.calls, captured.of.values())
    for gpu_op, call in captured.of.items():
        if inside[call] >= 0:
            operators[gpu_op] = inside[call]
    return operators
