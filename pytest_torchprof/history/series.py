"""Series: the measurements of one test from commit to commit, and what is missing."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import Counter, deque
from itertools import compress, repeat
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from msgspec import Struct, field
from msgspec.structs import replace

from pytest_torchprof.analysis.numbers import TABLE
from pytest_torchprof.history.lacking import LackingSeries
from pytest_torchprof.history.points import MACHINE, Point, SameRuns, SeriesKey
from pytest_torchprof.history.stopped import StoppedHardware, folder_of, hardware_of, stopped_hardware
from pytest_torchprof.report.outcome import Outcome

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator, Mapping

    from pytest_torchprof.history.notes import Notes
    from pytest_torchprof.history.reading import HistoryRun
    from pytest_torchprof.history.record import Event, MeasurementRecord
    from pytest_torchprof.history.runs import BranchRuns
    from pytest_torchprof.trace.metadata import Environment

EXACT: Final = tuple(number.name for number in TABLE if number.exact)
"""The numbers that the code decides."""


class Series(Struct, frozen=True, kw_only=True):
    """The measurements of one test on one kind of hardware, in the order of the commits, and what is missing."""

    key: SeriesKey
    branch: BranchRuns
    stretches: tuple[SameRuns, ...]
    """The stretches of each version one after the other, from the oldest commit on."""
    gaps: Mapping[str, int]
    """How many of its measurements were not judged, by the code of the reason or by their outcome."""
    missing: int
    """How many complete runs on this hardware, from its first point on, did not measure it, nor did another run of
    their commit."""
    unmeasured: tuple[int, ...]
    """Where these runs, and those of its gaps, stand among those of the branch."""
    open_end: bool
    """Whether the newest commit of these runs, or the run that tried last to measure it, has no point of it."""
    removed_at: str | None = None
    """The commit of the first run of all tests that no longer has its test; None as long as there is none."""
    stopped: StoppedHardware | None = None
    """Where nothing is measured any more on its hardware."""

    @property
    def lacking(self) -> LackingSeries | None:
        """The measurement that the newest run was to make and did not; None if it did."""
        if not self.open_end:
            return None
        newest = max(self.stretches, key=lambda stretch: stretch.indices[-1], default=None)
        last = None if newest is None else self.point(newest, newest.indices[-1])
        return LackingSeries(key=self.key, last=last)

    @property
    def lacks_newest(self) -> bool:
        """Whether the newest run was to measure it and did not, and nobody has said that it need not."""
        return self.lacking is not None and self.branch.notes.accepted.get(self.lacking.id) is None

    @property
    def newest_is_lacking(self) -> bool:
        """Whether the newest commit was not measured, and nobody has said that it need not be."""
        stopped = self.stopped
        return self.lacks_newest or (stopped is not None and self.branch.notes.accepted.get(stopped.id) is None)

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
        run, measured = self.branch.runs[index], stretch.measured
        own = stretch.versions if measured.environment is None else run.environments[measured.environment]
        return Point(run=run, measured=measured, environment=own)


def series_of(branch: BranchRuns) -> list[Series]:
    """Return the series of a branch's runs, by their names."""
    drafts = _Drafts(branch.notes)
    for index, run in enumerate(branch.runs):
        drafts.add(index, run)
    on = _runs_on(branch)
    lacking = _Lacking(branch)
    stopped = stopped_hardware(branch)
    newest: dict[tuple[str, str], int] = {}
    for key, draft in drafts.by_key.items():
        newest[key.folder, key.test] = max(newest.get((key.folder, key.test), -1), draft.newest)
    cpus = {environment.cpu for run in branch.runs for environment in run.environments if environment.gpu is None}
    until = _measured_until(drafts.by_key, cpus)
    made = []
    for key, draft in drafts.by_key.items():
        own = on.get((key.folder, key.hardware), [])
        last = until.get(_anywhere(key), -1) if key.hardware in cpus else draft.last
        if key.hardware in cpus and last == draft.last:
            # A run on any other CPU is to measure it too: machines that CI services lend have one or another.
            own = sorted({*own, *(index for index in on[key.folder, None] if index > last)})
        made.append(
            draft.series(key, lacking, own, newest[key.folder, key.test], last, stopped.get((key.folder, key.hardware)))
        )
    return sorted(made, key=lambda series: series.key.in_order)


def _runs_on(branch: BranchRuns) -> dict[tuple[str, str | None], list[int]]:
    """Return where the runs on each hardware stand, by the project's folder; all CPUs together are None.

    A run that has recorded nothing, as where no test found a GPU, was to be on what the run before it was on that had
    been started by the same event.
    """
    on: dict[tuple[str, str | None], list[int]] = {}
    latest: dict[tuple[str, Event], set[str | None]] = {}
    for index, run in enumerate(branch.runs):
        own = (folder_of(run), run.event)
        if run.environments:
            latest[own] = {
                *map(hardware_of, run.environments),
                *(environment.gpu for environment in run.environments),
            }
        for hardware in latest.get(own, ()):
            on.setdefault((own[0], hardware), []).append(index)
    return on


