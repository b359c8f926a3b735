"""One pytest process: what it collects over its tests, what it shows meanwhile, what it writes at its end."""

from __future__ import annotations

import json
import os
import shutil
from contextlib import ExitStack
from dataclasses import dataclass, field
from dataclasses import replace as changed
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from msgspec import Struct, convert, to_builtins
from msgspec.structs import replace

from pytest_torchprof import baseline
from pytest_torchprof.capture import Pace
from pytest_torchprof.capture.rank import this_rank
from pytest_torchprof.limits import Screen
from pytest_torchprof.reasons.codes import Code, coded
from pytest_torchprof.reasons.errors import TorchprofError
from pytest_torchprof.recording.files import hide, stacks_name
from pytest_torchprof.report import RunResults, UnusedEntries, ci, terminal
from pytest_torchprof.report.result import BaselineState, Outcome, Result
from pytest_torchprof.system.replacing import replacing
from pytest_torchprof.testing import two_sides
from pytest_torchprof.testing.commit import commit_of
from pytest_torchprof.testing.recordings import SUFFIX
from pytest_torchprof.testing.renames import Gone, NewTest  # noqa: TC001 - msgspec reads the annotations
from pytest_torchprof.testing.unused import BaselineUse, unused_entries
from pytest_torchprof.testing.workers import hand_over, is_worker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from pytest_torchprof.baseline import Entry
    from pytest_torchprof.capture.cache_phase import CachePhase
    from pytest_torchprof.capture.lockstep import OtherRanks
    from pytest_torchprof.findings import Rule
    from pytest_torchprof.kernels.own_kernels import OwnKernels
    from pytest_torchprof.limits import Limit
    from pytest_torchprof.reasons.reason import Reason
    from pytest_torchprof.report import Reporter
    from pytest_torchprof.testing.baseline_files import BaselineFiles
    from pytest_torchprof.testing.options import RunOptions
    from pytest_torchprof.testing.recordings import Recordings
    from pytest_torchprof.testing.renames import Formers, GoneEntries


@dataclass(frozen=True, slots=True, kw_only=True)
class BaselineNote:
    """What the run keeps in mind of a measurement that was compared with its baseline."""

    file: Path
    key: str
    says_less: bool = False
    """The entry says less of its kernels than was measured."""
    test: NewTest | None = None
    """The test and its file, where there is no entry."""
    label: str | None = None
    formers: tuple[Gone, ...] = ()
    """What that test may have been called."""
    entry: Entry | None = None
    """What is to be written."""
    at_once: bool = False
    """Whether it is written whatever the rest of the test comes to."""


class ProcessResults(Struct, frozen=True, kw_only=True):
    """What a process that runs tests for another one, as a worker of pytest-xdist or a rank, hands over to it."""

    results: tuple[Result, ...] = ()
    baseline_updates: dict[str, dict[str, Any]] = {}
    """Baseline file -> key -> entry as a file has it; None removes one."""
    replayed: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    lacks_gpu: bool = False
    collected: dict[str, tuple[str, ...]] = {}
    passed: dict[str, str] = {}
    compared: dict[str, tuple[str, ...]] = {}
    untold: dict[str, tuple[str, ...]] = {}
    formers: tuple[tuple[NewTest, tuple[tuple[str | None, tuple[Gone, ...]], ...]], ...] = ()

    def to_json(self) -> str:
        """Return it as JSON."""
        return json.dumps(to_builtins(self, enc_hook=str))

    @classmethod
    def from_json(cls, text: str) -> ProcessResults:
        """Return what ``to_json`` gave."""
        return convert(json.loads(text), cls)


