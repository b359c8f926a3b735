"""Inductor's comments on its kernels: which operators each computes, from which lines, in which types.

They are read from the two texts that every compiled graph holds, even one from a cache: the generated program, and the
graph from which it was made. Run with torch 2.13.0 and 2.15.0; if a text is missing or has another form, less is known,
but nothing wrong.

Inductor names a kernel after its inputs and consumers too: operators for which it only copies, or that are fused into
another kernel. An operator that the program calls as often as the graph holds it is computed by these calls alone.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from pytest_torchprof.capture.program_lines import CompiledLines, ProgramLines, Sources, StackFrame
from pytest_torchprof.kernels.names import decode
from pytest_torchprof.kernels.names.inductor import GEMM_OPS
from pytest_torchprof.trace.compile_evidence import GeneratedKernel, OperatorCall, SourceLine

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

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
    lines = ProgramLines(traces, sources, compiled)
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


def _nodes(graph: str, lines: ProgramLines) -> Iterator[tuple[str, _Node]]:
    """Yield the nodes of the graph that the program was made of, with their names."""
    place = None
    for line in graph.splitlines():
        if match := _PLACE.match(line):
            place = lines.of_frame(StackFrame(match["file"], match["line"], match["function"], match["code"] or ""))
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
