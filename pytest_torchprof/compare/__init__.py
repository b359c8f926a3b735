"""What is different between two measurements of the same code."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from pytest_torchprof.compare.item import Item
from pytest_torchprof.compare.model import ProfileDiff, Renamed, Replaced
from pytest_torchprof.compare.pairing import paired
from pytest_torchprof.errors import NotMeasured
from pytest_torchprof.kernels.names import without_index
from pytest_torchprof.kernels.renames import explain_rename
from pytest_torchprof.text.escape import printable_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pytest_torchprof.analysis.analysis import Analysis
    from pytest_torchprof.analysis.steps import StepProfile
    from pytest_torchprof.kernels.kernel import Kernel

__all__ = ["Item", "ProfileDiff", "Renamed", "Replaced", "compare_items", "diff"]

_COUNTS: Final = ("kernels", "launches", "graph_launches", "memcpys", "memsets", "syncs")
_TIMES: Final = ("kernel_time_us", "gpu_busy_us", "cpu_time_us")


def diff(before: Analysis, after: Analysis) -> ProfileDiff:
    """Compare two measurements of the same code; numbers are the medians over their steps.

    NotMeasured where one of them may not be believed.
    """
    for profile in (before, after):
        if reason := profile.why_not or profile.kernels_unknown:
            raise NotMeasured(f"{profile.trace.path or 'a recording'} is not measured: {reason}")
    numbers = {}
    for name in (*_COUNTS, *_TIMES):
        old, new = getattr(before.median, name), getattr(after.median, name)
        if old != new:
            numbers[name] = (old, new)
    first, second = _compared(before.steps, after.steps)
    found = compare_items(_items(first.kernels), _items(second.kernels), numbers)
    most = {max(profile.steps, key=_count) for profile in (before, after)}
    found = replace(found, devices=_devices(before, after))
    return found if {first, second} == most or not found else replace(found, steps=(first.name, second.name))


def _devices(before: Analysis, after: Analysis) -> tuple[str, str] | None:
    first, second = (
        ", ".join(dict.fromkeys(device.name for device in profile.trace.devices if device.name))
        for profile in (before, after)
    )
    return (printable_line(first), printable_line(second)) if first and second and first != second else None


def _compared(before: Sequence[StepProfile], after: Sequence[StepProfile]) -> tuple[StepProfile, StepProfile]:
    """Return the steps to compare: of most kernels, or the first that run what no step of the other measurement runs.

    Steps are the same in whatever order; how often each occurs counts only where there are as many on either side.
    """
    first, second = max(before, key=_count), max(after, key=_count)
    kinds = {step: frozenset(_names(step.kernels).items()) for step in (*before, *after)}
    left, right = (Counter(kinds[step] for step in steps) for steps in (before, after))
    if len(before) != len(after):
        left, right = Counter(set(left)), Counter(set(right))
    alone, new = left - right, right - left
    if not alone and not new:
        return first, next(step for step in after if kinds[step] == kinds[first])
    if kinds[first] != kinds[second]:
        return first, second
    return (
        next((step for step in before if kinds[step] in alone), first),
        next((step for step in after if kinds[step] in new), second),
    )


def _count(step: StepProfile) -> int:
    return len(step.kernels)


def _items(kernels: Iterable[Kernel]) -> list[Item]:
    return [
        Item(
            name=kernel.name,
            short=kernel.short,
            family=kernel.family,
            dtype=kernel.dtype,
            layout=kernel.layout,
            triton=kernel.triton,
            op=kernel.op,
        )
        for kernel in kernels
    ]


def compare_items(
    before: Sequence[Item],
    after: Sequence[Item],
    numbers: Mapping[str, tuple[float | None, float | None]],
) -> ProfileDiff:
    """Compare two lists of kernels in launch order; ``numbers`` are kept as they are given."""
    pairs, runs, moved = paired(before, after)
    renames = Counter((old.name, new.name) for old, new in pairs if without_index(old.name) != without_index(new.name))
    return ProfileDiff(
        same=Counter(old.noun for old, _ in pairs),
        renamed=tuple(
            Renamed(old=old, new=new, count=count, explanation=explain_rename(old, new))
            for (old, new), count in renames.items()
        ),
        replaced=tuple(Replaced(old=old, new=new, count=count) for (old, new), count in Counter(runs).items()),
        numbers=numbers,
        kernels_differ=_names(before) != _names(after),
        moved=moved,
    )


def _names(items: Iterable[Item | Kernel]) -> Counter[str]:
    return Counter(without_index(item.name) for item in items)
