"""A pool of this machine's own processes, which are started anew and ended without harm at any time.

What they are given goes in files, as what they come to does (`answer_files`): of a message larger than a pipe, a
process that is killed leaves a part unread, and Python 3.11.2 waits for ever to write that (CPython's gh-94777).
"""

from __future__ import annotations

import pickle
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import suppress
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self
from uuid import uuid4

from pytest_torchprof.system import interrupts
from pytest_torchprof.system.answer_files import Answer, FilePool

if TYPE_CHECKING:
    from collections.abc import Callable


class SpawnedPool(FilePool):
    """A pool of spawned processes, none of which ever gets an interrupt: Ctrl-C is for whoever has started them.

    They are no forks: the libraries of object stores and databases may have threads.
    """

    def __init__(self, folder: str, *, processes: int | None = None, begin: Callable[[], None]) -> None:
        """Take a folder that is there as long as the pool; as many processes as there are cores if none are given.

        ``begin`` makes a new process ready; it has to call `interrupts.ignore`.
        """
        super().__init__(ProcessPoolExecutor(processes, get_context("spawn"), begin), folder)

    def submit(self, act: Callable[..., Answer], *given: Any) -> Future[Answer]:
        """Let a process call a function. BrokenExecutor if the pool takes nothing more."""
        file = Path(self.folder, uuid4().hex)
        with interrupts.kept_from_children():
            try:
                file.write_bytes(pickle.dumps(given, pickle.HIGHEST_PROTOCOL))
            except OSError:  # The disk is full; what it took of the file is of use to nobody.
                with suppress(OSError):
                    file.unlink()
                return super().submit(act, *given)
            return super().submit(_act_on, str(file), act)

    def __enter__(self) -> Self:
        """Return the pool, which is shut down at the end."""
        return self

    def __exit__(self, *_: object) -> None:
        """Wait until each process has ended."""
        self.shutdown(wait=True)


def _act_on(file: str, act: Callable[..., Answer]) -> Answer:
    written = Path(file)
    given = pickle.loads(written.read_bytes())  # noqa: S301 - what our own process has just written
    written.unlink()
    return act(*given)