@dataclass(slots=True, kw_only=True)
class RunState:
    """The state of one pytest process; handed to each test's run, merged from workers on the controller.

    It changes by its own methods alone.
    """

    options: RunOptions
    limits: tuple[Limit, ...]
    rules: tuple[Rule, ...]
    own_kernels: OwnKernels
    """What the ini file and other plugins say of kernels that no table knows."""
    reporters: dict[str, Reporter]
    recordings: Recordings
    baselines: BaselineFiles
    gone_entries: GoneEntries
    """The entries of tests that are gone, in which new tests look for what they were called."""
    results: dict[tuple[str, str | None], Result] = field(default_factory=dict)
    baseline_updates: dict[Path, dict[str, Entry | None]] = field(default_factory=dict)
    """Baseline file -> key -> entry of tests that passed altogether; None removes one."""
    wrote_first_baseline: bool = False
    """Whether this run has put a baseline where there was none yet."""
    collected: dict[Path, list[str]] = field(default_factory=dict)
    """Test file -> its test ids, of files that were collected as a whole."""
    passed: dict[str, Path] = field(default_factory=dict)
    """Test id -> its test file, of tests that passed altogether, measured or not."""
    compared_keys: dict[Path, set[str]] = field(default_factory=dict)
    """Baseline file -> the keys of what was measured and compared with it."""
    untold_keys: dict[Path, set[str]] = field(default_factory=dict)
    """Likewise of entries that say less of their kernels than was measured."""
    formers: Formers = field(default_factory=dict)
    """What the new tests of this run may have been called."""
    unused: list[UnusedEntries] = field(default_factory=list)
    gone: tuple[str, ...] = ()
    """What was measured at the commit that this run is held against, and not in this run."""
    replayed: set[str] = field(default_factory=set)
    """Names of the recordings that a test judged."""
    problems: list[str] = field(default_factory=list)
    """What went wrong at the end of the run, for the terminal."""
    lacks_gpu: bool = False
    """A GPU was required, and a selected test could not be measured on one."""
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
    at_end: ExitStack = field(default_factory=ExitStack)
    """What is given back when the run is over."""
    _has_baselines: dict[Path, bool] = field(default_factory=dict)
    _entries_of: dict[str, list[BaselineNote]] = field(default_factory=dict)
    """Test id -> the entries that are to be written if the whole test passes."""

    @property
    def run_results(self) -> RunResults:
        """Return the results so far, in the order in which they came."""
        side = self.options.against
        return RunResults(
            results=tuple(self.results.values()),
            unused=tuple(self.unused),
            against=None if side is None else side.reference,
            gone=self.gone,
            rootdir=self.options.rootdir,
        )

    def baseline_use(self, started_in: Path) -> BaselineUse:
        """Return what tells which entries of baselines are of use."""
        return BaselineUse(
            options=self.options,
            baselines=self.baselines,
            started_in=started_in,
            collected=self.collected,
            passed=self.passed,
            compared_keys=self.compared_keys,
            untold_keys=self.untold_keys,
            formers=self.formers,
            baseline_updates=self.baseline_updates,
            remove=self.remove_entries,
        )

    def add(self, result: Result) -> None:
        """Record a result; a test that is run again replaces its former ones."""
        self.results[result.nodeid, result.label] = result

    def note_collected(self, files: Mapping[Path, list[str]], folders: Sequence[Path]) -> None:
        """Take the tests of files that were collected as a whole, and the folders in which baselines may be."""
        self.collected.update(files)
        self.gone_entries.look_among(self.collected, folders)

    def note_lack_of_gpu(self) -> None:
        """Take note that a test cannot be measured on the GPU that is required."""
        self.lacks_gpu = True

    def note_problem(self, problem: str) -> None:
        """Keep what went wrong, for the end of the run."""
        self.problems.append(problem)

    def note_judged(self, recording: Path) -> None:
        """Take note that a test has judged a recording."""
        self.replayed.add(recording.name)

    def note_baseline(self, nodeid: str, note: BaselineNote) -> None:
        """Take what a measurement that was compared with its baseline leaves to be written and told."""
        self.compared_keys.setdefault(note.file, set()).add(note.key)
        if note.says_less:
            self.untold_keys.setdefault(note.file, set()).add(note.key)
        if note.test is not None:
            self.formers.setdefault(note.test, {})[note.label] = note.formers
        if note.entry is not None and note.at_once:
            self.baseline_updates.setdefault(note.file, {})[note.key] = note.entry
        elif note.entry is not None:
            self._entries_of.setdefault(nodeid, []).append(note)

    def remove_entries(self, file: Path, keys: Iterable[str]) -> None:
        """Remove entries of a baseline at the end of the run."""
        self.baseline_updates.setdefault(file, {}).update(dict.fromkeys(keys))

    def end_test(self, nodeid: str, test_file: Path, *, passed: bool) -> None:
        """Take note of how a test has ended altogether: it writes its baselines only where it has passed."""
        notes = self._entries_of.pop(nodeid, [])
        if passed:
            self.passed[nodeid] = test_file
            for note in notes:
                self.baseline_updates.setdefault(note.file, {})[note.key] = note.entry
        elif notes:
            self.leave_baseline(nodeid)

    def keep(
        self, recording: Path, nodeid: str, label: str | None, *, failed: bool, stacks: Path | None = None
    ) -> Path | None:
        """Keep a recording where it stays; None where it is not kept, or cannot be, which is said at the end."""
        try:
            return self.recordings.keep(recording, nodeid, label, failed=failed, stacks=stacks)
        except TorchprofError as problem:
            # A full disk or a read-only checkout: what was measured counts all the same.
            self.note_problem(str(problem))
            return None

    def arm_by(self, arm: Callable[[], None]) -> None:
        """Take what opens the process's first profiler session."""
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
        """Give back what is left for the end of the run, such as the process group."""
        self.at_end.close()
        self.own_group = None

    def forget(self, nodeid: str) -> None:
        """Drop what an earlier run of the same test left."""
        self._entries_of.pop(nodeid, None)
        for key in [key for key in self.results if key[0] == nodeid]:
            del self.results[key]

    def expect_failure(self, nodeid: str) -> None:
        """Take note that a test which failed is marked as one that does."""
        for key, result in self.results.items():
            if result.nodeid == nodeid and result.outcome is Outcome.FAILED:
                self.results[key] = replace(result, outcome=Outcome.XFAILED)

    def overrule(self, nodeid: str, outcome: Outcome, reason: str) -> None:
        """Put another outcome in the place of what the measurements of a test came to."""
        for key, result in self.results.items():
            if result.nodeid == nodeid:
                self.results[key] = replace(result, outcome=outcome, message=reason)

    def leave_baseline(self, nodeid: str) -> None:
        """Take note that a test has not passed altogether, and writes no baseline."""
        for key, result in self.results.items():
            if result.nodeid == nodeid and result.baseline_state is BaselineState.WRITTEN:
                self.results[key] = _without_baseline(result)

    def pace(self, nodeid: str, label: str | None, *, after_test: bool) -> Pace:
        """Return how a measurement keeps up with those of other ranks."""
        return Pace() if self.other_ranks is None else self.other_ranks.pace(nodeid, label, after_test=after_test)

    def drop_stale(self, nodeid: str) -> None:
        """Remove the saved recordings that earlier runs left of a test that failed in this one."""
        kept = {Path(one.recording).name for key, one in self.results.items() if key[0] == nodeid and one.recording}
        self.recordings.drop_stale(nodeid, kept)

    def reporter_of(self, path: Path) -> Reporter | None:
        """Return what writes a report of this name: by its suffix, the longest that is known."""
        known = [suffix for suffix in self.reporters if path.name.endswith(suffix)]
        return self.reporters[max(known, key=len)] if known else None

    def write_baselines(self) -> list[str]:
        """Write the entries of tests that passed, and return what went wrong."""
        problems: list[str] = []
        is_first = not any(any(folder.glob("*.json")) for folder in {file.parent for file in self.baseline_updates})
        for file, entries in sorted(self.baseline_updates.items()):
            try:
                self.baselines.update(file, entries)
            except TorchprofError as problem:
                problems.append(str(problem))
                self.unused.clear()
                for key, result in self.results.items():
                    if result.baseline_state is BaselineState.WRITTEN:
                        self.results[key] = _without_baseline(result)
        self.wrote_first_baseline = (
            bool(self.baseline_updates) and is_first and not problems and not self.options.against
        )
        return problems

    def _has_baseline(self, test_file: Path) -> bool:
        if test_file not in self._has_baselines:
            files = baseline.files_of(test_file, self.options.rootdir, self.options.baseline_dir)
            self._has_baselines[test_file] = bool(files)
        return self._has_baselines[test_file]

    def handed_over(self) -> ProcessResults:
        """Return what a process that runs tests for another one hands over."""
        return ProcessResults(
            results=tuple(self.results.values()),
            baseline_updates={
                str(file): {key: entry and baseline.plain(entry) for key, entry in entries.items()}
                for file, entries in self.baseline_updates.items()
            },
            replayed=tuple(sorted(self.replayed)),
            problems=tuple(self.problems),
            lacks_gpu=self.lacks_gpu,
            collected={str(path): tuple(ids) for path, ids in self.collected.items() if self._has_baseline(path)},
            passed={nodeid: str(path) for nodeid, path in self.passed.items() if self._has_baseline(path)},
            compared={str(file): tuple(sorted(keys)) for file, keys in self.compared_keys.items()},
            untold={str(file): tuple(sorted(keys)) for file, keys in self.untold_keys.items()},
            formers=tuple((new, tuple(found.items())) for new, found in self.formers.items()),
        )

    def taken(self) -> str:
        """Return what a rank hands over of the test that has ended, as JSON, and begin anew for the next."""
        text = self.handed_over().to_json()
        for found in (self.results, self.baseline_updates, self.replayed, self.problems, self.formers):
            found.clear()
        self.compared_keys.clear()
        self.untold_keys.clear()
        return text

    def merge(self, other: ProcessResults) -> None:
        """Take over what a process handed over that ran tests for this one."""
        for result in other.results:
            self.add(result)
        for file, entries in other.baseline_updates.items():
            read = {key: entry and baseline.from_plain(entry) for key, entry in entries.items()}
            self.baseline_updates.setdefault(Path(file), {}).update(read)
        self.replayed.update(other.replayed)
        self.problems.extend(other.problems)
        self.lacks_gpu |= other.lacks_gpu
        self.collected.update({Path(path): list(ids) for path, ids in other.collected.items()})
        self.passed.update({nodeid: Path(path) for nodeid, path in other.passed.items()})
        for new, found in other.formers:
            self.formers.setdefault(new, {}).update(found)
        for handed, keys_of in ((other.compared, self.compared_keys), (other.untold, self.untold_keys)):
            for file, keys in handed.items():
                keys_of.setdefault(Path(file), set()).update(keys)


