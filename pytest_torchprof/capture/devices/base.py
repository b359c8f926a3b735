"""What is asked of a device that is measured; torch is imported when something is asked."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from pytest_torchprof.devices import kind_of

if TYPE_CHECKING:
    from array import array
    from collections.abc import Callable
    from contextlib import AbstractContextManager


class Clock(ABC):
    """What samples of an untraced call are timed with."""

    name: str
    """As a recording says it."""

    @property
    @abstractmethod
    def waited(self) -> bool:
        """Whether the device had to wait for the launches of most calls."""

    @abstractmethod
    def wait(self) -> None:
        """Wait for all that the code has put in order so far, as far as samples hold it."""

    @abstractmethod
    def head_start(self, launching_s: float) -> float:
        """Get ready to keep the device busy while a call is launched; return for how long, in seconds."""

    @abstractmethod
    def begin(self) -> None:
        """Keep the device busy from now on."""

    @abstractmethod
    def ready(self) -> None:
        """Let the next sample be a call's own time."""

    @abstractmethod
    def sample(self) -> AbstractContextManager[None]:
        """Time one call."""

    @abstractmethod
    def times_us(self) -> array[float]:
        """Return the times since the last time it was asked."""


class LiveDevice(ABC):
    """A device of this machine by torch's name for it, such as "cuda:0"."""

    def __init__(self, name: str) -> None:
        """Take the name; nothing is asked of the device."""
        self.name = name
        self.kind = kind_of(name)

    @classmethod
    @abstractmethod
    def is_there(cls) -> bool:
        """Whether torch can use such a device in this process."""

    @classmethod
    @abstractmethod
    def pick(cls, number: str, asked: str) -> str:
        """Return the name of the device with this number, or of the one in use; TorchprofError where there is none."""

    @abstractmethod
    def why_unusable(self) -> str | None:
        """Return what keeps this process from using it any more."""

    @abstractmethod
    def lock_names(self, *, with_others: bool) -> list[str]:
        """Return what processes that measure on it, or on it and its neighbours, must hold one after the other."""

    @abstractmethod
    def counts_memory(self) -> bool | None:
        """Whether its allocator counts what it gives out, asked while something lies there; None: it has none."""

    @abstractmethod
    def last_cache_bytes(self) -> int:
        """Return the size of its last cache."""

    @abstractmethod
    def threads(self) -> int | None:
        """Return how many threads of torch's compute on it; None where threads do not."""

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """Return what a recording's environment says of it."""

    @abstractmethod
    def clock(self) -> Clock:
        """Return a clock for calls on it."""

    @abstractmethod
    def disturbances(self) -> AbstractContextManager[Callable[[], list[str]]]:
        """Watch it; what is yielded says what has disturbed it since."""
