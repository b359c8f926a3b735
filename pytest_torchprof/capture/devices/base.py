"""What is asked of a device that is measured; torch is imported when something is asked."""

from __future__ import annotations

from abc import ABC, abstractmethod
from array import array
from contextlib import AbstractContextManager, contextmanager, nullcontext
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from pytest_torchprof.devices.kinds import kind_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class WallClock:
    """Times samples of an untraced call by wall time; another clock knows better what the device did meanwhile."""

    name = "perf_counter"

    def __init__(self, wait: Callable[[], None]) -> None:
        """Take what waits for all work of the process."""
        self._wait = wait
        self._times_us = array("d")

    @property
    def waited(self) -> bool:
        """Whether the device had to wait for the launches of most calls."""
        return False

    def wait(self) -> None:
        """Wait for all that the code has put in order so far."""
        self._wait()

    def head_start(self, launching_s: float) -> float:  # noqa: ARG002
        """Get ready to keep the device busy while a call is launched; return for how long, in seconds."""
        return 0.0

    def begin(self) -> None:
        """Keep the device busy from now on."""

    def ready(self) -> None:
        """Let the next sample be a call's own time."""

    @contextmanager
    def sample(self) -> Iterator[None]:
        """Time one call."""
        began = perf_counter_ns()
        yield
        self._times_us.append((perf_counter_ns() - began) / 1000)

    def times_us(self) -> array[float]:
        """Return the times since the last time it was asked."""
        times, self._times_us = self._times_us, array("d")
        return times


class LiveDevice(ABC):
    """A device of this machine by torch's name for it, such as "cuda:0".

    As it stands here it has nothing of its own: no lock, no memory, nothing that disturbs it.
    """

    numbered = True
    """Whether there may be several."""

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

    def mark_boundary(self) -> None:  # noqa: B027 - a device on which nothing is launched has no need of it
        """Leave a call in the recording between two steps, so that an unrecorded one is told to be before or after."""

    @abstractmethod
    def last_cache_bytes(self) -> int:
        """Return the size of its last cache."""

    @abstractmethod
    def clock(self) -> WallClock:
        """Return a clock for calls on it."""

    def threads(self) -> int | None:
        """Return how many threads of torch's compute on it; None where threads do not."""
        return None

    def lock_names(self, *, with_others: bool) -> list[str]:  # noqa: ARG002
        """Return what processes that measure on it, or on it and its neighbours, must hold one after the other."""
        return []

    def counts_memory(self) -> bool | None:
        """Whether its allocator counts what it gives out, asked while something lies there; None: it has none."""
        return None

    def describe(self) -> dict[str, Any]:
        """Return what a recording's environment says of it."""
        return {}

    def disturbances(self) -> AbstractContextManager[Callable[[], list[str]]]:
        """Watch it; what is yielded says what has disturbed it since."""
        return nullcontext(list)
