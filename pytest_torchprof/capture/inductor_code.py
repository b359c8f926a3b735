"""Inductor's comments on its kernels: which operators each computes, from which lines, in which types.

They are read from the two texts that every compiled graph holds, even one from a cache: the generated program, and the
graph from which it was made. Run with torch 2.13.0 and 2.15.0; if a text is missing or has another form, less is known,
but nothing wrong.

Inductor names a kernel after its inputs and consumers too: operators for which it only copies, or that are fused into
another kernel. An operator that the program calls as often as the graph holds it is computed by these calls alone.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter, defaultdict
from functools import cache, lru_cache
from itertools import takewhile
from pathlib import PurePath
from typing import TYPE_CHECKING, NamedTuple

from pytest_torchprof.analysis.source_lines import name_in_source
from pytest_torchprof.kernels.names import decode
from pytest_torchprof.kernels.names.inductor import GEMM_OPS
from pytest_torchprof.trace.compile_evidence import GeneratedKernel, OperatorCall, SourceLine

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

_NODE = re.compile(r"\s+(?P<name>\w+)(?:: \"(?P<type>[^\"]*)\")? = (?P<value>[^;]+)")
_PLACE = re.compile(r"\s+# File: (?P<file>.+?):(?P<line>\d+) in (?P<function>[^,]+)(?:, code: (?P<code>.*))?$")
_NO_PLACE = re.compile(r"\s+# No stacktrace found")
_TARGET = re.compile(r"torch\.ops\.([\w.]+)\(")
_ARGUMENT = re.compile(r"\b[A-Za-z_]\w*\b(?! ?=)")

_FRAGMENT = re.compile(r"#\s+%(?P<name>\w+) : .*?= call_function\[target=(?:torch\.ops\.)?(?P<target>[\w.]+)\]")
_RETURNED = re.compile(r"#\s+return (?P<names>.*)")
_ORIGINALS = re.compile(r"# .*Original ATen: \[(?P<ops>[^\]]*)\]")
_DEFINED = re.compile(r"^(?P<name>\w+) = async_compile\.(?P<kind>triton|cpp_pybinding)\(", re.MULTILINE)
_RECORDED = re.compile(r"RecordFunctionHandle \w+\(\"(?P<name>[^\"]+)\"")
_CALLED = re.compile(r"^\s+(?:\w+ = )?(?P<name>\w+)(?:\.run)?\(")
_EXTERN = re.compile(r"\bextern_kernels\.(?P<extern>\w+)\(|\btorch\.ops\.\w+\.(?P<op>\w+)(?:\.\w+)?\(")
_FRAME = re.compile(r'File "([^"]+)", line (\d+), in (\S+)(?:\n +(?!File )(.*))?')

_TEMPLATE = ("triton_tem_", "micro_gemm")
_PRODUCTS = frozenset(GEMM_OPS.split()) | {"convolution", "convolution_backward"}
_POINTER = re.compile(r"'\*(?P<triton>\w+)'|'(?:const )?(?P<cpp>[\w:<>]+)\*'")
_DOUBLE = re.compile(r"\btl\.float64\b|\bdouble\b")
_DTYPES = {
    **{f"fp{bits}": f"fp{bits}" for bits in (16, 32, 64)},
    **{f"i{bits}": f"int{bits}" for bits in (8, 16, 32, 64)},
    **{f"int{bits}_t": f"int{bits}" for bits in (8, 16, 32, 64)},
    "bf16": "bf16",
    "fp8e4nv": "fp8",
    "fp8e5": "fp8",
    "fp8e4b8": "fp8",
    "fp8e5b16": "fp8",
    "u8": "uint8",
    "i1": "bool",
    "float": "fp32",
    "double": "fp64",
    "half": "fp16",
    "at::Half": "fp16",
    "bfloat16": "bf16",
    "at::BFloat16": "bf16",
    "uint8_t": "uint8",
    "bool": "bool",
}


class _StackFrame(NamedTuple):
    """A frame of a stack as torch writes it, with the text of its line."""

    file: str
    line: str
    function: str
    code: str


class _Node(NamedTuple):
    """One of the graph's nodes; ``op`` is the operator's name without its namespace, empty for other nodes."""

    op: str
    place: SourceLine | None
    given: tuple[str, ...]


class _Defined(NamedTuple):
    """A kernel as the program defines it, with the comment above it."""

    name: str
    code: str
    originals: tuple[str, ...] | None
    """The operators as they were before decomposition; None where the comment does not say."""
    nodes: Mapping[str, str] | None
    """The graph's nodes after which it is named, with their operators."""
    returned: frozenset[str]


