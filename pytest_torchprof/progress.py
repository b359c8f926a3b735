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
    """Return a function (test, calls done, calls in all) that shows where a measurement is, on a terminal only."""
    reporter: Any = config.pluginmanager.getplugin("terminalreporter")
    capture: Any = config.pluginmanager.getplugin("capturemanager")
    if reporter is None or capture is None or not reporter.isatty or config.get_verbosity() < 0:
        return lambda name, done, total: None
    last = time.monotonic()

    def show(name: str, done: int, total: int) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last < PATIENCE_S:
            return
        last = now
        with capture.global_and_fixture_disabled():
            width = reporter._tw.fullwidth - 1  # noqa: SLF001  (the terminal's width has no public name)
            # Erased at once when the cursor returns: the line of dots goes on where it was.
            sys.stderr.write(f"\0337\r\n{f'torchprof: {name} call {done} of {total}'[:width]}\033[K\0338\033[1A\033[1B")
            sys.stderr.flush()

    return show
