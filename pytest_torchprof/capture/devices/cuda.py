"""CUDA's GPUs, and ROCm's, as devices that are measured.

torch's private names about them each have a function below that says what it is for. Run with torch 2.13.0, 2.14.1 and
2.15.0; names that other versions (from 2.10) may lack are looked up with a default.
"""

from __future__ import annotations

import os
import warnings
from array import array
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from pytest_torchprof.capture import observers, reasons
from pytest_torchprof.capture.devices import LiveDevice, Peaks, Replays, WallClock, synchronize
from pytest_torchprof.capture.rank import this_rank
from pytest_torchprof.capture.this_process import this_process
from pytest_torchprof.reasons.capturing import Forked
from pytest_torchprof.reasons.errors import NotMeasured, TorchprofError
from pytest_torchprof.reasons.errors import hide_our_frames as __tracebackhide__  # noqa: F401  (read by pytest)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import torch
    from torch.profiler import ProfilerActivity

    from pytest_torchprof.reasons.disturbances import Disturbance
    from pytest_torchprof.reasons.reason import Reason
    from pytest_torchprof.trace.captured_graphs import CapturedGraph

# If torch does not give the size of the last cache. Inductor's own benchmarks clear the same amount.
_CACHE_BYTES = 256 << 20
# How much longer than its launches take a call's head start is, and when it ends at the latest.
_HEAD_START = 1.5
_LONGEST_HEAD_START_S = 0.2
_PROBED_CYCLES = 1_000_000


_BY_NVML = "PYTORCH_NVML_BASED_CUDA_CHECK"
"""A documented variable of torch's."""