def _anywhere(key: SeriesKey) -> SeriesKey:
    return replace(key, hardware="")


def _measured_until(by_key: Mapping[SeriesKey, _Draft], cpus: Container[str | None]) -> dict[SeriesKey, int]:
    """Return of each measurement on CPUs the newest run that has a point of it, whichever of them that was on."""
    until: dict[SeriesKey, int] = {}
    for key, draft in by_key.items():
        if key.hardware in cpus:
            until[_anywhere(key)] = max(until.get(_anywhere(key), -1), draft.last)
    return until


def all_stopped(all_series: Iterable[Series]) -> list[StoppedHardware]:
    """Return on what the series are no longer measured, each once, what stopped first first."""
    known = {series.stopped.id: series.stopped for series in all_series if series.stopped is not None}
    return sorted(known.values(), key=lambda stopped: (stopped.date, stopped.hardware or ""))


def all_lacking(all_series: Iterable[Series]) -> list[LackingSeries]:
    """Return the measurements that the newest run was to make and did not, in the order of the series."""
    return [series.lacking for series in all_series if series.lacking is not None]


class _Unjudged(Struct):
    """The same measurement in several runs, which was not judged."""

    measured: MeasurementRecord
    indices: list[int] = field(default_factory=list)
    us: array[float] = field(default_factory=lambda: array("d"))
    under: array[int] = field(default_factory=lambda: array("I"))


class _Track(Struct):
    """The stretches of a series with the same versions."""

    versions: Environment
    stretches: list[SameRuns] = field(default_factory=list)
    newest: int | None = None
    """The number of the measurement that the newest stretch has."""


class _AtHand(dict["int | None", "SameRuns | _Unjudged"]):
    """The stretch or gap that grows with a measurement, by its number, in runs of one folder and environments.

    What is known stands in it until another measurement of the same series begins a stretch.
    """

    def __init__(self, drafts: _Drafts) -> None:
        super().__init__()
        self._drafts = drafts
        self._known: dict[tuple[int, str], _Track | _Unjudged] = {}

    def of_run(self, run: HistoryRun) -> list[SameRuns | _Unjudged]:
        """Return those of a run's measurements."""
        self._run = run
        are_renamed = self._drafts.notes.aliases or self._drafts.notes.moved
        self._present = {run.measurements[number].test for number in run.rows} if are_renamed else set()
        return list(map(self.__getitem__, run.rows))

    def __missing__(self, number: int) -> SameRuns | _Unjudged:
        measured, notes = self._run.measurements[number], self._drafts.notes
        # A run that has both names measured two tests.
        now = notes.name_now(measured.test)
        test = measured.test if now in self._present else now
        known = self._known.get((number, test))
        if known is None:
            known = self._known[number, test] = self._drafts.series_of(measured, test, self._run)
        if isinstance(known, _Track) and known.newest != number:
            self._drafts.forget(known.newest)
            known.newest = number
            us, under = array("d"), array("I")
            known.stretches.append(SameRuns(measured=measured, versions=known.versions, indices=[], us=us, under=under))
        growing = known if isinstance(known, _Unjudged) else known.stretches[-1]
        if now == measured.test:
            self[number] = growing
        return growing


class _Drafts:
    """The series of a branch that are being put together."""

    def __init__(self, notes: Notes) -> None:
        self.notes = notes
        self.by_key: dict[SeriesKey, _Draft] = {}
        self._latest: dict[SeriesKey, str] = {}
        self._at_hand: dict[tuple[str, int], _AtHand] = {}

    def add(self, index: int, run: HistoryRun) -> None:
        """Add what a run has measured, which stands there among those of the branch."""
        growing = self._at_hand.setdefault((folder_of(run), id(run.environments)), _AtHand(self)).of_run(run)
        # Most runs have the same measurements as the one before: nothing more is done for each than this.
        deque(map(list.append, map(_INDICES, growing), repeat(index)), maxlen=0)
        deque(map(array.append, map(_US, growing), run.times.us), maxlen=0)
        for stretch, under in compress(zip(growing, run.times.under, strict=True), run.times.under):
            # Few histories have any, and these are not gone through else.
            stretch.under.extend(repeat(0, len(stretch.us) - 1 - len(stretch.under)))
            stretch.under.append(under)

    def series_of(self, measured: MeasurementRecord, test: str, run: HistoryRun) -> _Track | _Unjudged:
        """Return where a measurement of this test belongs that a run has."""
        environment = None if measured.environment is None else run.environments[measured.environment]
        key = _key(folder_of(run), test, measured, environment, self._latest, run)
        return self.by_key.setdefault(key, _Draft()).series_of(measured, environment)

    def forget(self, number: int | None) -> None:
        """Let a measurement that comes again begin a stretch of its own."""
        for growing in self._at_hand.values():
            growing.pop(number, None)


