"""The one file that reaches into torch's private names, each behind a function that says what it is for.

Run with torch 2.13.0, 2.14.1 and 2.15.0; names that older versions (from 2.6) may lack are looked up with a default.
"""

from __future__ import annotations

import gc
import logging
import os
import re
import sys
import sysconfig
import threading
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from types import CodeType, FrameType

    from torch._C._profiler import _ExperimentalConfig
    from torch.profiler import ProfilerActivity
    from torch.profiler.profiler import _KinetoProfile

# ----------------------------------------------------------------------------------------------------------------------
# Profiler


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfilerStart:
    """Someone started a profiler: on which thread, and from which line ("test_x.py:12") outside torch."""

    thread: int
    where: str


def profiler(
    activities: Sequence[ProfilerActivity],
    *,
    with_stack: bool = False,
    profile_memory: bool = False,
) -> _KinetoProfile:
    """Return torch's low-level profiler: it knows no schedule and leaves no step counter behind.

    It is asked for the file only, not for torch's own list of events, which takes longer to free than to read the file.
    Operators on threads of the measured code's own are not recorded, as ever in torch: with `profile_all_threads`
    torch no longer says whether a profiler runs on this thread, and that guards the process against a crash.
    """
    from torch.profiler.profiler import _KinetoProfile

    return _KinetoProfile(
        activities=activities,
        record_shapes=True,
        with_stack=with_stack,
        profile_memory=profile_memory,
        # torch builds its stacks from the list of events.
        experimental_config=None if with_stack else _file_only(),
    )


def _file_only() -> _ExperimentalConfig | None:
    from torch._C._profiler import _ExperimentalConfig

    try:
        return _ExperimentalConfig(trace_only=True)
    except TypeError:  # pragma: no cover - before torch 2.13
        return None


def mark_in_recording() -> Callable[[str], None]:
    """Return what leaves a mark, a range as short as can be, of a given name in the recording that is running."""
    kind = getattr(import_module("torch._C._profiler"), "_RecordFunctionFast", None)
    if kind is None:  # pragma: no cover - before torch 2.2
        kind = import_module("torch.profiler").record_function

    def mark(name: str) -> None:
        with kind(name):
            pass

    return mark


def _autograd_profiler() -> Any:
    return import_module("torch.autograd.profiler")


def records_files() -> bool:
    """Whether this build of torch has kineto, without which the profiler only makes tables."""
    import torch

    return torch._C._autograd.kineto_available()


def running_profiler() -> str | None:
    """Return where a profiler is running, "on this thread" or "on another thread"; None where none is."""
    import torch

    if torch._C._autograd._profiler_enabled():
        return "on this thread"
    return "on another thread" if _some_profiler_runs() else None


def _some_profiler_runs() -> bool:
    # One flag for the process; every profiler that is started from Python sets it, and clears it when it stops.
    return bool(getattr(_autograd_profiler(), "_is_profiler_enabled", False))


def forget_running_profiler() -> None:
    """Clear the flag that a session of ours set, after it was ended by a call that left the flag standing."""
    _autograd_profiler()._is_profiler_enabled = False


@contextmanager
def profiler_starts() -> Iterator[list[ProfilerStart]]:
    """Note every profiler that is started meanwhile, on any thread.

    torch has no hook for it, and its flags do not tell a session that was taken over from one that still runs; but to
    stop a session that lost its place, or to export it, ends the process (torch 2.13).
    """
    module = _autograd_profiler()
    starts: list[ProfilerStart] = []
    enable = module._enable_profiler

    def noting(*args: Any, **kwargs: Any) -> None:
        enable(*args, **kwargs)
        starts.append(ProfilerStart(thread=threading.get_ident(), where=_line_outside_torch()))

    module._enable_profiler = noting
    try:
        yield starts
    finally:
        module._enable_profiler = enable


def _line_outside_torch() -> str:
    import torch

    inside = (__file__, str(Path(torch.__file__).parent) + os.sep)
    frame: FrameType = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(inside):
        frame = frame.f_back
    return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"


