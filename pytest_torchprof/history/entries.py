"""The entry of a baseline, made of what a record holds of a measurement."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from pytest_torchprof.analysis.numbers import TABLE
from pytest_torchprof.baseline.entry import Entry, decided, facts_of, rounded
from pytest_torchprof.baseline.launch_order import launches
from pytest_torchprof.baseline.step_form import END, read_steps, refuse_too_many
from pytest_torchprof.devices.kinds import kind_of
from pytest_torchprof.history.launched import ONLY_IN

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_torchprof.baseline.entry import KernelRecord
    from pytest_torchprof.history.launched import LaunchRecord
    from pytest_torchprof.history.record import MeasurementRecord, VaryingRecord
    from pytest_torchprof.trace.metadata import Environment


def entry_in(
    launched: LaunchRecord, measured: MeasurementRecord, varying: VaryingRecord, environment: Environment
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


def _named(item: Any, kernels: Sequence[KernelRecord]) -> Any:
    """Return an item of a step with its kernels; ValueError for another value."""
    if isinstance(item, dict) and isinstance(lines := item.get("kernels"), list):
        return {**item, "kernels": [_named(line, kernels) for line in lines]}
    only = {}
    if isinstance(item, dict):
        only, item = {ONLY_IN: item.get(ONLY_IN)}, item.get("kernel")
    if item == END:
        return END
    if not isinstance(item, int) or not 0 <= item < len(kernels):
        raise ValueError(f"{item!r} is no kernel of the record")
    known = msgspec.structs.asdict(kernels[item])
    return {**only, **{name: value for name, value in known.items() if value is not None}}