class CompiledLines(NamedTuple):
    """The lines of code that Dynamo has compiled in this process."""

    file: str
    function: str
    """As the user calls it, for code after a graph break too."""
    lines: tuple[int, ...]
    compilations: tuple[str, ...]
    """By id, "0/1"."""


class Sources(NamedTuple):
    """Access to the source files that a program comes from."""

    is_users: Callable[[str], bool]
    is_loaded: Callable[[str], bool]
    """Whether a file is that of a module of this process."""
    text: Callable[[str], Sequence[str]]
    """Returns the lines of a file; empty if it cannot be read."""
    shown: Callable[[str], str]
    """Returns the name of a file as it is shown."""


class ProgramFacts(NamedTuple):
    """The facts in a generated program."""

    kernels: Mapping[str, GeneratedKernel]
    """The kernels, by the names under which they are recorded."""
    calls: tuple[OperatorCall, ...]
    """The operators that it calls itself, in order."""
    made_of: tuple[str, ...]
    """The compilations of the code that the lines are in, by id."""


@lru_cache(maxsize=1024)
def read_program(
    program: str,
    graph: str,
    traces: tuple[tuple[int, str | None], ...],
    sources: Sources,
    compiled: tuple[CompiledLines, ...],
) -> ProgramFacts:
    """Return the facts in a generated program; ``traces`` holds the stack of the code after each of its lines.

    ``compiled`` is all that this process has compiled: a program from a cache may have been made of other code, whose
    lines are not told.
    """
    lines = _Lines(traces, sources, compiled)
    nodes = dict(_nodes(graph, lines))
    text = program.splitlines()
    calls = _calls(text, {match["name"] for match in _DEFINED.finditer(program)})
    extern = list(_extern_calls(text))
    called = _Computed(nodes, Counter(op for _, op in extern), list(_defined(program)))
    kernels = {}
    for kernel in called.defined:
        ops, unclear, places = called.of(kernel, [lines.behind(at) for at in calls.get(kernel.name, ())])
        kernels[_recorded_name(kernel)] = GeneratedKernel(
            ops=ops, unclear=unclear, lines=places, dtypes=_dtypes(kernel.code)
        )
    return ProgramFacts(
        kernels=kernels,
        calls=tuple(OperatorCall(op=op, line=next(reversed(lines.behind(number)), None)) for number, op in extern),
        made_of=lines.compilations,
    )


def _recorded_name(kernel: _Defined) -> str:
    recorded = _RECORDED.search(kernel.code)
    return recorded["name"] if recorded else kernel.name


def _dtypes(code: str) -> tuple[str, ...]:
    """Return the types that a kernel reads and writes, with fp64 if it computes in that."""
    header = code.partition("@triton.jit\ndef triton")[0] if "@triton.jit" in code else code.partition("\n")[0]
    names = [match["triton"] or match["cpp"] for match in _POINTER.finditer(header)]
    dtypes = {_DTYPES[name] for name in names if name in _DTYPES}
    return tuple(sorted(dtypes | {"fp64"} if _DOUBLE.search(code) else dtypes))


class _Move(NamedTuple):
    """The folder in which the code lay when it was compiled, and where the same code lies in this process."""

    then: PurePath
    now: PurePath

    def __call__(self, file: str) -> str:
        path = PurePath(file)
        return str(self.now / path.relative_to(self.then)) if path.is_relative_to(self.then) else file


