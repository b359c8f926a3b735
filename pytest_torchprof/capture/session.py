"""Sessions of torch's profiler, the process's first one too: watched for other profilers, always ended."""

from __future__ import annotations

import sys
import threading
import time
from contextlib import ExitStack, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, Self

from pytest_torchprof.capture import reasons, torch_profiler, torch_profiler_calls
from pytest_torchprof.capture.devices import (
    Peaks,
    Replays,
    accelerator,
    after_measured_code,
    live_device,
)
from pytest_torchprof.capture.handed_over import PATIENCE_S, HandedOver
from pytest_torchprof.capture.lines import Lines
from pytest_torchprof.capture.profiler_lines import without_profiler_lines
from pytest_torchprof.capture.sentinel import launch_sentinel
from pytest_torchprof.capture.this_process import this_process
from pytest_torchprof.capture.torch_lists import tensor_lists
from pytest_torchprof.devices.kinds import kind_of
from pytest_torchprof.devices.range_names import step_name
from pytest_torchprof.reasons.capturing import (
    BuffersFull,
    CollectionSwitchedOff,
    EventsTaken,
    MemoryUncounted,
    NoKineto,
    NothingHeld,
    OtherThreadNotDone,
    PeakWasReset,
    ProfilerEnded,
    ProfilerInside,
    ProfilerOnOtherThread,
    ProfilerRuns,
    ThreadOfProfiler,
)
from pytest_torchprof.reasons.errors import NotMeasured
from pytest_torchprof.reasons.errors import hide_our_frames as __tracebackhide__  # noqa: F401  (read by pytest)
from pytest_torchprof.reasons.gpu_trouble import GpuFailedAtStop

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import torch
    from torch.profiler.profiler import _KinetoProfile

    from pytest_torchprof.capture.devices import LiveDevice
    from pytest_torchprof.capture.torch_profiler_calls import ProfilerStart, SwitchedOff
    from pytest_torchprof.reasons.reason import Reason
    from pytest_torchprof.trace.captured_graphs import CapturedGraph
    from pytest_torchprof.trace.metadata import TensorLists