class Cuda(LiveDevice):
    """One GPU, "cuda:N" with ROCm too."""

    @classmethod
    def is_there(cls) -> bool:
        return has_gpu()

    @classmethod
    def count(cls) -> int:
        import torch

        _let_torch_look_for_gpus()
        return torch.cuda.device_count()

    @classmethod
    def pick(cls, number: str, asked: str) -> str:
        import torch

        if not has_gpu():
            from pytest_torchprof.reasons.devices import NoGpuSeen

            raise TorchprofError.because(NoGpuSeen(asked, str(torch.__version__), reasons.no_gpu()))
        count = torch.cuda.device_count()
        # Asking for the current device would begin CUDA, after which no fork of this process can use it.
        begun = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
        try:
            index = int(number) if number else torch.cuda.current_device() if begun else _first(count)
        except RuntimeError as error:  # the device was lost since
            raise NotMeasured(reasons.of_device("the GPU", error)) from None
        if index >= count:
            from pytest_torchprof.reasons.devices import NoGpuOfNumber

            raise TorchprofError.because(NoGpuOfNumber(asked, count))
        return f"cuda:{index}"

    def make_current(self) -> None:
        import torch

        torch.cuda.set_device(self.name)

    @classmethod
    def why_unusable(cls) -> Reason | None:
        process = this_process()
        if _cannot_use_gpus_since_fork():
            process.give_up(Forked())
        elif process.unusable is None:
            process.give_up(_lasting_error())
        return process.unusable

    @classmethod
    def activities(cls) -> list[ProfilerActivity]:
        from torch.profiler import ProfilerActivity

        # Also for measurements of the CPU: kineto registers once per process, and a first session without the GPU would
        # leave all later ones without kernels. Where the GPU cannot be used any more, the profiler would fail with it.
        gpu = has_gpu() and this_process().unusable is None
        return [ProfilerActivity.CPU, ProfilerActivity.CUDA] if gpu else [ProfilerActivity.CPU]

    @classmethod
    def in_use(cls, measured: str) -> tuple[int, ...]:
        if this_process().unusable is not None:
            return ()
        import torch

        index = torch.device(measured).index
        # The others are left alone: synchronizing a device creates a context on it, which costs memory and time.
        return tuple(i for i in range(torch.cuda.device_count()) if i == index or _has_context(i))

    @classmethod
    def synchronize(cls, indices: tuple[int, ...]) -> None:
        import torch

        for index in indices:
            torch.cuda.synchronize(index)

    @classmethod
    def peaks(cls, indices: tuple[int, ...]) -> AbstractContextManager[Peaks]:
        from pytest_torchprof.capture import torch_memory

        return torch_memory.peaks(indices)

    @classmethod
    @contextmanager
    def looking_without_use(cls) -> Iterator[None]:
        # No fork of a process that has begun CUDA can use it; the driver's management library begins nothing.
        before = os.environ.get(_BY_NVML)
        os.environ[_BY_NVML] = "1"
        try:
            yield
        finally:
            if before is None:
                del os.environ[_BY_NVML]
            else:
                os.environ[_BY_NVML] = before

    @classmethod
    @contextmanager
    def before_use(cls, do: Callable[[], None]) -> Iterator[None]:
        import torch

        watched = True

        def begun() -> None:
            if watched:
                do()

        # torch calls these functions once CUDA has begun, in forks too (2.13, 2.15); none can be withdrawn.
        getattr(torch.cuda, "_lazy_call", lambda call: call())(begun)
        try:
            yield
        finally:
            watched = False

    @classmethod
    def replays(cls) -> AbstractContextManager[Replays]:
        return observers.replays()

    @classmethod
    def captures_noted(cls) -> AbstractContextManager[None]:
        from pytest_torchprof.capture import torch_graphs

        return torch_graphs.captures_noted()

    @classmethod
    def captured_graphs(cls, replays: Replays) -> tuple[CapturedGraph, ...] | None:
        from pytest_torchprof.capture import torch_graphs

        return torch_graphs.captured(replays.graphs)

    def lock_names(self, *, with_others: bool) -> list[str]:
        import torch

        seen = [f"cuda:{index}" for index in range(torch.cuda.device_count())]
        return [gpu_uuid(name) for name in (seen if with_others else [self.name])]

    def mark_boundary(self) -> None:
        import torch

        # The cheapest call that kineto records: it asks for nothing but the state of a stream.
        torch.cuda.is_current_stream_capturing()

    def counts_memory(self) -> bool | None:
        import torch

        try:
            return torch.cuda.memory_allocated(self.name) > 0
        except Exception:  # noqa: BLE001 - a pluggable allocator raises what it likes
            return False

    def last_cache_bytes(self) -> int:
        import torch

        return max(getattr(torch.cuda.get_device_properties(self.name), "L2_cache_size", 0), _CACHE_BYTES)

    def describe(self) -> dict[str, Any]:
        import torch

        from pytest_torchprof.capture import nvml

        properties = torch.cuda.get_device_properties(self.name)
        return {
            "gpu": properties.name,
            "compute_capability": f"{properties.major}.{properties.minor}",
            "gcn_arch": properties.gcnArchName if torch.version.hip else None,
            "driver": nvml.value_or_none(nvml.driver_version()),
            "cudnn": torch.backends.cudnn.version(),  # type: ignore[no-untyped-call]
            "clocks_mhz": nvml.value_or_none(nvml.clocks_mhz(gpu_uuid(self.name))),
        }

    def clock(self) -> WallClock:
        return EventClock(self.name)

    def disturbances(self) -> AbstractContextManager[Callable[[], list[Disturbance]]]:
        from pytest_torchprof.capture import nvml

        return nvml.watched(gpu_uuid(self.name))


