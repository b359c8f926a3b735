"""Untraced times of the measured code, a sample per call: taken after the profiled steps, only for a time tolerance."""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, Literal, NamedTuple

from pytest_torchprof.analysis.numbers import middle
from pytest_torchprof.capture.devices import after_measured_code, live_device, synchronize
from pytest_torchprof.capture.reasons import line_of_error
from pytest_torchprof.reasons.capturing import CacheNotEmptied, CallTooLong, WorkGoesOn
from pytest_torchprof.reasons.decoding import to_stored
from pytest_torchprof.reasons.disturbances import WaitedForCpu
from pytest_torchprof.trace.metadata import Batch, Timing

if TYPE_CHECKING:
    from array import array
    from collections.abc import Callable, Iterator

    from pytest_torchprof.capture.devices import LiveDevice
    from pytest_torchprof.reasons.disturbances import Disturbance
    from pytest_torchprof.reasons.reason import Reason
    from pytest_torchprof.trace import Trace

Cache = Literal["hot", "cold"]

LEAST = 20
MOST = 5000
# Calls between the profiler's stop and the first sample; their times tell how many samples the budget allows.
SETTLING = 3
# What each of several ranks takes that cannot agree: how long its own calls take may not decide how many it makes.
SAMPLES_BESIDE_OTHERS = 50
CALLS_BESIDE_OTHERS = 2 * (SETTLING + SAMPLES_BESIDE_OTHERS)
"""How many calls two batches make beside other ranks."""
# A short call is sampled as long as a slow one: a moment's slowdown of a busy machine must not cover a whole batch.
_BUDGET_S = 0.5
_LIMIT_S = 60.0
# Asking idle devices whether they are idle takes less; any time beyond both is work that no sample includes.
_LEFT_OVER_S = 2e-4
_LEFT_OVER_SHARE = 0.05


def on_one_stream(trace: Trace) -> bool:
    """Return whether all GPU work of our recording, with the sentinel's on the current stream, was on one stream."""
    return len(set(zip(trace.gpu.process, trace.gpu.stream, strict=True))) == 1


class _Settled(NamedTuple):
    """The duration of a call before the samples, in seconds."""

    launching: float
    """Until the call returned."""
    left_over: float
    """From the end of the work on the current stream until nothing ran any more."""
    whole: float


class Samples:
    """Batches of samples, each a few calls to settle and one per sample; the recording keeps ``timing`` of them.

    After ``settle`` and after ``take``, ``why_not`` says why there are no times (None if there are), and ``wanted`` how
    many samples the budget allows.

    ``one_stream``: whether all GPU work of a call comes after the earlier work on the current stream.
    """

    def __init__(self, device: str, cache: Cache, *, one_stream: bool = True) -> None:
        self._device = live_device(device)
        self._one_stream = one_stream
        self._cache = cache
        self._clock = self._device.clock()
        self._batches: list[tuple[array[float], list[Disturbance]]] = []
        self.why_not: Reason | None = None
        self.wanted = LEAST
        self.calls = 0

    def settle(self) -> Iterator[None]:
        """Yield for a few calls, by whose times the number of samples is decided."""
        settled: list[_Settled] = []
        for _ in range(SETTLING):
            self.calls += 1
            synchronize(self._device.name)
            began = perf_counter()
            yield
            returned = perf_counter()
            with after_measured_code():
                self._clock.wait()
                in_order = perf_counter()
                synchronize(self._device.name)
            idle = perf_counter()
            settled.append(_Settled(returned - began, idle - in_order, idle - began))
        seconds = middle([call.whole for call in settled])
        self.why_not = _why_no_times(seconds, min(call.left_over for call in settled))
        if self.why_not:
            return
        if self._one_stream:
            seconds += self._clock.head_start(middle([call.launching for call in settled]))
        self.wanted = round(min(max(_BUDGET_S / max(seconds, 1e-9), LEAST), MOST))

    def take(self, count: int) -> Iterator[None]:
        """Yield once for each of ``count`` samples."""
        try:
            flush = _cache_emptier(self._device, self._cache)
        except (RuntimeError, MemoryError) as error:
            self.why_not = CacheNotEmptied(line_of_error(error))
            return
        with self._device.disturbances() as disturbances:
            for _ in range(count):
                self.calls += 1
                self._clock.begin()
                flush()
                self._clock.ready()
                with after_measured_code(), self._clock.sample():
                    yield
            # The GPU still works on the last call.
            disturbed = disturbances()
        if self._clock.waited:
            disturbed.append(WaitedForCpu())
        with after_measured_code():
            self._batches.append((self._clock.times_us(), disturbed))

    @property
    def timing(self) -> Timing:
        """The samples and how they were taken, for the recording."""
        return Timing(
            clock=self._clock.name,
            cache=self._cache,
            threads=self._device.threads(),
            batches=tuple(
                Batch(samples_us=tuple(round(sample, 3) for sample in samples), disturbed=tuple(disturbed))
                for samples, disturbed in self._batches
            ),
            why_not=to_stored(self.why_not),
        )


def _cache_emptier(device: LiveDevice, cache: Cache) -> Callable[[], object]:
    """Return a function that empties the device's last cache; for hot caches it does nothing."""
    if cache == "hot":
        return lambda: None
    import torch

    # Twice the cache, so that nothing else survives.
    spare: torch.Tensor = torch.empty(2 * device.last_cache_bytes(), dtype=torch.uint8, device=device.name)
    return spare.zero_


def _why_no_times(seconds: float, left_over: float) -> Reason | None:
    """Return why samples would not show how long a call takes; ``left_over`` is the smallest of a few calls."""
    if seconds * LEAST > _LIMIT_S:
        return CallTooLong(seconds, LEAST, _LIMIT_S)
    if left_over > max(_LEFT_OVER_S, _LEFT_OVER_SHARE * seconds):
        return WorkGoesOn(left_over * 1e3)
    return None
