"""Where work comes from in the user's code: the line and the modules, out of the Python frames of a recording.

torch names a frame after the line at which its function begins. Our own recordings with stacks hold a mark besides for
each line of the user's code that was reached (``capture/observers.py``); there the line itself is known.
"""

from __future__ import annotations

import re
import sys
from bisect import bisect_right
from collections import Counter, defaultdict
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct, field
from msgspec.structs import replace

from pytest_torchprof.analysis.parts import forward_operator
from pytest_torchprof.trace.columns import ABSENT
from pytest_torchprof.trace.links import Nesting

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pytest_torchprof.trace import Trace

MARK = "[line] "
"""How the name of a mark begins in a recording, among the frames; the rest is as in a frame's name."""
EXPORTED_MARK = "torchprof::line "
"""The same in what torch exports, as an operator's name: longer by as much as the category is shorter."""
MODULE = "nn.Module: "

# As the profiler names frames: "train.py(12): step".
_FRAME = re.compile(r"(?P<file>.+\.py)\((?P<line>\d+)\): (?P<function>.+)")
_RESUMED = re.compile(r"torch_dynamo_resume_in_(?P<function>.+)_at_\d+")
_INSTALLED = re.compile(r"^.*/(?:site|dist)-packages/")
_PYTHONS_OWN = re.compile(r"/lib/python3[^/]*/(?!(?:site|dist)-packages/)|/torchinductor_[^/]*/|/pytest_torchprof/")
_ENGINE = "autograd::engine::evaluate_function: "
_TOOLS = frozenset({"torch", "triton", "functorch", "numpy", "pytest", "_pytest", "pluggy", "pytest_torchprof", "py"})


class Origin(Struct, frozen=True, kw_only=True):
    """A place in the user's code, and the modules that were running there."""

    file: str | None = None
    line: int = 0
    function: str = ""
    exact: bool = False
    """The line is the one that ran; else the one at which the function begins."""
    module: str | None = None
    """From the outermost: ``MLP_0.Linear_1``."""
    backward: bool = False
    """What was done is the backward pass of what was called there."""

    @property
    def file_line(self) -> str | None:
        """``model.py:12``, None where no frame is the user's."""
        return None if self.file is None else f"{self.file}:{self.line}"

    def __str__(self) -> str:
        """Return the place in words: ``model.py:42 in forward, MLP_0.Linear_1``."""
        if self.file is None:
            place = ""
        elif self.exact:
            place = f"{self.file_line} in {self.function}"
        else:
            place = f"{self.function} ({self.file_line})"
        return "backward of " * self.backward + ", ".join(part for part in (place, self.module) if part)


Work = tuple[str, str | None]
"""The name of a kernel, copy or blocking call, and the operator that made it."""


class Places(Struct, frozen=True, kw_only=True):
    """The origins of one step's work, and why there are none where they were looked for."""

    work: Mapping[Work, Sequence[Origin | None]] = field(default_factory=dict)
    """Those of each time it was done, in order; None where no line is known."""
    kernels: Sequence[Work] = ()
    """The kernels in the order in which they were launched, where ``work`` was seen."""
    operators: Mapping[str, Counter[Origin]] = field(default_factory=dict)
    """Those of the operators that launched it or enclose one that did."""
    why_not: str | None = None

    def of(self, work: Iterable[Work]) -> list[tuple[int, Origin]]:
        """Return how often this work was done from where, the most frequent place first."""
        counted: Counter[Origin] = Counter()
        for one in work:
            counted.update(origin for origin in self.work.get(one, ()) if origin is not None)
        return _most_frequent(counted)

    def of_operator(self, name: str) -> list[tuple[int, Origin]]:
        """Return how often an operator of this name was called from where, likewise."""
        return _most_frequent(self.operators.get(name, Counter()))


def _most_frequent(counted: Counter[Origin]) -> list[tuple[int, Origin]]:
    return [(count, origin) for origin, count in counted.most_common()]


class _Frame(NamedTuple):
    file: str
    line: int
    function: str


_Line = tuple[_Frame, bool]
"""With whether it is the one that ran."""


class _Place(NamedTuple):
    """What the frames from the outermost to one of them tell."""

    users: int
    """The innermost frame that tells a line of the user's, ABSENT without one."""
    marked: bool
    module: str | None


