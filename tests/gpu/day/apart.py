"""A lock of the GPU for each step, so that none waits for another one.

The plugin's lock is a file in /run/lock, or in TMPDIR where that is not everybody's. So a step has it for itself in a
TMPDIR of its own, or in a mount namespace whose /run/lock is empty, which takes root. Whether it has is tried with the
plugin's own lock, not concluded.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

HERE: tuple[str, ...] = ()
IN_A_NAMESPACE = ("unshare", "--mount", "sh", "-c", 'mount -t tmpfs -o mode=1777 none /run/lock && exec "$@"', "sh")

_HOLD = """
import sys
from pytest_torchprof.capture.gpu_lock import holding
with holding("GPU-of-no-machine", print, wait_s=0):
    print("held", flush=True)
    sys.stdin.read()
"""


def surroundings(work: Path, name: str) -> dict[str, str]:
    """Return the environment of a step that has its own folder for what is temporary or compiled."""
    folder = work / "apart" / name
    folder.mkdir(parents=True, exist_ok=True)
    return {"TMPDIR": str(folder), "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor")}


def found(python: str, work: Path) -> tuple[str, ...] | None:
    """Return the command behind which each step has a lock of its own, of no words where TMPDIR is enough; or None."""
    return next((behind for behind in (HERE, IN_A_NAMESPACE) if _both_hold(python, work, behind)), None)


def _both_hold(python: str, work: Path, behind: tuple[str, ...]) -> bool:
    """Return whether two processes hold the lock of one GPU at the same time."""
    with contextlib.ExitStack() as both:
        for name in ("one", "other"):
            try:
                process = both.enter_context(
                    subprocess.Popen(
                        [*behind, python, "-c", _HOLD],
                        stdin=subprocess.PIPE,
                        stdout=subprocess.PIPE,
                        stderr=subprocess.DEVNULL,
                        env=os.environ | surroundings(work, name),
                        text=True,
                    )
                )
            except OSError:  # there is no such command
                return False
            both.callback(process.communicate)
            if process.stdout is None or process.stdout.readline() != "held\n":
                return False
    return True
