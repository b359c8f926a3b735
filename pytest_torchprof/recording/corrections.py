"""Corrections of events that a trace file has under a wrong name, kind or thread: made once, before anything is read.

- Fills and copies that ROCm's runtime runs as kernels of its own.
- Operators under the names by which the code of Inductor's C++ wrapper calls them: ``aoti_torch_cpu_mm_out``.
- Calls under the number of another thread. CUPTI identifies threads by the lower half of their pthread ids. For each of
  these kineto keeps the first system id that it saw with it for as long as the process lives (``recordThreadInfo`` of
  its ``GenericActivityProfiler``; seen with torch 2.15). A thread that is started after a profiled one has ended often
  has the pthread id of the ended one, and its calls are then written under the number of that one: no operator and no
  range is around them there. But work that an operator launched has the operator's own number.
"""

from __future__ import annotations

import re
from collections import defaultdict
from itertools import chain, count
from typing import TYPE_CHECKING

from pytest_torchprof.trace.columns import ABSENT, KERNEL, MEMCPY, MEMSET, where
from pytest_torchprof.trace.links import Intervals

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_torchprof.trace.columns import Calls, GpuOps, Ranges

# The kernels of hipMemsetAsync and hipMemcpyAsync, as rocprofiler-sdk records them; roctracer records fills and copies.
_BLIT = r"__amd_rocclr_(fill|copy)\w*(?:\.kd)?"


def name_fills_and_copies(names: Sequence[str], gpu: GpuOps) -> None:
    """Turn the kernels that fill and copy into fills and copies, in place; the direction of a copy is not known."""
    blits = [i for i, name in enumerate(names) if name.startswith("__amd_rocclr_")]
    kinds = {i: match[1] for i in blits if (match := re.fullmatch(_BLIT, names[i])) is not None}
    for i in where(gpu.name, set(kinds)) if kinds else ():
        if gpu.kind[i] == KERNEL:
            gpu.kind[i] = MEMSET if kinds[gpu.name[i]] == "fill" else MEMCPY


# The operator's name is followed by that of its overload, which events of operators leave out.
_SHIM = (
    r"aoti_torch_(?:cpu|cuda|mps|xpu)_(\w+?)(?:(?<!wait)_(?:Scalar|Tensor|Tensor_Scalar|Tensor_Tensor|bin_ct|binary|binary_tensor"
    r"|dim|dtype|dtype_out|float|generator|low|low_dtype|low_out|out|source_Tensor|src_out|stable|tensor|two_out"
    r"|value_out))?"
)
_LIBRARIES = (
    (r"_c10d_functional_(?=\w)", "_c10d_functional::"),
    (r"mkldnn_(?=_)|(?=_linear_pointwise)", "mkldnn::"),
    (r"(?=_mkl_linear)", "mkl::"),
    (r"_(?=q(?:conv|linear))", "onednn::"),
)


def operator_of(name: str) -> str | None:
    """Return the operator that a function of the C shim calls, such as ``aten::mm``; None for any other name."""
    # Few recordings have such a name, at the first of which the pattern is compiled.
    if not name.startswith("aoti_torch_") or (shim := re.fullmatch(_SHIM, name)) is None:
        return None
    for beginning, namespace in _LIBRARIES:
        if match := re.match(beginning, shim[1]):
            return namespace + shim[1][match.end() :]
    return f"aten::{shim[1]}"


def name_operators(names: list[str], ops: Ranges) -> None:
    """Give calls of the C shim the names of their operators, in place, as if they came from the dispatcher."""
    operators = {i: operator for i, name in enumerate(names) if (operator := operator_of(name)) is not None}
    if not operators:
        return
    known = {name: i for i, name in enumerate(names)}
    for i, operator in operators.items():
        if known.setdefault(operator, i) == i:
            names[i] = operator
    for index in where(ops.name, operators.keys()):
        ops.name[index] = known[operators[ops.name[index]]]


def put_calls_on_their_threads(ops: Ranges, annotations: Ranges, calls: Calls, gpu: GpuOps) -> None:
    """Give calls that are written under another thread's number that of their own thread, in place.

    A call was made on another thread if its work names an operator of that thread, the call began inside of the
    operator, and the thread under whose number it is written was in no range then. If all known calls under a number
    belong to one other thread, so do the others, of which nothing is known: two threads never share a pthread id.
    """
    first = next(chain(ops.thread, calls.thread), ABSENT)
    if ops.thread.count(first) + calls.thread.count(first) == len(ops) + len(calls):
        return
    op_of = _operators(ops, calls, gpu)
    doubtful = [call for call, op in op_of.items() if calls.thread[call] != ops.thread[op]]
    if not doubtful:
        return
    alive = _ranges_of({calls.thread[call] for call in doubtful}, (ops, annotations))
    proven = {
        call: ops.thread[op]
        for call, op in ((call, op_of[call]) for call in doubtful)
        if ops.start[op] <= calls.start[call] <= ops.end[op] and not alive.cover(calls.thread[call], calls.start[call])
    }
    makers: dict[int, set[int]] = defaultdict(set)
    for call, thread in proven.items():
        makers[calls.thread[call]].add(thread)
    under = {call: number for call, number in enumerate(calls.thread) if number in makers}
    shared = {number for call, number in under.items() if alive.cover(number, calls.start[call])}
    for call, number in under.items():
        if len(makers[number]) == 1 and number not in shared:
            (calls.thread[call],) = makers[number]
        else:
            calls.thread[call] = proven.get(call, number)


def _operators(ops: Ranges, calls: Calls, gpu: GpuOps) -> Mapping[int, int]:
    """Return by call the operator that its work names; calls whose work names different operators are left out."""
    op_at = dict(zip(ops.external, count()))
    call_at = dict(zip(calls.correlation, count()))
    for at in (op_at, call_at):
        # Some ROCm files write 0 for an unknown operator.
        at.pop(0, None)
        at.pop(ABSENT, None)
    op_of: dict[int, int] = {}
    for correlation, external in zip(gpu.correlation, gpu.external, strict=True):
        # Before 2024 the number of work that no operator launched is that of its call.
        if correlation in call_at and external != correlation:
            call, op = call_at[correlation], op_at.get(external, ABSENT)
            if op_of.setdefault(call, op) != op:
                op_of[call] = ABSENT
    return {call: op for call, op in op_of.items() if op != ABSENT}


def _ranges_of(threads: set[int], parts: Sequence[Ranges]) -> Intervals:
    return Intervals(
        (thread, part.start[i], part.end[i])
        for part in parts
        for i, thread in enumerate(part.thread)
        if thread in threads
    )
