"""The facts on the kernels that Inductor generated, besides their names: its code, or the work beside them."""

from __future__ import annotations

from collections import defaultdict
from functools import cached_property
from typing import TYPE_CHECKING

from msgspec.structs import replace

from pytest_torchprof.analysis.compilation import FX_GRAPH, ByThread, is_compiled_code
from pytest_torchprof.analysis.regions import REGION, region_of
from pytest_torchprof.kernels.fields import bare
from pytest_torchprof.kernels.names import decode
from pytest_torchprof.kernels.names.inductor import ALWAYS_GENERATED, GEMM_OPS
from pytest_torchprof.trace.columns import ABSENT

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pytest_torchprof.kernels.names import KernelName
    from pytest_torchprof.trace import Trace
    from pytest_torchprof.trace.compile_evidence import GeneratedKernel, InductorGraph, SourceLine


def operator_name(op: str) -> str:
    """Return an operator's name alone, that of the one in place too: "add" of "aten::add_"."""
    return bare(op).rstrip("_") or op


class GeneratedCode:
    """The code of a recording's kernels, as far as the recording holds it; names are of one graph, not of all."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        evidence = None if trace.metadata is None else trace.metadata.compile
        self._graphs = (
            [] if evidence is None else [graph for graph in evidence.fx_graphs if graph.kernels or graph.calls]
        )
        self._calls = ByThread(trace.spans(FX_GRAPH) if self._graphs else ())
        self._compilations = frozenset() if evidence is None else frozenset(evidence.entries or ())
        self._regions = ByThread(trace.spans(REGION) if any(graph.made_of for graph in self._graphs) else ())

    def __bool__(self) -> bool:
        return bool(self._graphs)

    def of(self, names: Iterable[str | None], thread: object, moment_ns: int) -> GeneratedKernel | None:
        """Return the code of a kernel that is called by one of these names, launched by the thread at a moment."""
        graphs = self._graphs_of_call(thread, moment_ns)
        held = [graph for graph in graphs for name in filter(None, names) if name in graph.kernels]
        kernels = {graph.kernels[name] for graph in held for name in filter(None, names) if name in graph.kernels}
        if len(kernels) != 1:
            return None
        kernel = kernels.pop()
        return replace(kernel, lines=()) if self._is_of_other_code(held, thread, moment_ns) else kernel

    def _line_of_call(self, op: str, number: int, count: int, thread: object, moment_ns: int) -> SourceLine | None:
        """Return the line of an operator that a program calls itself, of so many calls of it the one of this number.

        The number counts from 0. None where the program has another number of such calls.
        """
        graphs = self._graphs_of_call(thread, moment_ns)
        if self._is_of_other_code(graphs, thread, moment_ns):
            return None
        calls = [[call for call in graph.calls if call.op == op] for graph in graphs]
        lines = {same[number].line for same in calls if len(same) == count}
        return lines.pop() if len(lines) == 1 and len(calls) == 1 else None

    def lines(self, op: int, code: GeneratedKernel | None) -> Sequence[SourceLine]:
        """Return the lines of a kernel, those of its code or the one of the operator around it that a program calls."""
        if code is not None:
            return code.lines
        if not self or op < 0:
            return ()
        trace, ops, called = self._trace, self._trace.ops, self._called_by_programs
        outer = next((candidate for candidate in trace.nesting.chain(op) if candidate in called), ABSENT)
        if outer < 0:
            return ()
        name, number, count = called[outer]
        line = self._line_of_call(name, number, count, trace.threads[ops.thread[outer]], ops.start[outer])
        return () if line is None else (line,)

    @cached_property
    def _called_by_programs(self) -> dict[int, tuple[str, int, int]]:
        """The operators directly inside compiled code: name, and which of how many of this name there in order."""
        trace, ops = self._trace, self._trace.ops
        compiled = {i for i, name in enumerate(trace.names) if is_compiled_code(name)}
        same: dict[tuple[int, str], list[int]] = defaultdict(list)
        for op, parent in enumerate(trace.nesting.parent):
            if parent >= 0 and ops.name[parent] in compiled and ops.name[op] not in compiled:
                same[parent, operator_name(trace.names[ops.name[op]])].append(op)
        return {
            op: (name, number, len(calls))
            for (_, name), calls in same.items()
            for number, op in enumerate(sorted(calls, key=ops.start.__getitem__))
        }

    def _is_of_other_code(self, graphs: Iterable[InductorGraph], thread: object, moment_ns: int) -> bool:
        """Return whether a compilation runs that got these graphs from the cache, where other code had put them."""
        region = self._regions.at(thread, moment_ns)
        identity = None if region is None else region_of(region).identity
        return identity in self._compilations and any(g.made_of and identity not in g.made_of for g in graphs)

    def _graphs_of_call(self, thread: object, moment_ns: int) -> list[InductorGraph]:
        """Return the graph whose call it is on this thread, or all of which it may be."""
        call = self._calls.at(thread, moment_ns)
        key = None if call is None else call.name.removeprefix(FX_GRAPH).strip(" #")
        return [graph for graph in self._graphs if key in (None, "None", graph.hash)]


class Beside:
    """The operations that a recording's operators computed themselves, inside each compiled region and outside all."""

    def __init__(self, kernels: Iterable[tuple[str, Sequence[str]]]) -> None:
        """Take the kernels as they are called, with the names of the ranges around each launch."""
        self._ops: dict[Sequence[str], set[str]] = defaultdict(set)
        self._hidden: set[Sequence[str]] = set()
        for name, chain in kernels:
            region, inside = _split(chain)
            if decode(name).triton_ops:
                continue
            if inside:
                self._ops[region].add(operator_name(inside[0]))
            else:
                self._hidden.add(region)

    def doubted(self, decoded: KernelName, chain: Sequence[str]) -> tuple[str, ...]:
        """Return the operators in the name of a kernel of Inductor's that may be computed by another kernel.

        It may be called after its inputs and what it is made for: operators that ran by themselves in the same region,
        and, where some kernels have no operator (they are in a CUDA graph), whatever Inductor does not always generate.
        Outside of regions that is so of all, since eager code may have run there.
        """
        region, _ = _split(chain)
        own = GEMM_OPS.split() if decoded.triton == "tem" else ()
        apart, hidden = self._ops.get(region, set()), region in self._hidden
        doubtful = []
        for op in decoded.triton_ops:
            sure = op in own or (op in ALWAYS_GENERATED and (not region or op.rstrip("_") not in apart))
            if not sure and (hidden or op.rstrip("_") in apart):
                doubtful.append(op)
        return tuple(doubtful)


def _split(chain: Sequence[str]) -> tuple[Sequence[str], Sequence[str]]:
    """Return the ranges around and including the innermost compiled region, and those inside it."""
    at = next((at for at in range(len(chain), 0, -1) if is_compiled_code(chain[at - 1])), 0)
    return chain[:at], chain[at:]
