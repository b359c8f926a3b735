"""What one pytest process collects over its tests; on the controller of pytest-xdist, that of all workers."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_torchprof import baseline
from pytest_torchprof.errors import TorchprofError
from pytest_torchprof.report import BaselineState, Outcome, Result, RunResults, UnusedEntries
from pytest_torchprof.testing.baseline_check import BaselineFiles

if TYPE_CHECKING:
    from pytest_torchprof.baseline import Entry
    from pytest_torchprof.findings import Rule
    from pytest_torchprof.limits import Limit
    from pytest_torchprof.report import Reporter
    from pytest_torchprof.testing.options import RunOptions
    from pytest_torchprof.testing.recordings import Recordings


@dataclass(slots=True, kw_only=True)
class RunState:
    """The state of one pytest process; handed to each test's run, merged from workers on the controller."""

    options: RunOptions
    limits: tuple[Limit, ...]
    rules: tuple[Rule, ...]
    reporters: dict[str, Reporter]
    recordings: Recordings
    baselines: BaselineFiles = field(default_factory=BaselineFiles)
    results: dict[tuple[str, str | None], Result] = field(default_factory=dict)
    baseline_updates: dict[Path, dict[str, Entry | None]] = field(default_factory=dict)
    """Baseline file -> key -> entry of tests that passed altogether; None removes one."""
    collected: dict[Path, list[str]] = field(default_factory=dict)
    """Test file -> its test ids, of files that were collected as a whole."""
    passed: dict[str, Path] = field(default_factory=dict)
    """Test id -> its test file, of tests that passed altogether, measured or not."""
    compared_keys: dict[Path, set[str]] = field(default_factory=dict)
    """Baseline file -> the keys of what was measured and compared with it."""
    unused: list[UnusedEntries] = field(default_factory=list)
    replayed: set[str] = field(default_factory=set)
    """Names of the recordings that a test judged."""
    problems: list[str] = field(default_factory=list)
    """What went wrong at the end of the run, for the terminal."""
    lacks_gpu: bool = False
    """A GPU was required, and a selected test could not be measured on one."""
    unarmed: dict[str, str] = field(default_factory=dict)
    """Device as it was asked for -> why nothing can be measured on it in this process."""
    _has_baselines: dict[Path, bool] = field(default_factory=dict)

    @property
    def run_results(self) -> RunResults:
        """Return the results so far, in the order in which they came."""
        return RunResults(results=tuple(self.results.values()), unused=tuple(self.unused))

    def add(self, result: Result) -> None:
        """Record a result; a test that is run again replaces its former ones."""
        self.results[result.nodeid, result.label] = result

    def forget(self, nodeid: str) -> None:
        """Drop what an earlier run of the same test left."""
        for key in [key for key in self.results if key[0] == nodeid]:
            del self.results[key]

    def expect_failure(self, nodeid: str) -> None:
        """Take note that a test which failed is marked as one that does."""
        for key, result in self.results.items():
            if result.nodeid == nodeid and result.outcome is Outcome.FAILED:
                self.results[key] = replace(result, outcome=Outcome.XFAILED)

    def not_judged(self, nodeid: str, reason: str) -> None:
        """Take back the results of a test: its measurements were not judged as it asks."""
        for key, result in self.results.items():
            if result.nodeid == nodeid:
                self.results[key] = replace(result, outcome=Outcome.NOT_MEASURED, message=reason)

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
        problems = []
        for file, entries in sorted(self.baseline_updates.items()):
            try:
                self.baselines.update(file, entries)
            except TorchprofError as problem:
                problems.append(str(problem))
                self.unused.clear()
                for key, result in self.results.items():
                    if result.baseline_state is BaselineState.WRITTEN:
                        state = BaselineState.NOT_WRITTEN
                        self.results[key] = replace(result, baseline=str(state), baseline_state=state)
        return problems

    def _has_baseline(self, test_file: Path) -> bool:
        if test_file not in self._has_baselines:
            files = baseline.files_of(test_file, self.options.rootdir, self.options.baseline_dir)
            self._has_baselines[test_file] = bool(files)
        return self._has_baselines[test_file]

    def to_plain(self) -> str:
        """Return what a worker hands to the controller, as JSON."""
        return json.dumps(
            {
                "results": self.run_results.to_plain(),
                "baseline_updates": {
                    str(file): {key: entry and baseline.plain(entry) for key, entry in entries.items()}
                    for file, entries in self.baseline_updates.items()
                },
                "replayed": sorted(self.replayed),
                "problems": self.problems,
                "lacks_gpu": self.lacks_gpu,
                "collected": {str(path): ids for path, ids in self.collected.items() if self._has_baseline(path)},
                "passed": {nodeid: str(path) for nodeid, path in self.passed.items() if self._has_baseline(path)},
                "compared": {str(file): sorted(keys) for file, keys in self.compared_keys.items()},
            }
        )

    def merge(self, plain: str) -> None:
        """Take over what a worker handed over."""
        other = json.loads(plain)
        for result in RunResults.from_plain(other["results"]).results:
            self.add(result)
        for file, entries in other["baseline_updates"].items():
            read = {key: entry and baseline.from_plain(entry) for key, entry in entries.items()}
            self.baseline_updates.setdefault(Path(file), {}).update(read)
        self.replayed.update(other["replayed"])
        self.problems.extend(other["problems"])
        self.lacks_gpu |= other["lacks_gpu"]
        self.collected.update({Path(path): ids for path, ids in other["collected"].items()})
        self.passed.update({nodeid: Path(path) for nodeid, path in other["passed"].items()})
        for file, keys in other["compared"].items():
            self.compared_keys.setdefault(Path(file), set()).update(keys)
