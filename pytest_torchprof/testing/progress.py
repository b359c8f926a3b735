"""One line on the terminal while a long measurement runs."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

PATIENCE_S = 1.0
"""A measurement shorter than this says nothing; a longer one is heard of at most this often."""


def progress_of(config: pytest.Config) -> Callable[[str, int, int], None]:
    """Return a function (test, calls done, calls in all) that shows where a measurement is, on a terminal only.

    With all calls done it takes the line away again.
    """
    reporter: Any = config.pluginmanager.getplugin("terminalreporter")
    capture: Any = config.pluginmanager.getplugin("capturemanager")
    if reporter is None or capture is None or not reporter.isatty or config.get_verbosity() < 0:
        return _silent
    last = time.monotonic()
    shown = False

    def show(name: str, done: int, total: int) -> None:
        nonlocal last, shown
        now = time.monotonic()
        if not (shown if done == total else now - last >= PATIENCE_S):
            return
        last, shown = now, done < total
        text = f"  [{name}: call {done + 1} of {total}]" if shown else ""
        with capture.global_and_fixture_disabled():
            # Behind the cursor, clipped at the edge, and the cursor goes back: pytest's own line goes on undisturbed.
            sys.stdout.write(f"\0337\033[?7l{text}\033[K\033[?7h\0338")
            sys.stdout.flush()

    return show


def _silent(_name: str, _done: int, _total: int) -> None:
    pass
