"""A process of a side ends with the run that it belongs to, even if its test hangs and the run was killed."""

from __future__ import annotations

import os
import threading
import time
from contextlib import suppress
from typing import Final

_LOOK_S: Final = 0.5
_GRACE_S: Final = 10.0
"""The seconds that a test which does not hang has to end, so that the run ends in an orderly way."""
ENDED: Final = "the run that compares with another commit has ended, and this was a part of it"


def end_with_parent() -> None:
    """From now on watch whether the process that started this one still exists, and end soon after it."""
    parent, stderr = os.getppid(), os.dup(2)  # Before pytest captures what tests write.
    threading.Thread(target=_look_after, args=(parent, stderr), name="torchprof-parent", daemon=True).start()


def _look_after(parent: int, stderr: int) -> None:
    while os.getppid() == parent:
        time.sleep(_LOOK_S)
    time.sleep(_GRACE_S)
    with suppress(OSError):
        os.write(stderr, f"torchprof: {ENDED}\n".encode())
    os._exit(2)
