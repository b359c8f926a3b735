"""Which operators count as kernels where a device has no others."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_torchprof.devices.base import OperatorWork

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Sequence

    from pytest_torchprof.trace import Trace


def operator_kernels(trace: Trace, work: Callable[[str], OperatorWork]) -> list[int]:
    """Return the operators that count as kernels where they do ``work``, in start order.

    One that computes alone, with all that is inside; another that computes and holds none that computes; one that moves
    data, with no computing one around it and none that moves data inside; a C++ kernel of Inductor's. What a
    compilation ran is left out.
    """
    ops, parent = trace.ops, trace.nesting.parent
    does = {name: work(trace.names[name]) for name in set(ops.name)}
    computing = {
        name for name, kind in does.items() if kind in (OperatorWork.COMPUTES, OperatorWork.ALONE, OperatorWork.FUSED)
    }
    alone = {name for name, kind in does.items() if kind is OperatorWork.ALONE}
    moving = {name for name, kind in does.items() if kind is OperatorWork.MOVES}
    # What computes counts outside of what computes alone, what moves data outside of all that computes.
    apart = {**dict.fromkeys(computing, alone), **dict.fromkeys(moving, computing)}
    kernels = [
        i
        for i, name in enumerate(ops.name)
        if name in apart and not (apart[name] and _is_inside(apart[name], ops.name, parent, i))
    ]
    holders: set[int] = set()
    for i in kernels:
        around = parent[i]
        while around >= 0 and around not in holders:
            holders.add(around)
            around = parent[around]
    compiling = trace.compiling
    found = [i for i in kernels if i not in holders]
    if compiling:
        found = [i for i in found if not compiling.cover(ops.thread[i], ops.start[i])]
    return sorted(found, key=ops.start.__getitem__)


def _is_inside(barred: Container[int], names: Sequence[int], parent: Sequence[int], member: int) -> bool:
    around = parent[member]
    while around >= 0:
        if names[around] in barred:
            return True
        around = parent[around]
    return False