def _without_baseline(result: Result) -> Result:
    return replace(result, baseline_state=BaselineState.NOT_WRITTEN)


NARROWEST, WIDEST = 60, 100


def screen_of(config: pytest.Config) -> Screen:
    """Return how much a failure may say: as wide as the terminal is, and everything where ``-vv`` asks for it."""
    columns = shutil.get_terminal_size(fallback=(0, 24)).columns
    everything = config.get_verbosity() >= 2
    return Screen(width=min(max(columns or 80, NARROWEST), WIDEST), columns=columns or None, everything=everything)


def write_section(state: RunState, terminalreporter: Any) -> None:
    """Write the section at the end of the run, in the reporter's own style."""
    run, options = state.run_results, state.options
    verbosity = terminalreporter.config.get_verbosity()
    if verbosity < 0 and not options.enabled:
        # Without the header nothing else would say so.
        terminalreporter.write_line("torchprof: off: nothing was measured, no limit was judged")
    unjudged = state.recordings.unjudged(state.replayed)
    if not (run.results or state.problems or unjudged):
        return
    rank = this_rank()
    who = "" if rank.alone else f"{rank}: "
    if not rank.writes and (options.reports or options.baseline.writes):
        terminalreporter.write_line(f"torchprof: {who}rank 0 writes the baselines and reports")
    if verbosity < 0 and not state.problems:
        terminalreporter.write_line("\n".join(f"torchprof: {who}{line}" for line in terminal.render_briefly(run)))
    else:
        _write_results(state, terminalreporter, unjudged)
    if state.wrote_first_baseline and not _is_required(terminalreporter.config):
        terminalreporter.write_line(terminal.REQUIRE_PLUGIN)
    if rank.writes and os.environ.get("GITHUB_ACTIONS") == "true":
        for command in ci.commands(run, options.rootdir, os.environ.get("GITHUB_WORKSPACE")):
            terminalreporter.write_line(command)


