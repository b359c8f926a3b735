"""Where work comes from in the user's code: the line and the modules, out of the Python frames of a recording.

torch names a frame after the line at which its function begins. Our own recordings hold marks in place of frames, or
beside them, which tell the line itself and the modules (``capture/lines.py``).
"""

from __future__ import annotations

import sys
from bisect import bisect_right
from collections import defaultdict
from functools import cached_property
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from pytest_torchprof.analysis.origin import Origin
from pytest_torchprof.devices.range_names import PLUGIN
from pytest_torchprof.text.expressions import Expression
from pytest_torchprof.trace.columns import ABSENT
from pytest_torchprof.trace.nesting import Nesting

if TYPE_CHECKING:
    import re

    from pytest_torchprof.trace import Trace

MARK = "[line] "
"""The beginning of a mark's name in a recording, among the frames; then a frame's name, a comma and the modules."""
EXPORTED_MARK = f"{PLUGIN}line "
"""How a mark begins in what torch exports, as an operator's name: longer by as much as the category is shorter."""
MODULE = "nn.Module: "

# As the profiler names frames: "train.py(12): step".
_FRAME = Expression(r"(?P<file>.+\.py)\((?P<line>\d+)\): (?P<function>.+)")
# Either part may be missing: "[line] train.py(12): step, MLP_0.Linear_1".
_MARK = Expression(r"\[line\] (?:(?P<file>.+)\((?P<line>\d+)\): (?P<function>[^,]+))?, (?P<module>.*)")
_RESUMED = Expression(r"torch_dynamo_resume_in_(?P<function>.+)_at_\d+")
_INSTALLED = Expression(r"^.*/(?:site|dist)-packages/")
_PYTHONS_OWN = Expression(r"/lib/python3[^/]*/(?!(?:site|dist)-packages/)|/pytest_torchprof/")
# By the folder where Inductor writes it unless asked otherwise, or by the hash that is its name: "vy/cvyza...dlx.py".
_GENERATED = Expression(r"/torchinductor_[^/]*/|/([a-z2-7]{2})/c\1[a-z2-7]{49}\.py$")
# Of printable ASCII all but what JSON escapes, and the sign of what is quoted.
_KEPT = "".join(set(map(chr, range(0x20, 0x7F))) - set('"\\%'))
_ENGINE = "autograd::engine::evaluate_function: "
_HOOKS = frozenset({"__torch_function__", "__torch_dispatch__"})
"""Methods that torch calls around any operator on a tensor of a user's class: the caller is the one that counts."""
_TOOLS = frozenset({"torch", "triton", "functorch", "numpy", "pytest", "_pytest", "pluggy", "pytest_torchprof", "py"})


class _Frame(Struct, frozen=True):
    file: str
    line: int
    function: str


class _Context(Struct, frozen=True):
    """The user's frame and the module that the frames from the outermost to one of them lead to."""

    users: _Frame | None = None
    """The innermost one of the user's."""
    module: str | None = None


