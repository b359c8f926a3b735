"""A rank that the plugin has started: it runs the tests that it is given, and leaves their outcome in its folder."""

from __future__ import annotations

import os
import shutil
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

import filelock
import pytest

from pytest_torchprof.capture.rank import this_rank
from pytest_torchprof.reasons.codes import coded
from pytest_torchprof.reasons.errors import describe
from pytest_torchprof.reasons.goal import Goal, RunPoint
from pytest_torchprof.reasons.ranks_started import NotCollectedOnRank
from pytest_torchprof.testing import STATE
from pytest_torchprof.testing.ranks import VARIABLE
from pytest_torchprof.testing.ranks.between import Between, process_group
from pytest_torchprof.testing.ranks.reports import failure
from pytest_torchprof.testing.ranks.task import (
    ALIVE,
    GIVEN_UP,
    LEFT_ALONE,
    START,
    LastWord,
    RankFolder,
    Task,
    Turn,
    read_task,
    read_turn,
)
from pytest_torchprof.testing.workers import CACHES, COLUMNS, HAND_OVER, HISTORY, PROGRESS, SCRATCH
from pytest_torchprof.text import printable_line, raised_line

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from pytest_torchprof.testing.handed_over import ProcessResults

# The process that the user started does what pytest was asked for: it selects and repeats tests, writes the files of
# which a run has one, and has the terminal.
_NOT_IN_A_RANK: Final[dict[str, object]] = {
    "numprocesses": None,
    "dist": "no",
    "tx": [],
    "maxfail": 0,
    "keyword": "",
    "markexpr": "",
    "deselect": None,
    "pyargs": False,
    "xmlpath": None,
    "log_file": None,
    "pastebin": None,
    "report_log": None,
    "htmlpath": None,
    "json_report": None,
    "usepdb": False,
    "trace": False,
}
_PLUGINS_NOT_IN_A_RANK: Final = ("rerunfailures", "lfplugin", "nfplugin", "stepwiseplugin")
_LOOK_S: Final = 0.2
_LOOK_FOR_TURN_S: Final = 0.02
_LONGEST_LINE: Final = 500


def settle(config: pytest.Config) -> None:
    """Make this process the rank that it was told to be."""
    job = Path(os.environ.pop(VARIABLE))  # Processes that the test starts are no ranks.
    folder = RankFolder(job, this_rank().number, config)
    folder.begin(os.getpid())
    folder.announce(START)
    _end_when_left_alone(job)
    task = read_task(job)
    for name, value in {**_NOT_IN_A_RANK, "basetemp": str(folder.root / "tmp")}.items():
        if hasattr(config.option, name):
            setattr(config.option, name, value)
    for name in _PLUGINS_NOT_IN_A_RANK:
        if config.pluginmanager.has_plugin(name):
            config.pluginmanager.unregister(name=name)
        config.pluginmanager.set_blocked(name)
    config.args[:] = [task.file]
    keeper = RankKeeper(job, task, folder)
    config.stash[HAND_OVER], config.stash[COLUMNS] = keeper.take, task.columns
    if task.history is not None:
        config.stash[HISTORY] = task.history
    if task.phase is not None:
        config.stash[CACHES] = task.phase
    config.stash[PROGRESS], config.stash[SCRATCH] = folder.announce, folder.root
    config.pluginmanager.register(keeper)


def _end_when_left_alone(job: Path) -> None:
    """End this process, wherever it hangs, once the process that waits for the job has ended or given it up."""

    def wait() -> None:
        with suppress(OSError):  # Another rank was first, and has cleared up.
            filelock.FileLock(job / ALIVE).acquire(poll_interval=_LOOK_S)
        if not (job / GIVEN_UP).exists():
            shutil.rmtree(job, ignore_errors=True)
        os._exit(LEFT_ALONE)

    threading.Thread(target=wait, daemon=True, name="torchprof-job").start()


