"""The state of one pytest process: what it measures with, and the results of its tests so far."""

from __future__ import annotations

from contextlib import ExitStack
from datetime import UTC, datetime
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field
from msgspec.structs import replace

from pytest_torchprof.capture import Coordination
from pytest_torchprof.reasons.errors import TorchprofError
from pytest_torchprof.report import RunResults, UnusedEntries
from pytest_torchprof.report.outcome import BaselineState, Outcome
from pytest_torchprof.testing.handed_over import ProcessResults, Selection

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pytest_torchprof.capture.cache_phase import CachePhase
    from pytest_torchprof.capture.lockstep import OtherRanks
    from pytest_torchprof.findings import Rule
    from pytest_torchprof.kernels.own_kernels import OwnKernels
    from pytest_torchprof.limits import Limit
    from pytest_torchprof.reasons.reason import Reason
    from pytest_torchprof.report import Reporter
    from pytest_torchprof.report.account import AnyAccount
    from pytest_torchprof.report.result import Result
    from pytest_torchprof.testing.options import RunOptions
    from pytest_torchprof.testing.recordings import Recordings
    from pytest_torchprof.testing.records_left import RecordNotTaken
    from pytest_torchprof.testing.run_baselines import BaselineNote, RunBaselines
    from pytest_torchprof.testing.suite_rules import SuiteSeen


