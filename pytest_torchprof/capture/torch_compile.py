"""The inside of torch.compile and Dynamo, by private names, each in a function that says what it is for.

Run with torch 2.13 on Python 3.11 and 3.13, with torch 2.10.0, 2.14.1 and 2.15.0 on Python 3.11. None from a reader
means that this torch does not have the source; the evidence then says "not available".
"""

from __future__ import annotations

import logging
import os
import re
import sys
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from msgspec import Struct

from pytest_torchprof.analysis.source_lines import name_in_source
from pytest_torchprof.reasons.compiling import CompileRecords

if TYPE_CHECKING:
    import weakref
    from collections.abc import Callable, Iterator, Sequence
    from types import CodeType, FrameType


class CodeLine(NamedTuple):
    """A line of code."""

    file: str
    line: int
    function: str

    @classmethod
    def of(cls, code: CodeType) -> Self:
        """Return the line at which a code object begins."""
        return cls(code.co_filename, code.co_firstlineno, code.co_name)


class DynamoReason(NamedTuple):
    """Why a graph ended, and the frames that led there, outermost first."""

    text: str
    stack: tuple[CodeLine, ...]


class Attempt(Struct, frozen=True, kw_only=True):
    """One compilation according to Dynamo's metrics; a backward has the id of its forward."""

    compile_id: str | None
    frame: CodeLine | None
    failure: str | None
    failed_at: tuple[str, int] | None
    guard: str | None
    forward: bool
    graph_ops: int
    """Calls in the graph that was made; 0 if none was."""
    times_us: dict[str, int]
    cudagraph_skip: str | None
    remote_cache_hits: int


def dynamo_is_loaded() -> bool:
    """Return whether anybody has used torch.compile so far; asking imports nothing."""
    return "torch._dynamo" in sys.modules


def compilation_metrics() -> list[Any] | None:
    """Return the metrics of Dynamo's last compilations, 64 by default; oldest first."""
    get = getattr(import_module("torch._dynamo.utils"), "get_compilation_metrics", None)
    return None if get is None else list(get())


@cache
def records_skipped_frames() -> bool:
    """Whether the metrics of a frame with a break in a loop tell it apart from one without anything to compile."""
    import torch

    return torch.__version__ >= "2.13"


def metrics_are_full(kept: int) -> bool:
    """Return whether Dynamo has begun to forget its first compilations."""
    deque = getattr(import_module("torch._dynamo.utils"), "_compilation_metrics", None)
    limit = getattr(deque, "maxlen", None)
    return kept >= (64 if limit is None else limit)


_PHASES = {
    "dynamo": "dynamo_cumulative_compile_time_us",
    "aot_autograd": "aot_autograd_cumulative_compile_time_us",
    "inductor": "inductor_cumulative_compile_time_us",
    "code_generation": "inductor_code_gen_cumulative_compile_time_us",
    "backward": "backward_cumulative_compile_time_us",
}

_REMOTE_HITS = ("inductor_fx_remote_cache_hit_count", "aotautograd_remote_cache_hit_count")


def read_attempt(metrics: Any) -> Attempt:
    """Return the attempt that one of the compilation metrics describes; fields differ by version."""

    def field(name: str) -> Any:
        return getattr(metrics, name, None)

    frame = field("co_name") and CodeLine(
        str(field("co_filename")), int(field("co_firstlineno") or 0), field("co_name")
    )
    file, line = field("fail_user_frame_filename"), field("fail_user_frame_lineno")
    identity = field("compile_id")
    return Attempt(
        compile_id=None if identity is None else str(identity),
        frame=frame or None,
        failure=None if not field("fail_type") else str(field("fail_reason") or field("fail_type")),
        failed_at=(str(file), int(line)) if file and line is not None else None,
        guard=field("recompile_reason"),
        forward=field("is_forward") is not False,
        graph_ops=int(field("graph_op_count") or 0),
        times_us={phase: int(field(name)) for phase, name in _PHASES.items() if field(name)},
        cudagraph_skip=field("cudagraph_skip_reason"),
        remote_cache_hits=sum(int(field(name) or 0) for name in _REMOTE_HITS),
    )


