"""The numbers of a measurement against its baseline: which way each should go, and which fail a test."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pytest_torchprof.baseline.change import BETTER, NEUTRAL, WORSE, Change
from pytest_torchprof.baseline.model import COUNTS, VARYING
from pytest_torchprof.text import units

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

GATED: Final = frozenset(
    {"kernels", "launches", "memcpys", "memcpys_h2d", "memcpys_d2h", "memcpys_d2d", "syncs", "graph_breaks"}
)
_HIGHER_IS_BETTER: Final = frozenset({"gpu_utilization", "sm_efficiency", "achieved_occupancy"})
# More graph launches are as often the aim as fewer.
_NO_DIRECTION: Final = frozenset({"graph_launches"})
_TOLERANCE_OF: Final = {"peak_memory_bytes": "memory"}
# A kernel more that is allowed has a launch more, unless that is given by itself.
_ALLOWED_WITH: Final = {"launches": "kernels"}
# A number that varies from run to run is worth a line only where it moved by more than noise does.
_WORTH_A_LINE: Final = 0.10


def number_changes(
    old: tuple[Mapping[str, int], Mapping[str, float]],
    new: tuple[Mapping[str, int], Mapping[str, float]],
    tolerance: Mapping[str, float],
) -> Iterator[Change]:
    """Return what changed in the counts, then in the varying numbers (of which only memory can be gated)."""
    for count in COUNTS:
        if old[0].get(count) != new[0].get(count):
            allowed = tolerance.get(count, tolerance.get(_ALLOWED_WITH.get(count, ""), 0))
            yield _change(count, old[0].get(count), new[0].get(count), gated=count in GATED, allowed=allowed)
    for name in VARYING:
        was, now = old[1].get(name), new[1].get(name)
        if was is None or now is None:
            continue
        asked = tolerance.get(_TOLERANCE_OF.get(name, ""))
        if abs(now - was) > abs(was) * (_WORTH_A_LINE if asked is None else min(asked, _WORTH_A_LINE)):
            yield _change(name, was, now, gated=asked is not None, allowed=asked or 0.0)


def _change(name: str, was: float | None, now: float | None, *, gated: bool, allowed: float) -> Change:
    direction = _direction(name, was, now)
    beyond = (
        was is not None and now is not None and now > was + (allowed if isinstance(allowed, int) else was * allowed)
    )
    return Change(
        kind="number",
        what=name,
        old=was,
        new=now,
        direction=direction,
        gated=gated and direction != NEUTRAL and (direction == BETTER or beyond),
        words=f"{name} {_show(name, was)} -> {_show(name, now)}",
    )


def _direction(name: str, was: float | None, now: float | None) -> str:
    if was is None or now is None or name in _NO_DIRECTION:
        return NEUTRAL
    return BETTER if (now > was) == (name in _HIGHER_IS_BETTER) else WORSE


def _show(name: str, value: float | None) -> str:
    if value is None:
        return "not recorded"
    if name.endswith("_us"):
        return units.show_us(value)
    if name.endswith("bytes"):
        return units.show_bytes(round(value))
    return str(value) if name in COUNTS else units.show_ratio(value)
