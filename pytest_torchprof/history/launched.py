"""The launches in a record, by which a later run is compared with it: the kernels of each step, in launch order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct

from pytest_torchprof.baseline.entry import KernelRecord, rounded
from pytest_torchprof.baseline.step_form import END

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pytest_torchprof.baseline import EntryFields

Steps = tuple[tuple[Any, ...], ...]
"""Steps as a baseline's file has them, with the number of a kernel in place of each kernel."""
ONLY_IN: Final = "only_in"


class LaunchRecord(Struct, frozen=True, kw_only=True):
    """The launches of a run's measurements, each kernel and each list of them once."""

    kernels: tuple[KernelRecord, ...] = ()
    orders: tuple[Steps, ...] = ()


def launched_of(entries: Iterable[EntryFields | None]) -> tuple[LaunchRecord, tuple[int | None, ...]]:
    """Return the launches of entries, and for each entry the number of its own launch order."""
    kernels: dict[KernelRecord, int] = {}
    orders: dict[bytes, int] = {}
    kept: list[Steps] = []
    own: list[int | None] = []
    for entry in entries:
        if entry is None:
            own.append(None)
            continue
        steps = tuple(tuple(_numbered(item, kernels) for item in step) for step in entry.steps)
        number = orders.setdefault(msgspec.json.encode(steps), len(kept))
        kept += [steps] if number == len(kept) else []
        own.append(number)
    return LaunchRecord(kernels=tuple(kernels), orders=tuple(kept)), tuple(own)


def also_varying(entry: EntryFields, numbers: Mapping[str, float]) -> dict[str, float]:
    """Return the varying numbers that an entry keeps besides these."""
    known = {name: rounded(value) for name, value in numbers.items()}
    return {name: value for name, value in entry.varying.items() if known.get(name) != value}


def _numbered(item: Any, kernels: dict[KernelRecord, int]) -> Any:
    """Return an item of a step with kernels as numbers, under which new ones are added."""
    if item == END:
        return END
    if "repeat" in item:
        return {"repeat": item["repeat"], "kernels": [_numbered(line, kernels) for line in item["kernels"]]}
    kernel = KernelRecord(**{name: value for name, value in item.items() if name != ONLY_IN})
    number = kernels.setdefault(kernel, len(kernels))
    return {ONLY_IN: item[ONLY_IN], "kernel": number} if ONLY_IN in item else number