def break_reasons() -> list[Any] | None:
    """Return Dynamo's own list of graph breaks since its last reset; only those after which a graph went on."""
    return getattr(import_module("torch._dynamo.utils"), "graph_break_reasons", None)


def read_reason(reason: Any) -> DynamoReason:
    """Return one entry of `break_reasons`."""
    stack = tuple(CodeLine(f.filename, int(f.lineno or 0), f.name) for f in getattr(reason, "user_stack", ()))
    return DynamoReason(str(reason.reason), stack)


def counters(group: str) -> dict[str, int]:
    """Return one group of Dynamo's counters ("frames", "unimplemented", "inductor"); empty where there is none."""
    groups = getattr(import_module("torch._dynamo.utils"), "counters", {})
    # Asking a missing key would make it.
    return dict(groups[group]) if group in groups else {}


def missing_records() -> tuple[CompileRecords, ...]:
    """Return which of the records for graph breaks and recompiles this torch lacks."""
    records = {
        CompileRecords.METRICS: compilation_metrics(),
        CompileRecords.BREAK_REASONS: break_reasons(),
        CompileRecords.SEEN_CODE: considered_codes(),
    }
    return tuple(kind for kind, kept in records.items() if kept is None)


def considered_codes() -> list[CodeType] | None:
    """Return every living code object that was handed to Dynamo since its last reset."""
    refs = considered_refs()
    return None if refs is None else [code for code in (ref() for ref in refs) if code is not None]


def considered_refs() -> list[weakref.ref[CodeType]] | None:
    """Return the references by which Dynamo keeps them; after a reset a code object gets another one."""
    tracker = getattr(import_module("torch._dynamo.convert_frame"), "input_codes", None)
    seen = getattr(tracker, "seen", None)
    return None if seen is None else list(seen)


def compiled_codes(code: CodeType) -> list[tuple[str, CodeType]]:
    """Return id ("0/1") and generated code of each compilation that this code object has."""
    entries = getattr(import_module("torch._dynamo.eval_frame"), "_debug_get_cache_entry_list", None)
    cached = entries(code) if entries else ()
    # An entry whose guarded objects are gone stays in the list without its code.
    return [(str(getattr(entry, "compile_id", "?")), entry.code) for entry in cached if entry.code is not None]


_RESUME = re.compile(r"__resume_at_(\d+)_\d+")


def lines_of_breaks(code: CodeType, generated: CodeType) -> set[int]:
    """Return the lines at which generated code hands over to the code after a graph break; empty if there are none.

    The names of the resume functions hold the offset in the bytecode to go on from, so the break is at that line or at
    the line of the instruction before.
    """
    names = (*generated.co_names, *generated.co_freevars)
    offsets = [int(match[1]) for match in map(_RESUME.match, names) if match]
    return {
        line
        for start, end, line in code.co_lines()
        if line is not None and any(start <= offset < end or start <= offset - 2 < end for offset in offsets)
    }


def dynamo_skips(code: CodeType) -> bool:
    """Return whether Dynamo leaves this code alone on purpose (torch's own code and the like)."""
    check = getattr(import_module("torch._dynamo.trace_rules"), "check", None)
    return bool(check and check(code))


def is_wrapper(place: CodeLine | None) -> bool:
    """Return whether this is torch.compile's wrapper of modules and of callables that have no code of the user's.

    These are functions under ``torch.no_grad()`` and the like, ``functools.partial``, and torch's own functions.
    """
    return place is not None and place.function == "inner" and place.file.endswith("external_utils.py")


def runs_under_dynamo() -> bool:
    """Return whether the code that runs now was entered through torch.compile, compiled or not."""
    callback = import_module("torch._C._dynamo.eval_frame").get_eval_frame_callback()
    return callback is not None


def keep_from_dynamo(code: CodeType) -> None:
    """Make sure that Dynamo neither compiles nor counts a function of ours that runs while it is at work.

    Functions that it calls are not excluded. torch's own `skip_code` is in a module that is slow to import; the
    function behind it is available without that.
    """
    machine = import_module("torch._C._dynamo.eval_frame")
    if hasattr(machine, "set_code_exec_strategy"):
        actions = machine._FrameAction
        machine.set_code_exec_strategy(code, machine._FrameExecStrategy(actions.SKIP, actions.DEFAULT))


