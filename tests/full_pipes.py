"""Processes of a pool that are killed while they wait for room in its pipe."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import time


def kill_children_at_full_pipes(filling_s: float) -> None:
    """Let nobody in this process empty a pipe for so many seconds, as on a machine with much to do; then kill them."""
    # To ask for them lets other threads run, and these would empty the pipe.
    processes = multiprocessing.active_children()
    often = sys.getswitchinterval()
    sys.setswitchinterval(60)
    try:
        until = time.perf_counter() + filling_s
        while time.perf_counter() < until:
            pass
        for process in processes:
            os.kill(process.pid, signal.SIGKILL)
    finally:
        sys.setswitchinterval(often)