class Origins:
    """Answers for one recording where in the user's code something was done; without frames nothing is computed."""

    def __init__(self, trace: Trace) -> None:
        """Prepare to answer; the work is done when asked."""
        self._trace = trace
        self._contexts: dict[int, _Context] = {ABSENT: _Context()}
        self._origins: dict[_Context, Origin | None] = {}
        self._inner: dict[int, tuple[_Frame | None, str | None]] = {}
        self._of_marks: dict[int, Origin | None] = {ABSENT: None}
        self._of_ops: dict[int, Origin | None] = {}
        self._of_calls: dict[tuple[int, int], Origin | None] = {}
        self.recorded = any(thread != trace.captured.lane for thread in set(trace.frames.thread))
        """Whether the recording has Python frames at all, or marks; those of a graph's capture aside."""

    def of_operator(self, op: int) -> Origin | None:
        """Return where an operator was called; in a backward pass, where its forward operator was."""
        if op not in self._of_ops:
            ops = self._trace.ops
            self._of_ops[op] = self._forward_origin(op) or self.at(ops.thread[op], ops.start[op], ops.end[op])
        return self._of_ops[op]

    def of_call(self, call: int, op: int) -> Origin | None:
        """Return where a call of the runtime was made; in a backward pass, where its forward operator was called.

        ``call`` and ``op`` may be ABSENT.
        """
        if call < 0:
            return None
        # Several findings are about the same calls.
        if (call, op) not in self._of_calls:
            calls = self._trace.calls
            origin = self._forward_origin(op) or self.at(calls.thread[call], calls.start[call], calls.end[call])
            self._of_calls[call, op] = origin
        return self._of_calls[call, op]

    def of_capture(self, call: int) -> Origin | None:
        """Return where the launch of a graph's kernel was captured, by its index among the captured launches."""
        calls = self._trace.captured.calls
        return self.at(calls.thread[call], calls.start[call], calls.end[call])

    def _forward_origin(self, op: int) -> Origin | None:
        """Return where the operator was called whose backward holds this one; None where no arrow tells."""
        if not self.recorded or op < 0:
            return None
        ops, chain = self._trace.ops, self._trace.nesting.chain
        for forward_of in filter(None, (self._trace.forward_of, self._nodes)):
            backward = next((outer for outer in chain(op) if outer in forward_of), ABSENT)
            if backward >= 0:
                break
        else:
            return None
        if self._in_python(backward, op):
            return None
        forward = forward_of[backward]
        origin = self.at(ops.thread[forward], ops.start[forward], ops.end[forward])
        return None if origin is None or origin.file is None else replace(origin, backward=True)

    def _in_python(self, backward: int, op: int) -> bool:
        """Return whether code of the user's is running in a backward operator: a checkpoint computing anew, a hook.

        A mark made in it that is not the one in force before it; what is called ends with the mark of its caller.
        """
        ops = self._trace.ops
        before, now = (self._mark_at(ops.thread[op], ops.start[operator]) for operator in (backward, op))
        return before != now and self._of_mark(now) is not None

    def at(self, thread: int, start_ns: int, end_ns: int) -> Origin | None:
        """Return where a thread was during [start, end] in ns; None without recorded stacks or outside of all frames.

        What autograd runs on a thread of torch's own, outside of the user's code there, is where the program waits for
        it. What another thread without frames does is nowhere.
        """
        if thread == self._trace.captured.lane:
            return self._of_mark(self._mark_at(thread, start_ns))
        if not self.recorded:
            return None
        mark = self._mark_at(thread, start_ns)
        if thread not in self._threads or (thread in self._marks and self._of_mark(mark) is None):
            if thread not in self._autograd_threads:
                return None
            thread = self._main_thread
            mark = self._mark_at(thread, start_ns)
        if mark != ABSENT:
            return self._of_mark(mark)
        context = self._context(self._frames.around(thread, start_ns, end_ns))
        if context not in self._origins:
            self._origins[context] = _origin(context)
        return self._origins[context]

    def _mark_at(self, thread: int, moment: int) -> int:
        """Return the name of the thread's last mark, ABSENT if there is none."""
        starts, names = self._marks.get(thread, _NO_MARKS)
        reached = bisect_right(starts, moment)
        return names[reached - 1] if reached else ABSENT

    def _of_mark(self, name: int) -> Origin | None:
        if name not in self._of_marks:
            self._of_marks[name] = _origin_of_mark(self._trace.names[name])
        return self._of_marks[name]

    def _context(self, frame: int) -> _Context:
        """Return the user's innermost frame and the module, from a frame and those around it; each is read once."""
        above = []
        while frame not in self._contexts:
            above.append(frame)
            frame = self._frames.parent[frame]
        context = self._contexts[frame]
        for inner in reversed(above):
            context = self._contexts[inner] = self._inside(context, self._trace.frames.name[inner])
        return context

    def _inside(self, around: _Context, name: int) -> _Context:
        """Return the context inside a frame of this name."""
        if name not in self._inner:
            self._inner[name] = _function_or_module(self._trace.names[name])
        frame, module = self._inner[name]
        if module is not None:
            return _Context(around.users, f"{around.module}.{module}" if around.module else module)
        return around if frame is None else _Context(frame, around.module)

    @cached_property
    def _nodes(self) -> dict[int, int]:
        """The engine's ranges around operators of a backward pass; in them gradients are summed to their sizes too."""
        trace = self._trace
        around = ((trace.nesting.parent[backward], forward) for backward, forward in trace.forward_of.items())
        return {node: forward for node, forward in around if node >= 0 and self._name(node).startswith(_ENGINE)}

    def _name(self, op: int) -> str:
        return self._trace.names[self._trace.ops.name[op]]

    @cached_property
    def _frames(self) -> Nesting:
        return Nesting(self._trace.frames)

    @cached_property
    def _threads(self) -> frozenset[int]:
        return frozenset(self._trace.frames.thread)

    @cached_property
    def _autograd_threads(self) -> frozenset[int]:
        ops, names = self._trace.ops, self._trace.names
        engine = {name for name in set(ops.name) if names[name].startswith(_ENGINE)}
        in_engine = {thread for thread, name in zip(ops.thread, ops.name, strict=True) if name in engine}
        return frozenset(in_engine.union(map(ops.thread.__getitem__, self._trace.forward_of)))

    @cached_property
    def _main_thread(self) -> int:
        """The thread that carries the steps."""
        label = self._trace.steps[0].tid
        return self._trace.threads.index(label) if label in self._trace.threads else ABSENT

    @cached_property
    def _marks(self) -> dict[int, tuple[list[int], list[int]]]:
        """For each thread with marks when they were made, and their names."""
        trace, frames = self._trace, self._trace.frames
        names = {i for i, name in enumerate(trace.names) if name.startswith(MARK)}
        of_thread: dict[int, tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
        if names:
            marks = [i for i, name in enumerate(frames.name) if name in names]
            for i in sorted(marks, key=frames.start.__getitem__):
                starts, named = of_thread[frames.thread[i]]
                starts.append(frames.start[i])
                named.append(frames.name[i])
        return dict(of_thread)


_NO_MARKS: tuple[list[int], list[int]] = ([], [])


def _origin_of_mark(name: str) -> Origin | None:
    match = _MARK.fullmatch(name)
    if match is None or not (match["file"] or match["module"]):
        return None
    from urllib.parse import unquote  # noqa: PLC0415 - slow to import, and only our own recordings have marks

    module = unquote(match["module"]) or None
    if match["file"] is None:
        return Origin(module=module)
    frame = _frame_of_match(match)
    file, function = unquote(frame.file), unquote(frame.function)
    return Origin(file=file, line=frame.line, function=function, exact=True, module=module)


def _function_or_module(name: str) -> tuple[_Frame | None, str | None]:
    """Return the user's function or the module that a frame is, each None where it is not one."""
    if name.startswith(MODULE):
        return None, name.removeprefix(MODULE)
    match = _FRAME.fullmatch(name)
    frame = _frame_of_match(match) if match else None
    return (None if frame is None or frame.function in _HOOKS or _is_library(frame.file) else frame), None


def _origin(context: _Context) -> Origin | None:
    frame, module = context.users, context.module
    if frame is None:
        return None if module is None else Origin(module=module)
    return Origin(file=frame.file, line=frame.line, function=frame.function, module=module)


def _frame_of_match(match: re.Match[str]) -> _Frame:
    return _Frame(_INSTALLED.compiled().sub("", match["file"]), int(match["line"]), name_in_source(match["function"]))


def quote_mark(text: str) -> str:
    """Return a part of a mark's name as torch exports it: it calls an operator "unknown" whose name is not ASCII."""
    from urllib.parse import quote  # noqa: PLC0415 - as above

    return quote(text, _KEPT, errors="backslashreplace")


def name_in_source(function: str) -> str:
    """Return the name the user gave a function, for code after a graph break that of the function it is a part of."""
    match = _RESUMED.fullmatch(function)
    return match["function"] if match else function


def is_generated_file(file: str) -> bool:
    """Return whether a file is a program that Inductor has written."""
    return _GENERATED.search(file) is not None


def _is_library(file: str) -> bool:
    """Return whether a file, as the profiler names it, is torch's, Python's or the test runner's.

    Files are named from where they were imported: Python's own from its library, the user's from the folder of theirs.
    """
    if _PYTHONS_OWN.search(file) or is_generated_file(file):
        return True
    first = file.partition("/")[0].removesuffix(".py")
    return first in _TOOLS or first in sys.stdlib_module_names
