"""A process as one side: it leaves out all tasks of the other side, and of the user's run."""

from __future__ import annotations

import os
import time
from collections import defaultdict
from typing import TYPE_CHECKING, Final

import pytest

from pytest_torchprof.against.orphans import ENDED
from pytest_torchprof.against.outcomes import OutcomeKeeper
from pytest_torchprof.against.reads import leave_reads
from pytest_torchprof.against.side import this_side

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_torchprof.against.side import Side

# Options that concern only the working tree's run: its files, debugger, end at the first failure.
_NOT_BESIDE: Final = {
    "maxfail": 0,
    "xmlpath": None,
    "basetemp": None,
    "usepdb": False,
    "trace": False,
    "log_file": None,
    "pastebin": None,
    "stepwise": False,
    "verbose": -1,
    "continue_on_collection_errors": True,
}
KEEPER: Final = "torchprof-side"
"""The name under which pytest knows the plugin that each of these processes has."""


def settle(config: pytest.Config) -> None:
    """Make this process the side that the variable of the environment names."""
    side = this_side()
    config.pluginmanager.register(SideKeeper(side), KEEPER)
    if side.timed is not None:
        config.pluginmanager.register(TimedTests(side.timed))
    if not side.is_judged:
        config.pluginmanager.register(OutcomeKeeper(side))
        for name, value in _NOT_BESIDE.items():
            setattr(config.option, name, value)


class SideKeeper:
    """A plugin for the processes of both sides: no side reads the other's files, or outlives their starter."""

    def __init__(self, side: Side) -> None:
        self._side = side
        self._started_by_starter = os.getppid() == side.starter
        self.start_s = 0.0
        """The time until the first test of this process could run, in seconds."""
        self.durations_s: defaultdict[str, float] = defaultdict(float)
        """Test id -> its duration, in seconds."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_ignore_collect(self, collection_path: Path) -> bool | None:
        within = collection_path.is_relative_to(self._side.other)
        return True if within and not collection_path.is_relative_to(self._side.tree) else None

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self) -> None:
        # Importing and collecting keep one thread busy.
        self.start_s = time.process_time()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.durations_s[report.nodeid] += report.duration

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self) -> None:
        self.end_with_starter()

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self) -> None:
        if self._side.timed is None:
            leave_reads(self._side)

    def end_with_starter(self) -> None:
        """End this run if the process that started it no longer exists."""
        if self._started_by_starter and os.getppid() != self._side.starter:
            pytest.exit(ENDED, returncode=2)


class TimedTests:
    """A plugin for processes that take times: no other tests are collected, as far as that is known by their files."""

    def __init__(self, nodeids: tuple[str, ...]) -> None:
        self._nodeids = frozenset(nodeids)
        self._files = frozenset(nodeid.partition("::")[0] for nodeid in nodeids)

    @pytest.hookimpl(tryfirst=True)
    def pytest_ignore_collect(self, collection_path: Path, config: pytest.Config) -> bool | None:
        below = collection_path.is_relative_to(config.rootpath)
        name = collection_path.relative_to(config.rootpath).as_posix() if below else ""
        return True if below and name not in self._files and collection_path.is_file() else None

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        others = [item for item in items if item.nodeid not in self._nodeids]
        items[:] = [item for item in items if item.nodeid in self._nodeids]
        config.hook.pytest_deselected(items=others)
