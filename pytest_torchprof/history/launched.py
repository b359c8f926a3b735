"""What a record keeps so that a later run can be compared with it: the kernels of each step, in launch order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct

from pytest_torchprof.analysis.numbers import TABLE
from pytest_torchprof.baseline.entry import Entry, KernelRecord, decided, facts_of, rounded
from pytest_torchprof.baseline.launch_order import launches
from pytest_torchprof.baseline.step_form import END, read_steps, refuse_too_many
from pytest_torchprof.devices.kinds import kind_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pytest_torchprof.baseline import EntryFields
    from pytest_torchprof.history.record import MeasurementRecord, VaryingRecord
    from pytest_torchprof.trace.metadata import Environment

Steps = tuple[tuple[Any, ...], ...]
"""Steps as a baseline's file has them, with the number of a kernel in place of each kernel."""
_ONLY_IN: Final = "only_in"


class Launched(Struct, frozen=True, kw_only=True):
    """What the measurements of a run launched, each kernel and each list of them once."""

    kernels: tuple[KernelRecord, ...] = ()
    orders: tuple[Steps, ...] = ()


def launched_of(entries: Iterable[EntryFields | None]) -> tuple[Launched, tuple[int | None, ...]]:
    """Return what entries launched, and for each of them which of the orders is its own."""
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
    return Launched(kernels=tuple(kernels), orders=tuple(kept)), tuple(own)


def also_varying(entry: EntryFields, numbers: Mapping[str, float]) -> dict[str, float]:
    """Return what an entry keeps of what varies besides these numbers."""
    known = {name: rounded(value) for name, value in numbers.items()}
    return {name: value for name, value in entry.varying.items() if known.get(name) != value}


def entry_in(
    launched: Launched, measured: MeasurementRecord, varying: VaryingRecord, environment: Environment
) -> Entry | None:
    """Return the entry that a baseline would have of a measurement in a record; None where the record does not say.

    ValueError if what it says are no steps.
    """
    if varying.launched is None:
        return None
    kind = kind_of("cuda" if environment.gpu else "cpu")
    plain = tuple(tuple(_named(item, launched.kernels) for item in step) for step in launched.orders[varying.launched])
    refuse_too_many(plain)
    numbers = {number.name: varying.numbers.get(number.name) for number in TABLE if not number.exact}
    return Entry(
        source=measured.source or "",
        environment=facts_of(environment, kind),
        steps=tuple(map(launches, read_steps(plain))),
        numbers=decided(measured.counts, kind),
        varying={name: rounded(value) for name, value in numbers.items() if value is not None} | varying.also,
        time=varying.time,
        samples_hardware=varying.samples_hardware,
    )


def _numbered(item: Any, kernels: dict[KernelRecord, int]) -> Any:
    """Return an item of a step with kernels as numbers, under which new ones are added."""
    if item == END:
        return END
    if "repeat" in item:
        return {"repeat": item["repeat"], "kernels": [_numbered(line, kernels) for line in item["kernels"]]}
    kernel = KernelRecord(**{name: value for name, value in item.items() if name != _ONLY_IN})
    number = kernels.setdefault(kernel, len(kernels))
    return {_ONLY_IN: item[_ONLY_IN], "kernel": number} if _ONLY_IN in item else number


def _named(item: Any, kernels: Sequence[KernelRecord]) -> Any:
    """Return an item of a step with its kernels; ValueError for another value."""
    if isinstance(item, dict) and isinstance(lines := item.get("kernels"), list):
        return {**item, "kernels": [_named(line, kernels) for line in lines]}
    only = {}
    if isinstance(item, dict):
        only, item = {_ONLY_IN: item.get(_ONLY_IN)}, item.get("kernel")
    if item == END:
        return END
    if not isinstance(item, int) or not 0 <= item < len(kernels):
        raise ValueError(f"{item!r} is no kernel of the record")
    known = msgspec.structs.asdict(kernels[item])
    return {**only, **{name: value for name, value in known.items() if value is not None}}
