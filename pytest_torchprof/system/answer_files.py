"""What processes of a pool come to, handed over in files.

The processes of a pool share one pipe. Of a message that does not fit into it, a process that is killed meanwhile
leaves a part, for whose rest the pool waits for ever: such a message is kept short.
"""

from __future__ import annotations

import pickle
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import uuid4

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Executor

Answer = TypeVar("Answer")


def submit_by_file(pool: Executor, folder: str, act: Callable[..., Answer], *given: Any) -> Future[Answer]:
    """Let a process of a pool call a function, and hand over its answer in a file of a folder, which goes."""
    known: Future[Answer] = Future()
    pool.submit(write_answer, folder, act, *given).add_done_callback(partial(_hand_on, known))
    return known


def write_answer(folder: str, act: Callable[..., object], *given: Any) -> str:
    """Write the answer of a function into a file of a folder, and return the path of the file."""
    file = Path(folder, uuid4().hex)
    file.write_bytes(pickle.dumps(act(*given), pickle.HIGHEST_PROTOCOL))
    return str(file)


def _hand_on(known: Future[Answer], written: Future[str]) -> None:
    if written.cancelled():
        known.cancel()
    if not known.set_running_or_notify_cancel():
        return
    try:
        file = Path(written.result())
        answer: Answer = pickle.loads(file.read_bytes())  # noqa: S301 - what our own process has just written
        file.unlink()
    except BaseException as problem:  # noqa: BLE001 - it is raised by who waits for the answer
        known.set_exception(problem)
    else:
        known.set_result(answer)
