"""The cost of a step before and after: its GPU time, and the kernels that came and went, by family and by kernel."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Final

from msgspec import Struct, structs

from pytest_torchprof.baseline.entry import STRUCTURAL, KernelRecord, records
from pytest_torchprof.baseline.family_times import MEMORY, copies_and_fills, middle_of, times_by_family
from pytest_torchprof.kernels.names import decode, without_index
from pytest_torchprof.kernels.names.kernelname import FAMILY_NOT_KNOWN
from pytest_torchprof.kernels.operand_types import types_of
from pytest_torchprof.text import printable_line

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence

    from pytest_torchprof.analysis.analysis import Analysis
    from pytest_torchprof.analysis.steps import StepProfile
    from pytest_torchprof.baseline.entry import Entry
    from pytest_torchprof.devices.kinds import DeviceKind

    Calls = Mapping[KernelRecord, "_Spent"]


class BeforeAndAfter:
    """The time that something takes on either side of a comparison."""

    __slots__ = ()
    time_us: tuple[float, float]

    @property
    def difference_us(self) -> float:
        """The time by which it runs longer; negative if it runs shorter."""
        return self.time_us[1] - self.time_us[0]


class Shift(BeforeAndAfter, Struct, frozen=True, kw_only=True):
    """The cost of kernels in a step before and after; all pairs are (before, after)."""

    family: str
    """The family of the kernels, or "memcpy" or "memset"."""
    calls: tuple[float, float]
    time_us: tuple[float, float]
    """The time that they ran on the GPU, together."""
    kinds: tuple[dict[str, float], dict[str, float]]
    """The number of calls by dtype, or by Triton: {"fp32": 51}."""
    kernels: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())
    """Display names, the costliest first; empty for a row of a whole family."""
    ops: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())
    """The operators that launched them, as far as the recording names them."""
    facts: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())
    """Family, dtype and layout of the costliest kernel, as far as they are known; empty for a row of a whole family."""


class Cost(BeforeAndAfter, Struct, frozen=True, kw_only=True):
    """The use of the GPU time in a step, before and after; the row that changed most comes first."""

    on_gpu: bool = True
    """False on the CPU as device, where the kernels are operators."""
    time_us: tuple[float, float]
    """All GPU work of the step: kernels, copies, fills. The rows of each table add up to it."""
    families: tuple[Shift, ...]
    kernels: tuple[Shift, ...]
    """By kernel and operator; GEMMs, convolutions and attention also by dtype and layout."""
    steps: tuple[str | None, str | None] = (None, None)
    """The names of the steps that this is about: the middle ones, by GPU time, among those that are compared."""

    @property
    def noun(self) -> str:
        """The name of the time of all work."""
        return "GPU time" if self.on_gpu else "kernel time"


_WORTH_TELLING: Final = 0.05
"""If the busy time changed by less than this share, there is nothing to explain."""


class _Spent(Struct):
    count: float = 0
    time_us: float = 0

    def add(self, other: _Spent) -> None:
        self.count += other.count
        self.time_us += other.time_us


def cost_of(before: Analysis, after: Analysis, steps: tuple[Sequence[StepProfile], Sequence[StepProfile]]) -> Cost:
    """Return the cost of a step in both measurements: the middle one of ``steps``, which run the same kernels.

    Of an even number the mean of the two in the middle counts, as in a median.
    """
    middle = [middle_of(side) for side in steps]
    first, second = [_calls_of(side, chosen) for side, chosen in zip((before, after), middle, strict=True)]
    rows = [_shift(*pair, named=True) for pair in _pairs(first, second)]
    return Cost(
        on_gpu=after.trace.device_kind.has_launches,
        time_us=(_time_us(first), _time_us(second)),
        families=_families(first, second),
        kernels=costliest_first(rows),
        steps=(middle[0][0].name, middle[1][0].name),
    )


def cost_by_family(families: tuple[Shift, ...], device: DeviceKind) -> Cost:
    """Return the cost of a step whose times are known only by family."""
    before, after = (sum(shift.time_us[side] for shift in families) for side in (0, 1))
    return Cost(on_gpu=device.has_launches, time_us=(before, after), families=families, kernels=())


def exchanged(before: Iterable[KernelRecord], after: Iterable[KernelRecord]) -> tuple[Shift, ...]:
    """Return the kernels that two steps launch, by family, if no times are known: each time is 0."""
    first, second = ({kernel: _Spent(count) for kernel, count in Counter(side).items()} for side in (before, after))
    return _families(first, second)


def _families(before: Calls, after: Calls) -> tuple[Shift, ...]:
    every = sorted({_family(kernel) for kernel in (*before, *after)})
    return costliest_first([_shift(*(_calls_of_family(side, family) for side in (before, after))) for family in every])


def _calls_of(analysis: Analysis, steps: Sequence[StepProfile]) -> dict[KernelRecord, _Spent]:
    spent: defaultdict[KernelRecord, _Spent] = defaultdict(_Spent)
    share = 1 / len(steps)
    for step in steps:
        for kernel, time_us in _work(analysis, step):
            spent[kernel].add(_Spent(share, time_us * share))
    return dict(spent)


def _work(analysis: Analysis, step: StepProfile) -> Iterator[tuple[KernelRecord, float]]:
    """Yield all work of a step with its duration."""
    for record, kernel in zip(records(step.kernels), step.kernels, strict=True):
        yield record, kernel.duration_us
    for name, family, time_us in copies_and_fills(analysis, step):
        yield KernelRecord(name=name, family=family), time_us


def _family(kernel: KernelRecord) -> str:
    # The times in a baseline's entry have these names.
    return kernel.family or FAMILY_NOT_KNOWN


def _calls_of_family(side: Calls, family: str) -> Calls:
    return {kernel: calls for kernel, calls in side.items() if _family(kernel) == family}


def _pairs(before: Calls, after: Calls) -> Iterator[tuple[Calls, Calls]]:
    """Yield the contents of each row: the same kernel of one operator, or its replacement there."""
    groups = _grouped(before), _grouped(after)
    alone: tuple[dict[Hashable, Calls], dict[Hashable, Calls]] = ({}, {})
    for key in dict.fromkeys((*groups[0], *groups[1])):
        first, second = (_by_operator(side.get(key, {})) for side in groups)
        if first and second and None in first.keys() ^ second.keys():
            # The recording of a replayed graph, for example, does not say which operator launched a kernel.
            yield groups[0][key], groups[1][key]
            continue
        common = first.keys() & second.keys()
        yield from ((first[op], second[op]) for op in first if op in common)
        for side, others in zip(alone, (first, second), strict=True):
            side.update({(key, op): calls for op, calls in others.items() if op not in common})
    yield from _replaced(*(_by_place(side.values()) for side in alone))


def _replaced(
    before: Mapping[Hashable, list[Calls]], after: Mapping[Hashable, list[Calls]]
) -> Iterator[tuple[Calls, Calls]]:
    """Yield the kernels of one side alone, with those of the same operator and family of the other side alone."""
    for place in dict.fromkeys((*before, *after)):
        first, second = before.get(place, []), after.get(place, [])
        if first and second and place is not None:
            yield _together(first), _together(second)
        else:
            yield from ((calls, {}) for calls in first)
            yield from (({}, calls) for calls in second)


def _grouped(side: Calls) -> dict[Hashable, Calls]:
    rows: defaultdict[Hashable, dict[KernelRecord, _Spent]] = defaultdict(dict)
    for kernel, calls in side.items():
        rows[kernel.family, _row_of(kernel)][kernel] = calls
    return dict(rows)


def _row_of(kernel: KernelRecord) -> Hashable:
    """Return the common facts of the kernels in one row; their dtype only if it says something about the work."""
    if kernel.family in STRUCTURAL:
        return kernel.structure
    return kernel.normal_name if _is_triton(kernel) else kernel.short


def _by_operator(side: Calls) -> dict[str | None, Calls]:
    by_operator: defaultdict[str | None, dict[KernelRecord, _Spent]] = defaultdict(dict)
    for kernel, calls in side.items():
        by_operator[kernel.op][kernel] = calls
    return dict(by_operator)


def _by_place(sides: Iterable[Calls]) -> dict[Hashable, list[Calls]]:
    """Return kernels of only one side by family and operator; under None those without a known operator."""
    groups: defaultdict[Hashable, list[Calls]] = defaultdict(list)
    for side in sides:
        kernel = next(iter(side))
        groups[None if kernel.op is None else (kernel.family, kernel.op)].append(side)
    return dict(groups)


def _together(sides: Iterable[Calls]) -> Calls:
    return {kernel: calls for side in sides for kernel, calls in side.items()}


def _time_us(side: Calls) -> float:
    return sum(calls.time_us for calls in side.values())


def _shift(before: Calls, after: Calls, *, named: bool = False) -> Shift:
    sides = (before, after)
    return Shift(
        family=next(_family(kernel) for side in sides for kernel in side),
        calls=(_count(before), _count(after)),
        time_us=(_time_us(before), _time_us(after)),
        kinds=(_kinds(before), _kinds(after)),
        kernels=(_names(before), _names(after)) if named else ((), ()),
        ops=(_ops(before), _ops(after)) if named else ((), ()),
        facts=(_facts(before), _facts(after)) if named else ((), ()),
    )


def _count(side: Calls) -> float:
    return _whole(sum(calls.count for calls in side.values()))


def _whole(count: float) -> float:
    return round(count) if count == round(count) else count


def _kinds(side: Calls) -> dict[str, float]:
    counts: defaultdict[str, float] = defaultdict(float)
    for kernel, calls in side.items():
        counts[_kind(kernel)] += calls.count
    return {kind: _whole(counts[kind]) for kind in sorted(counts, key=lambda kind: -counts[kind]) if kind}


def _kind(kernel: KernelRecord) -> str:
    if kernel.family not in STRUCTURAL and _is_triton(kernel):
        return "Triton"
    return kernel.dtype or "+".join(types_of(kernel.operands or ""))


def _is_triton(kernel: KernelRecord) -> bool:
    return decode(kernel.name).triton is not None


def _names(side: Calls) -> tuple[str, ...]:
    ordered = sorted(side, key=lambda kernel: -side[kernel].time_us)
    return tuple(dict.fromkeys(_name(kernel) for kernel in ordered))


def _name(kernel: KernelRecord) -> str:
    if kernel.family in MEMORY.values():
        # The names of copies and fills do not follow the grammar of kernel names.
        return printable_line(kernel.name.strip())
    return structs.replace(kernel, name=without_index(kernel.name)).short


def _facts(side: Calls) -> tuple[str, ...]:
    costliest = max(side, key=lambda kernel: side[kernel].time_us, default=None)
    if costliest is None:
        return ()
    return tuple(filter(None, (costliest.family, costliest.dtype, costliest.layout)))


def _ops(side: Calls) -> tuple[str, ...]:
    ordered = sorted(side, key=lambda kernel: -side[kernel].time_us)
    return tuple(dict.fromkeys(kernel.op for kernel in ordered if kernel.op is not None))


def costliest_first(shifts: Iterable[Shift]) -> tuple[Shift, ...]:
    """Return the shifts sorted by the size of their difference, in either direction."""
    return tuple(sorted(shifts, key=lambda shift: (-abs(shift.difference_us), -max(shift.calls), shift.kernels)))


def family_shifts(old: Entry, new: Entry) -> tuple[Shift, ...]:
    """Return the time of each family, the costliest difference first; nothing if the busy time did not change.

    Times are those of the middle step; the numbers of calls are known if all steps run the same kernels. Entries of
    earlier versions have no such times.
    """
    times = [times_by_family(side.varying) for side in (old, new)]
    busy = [side.varying.get("gpu_busy_us", 0.0) for side in (old, new)]
    if not all(times) or abs(busy[1] - busy[0]) <= _WORTH_TELLING * busy[0]:
        return ()
    known = len(old.steps) == len(new.steps) == 1
    launched = {shift.family: shift for shift in exchanged(old.steps[0], new.steps[0])} if known else {}
    shifts = []
    for family in dict.fromkeys([*times[0], *times[1]]):
        shift = launched.get(family, Shift(family=family, calls=(0, 0), time_us=(0.0, 0.0), kinds=({}, {})))
        shifts.append(structs.replace(shift, time_us=(times[0].get(family, 0.0), times[1].get(family, 0.0))))
    return costliest_first(shifts)
