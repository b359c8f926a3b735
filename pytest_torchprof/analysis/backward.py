"""Who waits for what autograd's own threads launch: on a GPU the backward pass runs on threads of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_torchprof.trace.columns import ABSENT

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pytest_torchprof.trace import Trace

_NODE = "autograd::engine::evaluate_function: "


def waiting(trace: Trace, calls: Iterable[int]) -> Mapping[int, frozenset[int]]:
    """Return for calls inside a node of the backward pass the other threads that may wait for it.

    That is the forward operator's thread where an arrow tells which operator that was, else any thread with user
    annotations. Of nodes inside nodes, as checkpointing makes them, the outermost tells.
    """
    nodes = {name for name, text in enumerate(trace.names) if text.startswith(_NODE)}
    if not nodes:
        return {}
    named, forward_of, thread = trace.ops.name, trace.forward_of, trace.ops.thread
    anybody = frozenset(trace.annotations.thread)
    of_op: dict[int, frozenset[int]] = {}
    found = {}
    for call, op in trace.nesting.around_each(trace.calls, calls).items():
        if op < 0:
            continue
        if op not in of_op:
            chain = list(trace.nesting.chain(op))
            linked = [forward_of[one] for one in chain if one in forward_of]
            inside = any(named[one] in nodes for one in chain)
            others = frozenset({thread[linked[-1]]} if linked else anybody) - {thread[op]}
            of_op[op] = others if inside else frozenset()
        if of_op[op]:
            found[call] = of_op[op]
    return found


def forward_operator(trace: Trace, op: int) -> int:
    """Return the operator whose backward holds this one, ABSENT where no arrow tells."""
    forward_of = trace.forward_of
    return (
        next((forward_of[one] for one in trace.nesting.chain(op) if one in forward_of), ABSENT)
        if forward_of
        else ABSENT
    )