def stop(profiler: _KinetoProfile) -> Exception | None:
    """Stop a session, and return the error of the GPU that the wait for it, with which torch begins, raised."""
    try:
        profiler.stop_trace()
    except BaseException as error:  # pragma: needs gpu
        _stop_without_waiting()
        if not isinstance(error, Exception):
            raise
        return error
    return None


def _stop_without_waiting() -> None:  # pragma: needs gpu
    """Stop the session that is running; to leave it would end the process with a crash at its exit."""
    import torch

    try:
        if torch._C._autograd._profiler_enabled():
            torch._C._autograd._disable_profiler()
    finally:
        forget_running_profiler()


def was_emptied(profiler: _KinetoProfile) -> bool:
    """Whether a stopped profiler holds nothing because another one took its events; exporting it would crash."""
    results = profiler.profiler.kineto_results if profiler.profiler else None
    return results is None or results.trace_start_ns() == 0


def stopped_early() -> bool:
    """Whether kineto itself gave up collecting from the GPU, as it does when its buffers are full."""
    import torch

    stopped = getattr(torch._C._autograd, "_is_kineto_stopped", None)
    return bool(stopped and stopped())


def has_context(index: int) -> bool:  # pragma: needs gpu
    """Whether this process holds a context on that GPU; True where torch does not tell."""
    import torch

    tell = getattr(torch._C, "_cuda_hasPrimaryContext", None)
    return bool(tell(index)) if tell else True


def spin(device: str, cycles: int) -> bool:  # pragma: needs gpu
    """Keep a GPU's current stream busy for so many cycles of its clock, without use of memory; False if torch cannot.

    Run with torch 2.15 (CUDA); undocumented, and in torch since long before 2.6.
    """
    import torch

    sleep = getattr(torch.cuda, "_sleep", None)
    if sleep is None:
        return False
    with torch.cuda.device(device):
        sleep(cycles)
    return True


def cannot_use_gpus_since_fork() -> bool:
    """Whether this process was forked from one that had asked for its GPUs: CUDA refuses to begin again in it."""
    tell = getattr(import_module("torch.cuda"), "_is_in_bad_fork", None)
    return bool(tell and tell())


def abandon(profiler: _KinetoProfile) -> bool:
    """Give up a session that a profiler on another thread took over; whether this thread is free for the next one.

    Just to stop it would end the process (torch 2.13: no session is active), so a helper thread begins one for it to
    stop. While the other profiler still runs nothing is done: to stop ours would take its session away.
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
    begun.prepare_trace()
    begun.start_trace()


def precision_flags() -> dict[str, object]:
    """Return `tf32_matmul`, `tf32_cudnn` and `matmul_precision` as torch has them set; None where it will not say.

    Since 2.9 torch has two sets of these flags, and asking by the older one raises once the newer one was used.
    """
    import torch

    precision = getattr(torch._C, "_get_fp32_precision_getter", None)
    if precision:
        matmul, convolution = precision("cuda", "matmul") == "tf32", precision("cuda", "conv") == "tf32"
    else:
        matmul, convolution = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    try:
        overall: str | None = torch.get_float32_matmul_precision()
    except RuntimeError:
        overall = None
    return {"tf32_matmul": matmul, "tf32_cudnn": convolution, "matmul_precision": overall}


# ----------------------------------------------------------------------------------------------------------------------
# Dynamo (torch.compile); run with torch 2.13 on Python 3.11 and 3.13, with torch 2.6, 2.14.1 and 2.15.0 on Python 3.11.
# None from a reader means that this torch does not have the source; the evidence then says "not available".


class Place(NamedTuple):
    """A line of code."""

    file: str
    line: int
    function: str


class Reason(NamedTuple):
    """Why a graph ended, and the frames that led there, outermost first."""

    text: str
    stack: tuple[Place, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One compilation as Dynamo's metrics tell it; a backward has the id of its forward."""

    compile_id: str | None
    frame: Place | None
    failure: str | None
    failed_at: tuple[str, int] | None
    guard: str | None
    forward: bool
    skipped: bool
    """It ended without code and without a failure; before torch 2.13 a break in a loop may be behind it."""
    graph_ops: int
    """Calls in the graph that was made; 0 where none was."""
    times_us: dict[str, int]
    cudagraph_skip: str | None