def _write_results(state: RunState, terminalreporter: Any, unjudged: Iterable[str]) -> None:
    run, rank, verbosity = state.run_results, this_rank(), terminalreporter.config.get_verbosity()
    width = terminalreporter.config.get_terminal_writer().fullwidth
    heading, *below = terminal.heading_lines(run, width=width, who="" if rank.alone else f", {rank}")
    terminalreporter.write_sep("-", heading)
    for line in below:
        terminalreporter.write_line(line)
    if run.results:
        terminalreporter.write_line(terminal.render(run, width=width, verbosity=verbosity))
    if unjudged:
        terminalreporter.write_line(f"recordings that no test judged: {', '.join(unjudged)}")
    for problem in state.problems:
        terminalreporter.write_line(f"torchprof: {problem}", red=True)


def _is_required(config: pytest.Config) -> bool:
    """Whether a run without the plugin would end at once."""
    return any(name.startswith("pytest-torchprof") for name in config.getini("required_plugins"))


RECORDINGS = "torchprof-recordings"
"""The folder next to a report; not hidden, since uploads of artifacts leave hidden ones out."""


def finish(state: RunState, session: pytest.Session) -> None:
    """Write what the run leaves behind; on a worker, hand it to the controller, which alone writes."""
    try:
        if is_worker(session.config):
            hand_over(session.config, state.handed_over().to_json())
            return
        if this_rank().writes:
            side = state.options.against
            if side is None:
                state.unused.extend(unused_entries(state.baseline_use(session.config.invocation_params.dir)))
            elif not side.is_judged:
                two_sides.leave_times(side, state.run_results)
            else:
                if not (session.shouldfail or session.shouldstop):  # All tests have run.
                    state.gone = two_sides.only_at_base(side, state.baselines, state.compared_keys)
                state.problems += two_sides.nothing_compared(side, state.results.values())
            state.problems += [*state.write_baselines(), *_write_reports(state), *_write_step_summary(state)]
        if state.options.replay is not None and not state.replayed:
            unused = f"--torchprof-replay={state.options.replay}: no test judged a recording"
            state.problems.append(coded(unused, Code.REPLAY_UNUSED))
        if state.problems and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
        if state.problems and state.options.against is not None and not state.options.against.is_judged:
            session.exitstatus = pytest.ExitCode.INTERNAL_ERROR  # What was measured may be missing.
        if state.lacks_gpu:
            session.exitstatus = pytest.ExitCode.USAGE_ERROR
    finally:
        state.at_end.close()
        state.recordings.close()


