"""A process of a side ends with the run that it belongs to, even if its test hangs and the run was killed."""

from __future__ import annotations

import os
import signal
import threading
import time
from contextlib import suppress
from typing import Final

_LOOK_S: Final = 0.5
_GRACE_S: Final = 5.0
"""The seconds that an interrupted run has to end in an orderly way, with what its fixtures clear up."""
ENDED: Final = "the run that compares with another commit has ended, and this was a part of it"


def end_with_parent() -> None:
    """From now on watch whether the process that started this one still exists; interrupt and end this one if not."""
    parent, stderr = os.getppid(), os.dup(2)  # Before pytest captures what tests write.
    threading.Thread(target=_look_after, args=(parent, stderr), name="torchprof-parent", daemon=True).start()


def _look_after(parent: int, stderr: int) -> None:
    while os.getppid() == parent:
        time.sleep(_LOOK_S)
    with suppress(OSError):
        os.write(stderr, f"torchprof: {ENDED}\n".encode())
    # As Ctrl-C would, also in a call that waits.
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
    time.sleep(_GRACE_S)
    os._exit(2)