class _Lines:
    """The user's lines from which the nodes and the lines of the program come.

    A program from a cache names the code of which it was first made, which may be another function, another checkout's
    or another program's. So a stack counts where its outermost frame is code that was compiled here, by its text.
    """

    def __init__(
        self, traces: Iterable[tuple[int, str | None]], sources: Sources, compiled: Sequence[CompiledLines]
    ) -> None:
        self._sources = sources
        self._compiled = compiled
        # Many nodes come from one line.
        self._line, self._move, self._is_here = cache(self._find_line), cache(self._find_move), cache(self._has_file)
        ordered = sorted(traces, key=lambda trace: trace[0])
        self._begins = [line for line, _ in ordered]
        self._stacks = [[_StackFrame(*match) for match in _FRAME.findall(stack or "")] for _, stack in ordered]
        self._moves = {stack[0]: self._move(stack[0]) for stack in self._stacks if stack}
        # The graph tells the innermost frame of a node, which may be torch's.
        self._callers: dict[_StackFrame, set[SourceLine | None]] = {}
        for stack in self._stacks:
            if stack:
                self._callers.setdefault(stack[-1], set()).add(self._users(stack))

    @property
    def compilations(self) -> tuple[str, ...]:
        """The compilations of the code in which the program's stacks begin, by id."""
        files = {frame: move(frame.file) for frame, move in self._moves.items() if move is not None}
        codes = [
            c for frame, file in files.items() for c in self._compiled if c.file == file and self._lines_in(c, frame)
        ]
        return tuple(sorted({identity for code in codes for identity in code.compilations}))

    def behind(self, line: int) -> list[SourceLine]:
        """Return the user's lines for one line of the program, counted from 1; the last is the most likely one.

        A call of a C++ kernel may be written when the next operator has begun, so that the line before is meant.
        """
        at = bisect_left(self._begins, line)
        return [place for stack in self._stacks[max(at - 2, 0) : at] if (place := self._users(stack)) is not None]

    def of_frame(self, frame: _StackFrame) -> SourceLine | None:
        """Return the user's line for the innermost frame of a node; None where several are possible."""
        if self._sources.is_users(frame.file):
            # The frames around it are those of the program's other stacks, if it is not the outermost one itself.
            moves = {self._moves.get(frame) or self._move(frame)} - {None} or set(self._moves.values())
            return self._line(frame, moves.pop()) if len(moves) == 1 else None
        callers = self._callers.get(frame, set())
        return next(iter(callers)) if len(callers) == 1 else None

    def _users(self, stack: Sequence[_StackFrame]) -> SourceLine | None:
        frame = next((frame for frame in reversed(stack) if self._sources.is_users(frame.file)), None)
        return None if frame is None else self._line(frame, self._moves[stack[0]])

    def _find_line(self, frame: _StackFrame, move: _Move | None) -> SourceLine | None:
        if move is None:
            return None
        file = move(frame.file)
        line = self._now(file, frame) if self._is_here(file) else None
        function = name_in_source(frame.function)
        return None if line is None else SourceLine(file=self._sources.shown(file), line=line, function=function)

    def _has_file(self, file: str) -> bool:
        return any(code.file == file for code in self._compiled) or self._sources.is_loaded(file)

    def _find_move(self, frame: _StackFrame) -> _Move | None:
        """Return how the code of an outermost frame has moved; None where this process has not compiled that code."""
        files = {code.file for code in self._compiled if self._lines_in(code, frame)}
        if frame.file in files:
            return _UNMOVED
        files = {file for file in files if PurePath(file).name == PurePath(frame.file).name}
        return _move_between(frame.file, files.pop()) if len(files) == 1 else None

    def _lines_in(self, code: CompiledLines, frame: _StackFrame) -> list[int]:
        """Return the lines of compiled code that may be a frame's: those with its text in a function of its name."""
        if code.function != name_in_source(frame.function):
            return []
        text, written = self._sources.text(code.file), frame.code.strip()
        if not text or not written:
            return [int(frame.line)] if code.file == frame.file and int(frame.line) in code.lines else []
        return [number for number in code.lines if 0 < number <= len(text) and text[number - 1].strip() == written]

    def _now(self, file: str, frame: _StackFrame) -> int | None:
        """Return where a line is now; None if that is not known.

        A graph from a cache says where it was when it was compiled.
        """
        recorded, text, code = int(frame.line), self._sources.text(file), frame.code.strip()
        same = {number for own in self._compiled if own.file == file for number in self._lines_in(own, frame)}
        if not same and text and code:
            same = {number for number, written in enumerate(text, 1) if written.strip() == code}
        if recorded in same or not (text and code):
            return recorded
        return same.pop() if len(same) == 1 else None


