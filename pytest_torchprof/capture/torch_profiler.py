"""torch's one profiler in a process: how a session of it begins and ends, and what it can record; by its private names.

Run with torch 2.10.0, 2.13.0 and 2.15.0 on Python 3.11.
"""

from __future__ import annotations

import sys
import threading
import warnings
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from pytest_torchprof.capture.profiler_lines import without_profiler_lines
from pytest_torchprof.reasons.capturing import ThreadOfProfiler

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from torch._C._profiler import _ExperimentalConfig
    from torch.profiler import ProfilerActivity
    from torch.profiler.profiler import _KinetoProfile


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
    ``loads_compiler`` not where only the CPU is recorded, but for what the first call of a user's operator imports.
    """
    if not (loads_compiler or profiler.use_device or "torch._inductor" in sys.modules):
        if "torch._dynamo" not in sys.modules and any(map(_is_of_users, _made_in_python())):
            # In the measured call it would be a second of work that leaves no event.
            import_module("torch._dynamo")
        profiler.profiler = autograd_profiler().profile(
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

    return _file_only_of(_ExperimentalConfig)


@cache
def _file_only_of(kind: type[_ExperimentalConfig]) -> _ExperimentalConfig | None:
    """Return torch's settings that ask for the file alone, of which it changes copies; None if it has no such one."""
    try:
        return kind(trace_only=True)
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


def autograd_profiler() -> Any:
    """Return the module whose functions every profiler of torch begins and ends with."""
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
    return bool(getattr(autograd_profiler(), "_is_profiler_enabled", False))


def forget_running_profiler() -> None:
    """Clear the flag that a session of ours set, after a call that ended the session and left the flag."""
    autograd_profiler()._is_profiler_enabled = False


def stop(profiler: _KinetoProfile) -> Exception | None:
    """Stop a session, and return the GPU's error from the wait with which torch begins that; None if there is none."""
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


@contextmanager
def custom_operators_recorded() -> Iterator[None]:
    """Let the dispatcher call operators that are made in Python, so that the profiler records them.

    torch 2.15 calls these past its dispatcher (``OpOverload._enable_pyobj_dispatch``), which leaves no event. Run with
    torch 2.13, which has no such way, and 2.15.
    """
    passed_by = _passed_by()
    for op, _, _ in passed_by:
        op._enable_pyobj_dispatch(False)
    try:
        yield
    finally:
        _let_pass_by(passed_by)


def _made_in_python() -> list[Any]:
    """Return the definitions of the operators that are made in Python, by users and by torch itself."""
    # torch itself makes a hundred: ``values()`` looks at the dictionary again for each.
    references = import_module("torch._library.custom_ops").OPDEFS.valuerefs()
    return [definition for held in references if (definition := held()) is not None]


def _is_of_users(definition: Any) -> bool:
    """Whether an operator is made outside of torch (run with 2.13 and 2.15), or may be where that is not to be seen."""
    return not getattr(getattr(definition, "_init_fn", None), "__module__", "").startswith("torch.")


def _passed_by() -> list[tuple[Any, Any, Any]]:
    """Return the operators that torch calls past its dispatcher, each with the way past it and what is called."""
    if not hasattr(import_module("torch._ops").OpOverload, "_enable_pyobj_dispatch"):
        return []
    operators = [definition._opoverload for definition in _made_in_python()]
    try:
        return [(op, op._pyobj_dispatcher, op._op) for op in operators if op._pyobj_dispatcher is not None]
    except AttributeError:  # A torch that keeps them under other names.
        return [(op, None, None) for op in operators if op._is_pyobj_dispatcher_enabled()]


def _let_pass_by(operators: Iterable[tuple[Any, Any, Any]]) -> None:
    """Let torch call the operators past its dispatcher as before; what somebody has made for one meanwhile stays.

    What stood is put back: torch would look through the schema of each and make all anew, in many times the time.
    """
    for op, dispatcher, call in operators:
        if dispatcher is None:
            op._enable_pyobj_dispatch(True)
        elif op._pyobj_dispatcher is None:
            op._pyobj_dispatcher, op._op = dispatcher, call


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