class EventClock(WallClock):
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
    def waited(self) -> bool:
        """Whether the device had to wait for the launches of most calls, in spite of the head start."""
        return 2 * self._calls_that_waited > len(self._events)

    def wait(self) -> None:
        """Wait for the work queued on the current stream so far, and for all that it waits for."""
        self._recorded().synchronize()

    def head_start(self, launching_s: float) -> float:
        """Get ready to keep the device busy while a call is launched; return for how long, in seconds."""
        # The first launch of a kernel loads it, and the device waits for that.
        seconds = [self._spun_s(_PROBED_CYCLES) for _ in range(2)][-1]
        wanted = min(_HEAD_START * launching_s, _LONGEST_HEAD_START_S)
        self._cycles = round(wanted / max(seconds, 1e-9) * _PROBED_CYCLES) if seconds else 0
        return wanted if seconds else 0.0

    def _spun_s(self, cycles: int) -> float:
        start = self._recorded()
        spun = _spin(self._device, cycles)
        end = self._recorded()
        end.synchronize()
        return float(start.elapsed_time(end)) / 1e3 if spun else 0.0

    def begin(self) -> None:
        """Keep the device busy from now on; without use of memory, so that the caches stay as they are."""
        if self._cycles:
            _spin(self._device, self._cycles)

    def ready(self) -> None:
        """Let the next sample be a call's own time: without a head start, wait for what came before it."""
        if not self._cycles:
            synchronize(self._device)

    @contextmanager
    def sample(self) -> Iterator[None]:
        """Time one call."""
        start = self._recorded()
        yield
        self._events.append((start, self._recorded()))
        self._calls_that_waited += start.query()  # type: ignore[no-untyped-call]

    def times_us(self) -> array[float]:
        """Wait for the device, and return the times since the last call."""
        synchronize(self._device)
        events, self._events, self._calls_that_waited = self._events, [], 0
        return array("d", (start.elapsed_time(end) * 1000 for start, end in events))

    def _recorded(self) -> torch.cuda.Event:
        import torch

        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record(torch.cuda.current_stream(self._device))
        return event


def _lasting_error() -> Reason | None:
    if not has_gpu():
        return None
    import torch

    begun = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    # torch raises once an error that earlier code left behind without a look; a broken GPU raises it again.
    with suppress(Exception):
        _wait_for_all()
    try:
        _wait_for_all()
    except Exception as error:  # noqa: BLE001 - torch's errors of the GPU are of several kinds
        return reasons.of_earlier_error(error) if begun else reasons.of_device("the GPU", error)
    return None


def _wait_for_all() -> None:
    """Wait for the current GPU too, in use or not: the profiler will when it stops."""
    import torch

    torch.cuda.synchronize()
    synchronize("cpu")


def gpu_uuid(device: str) -> str:
    """Return the name that this GPU has in every process: "GPU-..." as NVML has it, else its address on the bus."""
    import torch

    properties = torch.cuda.get_device_properties(device)
    uuid = getattr(properties, "uuid", None)
    address = (getattr(properties, f"pci_{part}_id", 0) for part in ("domain", "bus", "device"))
    return f"GPU-{uuid}" if uuid else "PCI-{:04x}-{:02x}-{:02x}".format(*address)


def has_gpu() -> bool:
    """Return whether torch can use a CUDA or ROCm device in this process."""
    import torch

    _let_torch_look_for_gpus()
    return torch.cuda.is_available()


@cache
def _let_torch_look_for_gpus() -> None:
    """Let torch give its warnings about GPUs now, unheard: it gives each once, and warnings may be errors later."""
    import torch

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.cuda.is_available()


def _has_context(index: int) -> bool:
    """Return whether this process holds a context on that GPU; True if torch does not say."""
    import torch

    has_context = getattr(torch._C, "_cuda_hasPrimaryContext", None)
    return bool(has_context(index)) if has_context else True


def _first(count: int) -> int:
    """Return the number of the GPU to take if none is in use yet: each rank of a job takes its own."""
    rank = this_rank()
    return rank.local if not rank.alone and rank.local is not None and rank.local < count else 0


def _spin(device: str, cycles: int) -> bool:
    """Keep a GPU's current stream busy for so many cycles of its clock, without use of memory; False if torch cannot.

    Run with torch 2.15 (CUDA); undocumented, and in torch since long before 2.10.
    """
    import torch

    sleep = getattr(torch.cuda, "_sleep", None)
    if sleep is None:
        return False
    with torch.cuda.device(device):
        sleep(cycles)
    return True


def _cannot_use_gpus_since_fork() -> bool:
    """Return whether this process was forked from one that had asked for its GPUs: CUDA cannot begin again in it."""
    is_bad_fork = getattr(import_module("torch.cuda"), "_is_in_bad_fork", None)
    return bool(is_bad_fork and is_bad_fork())


LIVE = Cuda