_INDICES: Final = attrgetter("indices")
_US: Final = attrgetter("us")


class _Lacking:
    """Which runs show that the project has a test no more."""

    def __init__(self, branch: BranchRuns) -> None:
        self.branch = branch
        self._unmeasured: dict[tuple[str, ...], frozenset[str]] = {}

    def of(self, index: int, test: str, newest: int) -> bool:
        """Return whether a run shows that a test is gone, which the run ``newest`` had.

        None of a part of the tests does, and none without the rules of a suite where these may have measured it.
        """
        run = self.branch.runs[index]
        if not run.complete or run.all_tests is None or (self.branch.runs[newest].suite and not run.suite):
            return False
        names = run.all_tests.unmeasured
        if names not in self._unmeasured:
            self._unmeasured[names] = frozenset([*names, *map(self.branch.notes.name_now, names)])
        return run.all_tests.covers(test) and test not in self._unmeasured[names]


class _Draft(Struct):
    """A series that is being put together."""

    tracks: dict[Environment, _Track] = field(default_factory=dict)
    gaps: list[_Unjudged] = field(default_factory=list)

    def series_of(self, measured: MeasurementRecord, environment: Environment | None) -> _Track | _Unjudged:
        """Return where a measurement belongs."""
        if environment is not None and measured.counts:
            versions = replace(environment, **dict.fromkeys(MACHINE))
            return self.tracks.setdefault(versions, _Track(versions))
        gap = _Unjudged(measured)
        self.gaps.append(gap)
        return gap

    @property
    def last(self) -> int:
        """The newest run that has a point of it; -1 for none."""
        return max((track.stretches[-1].indices[-1] for track in self.tracks.values()), default=-1)

    @property
    def newest(self) -> int:
        """The newest run that has it, judged or not."""
        return max(self.last, *(gap.indices[-1] for gap in self.gaps), -1)

    @property
    def _newest_unjudged(self) -> int:
        """The newest run that tried to measure it and could not judge it; -1 for none, as of a test that is skipped."""
        tried = (gap.indices[-1] for gap in self.gaps if gap.measured.outcome is not Outcome.SKIPPED)
        return max(tried, default=-1)

    def series(  # noqa: PLR0913, PLR0917 - what is known of all series
        self, key: SeriesKey, lacking: _Lacking, on: list[int], newest: int, last: int, stopped: StoppedHardware | None
    ) -> Series:
        """Return it.

        ``on``: the runs that are to measure it. ``newest``: the newest run that has its test, under any label and rank.
        ``last``: the newest run that has a point of it, on whichever CPU. ``stopped``: where nothing is measured any
        more on its hardware.
        """
        branch = lacking.branch
        stretches = tuple(stretch for track in self.tracks.values() for stretch in track.stretches)
        first = min((stretch.indices[0] for stretch in stretches), default=len(branch.runs))
        seen = {index for stretch in stretches for index in stretch.indices}
        seen |= {index for gap in self.gaps for index in gap.indices}
        later = on[bisect_left(on, first) :]
        # A series without a point has no hardware of its own.
        able = later if stretches else [at for at, run in enumerate(branch.runs) if folder_of(run) == key.folder]
        after = [at for at in able if branch.commit_of[at] > branch.commit_of[newest]]
        without = next((at for at in after if lacking.of(at, key.test, newest)), len(branch.runs))
        later = later[: bisect_left(later, without)]
        gaps: Counter[str] = Counter()
        for gap in self.gaps:
            gaps[gap.measured.code or str(gap.measured.outcome)] += len(gap.indices)
        missing = [index for index in later if index not in seen and branch.runs[index].complete]
        if missing:
            # Jobs that share out the tests measure one commit together.
            measured = {branch.commit_of[index] for index in seen}
            missing = [index for index in missing if branch.commit_of[index] not in measured]
        gone = None if without == len(branch.runs) else branch.runs[without].commit
        return Series(
            key=key,
            branch=branch,
            stretches=stretches,
            gaps=gaps,
            missing=len(missing),
            unmeasured=tuple(sorted([*missing, *(index for gap in self.gaps for index in gap.indices)])),
            open_end=gone is None and (self._newest_unjudged > last or _is_later(branch, later[-1:], last)),
            removed_at=None if gone is None else gone.sha,
            stopped=stopped if gone is None and stretches else None,
        )


def _is_later(branch: BranchRuns, newest: Iterable[int], last: int) -> bool:
    """Whether the commit of a run comes after that of another one; -1 for none."""
    return any(last < 0 or branch.commit_of[index] > branch.commit_of[last] for index in newest)


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
