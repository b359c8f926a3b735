"""The CPU that is measured as the device."""

from __future__ import annotations

from array import array
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from pytest_torchprof.capture.devices.base import Clock, LiveDevice
from pytest_torchprof.capture.devices.cuda import devices_in_use, synchronize, why_unusable
from pytest_torchprof.errors import TorchprofError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# Where the size of the last cache is not told.
_CACHE_BYTES = 64 << 20


class Cpu(LiveDevice):
    """The one of this machine, all cores together."""

    @classmethod
    def is_there(cls) -> bool:
        return True

    @classmethod
    def pick(cls, number: str, asked: str) -> str:
        if number:
            raise TorchprofError(f"unknown device {asked!r}. Use 'auto', 'cpu', 'cuda' or 'cuda:N'.")
        return "cpu"

    def why_unusable(self) -> str | None:
        # A session records the GPUs beside it, where they can still be used.
        why_unusable()
        return None

    def lock_names(self, *, with_others: bool) -> list[str]:
        del with_others
        return []

    def counts_memory(self) -> bool | None:
        return None

    def last_cache_bytes(self) -> int:
        levels = sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"))
        sizes = [path.read_text().strip() for path in levels]
        return max([int(size[:-1]) << 10 for size in sizes if size.endswith("K")], default=_CACHE_BYTES)

    def threads(self) -> int | None:
        import torch

        return torch.get_num_threads()

    def describe(self) -> dict[str, Any]:
        return {}

    def clock(self) -> Clock:
        return CpuClock()

    def disturbances(self) -> AbstractContextManager[Callable[[], list[str]]]:
        return nullcontext(list)


class CpuClock(Clock):
    """Wall time of a call, since on the CPU a call returns when its work is done."""

    name = "perf_counter"
    waited = False
    """Whether the device had to wait for the launches of most calls."""

    def __init__(self) -> None:
        self._times_us = array("d")

    def wait(self) -> None:
        """Wait for all that the code has put in order so far."""
        synchronize(devices_in_use("cpu"))

    def head_start(self, launching_s: float) -> float:
        """Get ready to keep the device busy while a call is launched; return for how long, in seconds."""
        del launching_s
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
