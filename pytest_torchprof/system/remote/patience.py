"""Requests that a network or a server has refused for now, and that are tried again."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, TypeVar

from pytest_torchprof.reasons.errors import TorchprofError

if TYPE_CHECKING:
    from collections.abc import Callable

_Answer = TypeVar("_Answer")

_FIRST_PAUSE_S: Final = 0.5
_LONGEST_PAUSE_S: Final = 30.0
_NOT_THERE: Final = (404, 410)
_FINAL: Final = (
    TorchprofError,
    PermissionError,
    IsADirectoryError,
    FileExistsError,
    ImportError,
    ValueError,
    NotImplementedError,
)


def pause_s(before: int) -> float:
    """Return how long to wait after so many tries that failed, from 1."""
    return min(_FIRST_PAUSE_S * 2.0 ** (before - 1), _LONGEST_PAUSE_S)


def patiently(ask: Callable[[], _Answer], retries: int) -> _Answer:
    """Return an answer that is asked for until it comes, with pauses that grow; the error of the last try."""
    for before in range(1, retries + 1):
        try:
            return ask()
        except Exception as problem:
            if is_final(problem):
                raise
        time.sleep(pause_s(before))
    return ask()


def is_missing(problem: BaseException) -> bool:
    """Whether an error says that there is no such file."""
    # Of a web server fsspec takes any refusal for that.
    status = getattr(problem.__cause__, "status", None)
    return isinstance(problem, FileNotFoundError) and (status is None or status in _NOT_THERE)


def is_final(problem: BaseException) -> bool:
    """Whether no other try makes it better."""
    return isinstance(problem, _FINAL) or is_missing(problem)