def _write_reports(state: RunState) -> list[str]:
    problems: list[str] = []
    if not state.options.reports:
        return problems
    run = changed(state.run_results, commit=commit_of(state.options.rootdir))
    for path in state.options.reports:
        reporter = state.reporter_of(path)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if reporter is not None:
                with replacing(path) as unfinished:
                    unfinished.write_text(reporter(run), encoding="utf-8", errors="backslashreplace")
            _keep_beside(state, path.parent / RECORDINGS)
        except OSError as error:
            said = f"--torchprof-report={path}: cannot be written: {error.strerror or error}"
            problems.append(coded(said, Code.REPORT_NOT_WRITTEN))
    return problems


def _keep_beside(state: RunState, folder: Path) -> None:
    """Put the recordings of what failed next to a report, where CI picks both up; those of the last run go."""
    if folder.is_symlink():
        raise OSError(f"{folder} is a link, and nothing is written or removed through it")
    for old in folder.glob(f"*{SUFFIX}"):
        old.unlink()
    failed = [result for result in state.results.values() if result.outcome.is_failure]
    recordings = [state.options.rootdir / result.recording for result in failed if result.recording]
    if recordings:
        folder.mkdir(exist_ok=True)
        hide(folder)
    for recording in recordings:
        for file in (recording, recording.with_name(stacks_name(recording.name))):
            if file.is_file():
                shutil.copyfile(file, folder / file.name)


def _write_step_summary(state: RunState) -> list[str]:
    """Add to the page that GitHub Actions shows of the job; other tools of the job write to it too."""
    path = os.environ.get("GITHUB_STEP_SUMMARY")
    if not path or not state.results:
        return []
    try:
        with Path(path).open("a", encoding="utf-8", errors="backslashreplace") as file:
            file.write(ci.step_summary(state.run_results) + "\n")
    except OSError as error:
        said = f"the step summary {path} cannot be written: {error.strerror or error}"
        return [coded(said, Code.REPORT_NOT_WRITTEN)]
    return []
