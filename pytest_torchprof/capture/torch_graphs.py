"""Where the kernels of CUDA graphs were captured: the operators, ranges, modules and lines around each node.

A replay has no operators, so they are noted while the graph is captured, in a warm-up call. Nodes are attributed by
the driver's lists before and after each operator that torch dispatches; which operators and ranges were open
meanwhile is in torch's execution trace. torch's own annotations (``torch.cuda.graph_annotations``) are not
enough: a node has one, so nested ranges are lost. Run with torch 2.15.0, whose hooks report captures; with other
versions, and with a driver older than CUDA 13.1, which does not give the numbers of nodes, nothing is noted.
"""

from __future__ import annotations

import ctypes
import re
import sys
import tempfile
import threading
import weakref
from collections import Counter
from contextlib import ExitStack, contextmanager, nullcontext
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from pytest_torchprof.analysis.source_lines import name_in_source, quote_mark
from pytest_torchprof.capture.execution_trace import Call, read_capture
from pytest_torchprof.capture.graph_nodes import (
    described,
    driver_knows_nodes,
    graph_of,
    handles,
    holds_others,
    nodes_of,
)
from pytest_torchprof.capture.observers import cuda_driver, is_users_file, path_from_here
from pytest_torchprof.capture.torch_profiler import execution_trace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from types import FrameType

    from pytest_torchprof.trace.captured_graphs import CapturedGraph, CapturedRange

_HOOKS = ("register_graph_capture_start_hook", "register_graph_capture_end_hook", "register_graph_instantiate_hook")
_ENTERING_COMPILED_CODE = ("set_eval_frame", "_maybe_set_eval_frame")
_KEY = "Fake"
"""A key of torch's dispatcher that nothing uses. A mode would make torch take other paths than without one."""


class _Captures:
    """The known facts about the graphs of this process, and the names of their modules."""

    def __init__(self) -> None:
        from torch.library import Library

        self.of: weakref.WeakKeyDictionary[Any, CapturedGraph] = weakref.WeakKeyDictionary()
        self._modules: dict[int, tuple[weakref.ref[Any], str]] = {}
        self._of_kind = Counter[str]()
        self._watch: _Watch | None = None
        self._key = _private("_dispatch_key_parse")(_KEY)
        self._below = _private("_dispatch_keyset_full_after")(self._key)
        library: Any = Library
        self._library = library("_", "IMPL")
        self._library.fallback(self._called, _KEY, with_keyset=True)

    @contextmanager
    def reporting_to(self, watch: _Watch) -> Iterator[None]:
        """Report to a watch the operators that are called inside, also on autograd's threads."""
        self._watch = watch
        try:
            with _private("_IncludeDispatchKeyGuard")(self._key), _hidden_from_guards(self._key):
                yield
        finally:
            self._watch = None

    def _called(self, keys: Any, operator: Any, *args: Any, **kwargs: Any) -> Any:
        """Call an operator as without the key, and so the operators that it calls; report it to the watch."""
        noting = nullcontext() if self._watch is None else self._watch.call()
        with _private("_ExcludeDispatchKeyGuard")(_private("DispatchKeySet")(self._key)), noting:
            if _has_number_for_tensor(operator, args):
                return operator(*args, **kwargs)
            return operator.redispatch(keys & self._below, *args, **kwargs)

    def instantiated(self, graph: Any) -> None:
        """Note the number that the graph has in recordings from now on."""
        if (known := self.of.get(graph)) is not None:
            number = ctypes.c_uint(0)
            if not cuda_driver().cuGraphExecGetId(ctypes.c_void_p(graph.raw_cuda_graph_exec()), ctypes.byref(number)):
                self.of[graph] = replace(known, graphs=(*known.graphs, number.value))

    def captured_anew(self, graph: Any) -> None:
        """Forget the captures into it before."""
        self.of.pop(graph, None)

    def module(self, module: Any) -> str:
        """Return a name that no other module of the process has: its class, and a number."""
        held = self._modules.get(id(module))
        if held is not None and held[0]() is module:
            return held[1]
        kind = re.sub(r"\W", "_", type(module).__name__)
        name = f"{kind}_{self._of_kind[kind]}"
        self._of_kind[kind] += 1
        self._modules[id(module)] = weakref.ref(module), name
        return name