_UNMOVED = _Move(PurePath(), PurePath())


def _move_between(then: str, now: str) -> _Move:
    """Return the move of the folders above what two paths have in common at their ends."""
    before, after = PurePath(then).parts, PurePath(now).parts
    pairs = zip(reversed(before), reversed(after), strict=False)
    common = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
    return _Move(PurePath(*before[: len(before) - common]), PurePath(*after[: len(after) - common]))


def _nodes(graph: str, lines: _Lines) -> Iterator[tuple[str, _Node]]:
    """Yield the nodes of the graph that the program was made of, with their names."""
    place = None
    for line in graph.splitlines():
        if match := _PLACE.match(line):
            place = lines.of_frame(_StackFrame(match["file"], match["line"], match["function"], match["code"] or ""))
        elif _NO_PLACE.match(line):
            place = None
        elif node := _NODE.match(line):
            target = _TARGET.search(node["value"])
            given = node["value"][target.end() :] if target else node["value"]
            yield node["name"], _Node(_bare(target[1]) if target else "", place, tuple(_ARGUMENT.findall(given)))


def _bare(target: str) -> str:
    """Return the bare name of an operator: "mm" for "aten.mm.default", "add" also for its in-place form."""
    parts = target.split(".")
    name = parts[1] if len(parts) > 1 else parts[0]
    return name.rstrip("_") or name


def _defined(program: str) -> Iterator[_Defined]:
    """Yield the kernels that the program defines."""
    for match in _DEFINED.finditer(program):
        first = match.start()
        while first and program.startswith("#", above := program.rfind("\n", 0, first - 1) + 1):
            first = above
        comment = program[first : match.start()]
        originals, returned = _ORIGINALS.search(comment), _RETURNED.search(comment)
        quotes = "'''"
        begin = program.find(quotes, match.end())
        end = program.find(quotes, begin + 3)
        yield _Defined(
            name=match["name"],
            code=program[match.start() : end],
            originals=tuple(dict.fromkeys(map(_last, originals["ops"].split(", ")))) if originals else None,
            nodes={node["name"]: _bare(node["target"]) for node in _FRAGMENT.finditer(comment)} or None,
            returned=frozenset(re.findall(r"%(\w+)", returned["names"])) if returned else frozenset(),
        )


def _last(op: str) -> str:
    return op.rpartition(".")[2]


def _calls(text: Sequence[str], names: set[str]) -> dict[str, list[int]]:
    """Return the lines in which the program calls each of its kernels."""
    lines_of: dict[str, list[int]] = {}
    for number, line in enumerate(text, 1):
        called = _CALLED.match(line)
        if called and called["name"] in names:
            lines_of.setdefault(called["name"], []).append(number)
    return lines_of


def _extern_calls(text: Iterable[str]) -> Iterator[tuple[int, str]]:
    """Yield the operators that the program calls itself, each with the line."""
    for number, line in enumerate(text, 1):
        if not line.lstrip().startswith("#") and (called := _EXTERN.search(line)):
            name = called["extern"] or called["op"]
            yield number, name.removeprefix("bias_").rstrip("_") or name


