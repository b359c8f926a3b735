"""torch's one profiler in a process: its private names, what its sessions have shown, its lines on stderr.

Run with torch 2.10.0, 2.13.0 and 2.15.0 on Python 3.11.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
import threading
import warnings
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_torchprof.reasons.capturing import ThreadOfProfiler

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from types import FrameType

    from torch._C._profiler import _ExperimentalConfig
    from torch.profiler import ProfilerActivity
    from torch.profiler.profiler import _KinetoProfile

    from pytest_torchprof.reasons.reason import Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfilerStart:
    """Someone started a profiler: on which thread, and from which line ("test_x.py:12") outside torch."""

    thread: int
    line: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchedOff:
    """Someone kept the running profiler from recording: from which line, and by which function, as a user calls it."""

    line: str
    function: str


def profiler(
    activities: Sequence[ProfilerActivity],
    *,
    with_stack: bool = False,
    profile_memory: bool = False,
    with_operands: bool = True,
    with_events: bool = False,
) -> _KinetoProfile:
    """Return torch's low-level profiler: it knows no schedule and leaves no step counter behind.

    It is asked only for the file, not for torch's own list of events, which takes longer to free than the file takes to
    read; ``with_events`` asks for the list too, for facts that only it has. ``with_operands``: with what operators are
    given, which is most of what stopping and writing take.
    Operators on other threads of the measured code are not recorded, as ever in torch: with `profile_all_threads`
    torch no longer says whether a profiler runs on this thread, and that guards the process against a crash.
    """
    from torch.profiler.profiler import _KinetoProfile

    return _KinetoProfile(
        activities=activities,
        record_shapes=with_operands,
        with_stack=with_stack,
        profile_memory=profile_memory,
        # torch builds its stacks from the list of events.
        experimental_config=None if with_stack or with_events else _file_only(),
    )


def prepare(profiler: _KinetoProfile, *, loads_compiler: bool = True) -> None:
    """Prepare a session, which takes torch longer than starting it.

    torch 2.10 then warns of losses between cycles, though a session has only one; in a test that may be an error.
    It begins with an import of the compiler, two seconds, to look at a setting for CUDA graphs: without
    ``loads_compiler`` not where only the CPU is recorded.
    """
    if not (loads_compiler or profiler.use_device or "torch._inductor" in sys.modules):
        profiler.profiler = _autograd_profiler().profile(
            use_cpu=True,
            record_shapes=profiler.record_shapes,
            profile_memory=profiler.profile_memory,
            with_stack=profiler.with_stack,
            use_kineto=True,
            experimental_config=profiler.experimental_config,
        )
        profiler.profiler._prepare_trace()
        return
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Warning: Profiler clears events", UserWarning)
        profiler.prepare_trace()


def _file_only() -> _ExperimentalConfig | None:
    from torch._C._profiler import _ExperimentalConfig

    try:
        return _ExperimentalConfig(trace_only=True)
    except TypeError:
        return None


def lacks_file_only() -> bool:
    """Return whether torch cannot be asked only for the file, though it is new enough: the option is private."""
    import torch

    return torch.__version__ >= "2.13" and _file_only() is None


def mark_in_recording() -> Callable[[str], None]:
    """Return a function that leaves a mark, a range as short as possible, of a given name in the running recording."""
    kind = import_module("torch._C._profiler")._RecordFunctionFast

    def mark(name: str) -> None:
        with kind(name):
            pass

    return mark


def _autograd_profiler() -> Any:
    return import_module("torch.autograd.profiler")


def records_files() -> bool:
    """Return whether this build of torch has kineto, without which the profiler only makes tables."""
    import torch

    return torch._C._autograd.kineto_available()


def records_this_thread() -> bool:
    """Return whether operators of the calling thread are recorded."""
    import torch

    return bool(torch._C._autograd._profiler_enabled())


def running_profiler() -> ThreadOfProfiler | None:
    """Return where a profiler is running; None: nowhere."""
    import torch

    if torch._C._autograd._profiler_enabled():
        return ThreadOfProfiler.THIS
    return ThreadOfProfiler.OTHER if _some_profiler_runs() else None


def _some_profiler_runs() -> bool:
    # One flag for the process; every profiler that is started from Python sets it, and clears it when it stops.
    return bool(getattr(_autograd_profiler(), "_is_profiler_enabled", False))


def forget_running_profiler() -> None:
    """Clear the flag that a session of ours set, after a call that ended the session and left the flag."""
    _autograd_profiler()._is_profiler_enabled = False


@contextmanager
def profiler_starts() -> Iterator[list[ProfilerStart]]:
    """Note every profiler that is started meanwhile, on any thread.

    torch has no hook for it, and its flags do not distinguish a session that was taken over from one that still runs;
    but stopping or exporting a session that lost its place ends the process (torch 2.13).
    """
    module = _autograd_profiler()
    starts: list[ProfilerStart] = []
    enable = module._enable_profiler

    def noting(*args: Any, **kwargs: Any) -> None:
        enable(*args, **kwargs)
        starts.append(ProfilerStart(thread=threading.get_ident(), line=_line_outside_torch()))

    module._enable_profiler = noting
    try:
        yield starts
    finally:
        module._enable_profiler = enable


@contextmanager
def switched_off() -> Iterator[list[SwitchedOff]]:
    """Note what switches the running profiler's collection off meanwhile, or the recording of operators on a thread.

    torch leaves no trace of either, and says until the end that it records. Who has taken a function out of torch's
    modules before calls it unnoticed.
    """
    calls: list[SwitchedOff] = []
    switches = [
        (holder, name, original)
        for holder in (_autograd_profiler(), import_module("torch.autograd"), import_module("torch._C._autograd"))
        for name in _SWITCHES
        if (original := getattr(holder, name, None)) is not None
    ]
    for holder, name, original in switches:
        setattr(holder, name, _noting_switch(name, original, calls))
    try:
        yield calls
    finally:
        for holder, name, original in switches:
            setattr(holder, name, original)


def _noting_switch(name: str, original: Callable[..., Any], calls: list[SwitchedOff]) -> Callable[..., Any]:
    def noting(enable: bool, *args: Any, **kwargs: Any) -> Any:
        if not enable:
            calls.append(SwitchedOff(line=_line_outside_torch(), function=_SWITCHES[name]))
        return original(enable, *args, **kwargs)

    return noting


_SWITCHES = {
    "_toggle_collection_dynamic": "toggle_collection_dynamic",
    "_enable_record_function": "_enable_record_function",
}
"""torch's functions, and what a user calls."""


