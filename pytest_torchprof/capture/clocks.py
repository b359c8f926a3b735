"""What a sample of an untraced call is timed with."""

from __future__ import annotations

from array import array
from contextlib import contextmanager
from time import perf_counter_ns
from typing import TYPE_CHECKING

from pytest_torchprof.capture import torch_cuda
from pytest_torchprof.capture.device import devices_in_use, synchronize

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch

# How much longer than its launches take a call's head start is, and when it ends at the latest.
_HEAD_START = 1.5
_LONGEST_HEAD_START_S = 0.2
_PROBED_CYCLES = 1_000_000


class CpuClock:
    """Wall time of a call, since on the CPU a call returns when its work is done."""

    name = "perf_counter"
    waited = False
    """Whether the device had to wait for the launches of most calls."""

    def __init__(self) -> None:
        self._times_us = array("d")

    def wait(self) -> None:
        """Wait for all that the code has put in order so far."""
        synchronize(devices_in_use("cpu"))

    def head_start(self, _launching_s: float) -> float:
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


class EventClock:
    """The device's own time between two events on the current stream.

    With a head start nothing waits between the samples, and the device is kept busy until a call is launched: it would
    else wait for launches, and a call that takes long to launch would take as long with any kernels. What a call puts
    on other streams may not wait for the head start, and be done before the sample begins; so without one each sample
    begins on an idle device.
    """

    name = "events"

    def __init__(self, device: str) -> None:
        self._device = device
        self._events: list[tuple[torch.cuda.Event, torch.cuda.Event]] = []
        self._cycles = 0
        self._calls_that_waited = 0

    @property
    def waited(self) -> bool:  # pragma: needs gpu
        """Whether the device had to wait for the launches of most calls, in spite of the head start."""
        return 2 * self._calls_that_waited > len(self._events)

    def wait(self) -> None:  # pragma: needs gpu
        """Wait for what the code has put in order so far: what is on the current stream, or is waited for there."""
        self._recorded().synchronize()

    def head_start(self, launching_s: float) -> float:  # pragma: needs gpu
        """Get ready to keep the device busy while a call is launched; return for how long, in seconds."""
        # The first launch of a kernel loads it, and the device waits for that.
        seconds = [self._spun_s(_PROBED_CYCLES) for _ in range(2)][-1]
        wanted = min(_HEAD_START * launching_s, _LONGEST_HEAD_START_S)
        self._cycles = round(wanted / max(seconds, 1e-9) * _PROBED_CYCLES) if seconds else 0
        return wanted if seconds else 0.0

    def _spun_s(self, cycles: int) -> float:  # pragma: needs gpu
        start = self._recorded()
        spun = torch_cuda.spin(self._device, cycles)
        end = self._recorded()
        end.synchronize()
        return float(start.elapsed_time(end)) / 1e3 if spun else 0.0

    def begin(self) -> None:  # pragma: needs gpu
        """Keep the device busy from now on; without use of memory, so that the caches stay as they are."""
        if self._cycles:
            torch_cuda.spin(self._device, self._cycles)

    def ready(self) -> None:  # pragma: needs gpu
        """Let the next sample be a call's own time: without a head start, wait for what came before it."""
        if not self._cycles:
            synchronize(devices_in_use(self._device))

    @contextmanager
    def sample(self) -> Iterator[None]:  # pragma: needs gpu
        """Time one call."""
        start = self._recorded()
        yield
        self._events.append((start, self._recorded()))
        self._calls_that_waited += start.query()  # type: ignore[no-untyped-call]

    def times_us(self) -> array[float]:  # pragma: needs gpu
        """Wait for the device, and return the times since the last time it was asked."""
        synchronize(devices_in_use(self._device))
        events, self._events, self._calls_that_waited = self._events, [], 0
        return array("d", (start.elapsed_time(end) * 1000 for start, end in events))

    def _recorded(self) -> torch.cuda.Event:  # pragma: needs gpu
        import torch

        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record(torch.cuda.current_stream(self._device))
        return event