class _Computed:
    """Decides which of the nodes after which a kernel is named it computes."""

    def __init__(self, nodes: Mapping[str, _Node], extern: Counter[str], defined: Sequence[_Defined]) -> None:
        self.defined = defined
        self._nodes = nodes
        self._extern = extern
        named = {name: op for kernel in defined for name, op in (kernel.nodes or {}).items()}
        self._total = Counter({**named, **{name: node.op for name, node in nodes.items()}}.values())
        self._order = {name: index for index, name in enumerate(nodes)}
        self._at: dict[SourceLine | None, list[str]] = defaultdict(list)
        for name, node in nodes.items():
            self._at[node.place].append(name)
        self._in_template = any(_is_template(kernel) for kernel in defined)
        self._placed: set[str] = set()

    def of(
        self, kernel: _Defined, called_from: Sequence[Sequence[SourceLine]]
    ) -> tuple[tuple[str, ...] | None, tuple[str, ...], tuple[SourceLine, ...]]:
        """Return the operators that a kernel carries, those that it may carry, and the lines from which it comes."""
        named = kernel.originals if kernel.originals is not None else decode(kernel.name).triton_ops
        verdicts = {op: self._carries(kernel, op) for op in named}
        carried = tuple(op for op, verdict in verdicts.items() if verdict)
        unclear = tuple(op for op, verdict in verdicts.items() if verdict is None)
        if kernel.nodes is not None:
            members = [name for name, op in kernel.nodes.items() if self._computes(kernel, name, op)]
        else:
            members = self._behind(kernel, verdicts, called_from[0] if called_from else ())
        self._placed.update(members)
        places = [self._nodes[name].place for name in members if name in self._nodes]
        # The list of nodes is that of the first call; for the others the program gives one line.
        calls = called_from[1:] if any(places) else called_from
        places += [called[-1] for called in calls if called]
        return carried if named else None, unclear, tuple(dict.fromkeys(filter(None, places)))

    def _carries(self, kernel: _Defined, op: str) -> bool | None:
        """Return whether a kernel carries an operator after which it is named; None if nothing shows it."""
        own = op.rstrip("_")
        if kernel.nodes is not None:
            names = [name for name, other in kernel.nodes.items() if other == own]
        else:
            # Without a list of the kernel's nodes, each node is like the others.
            names = [""] if self._total[own] else []
        verdicts = {self._computes(kernel, name, op) for name in names}
        if not verdicts:
            return self._carries_decomposed(kernel, op)
        return True if True in verdicts else None if None in verdicts else False

    def _carries_decomposed(self, kernel: _Defined, op: str) -> bool | None:
        """Return whether a kernel carries an operator that is not in the graph, because others do its work.

        For a product that may be only its bias; without a sum it is.
        """
        if op in _PRODUCTS and not _is_template(kernel) and (self._in_template or _PRODUCTS.intersection(self._extern)):
            return False if kernel.nodes is not None and "sum" not in kernel.nodes.values() else None
        return None if self._extern[op] else True

    def _computes(self, kernel: _Defined, name: str, op: str) -> bool | None:
        """Return whether a kernel computes a node."""
        called = self._extern[op]
        if op in _PRODUCTS and _is_template(kernel):
            return True
        if called and called == self._total[op]:
            return False
        if called:
            return True if name in kernel.returned else None
        return None if op in _PRODUCTS and self._in_template else True

    def _behind(self, kernel: _Defined, verdicts: Mapping[str, bool | None], places: Sequence[SourceLine]) -> list[str]:
        """Return the nodes from which a kernel without a list of nodes was made, in the order of the graph.

        They are at the lines from which its call comes, or are inputs of an operator there for which the kernel was
        made, and nodes behind those.
        """
        carried = [op for op, verdict in verdicts.items() if verdict]
        there = [name for place in dict.fromkeys(places) for name in self._at.get(place, ())]
        own = [
            name for name in there if name not in self._placed and self._computes(kernel, name, self._nodes[name].op)
        ]
        for_others = [name for name in there if verdicts.get(self._nodes[name].op) is False]
        queue = [given for name in for_others for given in self._nodes[name].given]
        queue = queue or [name for name in own if self._nodes[name].op in carried] or own
        members: set[str] = set()
        while queue:
            name = queue.pop()
            node = self._nodes.get(name)
            if node is None or name in members or not self._computes(kernel, name, node.op):
                continue
            if node.op in carried or name not in self._placed:
                members.add(name)
                queue += node.given
        return sorted(members, key=self._order.__getitem__)


def _is_template(kernel: _Defined) -> bool:
    return any(mark in kernel.code for mark in _TEMPLATE)