@contextmanager
def before_profilers(do: Callable[[], None]) -> Iterator[None]:
    """Call a function whenever someone is about to start a profiler, on any thread."""
    module = _autograd_profiler()
    prepare = module._prepare_profiler

    def preparing(*args: Any, **kwargs: Any) -> Any:
        do()
        return prepare(*args, **kwargs)

    module._prepare_profiler = preparing
    try:
        yield
    finally:
        module._prepare_profiler = prepare


def _line_outside_torch() -> str:
    import torch

    inside = (__file__, str(Path(torch.__file__).parent) + os.sep)
    frame: FrameType = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(inside):
        frame = frame.f_back
    return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"


def stop(profiler: _KinetoProfile) -> Exception | None:
    """Stop a session, and return the GPU's error from the wait with which torch begins that; None without one."""
    try:
        profiler.stop_trace()
    except BaseException as error:
        _stop_without_waiting()
        if not isinstance(error, Exception):
            raise
        return error
    return None


def _stop_without_waiting() -> None:
    """Stop the session that is running; leaving it would crash the process at its exit."""
    import torch

    try:
        if torch._C._autograd._profiler_enabled():
            torch._C._autograd._disable_profiler()
    finally:
        forget_running_profiler()


def was_emptied(profiler: _KinetoProfile) -> bool:
    """Return whether a stopped profiler holds nothing because another one took its events; exporting it would crash."""
    results = profiler.profiler.kineto_results if profiler.profiler else None
    return results is None or results.trace_start_ns() == 0


def stopped_early() -> bool:
    """Return whether kineto itself stopped collecting from the GPU, as it does when its buffers are full."""
    import torch

    stopped = getattr(torch._C._autograd, "_is_kineto_stopped", None)
    return bool(stopped and stopped())


def abandon(profiler: _KinetoProfile) -> bool:
    """Give up a session that a profiler on another thread took over; return whether this thread is free for the next.

    Merely stopping it would end the process (torch 2.13: no session is active), so a helper thread begins one for it to
    stop. While the other profiler still runs nothing is done: stopping ours would take its session away.
    """
    import torch

    if not torch._C._autograd._profiler_enabled():
        return True
    if _some_profiler_runs():
        return False
    helper = threading.Thread(target=_begin_session)
    helper.start()
    helper.join()
    stop(profiler)
    return True


def _begin_session() -> None:
    from torch.profiler import ProfilerActivity

    begun = profiler([ProfilerActivity.CPU])
    prepare(begun)
    begun.start_trace()


_STDERR = 2

# torch 2.13 writes these two lines per session straight to the file descriptor, whatever KINETO_LOG_LEVEL says.
# Its build for CUDA asks for GPUs even without a driver, and calls it an error that there are none.
_CHATTER = re.compile(
    rb"^(?:USDT:[^\n]*\bprofiler_(?:start|stop)|ERROR:[^\n]*\bgpuGetDeviceCount failed with code \d+"
    rb"|\[W[^\n]* execution_trace_observer\.cpp:[^\n]*)\n?",
    re.MULTILINE,
)
# A profiler session can lose kernels at its head, one more with each session of the process that followed some idle
# time (the GPU's time stamps are registered anew each time: pytorch#192021). The sentinel's kernels are there to be
# lost, and some more than the last one is known to have lost. Sessions that are not ours add to it too.
_SPARE_KERNELS = 8
_LOOK_EVERY = 16
"""After this many sessions the lost kernels are counted: reading each recording for that would take longer."""
_LONGER = 8
_MOST_BLINDLY = 4096
"""The longest sentinel: if all kernels were lost, the cause may be one that no sentinel mends."""


