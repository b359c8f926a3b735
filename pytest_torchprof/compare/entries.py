"""Two entries of baselines compared: what a test had, and what it has now."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Literal

from pytest_torchprof.compare.change import THIS_RUN, Sides, other_environment
from pytest_torchprof.compare.comparison import FEW, Comparison, verdict_of
from pytest_torchprof.compare.cost import exchanged, family_shifts
from pytest_torchprof.compare.kernel_changes import kernel_changes
from pytest_torchprof.compare.number_changes import number_changes
from pytest_torchprof.compare.time_changes import disturbances, time_changes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_torchprof.baseline import Entry

_NO_TOLERANCE: Final[Mapping[str, float]] = MappingProxyType({})


def compare(
    old: Entry | None,
    new: Entry | None,
    *,
    names: Literal["normal", "exact"] = "normal",
    tolerance: Mapping[str, float] = _NO_TOLERANCE,
    sides: Sides | None = None,
) -> Comparison:
    """Compare two entries, a baseline's and this run's, or those of two files; None stands for a missing entry.

    With ``names="exact"`` another raw name means another kernel, but only under the same software. ``tolerance`` allows
    a count to grow (an int is added, a float is a share), and makes ``"memory"`` and ``"time"`` gated. An entry of
    another device is no baseline. With ``sides``, the names of two files ("the first", "the second"), such entries are
    compared nevertheless, by structure.
    """
    if old is None or new is None:
        return Comparison(verdict="new" if old is None else "gone", kernels_differ=True)
    called = sides or THIS_RUN
    environment = other_environment(old.environment, new.environment, called)
    if environment is not None and environment.is_other_device and sides is None:
        return Comparison(verdict="new", kernels_differ=True, environment=environment)
    changes = (
        *kernel_changes(old, new, "structure" if environment else names, allowed=tolerance.get("kernels", 0)),
        *number_changes(old, new, tolerance),
        *time_changes(old.time, new.time, tolerance.get("time")),
    )
    sampled = (old.samples_hardware, new.samples_hardware)
    many = sum(not change.is_number for change in changes) > FEW
    largest = (max(side.steps, key=len, default=()) for side in (old, new))
    return Comparison(
        verdict=verdict_of(changes),
        kernels_differ=any(not change.is_number and change.kind != "reordered" for change in changes),
        changes=changes,
        stale=old.source != new.source,
        environment=environment,
        exchanged=exchanged(*largest) if many else (),
        families=() if environment or any(sampled) else family_shifts(old, new),
        disturbed=disturbances(old.time, new.time),
        sides=called,
        sampled=sampled,
    )