class Origins:
    """Answers for one recording where in the user's code something was done; without frames nothing is computed."""

    def __init__(self, trace: Trace) -> None:
        """Prepare to answer; the work is done when asked."""
        self._trace = trace
        self._named: dict[int, _Frame | None] = {}
        self._place_of: dict[int, _Place] = {ABSENT: _Place(ABSENT, False, None)}
        self._origins: dict[tuple[_Line | None, str | None], Origin | None] = {}
        self._of_users: dict[int, bool] = {}

    @property
    def recorded(self) -> bool:
        """Whether the recording has Python frames at all."""
        return len(self._trace.frames) > 0

    def of_operator(self, op: int) -> Origin | None:
        """Return where an operator was called; in a backward pass, where its forward operator was."""
        ops = self._trace.ops
        forward = self._forward(op)
        if forward is not None:
            return forward
        return self.at(ops.thread[op], ops.start[op], ops.end[op])

    def of_call(self, call: int, op: int) -> Origin | None:
        """Return where a call of the runtime was made, by the operator; likewise. Both may be ABSENT."""
        calls = self._trace.calls
        if call < 0:
            return None
        return self._forward(op) or self.at(calls.thread[call], calls.start[call], calls.end[call])

    def _forward(self, op: int) -> Origin | None:
        """Return where the operator was called whose backward holds this one; None where no arrow tells."""
        if not self.recorded or op < 0:
            return None
        ops, chain = self._trace.ops, self._trace.nesting.chain
        forward = forward_operator(self._trace, op)
        if forward < 0:
            forward = next((self._nodes[one] for one in chain(op) if one in self._nodes), ABSENT)
        found = self.at(ops.thread[forward], ops.start[forward], ops.end[forward]) if forward >= 0 else None
        return None if found is None or found.file is None else replace(found, backward=True)

    def at(self, thread: int, start_ns: int, end_ns: int) -> Origin | None:
        """Return where a thread was during [start, end] in ns; None without recorded stacks or outside of all frames.

        Threads of torch's own have no frames; what autograd runs there is where the program waits for it.
        """
        if not self.recorded:
            return None
        if thread not in self._threads:
            thread = self._main
        place = self._place(self._frames.around(thread, start_ns, end_ns))
        line = self._line(place.users, start_ns) if place.users >= 0 else None
        key = line, place.module
        if key not in self._origins:
            self._origins[key] = _origin(line, place.module)
        return self._origins[key]

    def _place(self, frame: int) -> _Place:
        """Return what a frame and those around it tell, each of them asked once."""
        above = []
        while frame not in self._place_of:
            above.append(frame)
            frame = self._frames.parent[frame]
        found = self._place_of[frame]
        for one in reversed(above):
            found = self._place_of[one] = self._inside(found, one)
        return found

    def _inside(self, around: _Place, frame: int) -> _Place:
        name = self._trace.names[self._trace.frames.name[frame]]
        users, marked, module = around
        # Of frames that are the user's, one with marks knows its line.
        if frame in self._marks:
            users, marked = frame, True
        elif not marked and self._is_users(frame):
            users = frame
        if name.startswith(MODULE):
            inner = name.removeprefix(MODULE)
            module = f"{module}.{inner}" if module else inner
        elif (users, marked) == around[:2]:
            return around
        return _Place(users, marked, module)

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
    def _main(self) -> int:
        """The thread that carries the steps."""
        label = self._trace.steps[0].tid
        return self._trace.threads.index(label) if label in self._trace.threads else ABSENT

    @cached_property
    def _has_lines(self) -> bool:
        return bool(self._trace.metadata and self._trace.metadata.lines)

    @cached_property
    def _marks(self) -> dict[int, tuple[list[int], list[int]]]:
        """For each frame with marks in it when they were made, and which they are."""
        trace = self._trace
        names = {i for i, name in enumerate(trace.names) if name.startswith(MARK)}
        found: dict[int, tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
        if names:
            marks = [i for i, name in enumerate(trace.frames.name) if name in names]
            for i in sorted(marks, key=trace.frames.start.__getitem__):
                starts, members = found[self._frames.parent[i]]
                starts.append(trace.frames.start[i])
                members.append(i)
        return dict(found)

    def _line(self, frame: int, instant: int) -> _Line:
        """Return the line that a frame had reached; where no mark tells, the one that the frame is named after."""
        starts, members = self._marks.get(frame, ((), ()))
        place = bisect_right(starts, instant) - 1
        found = self._frame(members[place]) if place >= 0 else None
        if found is not None:
            return found, True
        named = self._frame(frame)
        # It stood in this line when the recording began, and has not left it since.
        waits = self._has_lines and self._trace.frames.start[frame] < self._trace.steps[0].start_ns
        return named or _Frame("?", 0, "?"), waits

    def _frame(self, frame: int) -> _Frame | None:
        name = self._trace.frames.name[frame]
        if name not in self._named:
            match = _FRAME.fullmatch(self._trace.names[name].removeprefix(MARK))
            self._named[name] = _read(match) if match else None
        return self._named[name]

    def _is_users(self, frame: int) -> bool:
        name = self._trace.frames.name[frame]
        if name not in self._of_users:
            found = self._frame(frame)
            self._of_users[name] = found is not None and not _is_library(found.file)
        return self._of_users[name]


def _origin(line: _Line | None, module: str | None) -> Origin | None:
    if line is None:
        return None if module is None else Origin(module=module)
    frame, exact = line
    return Origin(file=frame.file, line=frame.line, function=frame.function, exact=exact, module=module)


def _read(match: re.Match[str]) -> _Frame:
    return _Frame(_INSTALLED.sub("", match["file"]), int(match["line"]), name_in_source(match["function"]))


def name_in_source(function: str) -> str:
    """Return the name the user gave a function, for code after a graph break that of the function it is a part of."""
    match = _RESUMED.fullmatch(function)
    return match["function"] if match else function


def _is_library(file: str) -> bool:
    """Whether a file, as the profiler names it, is torch's, Python's or the test runner's.

    Files are named from where they were imported: Python's own from its library, the user's from the folder of theirs.
    """
    if _PYTHONS_OWN.search(file):
        return True
    first = file.partition("/")[0].removesuffix(".py")
    return first in _TOOLS or first in sys.stdlib_module_names
