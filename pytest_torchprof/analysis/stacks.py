"""The calls of all steps added up: a tree of modules, Python frames or operators with the time of each."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

from msgspec import Struct, field

from pytest_torchprof.analysis.source_lines import MARK, MODULE
from pytest_torchprof.devices.range_names import EACH_STEP, STEP
from pytest_torchprof.trace.columns import ABSENT, Ranges
from pytest_torchprof.trace.nesting import Nesting

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pytest_torchprof.analysis.analysis import Analysis
    from pytest_torchprof.trace import Trace


class StackKind(StrEnum):
    """The kind of a stack's frames; operators and the kernels that they launch are always its end."""

    MODULE = "module"
    STACK = "stack"
    """Python frames."""
    OPERATOR = "operator"


class StackTree(Struct, frozen=True, kw_only=True, eq=False):
    """A tree as columns, holders before what they hold; times in ns are each node's own, summed over the steps."""

    kind: StackKind
    names: list[str] = field(default_factory=list)
    parent: list[int] = field(default_factory=list)
    """ABSENT for those that nothing holds."""
    cpu_ns: list[int] = field(default_factory=list)
    gpu_ns: list[int] = field(default_factory=list)
    """The time of kernels, copies and fills, which are nodes of their own."""
    calls: list[int] = field(default_factory=list)

    def paths(self) -> Iterator[tuple[int, ...]]:
        """Yield for each node those around it and itself, outermost first."""
        paths: list[tuple[int, ...]] = []
        for node, parent in enumerate(self.parent):
            paths.append((*paths[parent], node) if parent >= 0 else (node,))
            yield paths[-1]


class _Growing:
    """A tree that grows by names."""

    def __init__(self, kind: StackKind) -> None:
        self.tree = StackTree(kind=kind)
        self._node_at: dict[tuple[int, str], int] = {}

    def node(self, parent: int, name: str) -> int:
        """Return the node of this name inside another, new if need be."""
        node = self._node_at.get((parent, name))
        if node is None:
            tree = self.tree
            node = self._node_at[parent, name] = len(tree.names)
            tree.names.append(name)
            tree.parent.append(parent)
            for column in (tree.cpu_ns, tree.gpu_ns, tree.calls):
                column.append(0)
        return node


def stack_kinds(trace: Trace) -> tuple[StackKind, ...]:
    """Return the kinds of stacks that a recording has, the one that tells most first."""
    used = {trace.names[name] for name in set(trace.frames.name)}
    marked = {name for name in used if name.startswith(MARK)}
    has_modules = any(name.startswith(MODULE) or (name in marked and not name.endswith(", ")) for name in used)
    return (
        *([StackKind.MODULE] if has_modules else []),
        *([StackKind.STACK] if used - marked else []),
        StackKind.OPERATOR,
    )


def stacks_of(analysis: Analysis, kind: StackKind) -> StackTree:
    """Return the tree of the work in the steps."""
    growing, trace = _Growing(kind), analysis.trace
    if kind is StackKind.STACK:
        ranges, nesting, index_of_op = _with_frames(trace)
    else:
        ranges, nesting, index_of_op = trace.ops, trace.nesting, None
    root = _modules(analysis, growing) if kind is StackKind.MODULE else None
    node_of = _add_cpu(trace, growing, ranges, nesting, root)
    _add_gpu(analysis, growing, node_of, index_of_op)
    return growing.tree


def _with_frames(trace: Trace) -> tuple[Ranges, Nesting, dict[int, int]]:
    """Return frames and operators as one, and where each operator is in it."""
    merged, index_of_op = Ranges(), {}
    marks = {name for name in set(trace.frames.name) if trace.names[name].startswith(MARK)}
    for part in (trace.frames, trace.ops):
        for i, name in enumerate(part.name):
            if part is trace.ops:
                index_of_op[i] = len(merged)
            elif name in marks:
                continue
            merged.name.append(name)
            merged.start.append(part.start[i])
            merged.end.append(part.end[i])
            merged.thread.append(part.thread[i])
    return merged, Nesting(merged), index_of_op


def _modules(analysis: Analysis, growing: _Growing) -> Callable[[int], int]:
    """Return a function that gives the node of the modules that an operator ran in."""
    nodes: dict[str | None, int] = {None: ABSENT}

    def root(op: int) -> int:
        origin = analysis.launching.origins.of_operator(op)
        module = None if origin is None else origin.module
        if module not in nodes:
            node = ABSENT
            for name in str(module).split("."):
                node = growing.node(node, name)
            nodes[module] = node
        return nodes[module]

    return root


def _add_cpu(
    trace: Trace, growing: _Growing, ranges: Ranges, nesting: Nesting, root: Callable[[int], int] | None
) -> dict[int, int]:
    """Add the CPU's time of the ranges in the steps; return the node of each."""
    names, named, parent, tree = trace.names, ranges.name, nesting.parent, growing.tree
    order = sorted(range(len(ranges)), key=lambda i: (ranges.start[i], -ranges.end[i], i))
    in_steps = trace.step_at if trace.has_step_ranges else _always
    node_of: dict[int, int] = {}
    for i in order:
        if in_steps(ranges.start[i]) < 0:
            continue
        holder = node_of.get(parent[i], ABSENT)
        if root is None:
            node = growing.node(holder, _frame_of(names[named[i]]))
        else:
            node = root(i)
            for outer in reversed([*nesting.chain(i)]):
                node = growing.node(node, _frame_of(names[named[outer]]))
        node_of[i] = node
        took = ranges.end[i] - ranges.start[i]
        tree.cpu_ns[node] += took
        tree.calls[node] += 1
        if holder >= 0:
            tree.cpu_ns[holder] -= took
    return node_of


def _frame_of(name: str) -> str:
    """Return a range's name in the tree; old recordings have the steps among the operators."""
    return EACH_STEP if name.startswith(STEP) else name


def _add_gpu(
    analysis: Analysis, growing: _Growing, node_of: dict[int, int], index_of_op: dict[int, int] | None
) -> None:
    """Add the work of the steps on the GPU, below the operators that launched it."""
    trace, op_of, tree = analysis.trace, analysis.launching.op_of, growing.tree
    gpu = trace.gpu
    for part in analysis.launching.parts:
        for i in part.gpu_ops:
            op = op_of[i]
            index = op if index_of_op is None else index_of_op.get(op, ABSENT)
            node = growing.node(node_of.get(index, ABSENT), trace.names[gpu.name[i]])
            tree.gpu_ns[node] += gpu.end[i] - gpu.start[i]
            tree.calls[node] += 1


def _always(_instant: int) -> int:
    return 0