class RunState(Struct, kw_only=True):
    """The state of one pytest process; handed to each test's run, merged from workers on the controller.

    Only its own methods change it.
    """

    options: RunOptions
    limits: tuple[Limit, ...]
    rules: tuple[Rule, ...]
    own_kernels: OwnKernels
    """The kernels that no table knows, as the ini file and other plugins declare them."""
    reporters: dict[str, Reporter]
    recordings: Recordings
    baselines: RunBaselines
    results: dict[tuple[str, str | None], Result] = field(default_factory=dict)
    of_ranks: dict[tuple[str, str | None], dict[int, Result]] = field(default_factory=dict)
    """The results of each rank by itself, of measurements of several."""
    tests: set[str] = field(default_factory=set)
    """The node ids of these: most tests run once, and none of thousands of results has to be looked through then."""
    unused: list[UnusedEntries] = field(default_factory=list)
    of_workers: dict[str, list[str]] = field(default_factory=dict)
    """The results of each worker of pytest-xdist for tests that have ended, as JSON, until the worker ends."""
    reported: dict[str, tuple[Result, ...]] = field(default_factory=dict)
    """The results that this worker has handed over with the last reports of their tests, by node id."""
    gone: tuple[str, ...] = ()
    """The measurements that only the commit has with which this run is compared."""
    replayed: set[str] = field(default_factory=set)
    """Names of the recordings that a test judged."""
    problems: list[Reason] = field(default_factory=list)
    """Problems at the end of the run, for the terminal."""
    lacks_gpu: bool = False
    """A GPU was required, and a selected test could not be measured on one."""
    selection: Selection | None = None
    """All tests that the project has; None where some may have been left out, and as long as none were collected."""
    slow_export: bool = False
    """torch could not be asked for the file alone, so that measurements on a GPU took longer than they need to."""
    arm: Callable[[], None] = lambda: None
    """Opens the process's first profiler session, if it is not open yet."""
    unarmed: dict[str, Reason] = field(default_factory=dict)
    """Device as it was asked for -> why nothing can be measured on it in this process."""
    other_ranks: OtherRanks | None = None
    """The other ranks that run the same tests; None where this process does not look for any."""
    caches: CachePhase | None = None
    """How this process finds the compile caches; None where nobody asked for it."""
    own_group: object = None
    """The process group that the plugin has initialized, while it is there."""
    began: datetime = field(default_factory=lambda: datetime.now(UTC))
    suite_seen: SuiteSeen | None = None
    """The tests that the suite's rules reach, as seen when they were collected; None without rules."""
    left_behind: RecordNotTaken | None = None
    """Why the history did not take the record of the run, and where that waits; None if it did."""
    at_end: ExitStack = field(default_factory=ExitStack)
    """Releases what the run holds until its end."""

    @property
    def run_results(self) -> RunResults:
        """Return the results so far, in the order in which they came."""
        side = self.options.against
        return RunResults(
            results=tuple(self.results.values()),
            unused=tuple(self.unused),
            against=None if side is None else side.reference,
            history=None if (branch := self.options.history_branch) is None else branch.shown,
            gone=self.gone,
            rootdir=str(self.options.rootdir),
        )

    def add(self, result: Result) -> None:
        """Record a result; those of a test that is run again replace its former ones."""
        self.results[result.nodeid, result.label] = result
        self.tests.add(result.nodeid)

    def add_of_rank(self, result: Result) -> None:
        """Record what one rank has of a measurement that several make."""
        self.tests.add(result.nodeid)
        self.of_ranks.setdefault((result.nodeid, result.label), {})[result.rank or 0] = result

    @property
    def recorded(self) -> tuple[Result, ...]:
        """The results for the record of the run: of a measurement of several ranks, that of each."""
        together = {key: {0: result} for key, result in self.results.items()}
        return tuple(own for of_one in (together | self.of_ranks).values() for _, own in sorted(of_one.items()))

    def note_lack_of_gpu(self) -> None:
        """Take note that a test cannot be measured on the GPU that is required."""
        self.lacks_gpu = True

    def note_suite(self, seen: SuiteSeen) -> None:
        """Take what was seen of the suite's rules when the tests were collected."""
        self.suite_seen = seen

    def note_selection(self, selection: Selection) -> None:
        """Take all tests that the project has, of which a run leaves none out."""
        self.selection = selection

    def note_slow_export(self) -> None:
        """Take note that torch cannot be asked for the file alone."""
        self.slow_export = True

    def note_problem(self, *problems: Reason) -> None:
        """Keep problems for the end of the run."""
        self.problems.extend(problems)

    def note_left_behind(self, note: RecordNotTaken) -> None:
        """Take note where the record of the run waits, for the end of the run; no verdict depends on it."""
        self.left_behind = note

    def note_judged(self, recording: Path) -> None:
        """Take note that a test has judged a recording."""
        self.replayed.add(recording.name)

    def note_baseline(self, nodeid: str, note: BaselineNote) -> None:
        """Take the note of a measurement that was compared with its baseline."""
        self.baselines.note(nodeid, note)

    def note_unused(self, entries: Iterable[UnusedEntries]) -> None:
        """Take the entries of baselines that nothing measures any more."""
        self.unused.extend(entries)

    def note_gone(self, names: tuple[str, ...]) -> None:
        """Take the names of the measurements that only the other commit has."""
        self.gone = names

    def end_test(self, nodeid: str, test_file: Path, *, passed: bool) -> None:
        """Take note of how a test has ended in all phases: it writes its baselines only if it has passed."""
        if self.baselines.end_test(nodeid, test_file, passed=passed):
            self.leave_baseline(nodeid)

    def keep(self, recording: Path, result: Result, *, stacks: Path | None = None) -> Path | None:
        """Move a recording to its final place and return that; None if it is not kept, or cannot be."""
        try:
            return self.recordings.keep(recording, result, stacks=stacks)
        except TorchprofError as problem:
            # A full disk or a read-only checkout: what was measured counts all the same.
            from pytest_torchprof.reasons.whole_runs import reason_of  # noqa: PLC0415 - for what fails alone

            self.note_problem(reason_of(problem))
            return None

    def arm_by(self, arm: Callable[[], None]) -> None:
        """Take the function that opens the process's first profiler session."""
        self.arm = arm

    def refuse_device(self, device: str, reason: Reason) -> None:
        """Take note why nothing can be measured on a device in this process."""
        self.unarmed[device] = reason

    def run_beside(self, others: OtherRanks) -> None:
        """Take the other ranks that run the same tests."""
        self.other_ranks = others

    def join_group(self, group: object, leave: Callable[[], None]) -> None:
        """Take the process group that the plugin has initialized; ``leave`` destroys it at the end."""
        self.own_group = group
        self.at_end.callback(leave)

    def leave_group(self) -> None:
        """Release what the run holds until its end, such as the process group."""
        self.at_end.close()
        self.own_group = None

    def begin_test(self, nodeid: str) -> None:
        """Begin a run of a test: drop the results of an earlier one, and let the other ranks know of this one."""
        self.forget(nodeid)
        if self.other_ranks is not None:
            self.other_ranks.begin_test(nodeid)

    def forget(self, nodeid: str) -> None:
        """Drop the results of an earlier run of the same test."""
        self.baselines.forget(nodeid)
        if nodeid not in self.tests:
            return
        self.tests.remove(nodeid)
        for results in (self.results, self.of_ranks):
            for key in [key for key in results if key[0] == nodeid]:
                del results[key]

    def results_of(self, nodeid: str) -> tuple[Result, ...]:
        """Return the results of a test's measurements so far."""
        return tuple(result for result in self.results.values() if result.nodeid == nodeid)

    def expect_failure(self, nodeid: str) -> None:
        """Take note that a test that failed is marked as expected to fail."""
        for result in self.results_of(nodeid):
            if result.outcome in (Outcome.FAILED, Outcome.ERROR):
                self.add(replace(result, outcome=Outcome.XFAILED))

    def overrule(self, nodeid: str, outcome: Outcome, account: AnyAccount, **more: Any) -> None:
        """Give the measurements of a test an outcome and its account, with ``more`` fields."""
        for result in self.results_of(nodeid):
            self.add(replace(result, outcome=outcome, account=(account,), **more))

    def leave_baseline(self, nodeid: str) -> None:
        """Take note that a test has not passed in all phases, and writes no baseline."""
        for result in self.results_of(nodeid):
            if result.baseline_state is BaselineState.WRITTEN:
                self.add(_without_baseline(result))

    def coordination(self, nodeid: str, label: str | None, *, after_test: bool) -> Coordination:
        """Return how a measurement keeps up with those of other ranks."""
        return (
            Coordination()
            if self.other_ranks is None
            else self.other_ranks.coordination(nodeid, label, after_test=after_test)
        )

    def drop_stale(self, nodeid: str) -> None:
        """Remove the saved recordings of earlier runs of a test that failed in this one."""
        kept = {Path(result.recording).name for result in self.results_of(nodeid) if result.recording}
        self.recordings.drop_stale(nodeid, kept)

    def reporter_of(self, path: Path) -> Reporter | None:
        """Return the function that writes a report of this name, by the longest suffix that fits; None if none fits."""
        known = [suffix for suffix in self.reporters if path.name.endswith(suffix)]
        return self.reporters[max(known, key=len)] if known else None

    def write_baselines(self) -> list[Reason]:
        """Write the entries of tests that passed, and return the problems."""
        if problems := self.baselines.write():
            self.unused.clear()
            for key, result in self.results.items():
                if result.baseline_state is BaselineState.WRITTEN:
                    self.results[key] = _without_baseline(result)
        return problems

    def handed_over(self) -> ProcessResults:
        """Return the results that a process hands over to the one for which it runs tests."""
        return ProcessResults(
            results=self._unreported(self.results.values()),
            of_ranks=self._unreported(own for of_one in self.of_ranks.values() for own in of_one.values()),
            baselines=self.baselines.handed_over(),
            replayed=tuple(sorted(self.replayed)),
            problems=tuple(self.problems),
            lacks_gpu=self.lacks_gpu,
            suite_seen=self.suite_seen,
            selection=self.selection,
            slow_export=self.slow_export,
        )

    def hand_over_test(self, nodeid: str) -> ProcessResults | None:
        """Return the results to hand over with a test's last report, which are the last results; None for other tests.

        The end of the process does not repeat it.
        """
        if nodeid not in self.tests and nodeid not in self.reported:
            return None
        last = takewhile(lambda result: result.nodeid == nodeid, reversed(self.results.values()))
        results = tuple(last)[::-1]
        each = (self.of_ranks.get((nodeid, result.label), {}) for result in results)
        of_ranks = tuple(own for of_one in each for own in of_one.values())
        self.reported[nodeid] = (*results, *of_ranks)
        return ProcessResults(test=nodeid, results=results, of_ranks=of_ranks)

    def _unreported(self, results: Iterable[Result]) -> tuple[Result, ...]:
        """Leave out the results that were handed over with the last reports of their tests, and have not changed."""
        return tuple(own for own in results if all(own is not other for other in self.reported.get(own.nodeid, ())))

    def note_of_worker(self, worker: str, results: str) -> None:
        """Keep what a worker has measured of a test that has ended until the worker ends."""
        self.of_workers.setdefault(worker, []).append(results)

    def merge_worker(self, worker: str, rest: ProcessResults | None) -> None:
        """Take what a worker has measured: of the tests that have ended, and the ``rest`` that its end hands over.

        One that crashed hands over no rest; the baselines that its tests would have written are lost.
        """
        for text in self.of_workers.pop(worker, ()):
            handed = ProcessResults.from_json(text)
            self.merge(handed)
            if rest is None and handed.test is not None:
                self.leave_baseline(handed.test)
        if rest is not None:
            self.merge(rest)

    def taken(self) -> ProcessResults:
        """Return the results that a rank hands over of the test that has ended, and begin anew for the next."""
        handed = replace(self.handed_over(), selection=None)
        self.baselines.begin_anew()
        for collection in (self.results, self.of_ranks, self.tests, self.replayed, self.problems):
            collection.clear()
        return handed

    def merge_rank(self, other: ProcessResults) -> None:
        """Take what another rank, which the user has started, has measured, beside what this one has."""
        for result in other.results:
            if (own := self.results.get((result.nodeid, result.label))) is not None:
                self.add_of_rank(own)
            self.add_of_rank(result)

    def merge(self, other: ProcessResults) -> None:
        """Take over the results of a process that ran tests for this one."""
        if other.test is not None:
            self.forget(other.test)
        for result in other.results:
            self.add(result)
        for result in other.of_ranks:
            self.add_of_rank(result)
        self.baselines.merge(other.baselines)
        self.replayed.update(other.replayed)
        self.problems.extend(other.problems)
        self.lacks_gpu |= other.lacks_gpu
        self.suite_seen = self.suite_seen or other.suite_seen
        self.selection = self.selection or other.selection
        self.slow_export |= other.slow_export


def _without_baseline(result: Result) -> Result:
    return replace(result, baseline_state=BaselineState.NOT_WRITTEN)