def outside_dynamo(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function in a form that Dynamo leaves alone, with everything it calls, wherever Python calls it.

    Dynamo compiles whatever Python function is called in code that it is to compile, trace functions included.
    """
    exchange = import_module("torch._C._dynamo.eval_frame").set_eval_frame

    def call(*arguments: object) -> Any:
        callback = exchange(None)
        try:
            return function(*arguments)
        finally:
            exchange(callback)

    keep_from_dynamo(call.__code__)
    return call


def forget_code(code: CodeType) -> bool:
    """Let Dynamo handle anew code that it has given up; return False if this torch cannot do that."""
    reset = getattr(import_module("torch._C._dynamo.eval_frame"), "reset_code", None)
    if reset:
        reset(code)
    return reset is not None


def on_compiled(note: Callable[[CodeType, CodeType, str | None, object], None]) -> Callable[[], None] | None:
    """Call `note(code, generated code, compile id, owner)` for each frame that gets compiled; return how to stop.

    The owner is the torch.nn.Module that is the `self` of the frame, or what torch.compile's wrapper encloses.
    """
    register = getattr(import_module("torch._dynamo.convert_frame"), "register_bytecode_hook", None)
    if register is None:
        return None

    def hook(code: CodeType, generated: CodeType) -> None:
        identity = import_module("torch._guards").CompileContext.current_compile_id()
        note(code, generated, None if identity is None else str(identity), _owner_being_compiled(code))

    remove: Callable[[], None] = register(hook).remove
    return remove


def _owner_being_compiled(code: CodeType) -> object:
    import torch

    frame: FrameType | None = sys._getframe(1)
    while frame is not None and not (frame.f_code.co_name == "_compile" and frame.f_locals.get("code") is code):
        frame = frame.f_back
    if frame is None:
        return None
    enclosed = _enclosed(code, frame.f_locals.get("closure") or ())
    if enclosed is not None:
        owner = getattr(enclosed, "__self__", enclosed)
        return enclosed if is_wrapper(CodeLine.of(code)) else owner if isinstance(owner, torch.nn.Module) else None
    # Its own name for the module may be any, and code after a graph break has further arguments before it.
    modules = [v for v in dict(frame.f_locals.get("locals") or {}).values() if isinstance(v, torch.nn.Module)]
    return next((module for module in modules if _is_method_of(code, module)), None)


def _enclosed(code: CodeType, cells: Sequence[Any]) -> object:
    """Return the function that a wrapper of the usual form encloses, by its closure; None if there is none."""
    if "fn" not in code.co_freevars or len(cells) != len(code.co_freevars):
        return None
    return cells[code.co_freevars.index("fn")].cell_contents


def owner_of(function: object) -> object:
    """Return the object that a function encloses if it is torch.compile's wrapper, else None."""
    code = getattr(function, "__code__", None)
    if code is None or not is_wrapper(CodeLine.of(code)):
        return None
    return _enclosed(code, getattr(function, "__closure__", None) or ())


def _is_method_of(code: CodeType, holder: object) -> bool:
    method = getattr(getattr(type(holder), name_in_source(code.co_name), None), "__code__", None)
    return method is not None and (
        method is code or (name_in_source(code.co_name) != code.co_name and method.co_filename == code.co_filename)
    )


def trace_logger() -> logging.Logger | None:
    """Return the logger of what torch.compile writes for tlparse (``TORCH_TRACE``); None before torch is imported.

    torch makes its records only while the logger has a handler (run with torch 2.13.0, 2.14.1 and 2.15.0).
    """
    logger = logging.Logger.manager.loggerDict.get("torch.__trace")
    return logger if isinstance(logger, logging.Logger) else None


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
            os.environ.pop(_CPU_KERNEL_PROFILING, None)
            os.environ.update({} if variable is None else {_CPU_KERNEL_PROFILING: variable})
        config = sys.modules.get("torch._inductor.config")
        if config:
            config.cpp.enable_kernel_profile = variable == "1" if before is None else before
