"""What a rank does that the plugin has started: one test, whose outcome it leaves in its folder."""

from __future__ import annotations

import os
import shutil
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import filelock
import pytest

from pytest_torchprof.capture.rank import this_rank
from pytest_torchprof.errors import describe
from pytest_torchprof.testing.phases import BRIEF
from pytest_torchprof.testing.rank_ends import line_of
from pytest_torchprof.testing.ranks import VARIABLE
from pytest_torchprof.testing.ranks.task import ALIVE, GIVEN_UP, LEFT_ALONE, START, Phase, RankFolder, Task, read_task
from pytest_torchprof.testing.workers import HAND_OVER, PROGRESS

if TYPE_CHECKING:
    from collections.abc import Generator

# What the user asked pytest for is done by the process that was called: it selects and repeats tests, writes the files
# that a run has one of, and has the terminal.
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


def settle(config: pytest.Config) -> None:
    """Make this process the rank that it was told to be."""
    job = Path(os.environ.pop(VARIABLE))  # What the test starts is none.
    folder = RankFolder(job, this_rank().number)
    folder.begin(os.getpid())
    folder.tell(START)
    _end_when_left_alone(job)
    task = read_task(job)
    for name, value in {**_NOT_IN_A_RANK, "basetemp": str(folder.path / "tmp")}.items():
        if hasattr(config.option, name):
            setattr(config.option, name, value)
    for name in _PLUGINS_NOT_IN_A_RANK:
        if config.pluginmanager.has_plugin(name):
            config.pluginmanager.unregister(name=name)
        config.pluginmanager.set_blocked(name)
    config.args[:] = [task.file]
    keeper = RankKeeper(task, folder)
    config.stash[HAND_OVER] = keeper.take
    config.stash[PROGRESS] = folder.tell
    config.pluginmanager.register(keeper)


def _end_when_left_alone(job: Path) -> None:
    """End this process, wherever it hangs, once the one that waits for the job has ended or given it up."""

    def wait() -> None:
        with suppress(OSError):  # Another rank was first, and has cleared up.
            filelock.FileLock(job / ALIVE).acquire(poll_interval=_LOOK_S)
        if not (job / GIVEN_UP).exists():
            shutil.rmtree(job, ignore_errors=True)
        os._exit(LEFT_ALONE)

    threading.Thread(target=wait, daemon=True, name="torchprof-job").start()


class RankKeeper:
    """A plugin for the processes of a job: each runs the one test, and leaves what comes of it."""

    def __init__(self, task: Task, folder: RankFolder) -> None:
        self._task = task
        self._folder = folder
        self._state: str | None = None

    def take(self, state: str) -> None:
        """Keep the state of the run, to be left at its end."""
        self._state = state

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> Generator[None, object, object]:
        # Node ids are compared and not given to pytest: one of odd characters might mean something to it.
        found = [item for item in items if item.nodeid == self._task.nodeid][:1]
        items[:] = found
        result = yield
        items[:] = found
        return result

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self) -> None:
        self._folder.tell("the end of its set-up")

    @pytest.hookimpl(tryfirst=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[object]) -> None:
        self._folder.tell(f"the end of the set-up of {fixturedef.argname}")

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_call(self) -> None:
        self._folder.tell("the end of its call")

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_teardown(self) -> None:
        self._folder.tell("the end of its teardown")

    def pytest_fixture_post_finalizer(self) -> None:
        self._folder.tell("the end of its teardown")

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            text = str(report.longrepr)
            self._folder.add(Phase(when="collect", outcome="failed", text=text, line=_last_line(text)))

    @pytest.hookimpl(tryfirst=True)
    def pytest_internalerror(self, excrepr: object) -> None:
        text = str(excrepr)
        self._folder.add(Phase(when="internal error", outcome="failed", text=text, line=_last_line(text)))

    @pytest.hookimpl(tryfirst=True)
    def pytest_keyboard_interrupt(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        line = f"pytest was ended there: {describe(excinfo.value)}"
        phase = Phase(when="interrupt", outcome="failed", text=str(excinfo.getrepr()), line=line, ended_s=time.time())
        self._folder.add(phase)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._folder.add(_phase(report))

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        self._folder.end(self._state, int(exitstatus))
        # The launcher ends all ranks as soon as one of them ends with another, and theirs are wanted too.
        session.exitstatus = pytest.ExitCode.OK


def _phase(report: pytest.TestReport) -> Phase:
    told: Any = report.longrepr
    is_skip = isinstance(told, tuple)
    text = str(told[2]).removeprefix("Skipped: ") if is_skip else report.longreprtext
    short, line = getattr(report, BRIEF, ("", ""))
    return Phase(
        when=report.when or "",
        outcome=report.outcome,
        text=text,
        short=short,
        line=line.strip().partition("\n")[0] or line_of(report),
        place=(str(told[0]), int(told[1])) if is_skip else None,
        expected=getattr(report, "wasxfail", None),
        ended_s=report.stop,
        sections=tuple(report.sections),
        properties=tuple(report.user_properties),
    )


def _last_line(text: str) -> str:
    # A traceback ends with what was raised.
    return text.strip().rpartition("\n")[2].removeprefix("E ").strip()
