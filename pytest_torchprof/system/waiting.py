"""Waiting for the answer of a function, up to a limit."""

from __future__ import annotations

from queue import Empty, SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

Answer = TypeVar("Answer")


def within(seconds: float, act: Callable[[], Answer]) -> Answer:
    """Return the answer of a function, or raise its exception; TimeoutError if it takes longer than so many seconds.

    The function then goes on in a thread, which ends with the process at the latest.
    """
    ended: SimpleQueue[tuple[Answer, None] | tuple[None, BaseException]] = SimpleQueue()

    def run() -> None:
        try:
            ended.put((act(), None))
        except BaseException as error:  # noqa: BLE001 - it is raised by who waits
            ended.put((None, error))

    Thread(target=run, daemon=True).start()
    try:
        answer, error = ended.get(timeout=seconds)
    except Empty:
        raise TimeoutError(f"no answer within {seconds:g} s") from None
    if error is not None:
        raise error
    return answer  # type: ignore[return-value]
