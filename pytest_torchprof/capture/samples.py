"""Untraced times of the measured code, a sample per call: taken after the profiled steps, for a time tolerance only."""

from __future__ import annotations

import statistics
from array import array
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter_ns
from typing import TYPE_CHECKING, Literal

from pytest_torchprof.capture import nvml
from pytest_torchprof.capture.device import devices_in_use, gpu_uuid, synchronize

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import torch

Cache = Literal["hot", "cold"]

LEAST = 20
MOST = 5000
# Calls between the profiler's stop and the first sample; their times tell how many samples the budget allows.
_SETTLING = 3
# A short call is sampled as long as a slow one: what slows a busy machine down for a moment must not cover a batch.
_BUDGET_S = 0.5
_LIMIT_S = 60.0
# Where the size of the last cache is not told. Inductor's own benchmarks clear as much on a GPU.
_SPARE_BYTES = {"cpu": 64 << 20, "cuda": 256 << 20}


class Samples:
    """Batches of samples; ``evidence`` is what the recording keeps of them."""

    def __init__(self, device: str, cache: Cache) -> None:
        self._device = device
        self._cache = cache
        self._clock = _CpuClock() if device == "cpu" else _EventClock(device)
        self._batches: list[tuple[array[float], list[str]]] = []
        self._why_not: str | None = None
        self.calls = 0

    def batch(self) -> Iterator[None]:
        """Yield once per call of the measured code: a few to settle, then one per sample, at least ``LEAST``."""
        times: list[float] = []
        for _ in range(_SETTLING):
            self.calls += 1
            synchronize(devices_in_use(self._device))
            began = perf_counter_ns()
            yield
            synchronize(devices_in_use(self._device))
            times.append((perf_counter_ns() - began) / 1e9)
        seconds = statistics.median(times)
        if seconds * LEAST > _LIMIT_S:
            self._why_not = (
                f"a call takes {seconds:.1f} s, so {LEAST} samples would take longer than {_LIMIT_S:.0f} s: "
                "measure a smaller part of it"
            )
            return
        yield from self._sampled(round(min(max(_BUDGET_S / max(seconds, 1e-9), LEAST), MOST)))

    def _sampled(self, count: int) -> Iterator[None]:
        with _flushing(self._device, self._cache) as flush:
            for _ in range(count):
                self.calls += 1
                flush()
                with self._clock.sample():
                    yield
        # Asked while the GPU still works: an idle one is never too hot.
        disturbed = [] if self._device == "cpu" else nvml.disturbances(gpu_uuid(self._device))
        self._batches.append((self._clock.times_us(), disturbed))

    @property
    def evidence(self) -> dict[str, object]:
        """The samples and how they were taken, as JSON values."""
        import torch

        return {
            "clock": self._clock.name,
            "cache": self._cache,
            "threads": torch.get_num_threads() if self._device == "cpu" else None,
            "batches": [
                {"samples_us": [round(sample, 3) for sample in samples], "disturbed": disturbed}
                for samples, disturbed in self._batches
            ],
            "why_not": self._why_not,
        }


class _CpuClock:
    """Wall time of a call, since on the CPU a call returns when its work is done."""

    name = "perf_counter"

    def __init__(self) -> None:
        self._times_us = array("d")

    @contextmanager
    def sample(self) -> Iterator[None]:
        began = perf_counter_ns()
        yield
        self._times_us.append((perf_counter_ns() - began) / 1000)

    def times_us(self) -> array[float]:
        """Return the times since the last time it was asked."""
        times, self._times_us = self._times_us, array("d")
        return times


class _EventClock:
    """The device's own time between two events on the current stream.

    Nothing waits between the samples: a wait would add the time in which the GPU has nothing to do.
    """

    name = "events"

    def __init__(self, device: str) -> None:
        self._device = device
        self._events: list[tuple[torch.cuda.Event, torch.cuda.Event]] = []

    @contextmanager
    def sample(self) -> Iterator[None]:  # pragma: needs gpu
        import torch

        stream = torch.cuda.current_stream(self._device)
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        start.record(stream)
        yield
        end.record(stream)
        self._events.append((start, end))

    def times_us(self) -> array[float]:  # pragma: needs gpu
        """Wait for the device, and return the times since the last time it was asked."""
        synchronize(devices_in_use(self._device))
        events, self._events = self._events, []
        return array("d", (start.elapsed_time(end) * 1000 for start, end in events))


@contextmanager
def _flushing(device: str, cache: Cache) -> Iterator[Callable[[], object]]:
    """Give a function that empties the device's last cache of what the code left in it; nothing where it stays hot."""
    if cache == "hot":
        yield lambda: None
        return
    import torch

    # Twice the cache, so that nothing else survives.
    spare = torch.empty(2 * _last_cache_bytes(device), dtype=torch.uint8, device=device)
    yield spare.zero_


def _last_cache_bytes(device: str) -> int:
    if device == "cpu":
        levels = sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"))
        sizes = [path.read_text().strip() for path in levels]
        return max([int(size[:-1]) << 10 for size in sizes if size.endswith("K")], default=_SPARE_BYTES["cpu"])
    import torch  # pragma: needs gpu

    properties = torch.cuda.get_device_properties(device)  # pragma: needs gpu
    return max(getattr(properties, "L2_cache_size", 0), _SPARE_BYTES["cuda"])  # pragma: needs gpu
