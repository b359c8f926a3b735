"""The innermost operator around each launch: when it was made, or, in a CUDA graph, when it was captured."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_torchprof.trace.columns import ABSENT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_torchprof.trace import Trace


def around_launches(trace: Trace) -> Sequence[int]:
    """Return for each GPU operation the operator around the call that launched it or its graph; ABSENT without one."""
    around = trace.around_calls
    return [around[call] if call >= 0 else ABSENT for call in trace.links.call_of]


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