class Session:
    """A context manager: begins recording on entry; `finish` ends it properly, leaving it otherwise drops it all.

    After `finish`: `problem` says why the recording must not be believed (None: nothing was seen), `exportable`
    whether it may be written at all, `devices` which GPUs were in use, `memory` what the recording's own key says
    of their allocator's peak, `replays` which CUDA graphs the measured calls replayed, `cpu_times_us` the
    CPU time of the thread in each step. After `export`: `tensor_lists` says what the trace does not of lists.
    `events_alone`: neither what operators are given is recorded, nor all that the compiler does.
    """

    def __init__(self, device: str, record: frozenset[str] = frozenset(), *, events_alone: bool = False) -> None:
        self._device = device
        self._beside: type[LiveDevice] = accelerator()
        self._record = record
        self._events_alone = events_alone
        self._thread = threading.get_ident()
        self._profiler: _KinetoProfile | None = None
        self._starts: list[ProfilerStart] = []
        self._switched_off: list[SwitchedOff] = []
        self._watch = ExitStack()
        self._ended = False
        self.devices: tuple[int, ...] = ()
        self._handed_over = HandedOver()
        self.cpu_times_us: list[float] = []
        self.replays = Replays()
        self.problem: Reason | None = None
        self.exportable = False
        self.tensor_lists: tuple[TensorLists, ...] | None = None
        self.memory: dict[str, object] = {"peak_memory_bytes": None}
        self._counts_memory: bool | None = None
        self._peaks = Peaks()
        # torch marks the modules in the Python frames that it records for stacks, and nowhere else.
        self._with_stack = bool(record & {"stacks", "modules"})
        self._lines = Lines() if self._with_stack or "lines" in record else None
        self._profiled_by: Any = None

    def __enter__(self) -> Self:
        refuse_second_profiler()
        if not torch_profiler.records_files():  # pragma: no cover - some builds of torch
            raise NotMeasured(NoKineto())
        profiler = torch_profiler.profiler(
            self._beside.activities(),
            with_stack=self._with_stack,
            profile_memory="memory" in self._record,
            with_operands=not self._events_alone,
            with_events=self._looks_into_lists,
        )
        # Before the profiler starts: its own kernel or fill would be outside the sentinel's range.
        spare = self._sentinel_tensor()
        if self._lines is not None and kind_of(self._device).has_launches:
            self._lines.watch_backward(self._device)
        with without_profiler_lines():
            torch_profiler.prepare(profiler, loads_compiler=not self._events_alone)
        # Work that is still queued would run inside the window without a launch in it.
        self._beside.settle(self._device)
        # torch records stacks by a profile function, which replaces any other.
        self._profiled_by = sys.getprofile() if self._with_stack else None
        with without_profiler_lines():
            profiler.start_trace()
        self._profiler = profiler
        try:
            self._starts = self._watch.enter_context(torch_profiler_calls.profiler_starts())
            self._switched_off = self._watch.enter_context(torch_profiler_calls.switched_off())
            self.replays = self._watch.enter_context(self._beside.replays())
            self._watch.enter_context(torch_profiler.custom_operators_recorded())
            launch_sentinel(spare, self._beside)
            del spare
            if self._counts_memory:
                self.devices = self._beside.in_use(self._device)
                self._peaks = self._watch.enter_context(self._beside.peaks(self.devices))
        except BaseException:
            self._end()
            raise
        return self

    def _sentinel_tensor(self) -> torch.Tensor:
        import torch

        try:
            spare = torch.zeros(1, device=self._device)
        except Exception as error:  # noqa: BLE001 - what keeps us from measuring is no error of the test
            raise NotMeasured(reasons.of_device(self._device, error)) from None
        self._counts_memory = live_device(self._device).counts_memory()
        return spare

    @property
    def _looks_into_lists(self) -> bool:
        """Whether operators are the kernels: their names do not show the types of tensors in lists."""
        return not (kind_of(self._device).has_launches or self._events_alone)

    @property
    def threads(self) -> list[str]:
        """The names of the work that the measured calls handed to other threads."""
        return self._handed_over.names

    @property
    def captured_graphs(self) -> tuple[CapturedGraph, ...] | None:
        """The known captures of the graphs that the measured calls replayed; None if none is known."""
        return self._beside.captured_graphs(self.replays)

    @property
    def marked(self) -> bool:
        """Whether the recording has marks of the user's lines, all or some of them."""
        return self._lines is not None and self._lines.count > 0

    @property
    def all_lines_marked(self) -> bool | None:
        """Whether each line of the user's code that was reached left a mark; None without stacks."""
        return None if self._lines is None else self._lines.why_not is None

    @property
    def why_no_lines(self) -> Reason | None:
        """Why some lines left no mark; None where every line left its mark."""
        return None if self._lines is None else self._lines.why_not

    @contextmanager
    def step(self, index: int) -> Iterator[None]:
        """Mark one measured call in the recording."""
        from torch.profiler import record_function

        with after_measured_code() if index else nullcontext():
            if self._counts_memory:
                self._peaks.look(self.devices)
            live_device(self._device).mark_boundary()
        began_under = len(self._starts)
        # Ours stays outside of the range, whose time is the measured code's: the first time it takes milliseconds.
        with self._handed_over.noted(), self._lines or nullcontext():
            marked = record_function(step_name(index))
            marked.__enter__()  # type: ignore[no-untyped-call]
            began_ns = time.thread_time_ns()
            if self._lines is not None:
                self._lines.mark()
            try:
                yield
            finally:
                self.cpu_times_us.append((time.thread_time_ns() - began_ns) / 1000)
                if len(self._starts) > began_under and torch_profiler.running_profiler() == ThreadOfProfiler.THIS:
                    # A profiler that was started inside is still running. The range began in a session that is gone:
                    # to end it now would write into freed memory.
                    this_process().leave_open(marked)
                else:
                    marked.__exit__(None, None, None)

    def finish(self) -> None:
        """Wait for the GPUs, stop the profiler and decide what can be believed."""
        if kind_of(self._device).has_launches:
            self._wait_for_threads()
        # Looked up again: the measured code may have used a device that was idle before.
        self.devices = self._beside.in_use(self._device)
        with after_measured_code():
            self._beside.synchronize(self.devices)
        if self._counts_memory:
            peak = self._peaks.largest_bytes(self.devices)
            self.memory = {"peak_memory_bytes": peak}
            if self._peaks.was_reset_unseen:
                self.memory = {"peak_memory_bytes": None, "peak_memory_why_not": PeakWasReset().to_plain()}
        elif self._counts_memory is False:
            self.memory = {"peak_memory_bytes": None, "peak_memory_why_not": MemoryUncounted().to_plain()}
        early = torch_profiler.stopped_early()
        self._end()
        if early and not self.problem:
            self.problem = BuffersFull()
        if self._switched_off and not self.problem:
            first = self._switched_off[0]
            self.problem = CollectionSwitchedOff(first.line, first.function)

    def _wait_for_threads(self) -> None:
        """Let other threads finish their work while it is recorded; NotMeasured if it takes too long."""
        with after_measured_code():
            late = self._handed_over.why_unfinished(lambda: self._beside.settle(self._device))
        if late is not None:
            raise NotMeasured(OtherThreadNotDone(late, PATIENCE_S))

    def export(self, path: Path) -> None:
        """Write the trace, once, and release the profiler and everything that it holds but `tensor_lists`."""
        profiler, self._profiler = self._profiler, None
        if profiler is None or not self.exportable:
            raise NotMeasured(self.problem or NothingHeld())
        profiler.export_chrome_trace(str(path))
        self.tensor_lists = tensor_lists(profiler, path) if self._looks_into_lists else None

    def __exit__(self, *_: object) -> None:
        self._end()
        self._profiler = None

    def _end(self) -> None:
        """Stop the profiler once, if it is still ours. An error of the GPU must not hide the test's."""
        if self._ended or self._profiler is None:
            return
        self._ended = True
        self._watch.close()
        self.problem = self._intrusion()
        if self.problem is None:
            try:
                with without_profiler_lines():
                    error = torch_profiler.stop(self._profiler)
            finally:
                _put_profile_function_back(self._profiled_by)
            if error is not None:
                self.problem = GpuFailedAtStop(reasons.line_of_error(error))
            elif torch_profiler.was_emptied(self._profiler):
                self.problem = EventsTaken()
            self.exportable = self.problem is None

    def _intrusion(self) -> Reason | None:
        """Return which other profiler broke into this session; ours is then gone, and must not be stopped."""
        running = torch_profiler.running_profiler()
        here = [start for start in self._starts if start.thread == self._thread]
        elsewhere = [start for start in self._starts if start.thread != self._thread]
        if elsewhere and self._profiler:
            this_process().hold(self._profiler)
            this_process().free_this_thread()
            return ProfilerOnOtherThread(elsewhere[0].line)
        if here:
            return ProfilerInside(here[0].line, left_running=bool(running))
        if running != ThreadOfProfiler.THIS:
            torch_profiler.forget_running_profiler()
            return ProfilerEnded()
        return None


def another_profiler_runs() -> ThreadOfProfiler | None:
    """Return where a profiler runs while none of ours does; None if none runs."""
    this_process().free_this_thread()
    return torch_profiler.running_profiler()


def refuse_second_profiler() -> None:
    """Raise NotMeasured if a profiler is running: torch would silently let a second one empty it."""
    if thread := another_profiler_runs():
        raise NotMeasured(ProfilerRuns(thread))


def _put_profile_function_back(before: Any) -> None:
    """Restore the profile function of this thread, or, before Python 3.12, cProfile."""
    if callable(before):
        sys.setprofile(before)
    elif hasattr(before, "enable"):
        before.enable()
