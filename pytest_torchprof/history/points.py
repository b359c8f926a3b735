"""The parts of a series: its key, its points, and the stretches of runs in which they are the same."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import asdict, replace

if TYPE_CHECKING:
    from collections.abc import Container

    from pytest_torchprof.history.reading import HistoryRun
    from pytest_torchprof.history.record import MeasurementRecord
    from pytest_torchprof.trace.metadata import Environment

MACHINE: Final = ("cpu", "driver")
"""What belongs to the machine that a run was on: the same code is to launch the same on each of one GPU model."""
_HARDWARE: Final = frozenset({*MACHINE, "gpu", "clocks_mhz", "compute_capability", "gcn_arch"})


class SeriesKey(Struct, frozen=True, kw_only=True):
    """The key that the points of a series share."""

    folder: str
    """Where pytest's root directory lies in the repository."""
    test: str
    label: str | None
    rank: int | None
    ranks: int | None
    device: str
    """As it was asked for."""
    hardware: str
    """The GPU's product name, or the CPU's."""

    @property
    def name(self) -> str:
        """The test and, where there are, its label and its rank."""
        label = f" ({self.label})" if self.label else ""
        rank = "" if self.rank is None else f", rank {self.rank} of {self.ranks}"
        return f"{self.test}{label}{rank}"

    @property
    def in_order(self) -> tuple[str, ...]:
        """The key by which series are sorted."""
        return self.folder, self.name, self.hardware, self.device


class Point(Struct, frozen=True, kw_only=True):
    """One measurement that was judged, in one run."""

    run: HistoryRun
    measured: MeasurementRecord
    environment: Environment

    @property
    def commit(self) -> str:
        """The hash of its commit."""
        return "" if self.run.commit is None else self.run.commit.sha

    def moved(self, later: Point) -> dict[str, tuple[object, object]]:
        """Return the versions and settings that differ between it and a later one, as old and new."""
        old, new = asdict(self.environment), asdict(later.environment)
        moved = {name: (old[name], new[name]) for name in old if name not in _HARDWARE and old[name] != new[name]}
        # What a kernel is called and which work is the same may be another thing for another version of ours.
        ours = (self.run.version, later.run.version)
        return moved if ours[0] == ours[1] else {**moved, "pytest-torchprof": ours}

    def machine_moved(self, later: Point) -> dict[str, tuple[object, object]]:
        """Return the facts that differ between their machines, of one GPU model, as old and new."""
        pairs = {name: (getattr(self.environment, name), getattr(later.environment, name)) for name in MACHINE}
        return {name: (old, new) for name, (old, new) in pairs.items() if old != new}


class SameRuns(Struct, frozen=True, kw_only=True):
    """Runs that follow one another in a series with the same versions and the same measurement."""

    measured: MeasurementRecord
    versions: Environment
    """The environment that its runs share, whichever machine each was on."""
    indices: list[int]
    """Where its runs stand among those of the branch."""
    us: array[float]
    """For each run how long it took, as in ``RunTimes``."""
    under: array[int]
    """For each run under which conditions; where it ends before them, none of the rest has any."""

    def only(self, runs: Container[int]) -> SameRuns:
        """Return the stretch with only these of its runs."""
        kept = [at for at, index in enumerate(self.indices) if index in runs]
        return replace(
            self,
            indices=[self.indices[at] for at in kept],
            us=array("d", [self.us[at] for at in kept]),
            under=array("I", [self.under[at] for at in kept if at < len(self.under)]),
        )
