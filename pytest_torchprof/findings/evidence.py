"""Evidence of findings about kernels or copies: how long they took, their names, and which operators launched them."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, TypedDict

from pytest_torchprof.findings.events import Events
from pytest_torchprof.findings.places import source_of_ops
from pytest_torchprof.trace.columns import ABSENT, KERNEL

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pytest_torchprof.analysis.gpu_work import GpuWork, Group

    class KernelFacts(TypedDict):
        """The facts that all findings about kernels have; see `catalogue.OfKernels`."""

        time_us: float
        share: float
        count: int
        kernels: tuple[str, ...]
        ops: tuple[str, ...]
        source: str | None
        events: Events


_MOST_NAMES = 5


def evidence(work: GpuWork, gpu_ops: Iterable[int]) -> KernelFacts:
    """Return the evidence of a finding about these GPU operations, of which there is at least one."""
    these = list(gpu_ops)
    kernels, ops = names_by_time(work, these)
    return {
        "time_us": work.time_us(these),
        "share": work.share_of(these),
        "count": len(these),
        "kernels": kernels[:_MOST_NAMES],
        "ops": ops[:_MOST_NAMES],
        "source": source_of_ops(work, these),
        "events": Events(gpu_ops=tuple(these)),
    }


def members(groups: Iterable[Group]) -> list[int]:
    """Return the kernels of these groups."""
    return [i for group in groups for i in group.members]


def names_by_time(work: GpuWork, gpu_ops: Iterable[int]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names of kernels, and of the operators that launched them, the longest time first."""
    gpu, launching, named, given = work.trace.gpu, work.launching, work.trace.ops.name, work.trace.ops.inputs
    spent: dict[tuple[int, int, int], int] = defaultdict(int)
    one_of: dict[tuple[int, int, int], int] = {}
    for i in gpu_ops:
        op = launching.op_of[i]
        key = (gpu.name[i], named[op], given[op]) if op >= 0 else (gpu.name[i], ABSENT, ABSENT)
        if key not in one_of:
            one_of[key] = i
        spent[key] += gpu.end[i] - gpu.start[i]
    kernels: Counter[str] = Counter()
    ops: Counter[str] = Counter()
    for key, i in one_of.items():
        if gpu.kind[i] == KERNEL:
            kernels[launching.decoded(i).short] += spent[key]
        if (op_name := launching.op_name(launching.op_of[i])) is not None:
            ops[op_name] += spent[key]
    return _longest_first(kernels), _longest_first(ops)


def _longest_first(spent: Counter[str]) -> tuple[str, ...]:
    return tuple(name for name, _ in spent.most_common())
