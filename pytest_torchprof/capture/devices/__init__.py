"""The devices that can be measured: each kind that has a module of its name here, with the class ``LIVE``.

``pytest_torchprof.devices`` says what a recording of each kind holds; it is a separate package, so that recordings can
be read without torch. Here torch is imported when it is first needed.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from array import array
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from msgspec import Struct, field

from pytest_torchprof.devices.kinds import device_kinds
from pytest_torchprof.reasons.errors import TorchprofError
from pytest_torchprof.reasons.errors import hide_our_frames as __tracebackhide__  # noqa: F401  (read by pytest)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch.profiler import ProfilerActivity

    from pytest_torchprof.reasons.disturbances import Disturbance
    from pytest_torchprof.reasons.reason import Reason
    from pytest_torchprof.trace.captured_graphs import CapturedGraph


class WallClock:
    """Times samples of an untraced call by wall time; the clocks of other devices derive from it."""

    name = "perf_counter"

    def __init__(self, wait: Callable[[], None]) -> None:
        """Take the function that waits for all work of the process."""
        self._wait = wait
        self._times_us = array("d")

    @property
    def waited(self) -> bool:
        """Whether the device had to wait for the launches of most calls."""
        return False

    def wait(self) -> None:
        """Wait for the work that the code has queued in order so far."""
        self._wait()

    def head_start(self, launching_s: float) -> float:  # noqa: ARG002
        """Get ready to keep the device busy while a call is launched; return how long that will be, in seconds."""
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
        """Return the times since the last call."""
        times, self._times_us = self._times_us, array("d")
        return times


class Replays(Struct):
    """The replays of a recording, in order: for each the number of its graph's kernels, None if it is not known."""

    kernels: list[int | None] = field(default_factory=list)
    threads: set[int] = field(default_factory=set)
    graphs: WeakSet[Any] = field(default_factory=WeakSet)
    """torch's objects of the graphs."""

    def note(self, graph: object, kernels: int | None) -> None:
        """Note a replay of a graph by this thread, with the number of its kernels."""
        self.kernels.append(kernels)
        self.threads.add(threading.get_ident())
        self.graphs.add(graph)

    @property
    def in_order(self) -> tuple[int | None, ...] | None:
        """The replays; None if several threads made them, so that their order is not known, or if there are none."""
        return tuple(self.kernels) if len(self.threads) == 1 else None


class Peaks:
    """The allocator's peaks on some devices; without an allocator that counts there are none."""

    was_reset_unseen = False
    """Whether a peak was reset in a way that is not seen, so that its value is lost."""

    def look(self, indices: tuple[int, ...]) -> None:
        """Take note of the peaks so far."""

    def largest_bytes(self, indices: tuple[int, ...]) -> int | None:  # noqa: ARG002
        """Return the largest peak of these, in bytes; None without any."""
        return None


class LiveDevice(ABC):
    """A device of this machine by torch's name for it, such as "cuda:0"; its class answers for all devices of the kind.

    The answers given here hold for a device on which nothing is launched: it needs no lock, its allocator counts
    nothing, and nothing is known to disturb it.
    """

    numbered = True
    """Whether there may be several."""

    def __init__(self, name: str) -> None:
        """Take the name; nothing is asked of the device."""
        self.name = name

    @classmethod
    @abstractmethod
    def is_there(cls) -> bool:
        """Return whether torch can use such a device in this process."""

    @classmethod
    def count(cls) -> int:
        """Return the number of devices that ranks can have to themselves."""
        return 0

    @classmethod
    @abstractmethod
    def pick(cls, number: str, asked: str) -> str:
        """Return the name of the device with this number, or of the one in use; TorchprofError if there is none."""

    @classmethod
    def why_unusable(cls) -> Reason | None:
        """Return the reason why this process can no longer use such devices; None if it can."""
        return None

    @classmethod
    def activities(cls) -> list[ProfilerActivity]:
        """Return the activities that a profiler session records."""
        from torch.profiler import ProfilerActivity

        return [ProfilerActivity.CPU]

    @classmethod
    def in_use(cls, measured: str) -> tuple[int, ...]:  # noqa: ARG003
        """Return the indices of the devices that may have work of this process queued, among them a measured one."""
        return ()

    @classmethod  # noqa: B027 - without launches there is nothing to wait for
    def synchronize(cls, indices: tuple[int, ...]) -> None:
        """Wait for all work queued on these."""

    @classmethod
    def settle(cls, measured: str) -> None:
        """Wait for all work that this process has queued, on the measured device and others."""
        cls.synchronize(cls.in_use(measured))

    @classmethod
    def peaks(cls, indices: tuple[int, ...]) -> AbstractContextManager[Peaks]:  # noqa: ARG003
        """Begin new allocator peaks on these devices; peaks that the test itself was taking begin anew too."""
        return nullcontext(Peaks())

    def make_current(self) -> None:  # noqa: B027 - of one there is no other
        """Make it the device on which this process works if none is named."""

    @classmethod
    def looking_without_use(cls) -> AbstractContextManager[object]:
        """Let torch look for such devices without beginning to use them, where it can; they may not be usable then."""
        return nullcontext()

    @classmethod
    def before_use(cls, do: Callable[[], None]) -> AbstractContextManager[object]:  # noqa: ARG003
        """Call a function as soon as this process begins to use such devices; at once if it uses them already."""
        return nullcontext()

    @classmethod
    def replays(cls) -> AbstractContextManager[Replays]:
        """Note the replays of graphs that the code inside makes."""
        return nullcontext(Replays())

    @classmethod
    def captures_noted(cls) -> AbstractContextManager[None]:
        """Note the captures of graphs by the code inside."""
        return nullcontext()

    @classmethod
    def captured_graphs(cls, replays: Replays) -> tuple[CapturedGraph, ...] | None:  # noqa: ARG003
        """Return the known captures of the graphs that were replayed; None if none is known."""
        return None

    def mark_boundary(self) -> None:  # noqa: B027 - a device on which nothing is launched does not need it
        """Leave a call in the recording between two steps, by which unrecorded calls are placed before or after it."""

    @abstractmethod
    def last_cache_bytes(self) -> int:
        """Return the size of its last cache."""

    @abstractmethod
    def clock(self) -> WallClock:
        """Return a clock for calls on it."""

    def threads(self) -> int | None:
        """Return how many threads of torch's compute on it; None if threads do not."""
        return None

    def lock_names(self, *, with_others: bool) -> list[str]:  # noqa: ARG002
        """Return the names of the locks that a process must hold to measure on it, or on all devices of its kind."""
        return []

    def counts_memory(self) -> bool | None:
        """Return whether its allocator counts allocations, asked while a tensor is on it; None if it has none."""
        return None

    def describe(self) -> dict[str, Any]:
        """Return its part of a recording's environment."""
        return {}

    def disturbances(self) -> AbstractContextManager[Callable[[], list[Disturbance]]]:
        """Watch it; the function that is yielded returns the disturbances since."""
        return nullcontext(list)