class InductorGraph(NamedTuple):
    """One compiled graph that is alive in the process."""

    key: str | None
    code_hash: str | None
    code_path: str | None
    source: str
    cudagraph_skip: str | None


def dynamo_is_loaded() -> bool:
    """Whether anybody has used torch.compile so far; asking imports nothing."""
    return "torch._dynamo" in sys.modules


def compilation_metrics() -> list[Any] | None:
    """Return Dynamo's last compilations, 64 by default, as it keeps them; oldest first."""
    get = getattr(import_module("torch._dynamo.utils"), "get_compilation_metrics", None)
    return None if get is None else list(get())


def metrics_are_full(kept: int) -> bool:
    """Whether Dynamo has begun to forget its first compilations."""
    deque = getattr(import_module("torch._dynamo.utils"), "_compilation_metrics", None)
    limit = getattr(deque, "maxlen", None)
    return kept >= (64 if limit is None else limit)


_HERE = str(Path(__file__).parent) + os.sep
_PHASES = {
    "dynamo": "dynamo_cumulative_compile_time_us",
    "aot_autograd": "aot_autograd_cumulative_compile_time_us",
    "inductor": "inductor_cumulative_compile_time_us",
    "code_generation": "inductor_code_gen_cumulative_compile_time_us",
    "backward": "backward_cumulative_compile_time_us",
}


def read_attempt(metrics: Any) -> Attempt:
    """Return what one of the compilation metrics says; fields differ by version."""

    def field(name: str) -> Any:
        return getattr(metrics, name, None)

    frame = field("co_name") and Place(str(field("co_filename")), int(field("co_firstlineno") or 0), field("co_name"))
    file, line = field("fail_user_frame_filename"), field("fail_user_frame_lineno")
    identity = field("compile_id")
    return Attempt(
        compile_id=None if identity is None else str(identity),
        frame=frame or None,
        failure=None if not field("fail_type") else str(field("fail_reason") or field("fail_type")),
        failed_at=(str(file), int(line)) if file and line is not None else None,
        guard=field("recompile_reason") if hasattr(metrics, "recompile_reason") else _guard_that_failed(metrics),
        forward=field("is_forward") is not False,
        skipped=field("has_guarded_code") is False and not field("fail_type"),
        graph_ops=int(field("graph_op_count") or 0),
        times_us={phase: int(field(name)) for phase, name in _PHASES.items() if field(name)},
        cudagraph_skip=field("cudagraph_skip_reason"),
    )


def _guard_that_failed(metrics: Any) -> str | None:
    """Return why a frame was compiled again from the list of failed guards; the metrics of torch 2.6 do not say."""
    frame, _, attempt = str(getattr(metrics, "compile_id", None)).partition("/")
    if not getattr(metrics, "cache_size", None) or not attempt.isdecimal():
        return None
    failures = getattr(import_module("torch._dynamo.utils"), "guard_failures", {})
    told = [str(reason) for reasons in failures.values() for reason in reasons]
    last = [reason for reason in told if reason.startswith(f"{frame}/{int(attempt) - 1}:")]
    return last[-1] if last else "torch no longer has the guard that failed"


def break_reasons() -> list[Any] | None:
    """Return Dynamo's own list of graph breaks since its last reset; only those after which a graph went on."""
    return getattr(import_module("torch._dynamo.utils"), "graph_break_reasons", None)


def read_reason(reason: Any) -> Reason:
    """Return one entry of `break_reasons`."""
    stack = tuple(Place(f.filename, int(f.lineno or 0), f.name) for f in getattr(reason, "user_stack", ()))
    return Reason(str(reason.reason), stack)