@dataclass(slots=True)
class Process:
    """The experience of this process's sessions, and the one session that holds a thread it cannot leave."""

    sentinel: int = _SPARE_KERNELS
    """How many kernels the last session's sentinel launched."""
    sessions: int = 0
    """How many sessions had a sentinel since its lost kernels were last counted."""
    unusable: Reason | None = None
    """Why this process cannot use its GPUs any more."""
    stuck: _KinetoProfile | None = None
    stuck_thread: int = 0
    ranges: list[object] = field(default_factory=list)
    """Ranges that can only be ended once the profiler that broke into them has stopped."""

    def next_sentinel(self) -> int:
        """Return how many kernels the sentinel of a new session launches: one more than that of the last."""
        self.sessions += 1
        self.sentinel += 1
        return self.sentinel

    @property
    def looks_for_losses(self) -> bool:
        """Whether it is time to count the kernels that the last session's sentinel has lost."""
        return self.sessions >= _LOOK_EVERY

    def sentinel_lost(self, kernels: int) -> None:
        """Take note of how many kernels the last session's sentinel lost: if all were lost, it was too short."""
        longer = max(self.sentinel, min(_LONGER * self.sentinel, _MOST_BLINDLY))
        self.sentinel = kernels + _SPARE_KERNELS if kernels < self.sentinel else longer
        self.sessions = 0

    def hold(self, taken_over: _KinetoProfile) -> None:
        """Keep a session of this thread that a profiler on another thread has taken over."""
        self.stuck, self.stuck_thread = taken_over, threading.get_ident()

    def free_this_thread(self) -> None:
        """Make this thread fit for a new session again, unless the profiler that took its last one still runs."""
        if self.ranges and not running_profiler():
            self.ranges.clear()
        if self.stuck is None or self.stuck_thread != threading.get_ident():
            return
        with without_profiler_lines():
            freed = abandon(self.stuck)
        if freed:
            self.stuck = None


@cache
def this_process() -> Process:
    """Return the one Process of this interpreter."""
    return Process()


@contextmanager
def without_profiler_lines() -> Iterator[None]:
    """Hold file descriptor 2 back for a moment, then pass on everything but the profiler's own lines.

    Meant for the few calls that start and stop the profiler: what other threads write meanwhile arrives late, not
    never. (A process that another thread spawns in these microseconds would keep the held file as its stderr.)
    """
    try:
        saved = os.dup(_STDERR)
    except OSError:  # no stderr at all: nothing to keep clean
        yield
        return
    held = _held_file()
    try:
        os.dup2(held, _STDERR)
        try:
            yield
        finally:
            os.dup2(saved, _STDERR)
            os.close(saved)
            _pass_on(held)
    finally:
        os.close(held)


def _held_file() -> int:
    """Return the descriptor of a new file: in memory where the system has such files, every test needs two of them."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("stderr")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def _pass_on(held: int) -> None:
    length = os.lseek(held, 0, os.SEEK_END)
    rest = _CHATTER.sub(b"", os.pread(held, length, 0)) if length else b""
    while rest:
        rest = rest[os.write(_STDERR, rest) :]


@contextmanager
def custom_operators_recorded() -> Iterator[None]:
    """Let the dispatcher call operators that are made in Python, so that the profiler records them.

    torch 2.15 calls these past its dispatcher (``OpOverload._enable_pyobj_dispatch``), which leaves no event. Run with
    torch 2.13, which has no such way, and 2.15.
    """
    can_be_passed = hasattr(import_module("torch._ops").OpOverload, "_enable_pyobj_dispatch")
    definitions = getattr(import_module("torch._library.custom_ops"), "OPDEFS", {}) if can_be_passed else {}
    operators: list[Any] = [getattr(definition, "_opoverload", None) for definition in list(definitions.values())]
    passed_by = [op for op in operators if getattr(op, "_pyobj_dispatcher", None) is not None]
    for op in passed_by:
        op._enable_pyobj_dispatch(False)
    try:
        yield
    finally:
        for op in passed_by:
            op._enable_pyobj_dispatch(True)


@contextmanager
def execution_trace(file: Path) -> Iterator[bool]:
    """Let torch note in a file which operators and ranges run inside; yield False if somebody else already does so.

    Not by ``ExecutionTraceObserver``: that would end the other trace, and the process with it (torch 2.15).
    """
    profiler: Any = import_module("torch._C._profiler")
    with without_profiler_lines():
        begun = profiler._add_execution_trace_observer(str(file)) and file.exists()
        if begun:
            profiler._enable_execution_trace_observer()
    try:
        yield begun
    finally:
        if begun:
            with without_profiler_lines():
                profiler._disable_execution_trace_observer()
                profiler._remove_execution_trace_observer()
