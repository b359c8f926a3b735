"""How far a measurement has come, shown on a terminal while it runs."""

from __future__ import annotations

import os
import sys
import time
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from pytest_torchprof.capture.processes import show_waits
from pytest_torchprof.text import printable_line

if TYPE_CHECKING:
    import pytest

    from pytest_torchprof.capture.processes import Phase

PATIENCE_S = 1.0
"""Within a phase of a measurement the line is written at most this often."""


class ShowTestProgress(Protocol):
    """Shows how far the measurement of a test has come."""

    def __call__(self, nodeid: str, label: str | None, words: str, phase: Phase | None = None) -> None:
        """Show what comes next in one measurement of a test, in any phase; empty words end it."""


def progress_of(config: pytest.Config) -> ShowTestProgress:
    """Return a function (test, label, what comes next) that shows where a measurement is, on a terminal only.

    With nothing to come it takes the line away again. Without a terminal it writes only of waits, which may be long.
    """
    reporter: Any = config.pluginmanager.getplugin("terminalreporter")
    capture: Any = config.pluginmanager.getplugin("capturemanager")
    silent = config.get_verbosity() < 0 or os.environ.get("CI") or os.environ.get("TERM") == "dumb"
    if reporter is None or capture is None or not reporter.isatty or silent:
        return partial(_wait_of_test, config)
    last, shown = 0.0, None

    def show(nodeid: str, label: str | None, words: str, phase: Phase | None = None) -> None:
        nonlocal last, shown
        now = time.monotonic()
        # A call may take long, so the line of a phase must be there before its first call begins.
        if phase is not None and phase == shown and now - last < PATIENCE_S:
            return
        last, shown = now, phase
        name = name_of(nodeid, label)
        # pytest has written the file's name already.
        text = f"  [{words}: {name.partition('::')[2] or name}]" if words else ""
        with capture.global_and_fixture_disabled():
            # Behind the cursor, clipped at the edge, and the cursor goes back: pytest's own line goes on undisturbed.
            sys.stdout.write(f"\0337\033[?7l{text}\033[K\033[?7h\0338")
            sys.stdout.flush()

    return show


def name_of(nodeid: str | None, label: str | None) -> str:
    """Return the name of a measurement in messages."""
    return printable_line(str(nodeid) + (f" ({label})" if label else ""))


def _wait_of_test(
    config: pytest.Config, nodeid: str, label: str | None, words: str, phase: Phase | None = None
) -> None:
    # To hold pytest's capture back takes long, and each measurement comes here several times.
    if phase == "wait":
        waits_of(config, name_of(nodeid, label), words, phase)


def waits_of(config: pytest.Config, name: str, words: str, phase: Phase | None = None) -> None:
    """Write a line about a wait, with or without a terminal, and nothing about anything else."""
    capture: Any = config.pluginmanager.getplugin("capturemanager")
    with nullcontext() if capture is None else capture.global_and_fixture_disabled():
        show_waits(f"{words} ({name} waits for it)", phase)