def counted(group: str) -> dict[str, int]:
    """Return one group of Dynamo's counters ("frames", "unimplemented", "inductor"); empty where there is none."""
    counters = getattr(import_module("torch._dynamo.utils"), "counters", {})
    # Asking a missing key would make it.
    return dict(counters[group]) if group in counters else {}


def missing_records() -> str | None:
    """Return what this torch does not have of the records that graph breaks and recompiles are read from."""
    missing = [
        name
        for name, records in (
            ("compilation metrics", compilation_metrics()),
            ("graph break reasons", break_reasons()),
            ("list of the code that Dynamo has seen", considered_codes()),
        )
        if records is None
    ]
    return ", ".join(missing) or None


def considered_codes() -> list[CodeType] | None:
    """Return every code object that was handed to Dynamo since its last reset and is alive."""
    tracker = getattr(import_module("torch._dynamo.convert_frame"), "input_codes", None)
    seen = getattr(tracker, "seen", None)
    return None if seen is None else [code for code in (ref() for ref in seen) if code is not None]


def compiled_codes(code: CodeType) -> list[tuple[str, CodeType]]:
    """Return id ("0/1") and generated code of each compilation that this code object has."""
    entries = getattr(import_module("torch._dynamo.eval_frame"), "_debug_get_cache_entry_list", None)
    found = entries(code) if entries else ()
    # An entry whose guarded objects are gone stays in the list without its code.
    return [(str(getattr(entry, "compile_id", "?")), entry.code) for entry in found if entry.code is not None]


_RESUME = re.compile(r"__resume_at_(\d+)_\d+")


def lines_of_breaks(code: CodeType, generated: CodeType) -> set[int]:
    """Return the lines at which generated code hands over to what comes after a graph break; empty without one.

    The names of the resume functions hold the place in the bytecode to go on from, so the break is at that line or at
    the one of the instruction before.
    """
    names = (*generated.co_names, *generated.co_freevars)
    places = [int(match[1]) for match in map(_RESUME.match, names) if match]
    return {
        line
        for start, end, line in code.co_lines()
        if line is not None and any(start <= place < end or start <= place - 2 < end for place in places)
    }


def is_resumed(function: str) -> bool:
    """Whether this is the name of code after a graph break."""
    return function.startswith("torch_dynamo_resume_in_")


def name_in_source(function: str) -> str:
    """Return the name the user gave a function, for code after a graph break that of the function it is a part of."""
    match = re.fullmatch(r"torch_dynamo_resume_in_(.*)_at_\d+", function)
    return match[1] if match else function


def dynamo_skips(code: CodeType) -> bool:
    """Whether Dynamo leaves this code alone on purpose (torch's own code and the like)."""
    check = getattr(import_module("torch._dynamo.trace_rules"), "check", None)
    return bool(check and check(code))


@cache
def is_library_file(file: str) -> bool:
    """Whether a file belongs to torch or to Python itself, so that a line in it is no place to act on."""
    import torch

    python = sysconfig.get_path("stdlib") + os.sep
    installed = (f"{python}site-packages{os.sep}", f"{python}dist-packages{os.sep}")
    in_python = file.startswith(python) and not file.startswith(installed)
    return in_python or file.startswith((str(Path(torch.__file__).parent) + os.sep, "<"))


def is_library_code(code: CodeType) -> bool:
    """Whether code is what users compile of torch's own: the forward of its modules, the step of its optimizers."""
    return code.co_name in ("forward", "step") and any(
        f"{os.sep}torch{os.sep}{part}{os.sep}" in code.co_filename for part in ("nn", "optim")
    )


def is_module_wrapper(place: Place | None) -> bool:
    """Whether this is the one function that torch.compile puts around every torch.nn module."""
    return place is not None and place.function == "inner" and place.file.endswith("external_utils.py")


def runs_under_dynamo() -> bool:
    """Whether the code that runs now was entered through torch.compile, compiled or not."""
    ask = import_module("torch._C._dynamo.eval_frame").get_eval_frame_callback
    return ask() is not None


