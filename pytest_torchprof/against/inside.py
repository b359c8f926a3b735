"""What a process does in the place of a side: nothing that is the other side's, or the user's, to do."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

import pytest

from pytest_torchprof.against.outcomes import OutcomeKeeper
from pytest_torchprof.against.side import this_side

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_torchprof.against.side import Side

# What the user asked pytest for is asked of the working tree: its files, its debugger, its end at the first failure.
_NOT_AT_BASE: Final = {
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


def settle(config: pytest.Config) -> None:
    """Make this process the side that it was told to be."""
    side = this_side()
    config.pluginmanager.register(SideKeeper(side))
    if side.is_base:
        config.pluginmanager.register(OutcomeKeeper(side))
        for name, value in _NOT_AT_BASE.items():
            setattr(config.option, name, value)


class SideKeeper:
    """A plugin for the processes of both sides: neither looks at the other's files, nor outlives who started both."""

    def __init__(self, side: Side) -> None:
        self._side = side
        self._started_by_starter = os.getppid() == side.starter

    @pytest.hookimpl(tryfirst=True)
    def pytest_ignore_collect(self, collection_path: Path) -> bool | None:
        within = collection_path.is_relative_to(self._side.other)
        return True if within and not collection_path.is_relative_to(self._side.tree) else None

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self) -> None:
        if self._started_by_starter and os.getppid() != self._side.starter:
            pytest.exit("the run that compares with another commit has ended, and this was a part of it", returncode=2)