def _has_number_for_tensor(operator: Any, args: Sequence[Any]) -> bool:
    """Return whether a number was passed for a tensor: torch's dispatcher turns it into a tensor, Python does not."""
    asked = zip(operator._schema.arguments, args, strict=False)  # Nothing public has the schema.
    return any(
        isinstance(given, (int, float, complex)) and argument.type.kind() == "TensorType" for argument, given in asked
    )


@contextmanager
def _hidden_from_guards(key: Any) -> Iterator[None]:
    """Remove the key in compiled code: its guards compare all keys, and would have it compiled anew."""
    dynamo = sys.modules.get("torch._dynamo.eval_frame")
    if dynamo is None:
        yield
        return

    def hiding(enter: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def hide(callback: Any) -> Any:
            before = enter(callback)
            _private("_dispatch_tls_set_dispatch_key_excluded")(key, callback is not None)
            return before

        return hide

    entered = {name: getattr(dynamo, name) for name in _ENTERING_COMPILED_CODE}
    for name, enter in entered.items():
        setattr(dynamo, name, hiding(enter))
    try:
        yield
    finally:
        for name, enter in entered.items():
            setattr(dynamo, name, enter)


def _private(name: str) -> Any:
    """Return a private function of torch's."""
    import torch

    return getattr(torch._C, name)  # The dispatcher has no public interface to its keys.


@cache
def _captures() -> _Captures | None:
    """Begin to note captures, and return the notes; None if torch or the driver does not report them."""
    import torch
    from torch.cuda import graphs

    hooks: Any = graphs
    if torch.version.hip or not all(hasattr(hooks, name) for name in _HOOKS):
        return None
    if not driver_knows_nodes():
        return None
    try:
        captures = _Captures()
    except (AttributeError, RuntimeError):
        # This torch uses the key itself, or has no key of this name.
        return None
    hooks.register_graph_capture_start_hook(captures.captured_anew)
    hooks.register_graph_instantiate_hook(captures.instantiated)
    return captures


def captured(graphs: Iterable[Any]) -> tuple[CapturedGraph, ...] | None:
    """Return the known captures of these graphs, of those that have one; None if none has."""
    known = _captures()
    captures = () if known is None else filter(None, map(known.of.get, graphs))
    return _renumbered(sorted(captures, key=lambda graph: graph.graphs)) or None


def _renumbered(graphs: Sequence[CapturedGraph]) -> tuple[CapturedGraph, ...]:
    """Return the graphs with modules numbered among those of their class in them, whatever was captured before."""
    modules = {part.name: None for graph in graphs for part in graph.ranges if part.kind == "module"}
    of_kind, names = Counter[str](), {}
    for name in modules:
        kind = name.rpartition("_")[0]
        names[name] = f"{kind}_{of_kind[kind]}"
        of_kind[kind] += 1

    def renamed(part: CapturedRange) -> CapturedRange:
        if part.kind == "module":
            return replace(part, name=names[part.name])
        if part.kind == "line":
            line, _, inside = part.name.rpartition(", ")
            return replace(part, name=f"{line}, {'.'.join(names[name] for name in inside.split('.') if name)}")
        return part

    return tuple(replace(graph, ranges=tuple(map(renamed, graph.ranges))) for graph in graphs)


@contextmanager
def captures_noted() -> Iterator[None]:
    """Note the captures of the code inside on this thread."""
    known = _captures()
    if known is None:
        yield
        return
    from torch.cuda import graphs

    hooks: Any = graphs
    watching = _Watching(known)
    handles = [
        hooks.register_graph_capture_start_hook(watching.begin),
        hooks.register_graph_capture_end_hook(watching.end),
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
        watching.close()


class _Watching:
    """Watches the captures of one thread, one at a time."""

    def __init__(self, known: _Captures) -> None:
        self._known = known
        self._thread = threading.get_ident()
        self._watch: _Watch | None = None

    def begin(self, _: Any) -> None:
        if threading.get_ident() != self._thread:
            return
        if self._watch is None:
            self._watch = _Watch(self._known)
        else:
            # The other capture failed, and so has no end, or it goes on beside this one.
            self._watch.spoil()

    def end(self, graph: Any) -> None:
        if self._watch is not None and threading.get_ident() == self._thread:
            watch, self._watch = self._watch, None
            captured_graph = watch.finish(graph.raw_cuda_graph())
            if captured_graph is not None:
                self._known.of[graph] = captured_graph

    def close(self) -> None:
        if self._watch is not None:
            self._watch.close()


class _Watch:
    """Notes the nodes of a graph while it is captured."""

    def __init__(self, known: _Captures) -> None:
        import torch
        from torch.nn import Module

        self._known = known
        self._stream = torch.cuda.current_stream().cuda_stream
        self._graph = graph_of(self._stream)
        self._seen = b""
        self._calls: list[Call] = []
        self._open: int | None = None
        self._ended = False
        self._module_call = Module._wrapped_call_impl.__code__  # What every call of a module runs
        self._folder = tempfile.TemporaryDirectory(prefix="torchprof-")
        self._file = Path(self._folder.name, "execution_trace.json")
        self._noting = ExitStack()
        noted = self._noting.enter_context(execution_trace(self._file))
        self._complete = noted and self._graph is not None
        self._reporting = known.reporting_to(self)
        self._reporting.__enter__()

    @contextmanager
    def call(self) -> Iterator[None]:
        """Note which nodes are made inside, and which were made since the last call."""
        thread, number = threading.get_ident(), len(self._calls)
        # The work of two threads at once cannot be distinguished.
        self._complete = self._complete and self._open is None
        self._open, before = thread, self._made()
        modules, line = self._modules_and_line()
        operator_call = Call(before=before, modules=modules, line=line)
        self._calls.append(operator_call)
        _leave_mark(number, begins=True)
        try:
            yield
        finally:
            _leave_mark(number, begins=False)
            operator_call.end(self._made())
            self._open = None

    def _made(self) -> tuple[int, ...]:
        """Return the nodes that the graph has gained since last time."""
        # If the capture has failed, the graph no longer exists.
        self._complete = self._complete and (self._ended or graph_of(self._stream) == self._graph)
        nodes = nodes_of(self._graph) if self._complete else None
        if nodes is None or not nodes.startswith(self._seen):
            self._complete = False
            return ()
        new, self._seen = nodes[len(self._seen) :], nodes
        return handles(new)

    def _modules_and_line(self) -> tuple[tuple[tuple[int, str], ...], str]:
        """Return the calls of modules that this one is in, from the outermost, and the line of the user's code."""
        modules: list[tuple[int, str]] = []
        line = ""
        frame: FrameType | None = sys._getframe(1)  # The only way to the frames that are running
        while frame is not None:
            code = frame.f_code
            if code is self._module_call:
                modules.append((id(frame), self._known.module(frame.f_locals["self"])))
            elif not line and is_users_file(code.co_filename):
                line = f"{path_from_here(code.co_filename)}({frame.f_lineno}): {name_in_source(code.co_name)}"
            frame = frame.f_back
        return tuple(reversed(modules)), quote_mark(line)

    def finish(self, graph: int) -> CapturedGraph | None:
        """Return the captured graph with its nodes; None if some of them are not known."""
        try:
            self._graph, self._ended = graph, True
            self._reporting.__exit__(None, None, None)
            last = Call(before=self._made())
            _leave_mark(len(self._calls), begins=True)
            self._calls.append(last)
        finally:
            self._noting.close()
        complete, self._complete = self._complete and not any(map(holds_others, handles(self._seen))), False
        try:
            return read_capture(self._file.read_bytes(), self._calls, described) if complete else None
        finally:
            self._folder.cleanup()

    def spoil(self) -> None:
        """Report nothing of the graph."""
        self._complete = False

    def close(self) -> None:
        """Stop looking: the capture failed."""
        self.spoil()
        self._reporting.__exit__(None, None, None)
        self._noting.close()
        self._folder.cleanup()


def _leave_mark(number: int, *, begins: bool) -> None:
    from torch.profiler import record_function

    from pytest_torchprof.capture.execution_trace import mark_name

    with record_function(mark_name(number, begins=begins)):
        pass
