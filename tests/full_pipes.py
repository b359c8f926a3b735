"""Processes of a pool that are killed while they wait for room in its pipe."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import sys


def kill_children_at_full_pipes(filling_s: float) -> None:
    """Let nobody in this process empty a pipe for so many seconds, as on a machine with much to do; then kill them."""
    # To ask for them lets other threads run, and these would empty the pipe.
    processes = multiprocessing.active_children()
    often = sys.getswitchinterval()
    sys.setswitchinterval(60)
    try:
        # Called so, the C library keeps all other threads waiting while it sleeps.
        assert ctypes.PyDLL(None).usleep(int(filling_s * 1e6)) == 0
        for process in processes:
            os.kill(process.pid, signal.SIGKILL)
    finally:
        sys.setswitchinterval(often)