def keep_from_dynamo(code: CodeType) -> None:
    """Make sure that Dynamo neither compiles nor counts a function of ours that runs while it is at work."""
    skip = getattr(import_module("torch._dynamo.eval_frame"), "skip_code", None)
    if skip:
        skip(code)


def why_nothing_compiles() -> str | None:
    """Return the setting that keeps torch.compile from compiling right now, None if there is none."""
    stance = getattr(getattr(import_module("torch._dynamo.eval_frame"), "_stance", None), "stance", "default")
    if stance != "default":
        return stance_in_force(stance)
    if getattr(import_module("torch._dynamo.config"), "disable", False):
        return "torch.compile is disabled (TORCH_COMPILE_DISABLE=1 or torch._dynamo.config.disable)"
    return None


def stance_in_force(name: str) -> str:
    """Return how a stance is told of."""
    return f'torch.compiler.set_stance("{name}") was in force'


@contextmanager
def stances_noted(note: Callable[[str], None]) -> Iterator[None]:
    """Call `note` with each stance but the default one that is set meanwhile (`torch.compiler.set_stance`)."""
    module = sys.modules.get("torch._dynamo.decorators")
    set_stance = getattr(module, "_set_stance", None)
    if module is None or set_stance is None:
        yield
        return

    def noting(stance: Any) -> Any:
        name = getattr(stance, "stance", "default")
        if name != "default":
            note(name)
        return set_stance(stance)

    # It refuses to be traced by this mark.
    noting.__dict__.update(set_stance.__dict__)
    vars(module)["_set_stance"] = noting
    try:
        yield
    finally:
        vars(module)["_set_stance"] = set_stance


def on_compiled(note: Callable[[CodeType, CodeType, str | None, object], None]) -> Callable[[], None] | None:
    """Call `note(code, generated code, compile id, module)` for each frame that gets compiled; return how to stop.

    The module is the `self` of the frame, or what torch.compile's wrapper is around, where it is a torch.nn.Module.
    """
    register = getattr(import_module("torch._dynamo.convert_frame"), "register_bytecode_hook", None)
    if register is None:
        return None

    def hook(code: CodeType, generated: CodeType) -> None:
        identity = import_module("torch._guards").CompileContext.current_compile_id()
        note(code, generated, None if identity is None else str(identity), _module_being_compiled(code))

    remove: Callable[[], None] = register(hook).remove
    return remove


def user_stack() -> tuple[Place, ...]:
    """Return the frames outside torch and Python that led to where this is called, outermost first."""
    found: list[Place] = []
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        if not is_library_file(code.co_filename) and not code.co_filename.startswith(_HERE):
            found.append(Place(code.co_filename, frame.f_lineno, code.co_name))
        frame = frame.f_back
    return tuple(reversed(found))


def _module_being_compiled(code: CodeType) -> object:
    import torch

    frame: FrameType | None = sys._getframe(1)
    while frame is not None and not (frame.f_code.co_name == "_compile" and frame.f_locals.get("code") is code):
        frame = frame.f_back
    if frame is None:
        return None
    cells = frame.f_locals.get("closure") or ()
    if "fn" in code.co_freevars and len(cells) == len(code.co_freevars):
        wrapped = cells[code.co_freevars.index("fn")].cell_contents
        found = getattr(wrapped, "__self__", wrapped)
        return found if isinstance(found, torch.nn.Module) else None
    # Its own name for the module may be any, and code after a graph break has further arguments before it.
    modules = [v for v in dict(frame.f_locals.get("locals") or {}).values() if isinstance(v, torch.nn.Module)]
    return next((module for module in modules if _is_method_of(code, module)), None)


def _is_method_of(code: CodeType, holder: object) -> bool:
    method = getattr(getattr(type(holder), name_in_source(code.co_name), None), "__code__", None)
    return method is not None and (
        method is code or (is_resumed(code.co_name) and method.co_filename == code.co_filename)
    )