@cache
def _live_kinds() -> dict[str, type[LiveDevice]]:
    """Return the kinds that can be measured, by torch's name; "auto" takes the first that exists."""
    here = {module.name for module in iter_modules(__path__)}
    return {kind.name: import_module(f"{__name__}.{kind.name}").LIVE for kind in device_kinds() if kind.name in here}


def pick_device(wanted: str) -> str:
    """Return the device that "auto", "cpu", "cuda" or "cuda:N" stands for here: "cpu" or "cuda:N".

    ROCm devices are "cuda:N" too, as in torch. Raises TorchprofError for a device that is not there or whose
    recordings cannot be read.
    """
    name, _, number = wanted.partition(":")
    live = accelerator() if wanted == "auto" else _live_kinds().get(name)
    if live is None or (number and not (live.numbered and number.isdecimal())):
        numbered = [f"{name}:N" for name, kind in _live_kinds().items() if kind.numbered]
        from pytest_torchprof.reasons.devices import UnknownDevice

        raise TorchprofError.because(UnknownDevice(wanted, ("auto", *sorted([*_live_kinds(), *numbered]))))
    return live.pick(number, wanted)


def count_gpus() -> int:
    """Return how many accelerators torch sees; 0 if it has none."""
    return accelerator().count()


def live_device(name: str) -> LiveDevice:
    """Return the device of this name, as `pick_device` returns it."""
    return _live_kinds()[name.partition(":")[0]](name)


def accelerator() -> type[LiveDevice]:
    """Return the kind of device that torch has here besides the CPU; the CPU itself if there is none.

    Whatever is measured, the process may have work queued there: the profiler records it, and every measurement waits
    for it.
    """
    for live in _live_kinds().values():
        if live.is_there():
            return live
    raise AssertionError  # The CPU is always there.


@contextmanager
def looking_without_use() -> Iterator[None]:
    """Let torch look for devices without beginning to use them, where it can."""
    with ExitStack() as looking:
        for live in _live_kinds().values():
            looking.enter_context(live.looking_without_use())
        yield


@contextmanager
def before_use(do: Callable[[], None]) -> Iterator[None]:
    """Call a function whenever this process begins to use devices of a kind, without asking whether they exist."""
    with ExitStack() as watched:
        for live in _live_kinds().values():
            watched.enter_context(live.before_use(do))
        yield


def why_unusable(device: str) -> Reason | None:
    """Return the reason why this process can no longer use the device; None if it can."""
    live, beside = type(live_device(device)), accelerator()
    # A session also records the accelerator beside the CPU, if it can still be used.
    why_beside = beside.why_unusable()
    return why_beside if live is beside else live.why_unusable()


def synchronize(device: str) -> None:
    """Wait for all work that this process has queued, on `device` and others; the profiler waits only for one."""
    accelerator().settle(device)


class MeasuredCodeFailed(Exception):
    """Carries the measured code's own GPU error to the place that raises it as such."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


@contextmanager
def after_measured_code() -> Iterator[None]:
    """Raise MeasuredCodeFailed with an error of the GPU that comes up inside: the measured code queued its cause."""
    try:
        yield
    except RuntimeError as error:
        error.add_note(
            "It came up while the plugin waited for what the measured code had queued on the GPU; with "
            "CUDA_LAUNCH_BLOCKING=1 it is raised at the call that queued it."
        )
        raise MeasuredCodeFailed(error) from None
