"""Series: the measurements of one test from commit to commit, and what is missing."""

from __future__ import annotations

from array import array
from collections import Counter
from typing import TYPE_CHECKING, Final

from msgspec import Struct, field
from msgspec.structs import asdict, replace

from pytest_torchprof.analysis.numbers import TABLE

if TYPE_CHECKING:
    from collections.abc import Container, Iterator, Mapping

    from pytest_torchprof.history.reading import HistoryRun
    from pytest_torchprof.history.record import MeasurementRecord
    from pytest_torchprof.history.runs import BranchRuns
    from pytest_torchprof.trace.metadata import Environment

EXACT: Final = tuple(number.name for number in TABLE if number.exact)
"""The numbers that the code decides."""
_HARDWARE: Final = frozenset({"gpu", "cpu", "clocks_mhz", "compute_capability", "gcn_arch"})


class SeriesKey(Struct, frozen=True, kw_only=True):
    """What the points of a series have in common."""

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


class SameRuns(Struct, frozen=True, kw_only=True):
    """Runs that follow one another in a series with the same versions and the same measurement."""

    measured: MeasurementRecord
    environment: Environment
    indices: list[int]
    """Where its runs stand among those of the branch."""
    rows: array[int]
    """For each run where the measurement stands in it."""

    def only(self, runs: Container[int]) -> SameRuns:
        """Return the stretch with only these of its runs."""
        kept = [at for at, index in enumerate(self.indices) if index in runs]
        indices, rows = [self.indices[at] for at in kept], array("H", [self.rows[at] for at in kept])
        return replace(self, indices=indices, rows=rows)


class Series(Struct, frozen=True, kw_only=True):
    """What was measured of one test on one kind of hardware, in the order of the commits, and what is missing."""

    key: SeriesKey
    branch: BranchRuns
    stretches: tuple[SameRuns, ...]
    """One environment after the other, each from its oldest commit on."""
    gaps: Mapping[str, int]
    """How many of its measurements were not judged, by the code of the reason or by their outcome."""
    missing: int
    """How many complete runs on this hardware, from its first point on, did not measure it."""
    open_end: bool
    """Whether the last of these runs has no point of it: nothing is known of the newest commit."""

    @property
    def count(self) -> int:
        """How many points it has."""
        return sum(len(stretch.indices) for stretch in self.stretches)

    @property
    def points(self) -> Iterator[Point]:
        """Its points in the order of their commits."""
        at = sorted((index, number) for number, stretch in enumerate(self.stretches) for index in stretch.indices)
        for index, number in at:
            yield self.point(self.stretches[number], index)

    def point(self, stretch: SameRuns, index: int) -> Point:
        """Return the point of a stretch in the run that stands there."""
        return Point(run=self.branch.runs[index], measured=stretch.measured, environment=stretch.environment)


def series_of(branch: BranchRuns) -> list[Series]:
    """Return the series of a branch's runs, by their names."""
    drafts: dict[SeriesKey, _Draft] = {}
    # Most runs have the same measurements as the one before: whose each is, is looked up by the object.
    known: dict[tuple[int, int, str, str], _Place] = {}
    aliases = branch.notes.aliases
    latest: dict[SeriesKey, str] = {}
    for index, run in enumerate(branch.runs):
        folder = "" if run.commit is None else run.commit.folder
        present = {measured.test for measured in run.measurements} if aliases else set()
        for row, measured in enumerate(run.measurements):
            # A run that has both names measured two tests.
            now = branch.notes.name_now(measured.test) if measured.test in aliases else measured.test
            test = measured.test if now in present else now
            by = (id(measured), id(run.environments), folder, test)
            if by not in known:
                environment = None if measured.environment is None else run.environments[measured.environment]
                key = _key(folder, test, measured, environment, latest, run)
                known[by] = drafts.setdefault(key, _Draft()).place_of(measured, environment)
            known[by].add(index, row)
    on: dict[str, list[int]] = {}
    for index, run in enumerate(branch.runs):
        for hardware in {hardware_of(environment) for environment in run.environments}:
            on.setdefault(hardware, []).append(index)
    made = [draft.series(key, branch, on.get(key.hardware, [])) for key, draft in drafts.items()]
    return sorted(made, key=lambda series: series.key.in_order)


class _Place(Struct):
    """The place in a series of the same measurement of several runs."""

    measured: MeasurementRecord
    environment: Environment | None
    draft: _Draft
    stretches: list[SameRuns] | None
    """Those of its environment; None for a gap."""

    def add(self, run: int, row: int) -> None:
        self.draft.seen.append(run)
        stretches = self.stretches
        if stretches is None or self.environment is None:
            self.draft.gaps[self.measured.code or str(self.measured.outcome)] += 1
        elif stretches and stretches[-1].measured is self.measured:
            stretches[-1].indices.append(run)
            stretches[-1].rows.append(row)
        else:
            rows = array("H", [row])
            stretches.append(SameRuns(measured=self.measured, environment=self.environment, indices=[run], rows=rows))


class _Draft(Struct):
    """A series that is being put together."""

    stretches: dict[Environment, list[SameRuns]] = field(default_factory=dict)
    gaps: Counter[str] = field(default_factory=Counter)
    seen: list[int] = field(default_factory=list)
    """The runs that have it, judged or not."""

    def place_of(self, measured: MeasurementRecord, environment: Environment | None) -> _Place:
        judged = environment is not None and measured.counts
        stretches = self.stretches.setdefault(environment, []) if environment is not None and judged else None
        return _Place(measured=measured, environment=environment, draft=self, stretches=stretches)

    def series(self, key: SeriesKey, branch: BranchRuns, on: list[int]) -> Series:
        stretches = tuple(stretch for own in self.stretches.values() for stretch in own)
        first = min((stretch.indices[0] for stretch in stretches), default=len(branch.runs))
        last = max((stretch.indices[-1] for stretch in stretches), default=-1)
        seen = set(self.seen)
        later = [index for index in on if index >= first]
        return Series(
            key=key,
            branch=branch,
            stretches=stretches,
            gaps=self.gaps,
            missing=sum(branch.runs[index].complete and index not in seen for index in later),
            open_end=bool(later) and later[-1] > last,
        )


def _key(  # noqa: PLR0913, PLR0917 - what a series is made of
    folder: str,
    test: str,
    measured: MeasurementRecord,
    environment: Environment | None,
    latest: dict[SeriesKey, str],
    run: HistoryRun,
) -> SeriesKey:
    """Return the key of the series that a measurement belongs to.

    A measurement that failed may have no environment: it is a gap in the latest series.
    """
    anywhere = SeriesKey(
        folder=folder,
        test=test,
        label=measured.label,
        rank=measured.rank,
        ranks=measured.ranks,
        device=measured.device,
        hardware="",
    )
    if environment is not None:
        latest[anywhere] = hardware_of(environment)
    machine = run.machine
    own = machine.cpu if measured.device == "cpu" else machine.gpu or machine.cpu
    return replace(anywhere, hardware=latest.get(anywhere) or own or "")


def hardware_of(environment: Environment) -> str:
    """Return the GPU of an environment, or its CPU."""
    return environment.gpu or environment.cpu or ""