def trace_logger() -> logging.Logger | None:
    """Return the logger of what torch.compile writes for tlparse (``TORCH_TRACE``); None before torch is imported.

    torch makes its records only while the logger has a handler (run with torch 2.13.0, 2.14.1 and 2.15.0).
    """
    found = logging.Logger.manager.loggerDict.get("torch.__trace")
    return found if isinstance(found, logging.Logger) else None


# ----------------------------------------------------------------------------------------------------------------------
# Inductor; run with torch 2.13 to 2.15, and with torch 2.6, which leaves no range around the call of a graph

_CPU_KERNEL_PROFILING = "TORCHINDUCTOR_CPP_ENABLE_KERNEL_PROFILE"


@contextmanager
def cpu_kernels_profiled() -> Iterator[None]:
    """Let Inductor put a range around each C++ kernel that it generates meanwhile; off, they leave no event.

    Inductor is not imported for it: where nobody has, its environment variable is set, which it reads when imported.
    """
    loaded = sys.modules.get("torch._inductor.config")
    before = loaded.cpp.enable_kernel_profile if loaded else None
    variable = os.environ.get(_CPU_KERNEL_PROFILING)
    if loaded:
        loaded.cpp.enable_kernel_profile = True
    else:
        os.environ[_CPU_KERNEL_PROFILING] = "1"
    try:
        yield
    finally:
        if not loaded:
            _set_variable(_CPU_KERNEL_PROFILING, variable)
        config = sys.modules.get("torch._inductor.config")
        if config:
            config.cpp.enable_kernel_profile = variable == "1" if before is None else before


def _set_variable(name: str, value: str | None) -> None:
    if value is None:
        os.environ.pop(name, None)
    else:
        os.environ[name] = value


def inductor_graphs() -> list[InductorGraph]:
    """Return every graph of Inductor that is alive; it keeps no list of them, so the objects are looked for."""
    module = sys.modules.get("torch._inductor.output_code")
    kind = getattr(module, "CompiledFxGraph", None)
    if kind is None:
        return []
    # An object refers to its type; to ask for that is three times as fast as to look at all objects.
    return [_read_graph(found) for found in gc.get_referrers(kind) if type(found) is kind]


def calls_of_graphs_are_marked() -> bool:
    """Whether this torch puts a range with the graph's key around each call of a graph (2.13 does, 2.6 does not)."""
    kind = getattr(sys.modules.get("torch._inductor.output_code"), "CompiledFxGraph", None)
    code = getattr(vars(kind).get("__call__"), "__code__", None) if kind else None
    return code is None or any("CompiledFxGraph" in str(constant) for constant in code.co_consts)


def _read_graph(graph: Any) -> InductorGraph:
    code_hash = getattr(graph, "cache_key", None)
    get_path = getattr(import_module("torch._inductor.codecache"), "get_path", None)
    path = get_path(code_hash, "py")[2] if get_path and code_hash else None
    return InductorGraph(
        key=getattr(graph, "_fx_graph_cache_key", None),
        code_hash=code_hash,
        code_path=path if path and Path(path).is_file() else None,
        source=getattr(graph, "source_code", None) or "",
        cudagraph_skip=getattr(graph, "disabled_cudagraphs_reason", None),
    )


_CALLS_ATEN = re.compile(
    r"\b(?:extern_kernels|torch\.ops\.aten)\.(\w+)(?:\.\w+)?\(|\baoti_torch_(?:cpu|cuda|xpu)_(\w+)\("
)


def aten_calls(graph: InductorGraph) -> dict[str, int]:
    """Count the aten kernels that the generated code calls itself, by operator ("aten::mm")."""
    found = (match[1] or match[2] for match in _CALLS_ATEN.finditer(graph.source))
    return dict(Counter(f"aten::{name}" for name in found))


def has_unprofiled_cpu_kernels(graph: InductorGraph) -> bool:
    """Whether a graph has C++ kernels without a range around them."""
    has_kernels = "async_compile.cpp_pybinding(" in graph.source or "cpp_fused" in graph.source
    return has_kernels and not any(mark in graph.source for mark in ("RecordFunction", "RECORD_FUNCTION"))
