"""The outcomes of the tests at the other commit: kept beside their measurements, so that a gap has a known reason."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Final, cast

import pytest
from msgspec import Struct, field, json

from pytest_torchprof.against.overlay import ANY
from pytest_torchprof.reasons.commit_gaps import (
    AnyCommitGap,
    CommitGap,
    Deselected,
    EndedEarlier,
    LeftUncollected,
    MeasuredNothing,
    NoOutcomes,
    NotCollectable,
    NotTheWorkingTrees,
    TestFailed,
    TestSkipped,
)
from pytest_torchprof.text import first_line
from pytest_torchprof.text.of_pytest import why_skipped

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_torchprof.against.side import Side

_FILE: Final = "outcomes.json"
_DESELECTED: Final = "torchprof_deselected"
_LONGEST: Final = 2000
_TO_THE_END: Final = (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.NO_TESTS_COLLECTED)


class TestNames(Struct, frozen=True, kw_only=True):
    """The names that tests may have, by file, as far as the files show them."""

    __test__ = False
    own: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The names in the commit's own files."""
    here: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The names in the working tree's files, which ran at the commit."""
    gone: tuple[str, ...] = ()
    """Names that a file has at the commit and no longer has in the working tree."""

    def are_new(self, file: str, names: Collection[str]) -> bool:
        """Return whether the commit is known to lack a test, by the names of its function and classes."""
        known = {*self.own.get(file, ()), *self.gone}
        if ANY in known or not known.isdisjoint(names):
            return False
        # A name that even this file does not show was made while it ran, and the commit's file may do that too.
        return file not in self.own or not set(names).isdisjoint(self.here.get(file, ()))


class BaseOutcomes(Struct, frozen=True, kw_only=True):
    """The outcomes of the base's tests."""

    status: int
    """The exit status of pytest there."""
    passed: tuple[str, ...] = ()
    """The tests that ran to their end."""
    troubles: Mapping[str, AnyCommitGap] = field(default_factory=dict)
    """Test id or file -> why it failed, was skipped or could not be collected."""
    codes: Mapping[str, str] = field(default_factory=dict)
    """Test id -> the code of our error that made it fail."""
    deselected: tuple[str, ...] = ()
    """The tests that were collected and left out."""
    names: TestNames = field(default_factory=TestNames)
    broken: AnyCommitGap | None = None
    """Why no test ran at all."""

    def why_not(self, nodeid: str, *, own_tests: bool) -> CommitGap | None:
        """Return why a test was not measured there; None if the commit is known not to have it.

        ``own_tests``: the commit ran its own tests, which may measure less than the working tree's.
        """
        if self.broken is not None:
            return self.broken
        file, _, rest = nodeid.partition("::")
        names = {part.partition("[")[0] for part in rest.split("::")}
        if own_tests:
            has_it = nodeid in self.troubles or not {ANY, *names}.isdisjoint(self.names.own.get(file, ()))
            return self.trouble(nodeid) if has_it else None
        if file not in self.names.here:
            return NotTheWorkingTrees(file)
        return None if self.names.are_new(file, names) else self.trouble(nodeid) or self._why_missing(nodeid)

    def _why_missing(self, nodeid: str) -> CommitGap | None:
        """Return why the same test file left no measurement of a test; None if only this side has the case."""
        if nodeid in self.passed:
            return MeasuredNothing()
        function, bracket, _ = nodeid.partition("[")
        if bracket and any(other.startswith(f"{function}[") for other in (*self.passed, *self.troubles)):
            return None
        return LeftUncollected()

    def trouble(self, nodeid: str) -> CommitGap | None:
        """Return how a test, or its file, failed there; None if it passed or did not run."""
        file = nodeid.partition("::")[0]
        if nodeid in self.troubles:
            return self.troubles[nodeid]
        if nodeid in self.deselected:
            return Deselected()
        if file in self.troubles:
            return self.troubles[file]
        if self.status not in _TO_THE_END:
            return EndedEarlier(self.status)
        return None

    @property
    def tests(self) -> int:
        """The number of tests that ran."""
        return len(self.passed) + sum("::" in where for where in self.troubles)


def read_outcomes(folder: Path) -> BaseOutcomes:
    """Return the outcomes that a side has left; a side that left none was ended too early."""
    path = folder / _FILE
    if not path.is_file():
        return BaseOutcomes(status=-1, broken=NoOutcomes())
    return json.decode(path.read_bytes(), type=BaseOutcomes)


base_outcomes = cache(read_outcomes)
"""The outcomes of a side, read once."""


def write_outcomes(folder: Path, outcomes: BaseOutcomes) -> None:
    """Write the outcomes that ``read_outcomes`` reads."""
    (folder / _FILE).write_bytes(json.encode(outcomes))


class OutcomeKeeper:
    """A plugin for the processes of the base: it notes how each test ended, also in the process that starts workers."""

    def __init__(self, side: Side) -> None:
        self._side = side
        self._passed: dict[str, None] = {}
        self._troubles: dict[str, AnyCommitGap] = {}
        self._codes: dict[str, str] = {}
        self._deselected: dict[str, None] = {}

    def pytest_deselected(self, items: Sequence[pytest.Item]) -> None:
        self._deselected.update(dict.fromkeys(item.nodeid for item in items))

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        self._deselected.update(dict.fromkeys(getattr(node, "workeroutput", {}).get(_DESELECTED, ())))

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            error_text = str(report.longrepr).strip()[-_LONGEST:]
            self._troubles[report.nodeid] = NotCollectable(report.nodeid, error_text)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" and report.passed:
            self._passed[report.nodeid] = None
        elif not report.passed:
            if (code := getattr(report, "torchprof_code", None)) is not None:
                self._codes.setdefault(report.nodeid, code)
            kind = TestSkipped if report.skipped else TestFailed
            self._troubles.setdefault(report.nodeid, kind(_longrepr(report)))

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        deselected, config = tuple(self._deselected), cast("Any", session.config)
        if hasattr(config, "workerinput"):  # Only pytest-xdist's workers know which tests are left out.
            config.workeroutput[_DESELECTED] = deselected
            return
        passed = tuple(nodeid for nodeid in self._passed if nodeid not in self._troubles)
        outcomes = BaseOutcomes(
            status=int(exitstatus), passed=passed, troubles=self._troubles, codes=self._codes, deselected=deselected
        )
        write_outcomes(self._side.results, outcomes)


def _longrepr(report: Any) -> str:
    """Return a report's text on a failure or a skip: a line, or the short form of our own error."""
    longrepr = report.longrepr
    if isinstance(longrepr, tuple):
        return why_skipped(longrepr[2])
    if hasattr(report, "torchprof_brief"):  # The short form of a failure of measurements: lines of each.
        return str(report.torchprof_brief[1])
    crash = getattr(longrepr, "reprcrash", None)
    return first_line(str(crash.message if crash is not None else longrepr))
