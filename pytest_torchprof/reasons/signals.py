"""The names of signals, by which processes end."""

from __future__ import annotations

import signal


def signal_name(number: int) -> str:
    """Return the name of a signal, "SIGKILL"; "signal 99" of one that this system has not."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
