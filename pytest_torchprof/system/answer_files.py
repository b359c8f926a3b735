"""The answers of processes of a pool, handed over in files.

The processes of many pools (Python's own, loky's) share one pipe. Of a message that does not fit into it, a process
that is killed meanwhile leaves a part, for whose rest the pool waits for ever: such a message is kept short.
"""

from __future__ import annotations

import pickle
from concurrent.futures import BrokenExecutor, Future
from functools import partial
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import uuid4

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Executor

Answer = TypeVar("Answer")


class Written(Struct, frozen=True):
    """An answer that stands in a file."""

    path: str


class FilePool:
    """A pool of processes, each of whose answers comes in a file of a folder, which goes.

    Where the folder takes no file, as on another machine, the answer is handed over as the pool does.
    """

    def __init__(self, pool: Executor, folder: str) -> None:
        """Take a pool, and a folder that is there as long as it."""
        self._pool, self.folder = pool, folder
        self._open = set[Future[Any]]()
        self._broken: BaseException | None = None
        self._settling = RLock()

    def submit(self, act: Callable[..., Answer], *given: Any) -> Future[Answer]:
        """Let a process call a function. BrokenExecutor if the pool takes nothing more."""
        known: Future[Answer] = Future()
        try:
            written = self._pool.submit(write_answer, self.folder, act, *given)
        except Exception as problem:
            # Python 3.11 closes the pipes of a pool in which a process has died without waiting for who is just using
            # them, which takes many forms; a pool of the user's may raise anything.
            raise BrokenExecutor(f"{type(problem).__name__}: {problem}") from problem
        self._open.add(known)
        known.add_done_callback(partial(self._close, written))
        written.add_done_callback(partial(self._hand_on, known))
        if self._broken is not None:
            self._fail(known, self._broken)
        return known

    def shutdown(self, **how: bool) -> None:
        """Take nothing more, as the pool does."""
        self._pool.shutdown(**how)

    def _close(self, written: Future[Any], known: Future[Any]) -> None:
        self._open.discard(known)
        if known.cancelled():
            written.cancel()

    def _hand_on(self, known: Future[Answer], written: Future[Written | Answer]) -> None:
        if written.cancelled():
            known.cancel()
        elif isinstance(problem := written.exception(), BrokenExecutor):
            self._give_up(problem)
        with self._settling:
            if known.done() or not known.set_running_or_notify_cancel():
                return
        try:
            answer = _answer_in(written.result())
        except BaseException as problem:  # noqa: BLE001 - it is raised by who waits for the answer
            known.set_exception(problem)
        else:
            known.set_result(answer)

    def _give_up(self, problem: BrokenExecutor) -> None:
        """Fail all at once: a pool that breaks fails them, but for what it is given just then, which 3.11's forgets."""
        self._broken = problem
        for known in [*self._open]:
            self._fail(known, problem)

    def _fail(self, known: Future[Any], problem: BaseException) -> None:
        with self._settling:
            if not known.running() and not known.done():
                known.set_exception(problem)


def write_answer(folder: str, act: Callable[..., Answer], *given: Any) -> Written | Answer:
    """Write the answer of a function into a file of a folder, and return where; the answer if that takes no file."""
    answer = act(*given)
    file = Path(folder, uuid4().hex)
    try:
        file.write_bytes(pickle.dumps(answer, pickle.HIGHEST_PROTOCOL))
    except OSError:  # Another machine does not see the folder, or its disk is full.
        return answer
    return Written(str(file))


def _answer_in(handed_over: Written | Answer) -> Answer:
    if not isinstance(handed_over, Written):
        return handed_over
    file = Path(handed_over.path)
    answer: Answer = pickle.loads(file.read_bytes())  # noqa: S301 - what our own process has just written
    file.unlink()
    return answer
