"""Whether two kernels work on the same operands: yes, no, or not known."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from msgspec import structs

from pytest_torchprof.baseline.entry import STRUCTURAL
from pytest_torchprof.kernels.asked_types import ALWAYS_ASKED
from pytest_torchprof.kernels.operand_types import (
    has_no_unit_stride,
    leaves_open,
    may_compute_in,
    name_is_the_code,
    tells_all_types,
    types_of,
)
from pytest_torchprof.kernels.reply import NO, NOT_KNOWN, YES, Reply, every, known

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_torchprof.baseline import Entry, KernelRecord
    from pytest_torchprof.compare.difference import Step


def work_on_the_same(was: KernelRecord, now: KernelRecord) -> Reply:
    """Return whether two kernels of one family have the same types and the same layout."""
    return every((_same_types(was, now), _same_layout(was, now)))


def _same_types(was: KernelRecord, now: KernelRecord) -> Reply:
    if was.dtype is not None and now.dtype is not None and was.dtype != now.dtype:
        return NO
    types = _all_types(was), _all_types(now)
    if None not in types:
        return known(holds=types[0] == types[1])
    if was.dtype is not None and now.dtype is not None:
        return YES
    for first, second in ((was, now), (now, was)):
        if first.dtype is not None and second.operands is not None:
            if not may_compute_in(second.operands, first.dtype):
                return NO
            return YES if types_of(second.operands) == (first.dtype,) else NOT_KNOWN
    return NOT_KNOWN


def _all_types(kernel: KernelRecord) -> tuple[str, ...] | None:
    """Return the types of all operands of a kernel's operator; None unless all are known."""
    if kernel.operands is not None:
        return types_of(kernel.operands)
    is_certain = kernel.dtype is not None and tells_all_types(kernel.name, kernel.op, kernel.family)
    return (str(kernel.dtype),) if is_certain else None


def _same_layout(was: KernelRecord, now: KernelRecord) -> Reply:
    if was.family not in STRUCTURAL or (was.layout is not None and was.layout == now.layout):
        return YES
    if was.layout is not None and now.layout is not None:
        return NO
    if was.layout is None and now.layout is None:
        if was.operands is not None and now.operands is not None:
            return known(holds=was.operands == now.operands)
        return NOT_KNOWN if was.has_layout else YES
    untold = was if was.layout is None else now
    if untold.operands is None:
        return NOT_KNOWN
    # An operand of size 1 has no layout, so it contradicts none.
    return known(holds=not has_no_unit_stride(untold.operands))


def lacks_operands(was: KernelRecord, now: KernelRecord) -> bool:
    """Return whether a baseline's kernel lacks the operands that this run knows: an earlier version kept none."""
    if was.op is None or was.op != now.op or was.operands is not None:
        return False
    return (leaves_open(*was.structure) or was.op in ALWAYS_ASKED) and (
        now.operands is not None or (was.dtype, was.layout) != (now.dtype, now.layout)
    )


def lacking_kernels(old: Entry, new: Entry) -> Iterator[KernelRecord]:
    """Yield a baseline's kernels without recorded operands, which may be other kernels than this run's.

    They count as the same if nothing contradicts that.
    """
    now = new.kernels
    for was in old.kernels:
        if name_is_the_code(was.name, was.op):
            continue
        alike = [kernel for kernel in now if kernel.name == was.name and lacks_operands(was, kernel)]
        if any(work_on_the_same(was, kernel).may_be for kernel in alike):
            yield was


def has_types(entry: Entry) -> bool:
    """Return whether an entry has the type of at least one kernel."""
    return any(not kernel.is_unspecific or kernel.name != kernel.op for kernel in entry.kernels)


def decoded_anew(old: Entry, new: Entry) -> tuple[Step, ...]:
    """Return the baseline's steps, with the names that both entries have decoded as this version of the package does.

    A raw name has one family: if the entries disagree, another version recorded the older one. If this version decodes
    a name in several ways, as for an operator that runs on several types, the baseline's kernel may be any of them and
    stays.
    """
    readings: defaultdict[object, list[KernelRecord]] = defaultdict(list)
    for kernel in new.kernels:
        readings[kernel.name].append(kernel)
        readings[kernel.name, kernel.op].append(kernel)

    def read(kernel: KernelRecord) -> KernelRecord:
        now = readings.get((kernel.name, kernel.op)) or readings.get(kernel.name)
        if now is None or len(now) > 1:
            return kernel
        (same,) = now
        now_called = structs.replace(kernel, family=same.family, helper=same.helper)
        one_thing = lacks_operands(kernel, same) or name_is_the_code(kernel.name, kernel.op)
        if not one_thing or work_on_the_same(now_called, same) is NO:
            return now_called
        dtype, layout = kernel.dtype or same.dtype, kernel.layout or same.layout
        operands = same.operands if (dtype, layout) == (same.dtype, same.layout) else kernel.operands
        return structs.replace(now_called, dtype=dtype, layout=layout, operands=operands)

    kernels = {kernel: read(kernel) for kernel in old.kernels}
    return tuple(tuple(kernels[kernel] for kernel in step) for step in old.steps)