class RankKeeper:
    """A plugin for the processes of a job: each runs the tests that it is given, and leaves their results."""

    def __init__(self, job: Path, task: Task, folder: RankFolder) -> None:
        self._job = job
        self._task = task
        self._folder = folder
        self._turn = 0
        self._results: ProcessResults | None = None
        self._in_file: dict[str, pytest.Item] = {}
        self._between: Between | None = None
        self._unread = False

    def take(self, results: ProcessResults) -> None:
        """Keep the results of the run, to be left at its end."""
        self._results = results

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> Generator[None, object, object]:
        # Node ids are compared and not given to pytest: one of odd characters might mean something to it.
        self._in_file = {item.nodeid: item for item in reversed(items)}
        wanted = [self._in_file[nodeid] for nodeid in self._task.nodeids if nodeid in self._in_file]
        items[:] = wanted
        result = yield
        items[:] = wanted
        return result

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        if session.testsfailed and not session.config.option.continue_on_collection_errors:
            return None  # pytest says so.
        state = session.config.stash.get(STATE, None)
        self._between = Between(state)
        items = {item.nodeid: item for item in session.items}
        while (turn := self._next_turn()).nodeid is not None:
            if self._turn:
                self._between.begin_anew(self._job / f"store{self._turn}", meets_anew=turn.meets_anew)
            item, following = items.get(turn.nodeid), self._in_file.get(turn.following or "")
            if item is None and not self._unread:
                line = _not_collected(turn.nodeid, list(self._in_file))
                self._folder.of_turn(self._turn).add(failure("collect", line, line))
            if item is not None:
                session.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
                if session.shouldfail:
                    raise session.Failed(session.shouldfail)
                if session.shouldstop:
                    raise session.Interrupted(session.shouldstop)
            if turn.last:
                break
            self._folder.of_turn(self._turn).end(
                LastWord(
                    results=None if state is None else state.taken(),
                    status=int(pytest.ExitCode.OK if item is not None else pytest.ExitCode.NO_TESTS_COLLECTED),
                    goes_on=True,
                    left=self._between.left,
                    groups=self._between.groups,
                )
            )
            self._turn += 1
        return True

    def _next_turn(self) -> Turn:
        while (turn := read_turn(self._job, self._turn)) is None:
            time.sleep(_LOOK_FOR_TURN_S)
        return turn

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self) -> None:
        self._folder.announce(Goal(RunPoint.SET_UP))

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[object]) -> Generator[None, object, object]:
        self._folder.announce(Goal(RunPoint.FIXTURE, fixturedef.argname))
        before = process_group()
        try:
            return (yield)
        finally:
            self._keep_group(fixturedef, changed=process_group() is not before)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_call(self) -> None:
        self._folder.announce(Goal(RunPoint.CALL))

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_teardown(self) -> None:
        self._folder.announce(Goal(RunPoint.TEARDOWN))

    def pytest_fixture_post_finalizer(self, fixturedef: pytest.FixtureDef[object]) -> None:
        self._folder.announce(Goal(RunPoint.TEARDOWN))
        self._keep_group(fixturedef, changed=process_group() is None)

    def _keep_group(self, fixture: pytest.FixtureDef[object], *, changed: bool) -> None:
        if changed and fixture.scope != "function" and self._between is not None:
            self._between.keep_group()

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._unread = True
            text = str(report.longrepr)
            self._folder.of_turn(self._turn).add(failure("collect", text, raised_line(text)))

    @pytest.hookimpl(tryfirst=True)
    def pytest_internalerror(self, excrepr: object) -> None:
        text = str(excrepr)
        self._folder.of_turn(self._turn).add(failure("internal error", text, raised_line(text)))

    @pytest.hookimpl(tryfirst=True)
    def pytest_keyboard_interrupt(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        line = f"pytest was ended there: {describe(excinfo.value)}"
        report = failure("interrupt", str(excinfo.getrepr()), line, ended_s=time.time())
        self._folder.of_turn(self._turn).add(report)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._folder.of_turn(self._turn).add(report)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        self._folder.of_turn(self._turn).end(LastWord(results=self._results, status=int(exitstatus)))
        # The launcher ends all ranks as soon as one of them ends with another status, and their results are needed too.
        session.exitstatus = pytest.ExitCode.OK


def _not_collected(nodeid: str, collected: Sequence[str]) -> str:
    """Return a text that says that a test has no such id in this process, with those that it has."""
    function = nodeid.partition("[")[0]
    own = tuple(other for other in collected if other.partition("[")[0] == function)
    why = NotCollectedOnRank(nodeid, function, own)
    return coded(printable_line(why.text, _LONGEST_LINE), why.CODE)
