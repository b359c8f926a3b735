"""Limits on what torch.compile did: graph breaks, recompiles, fallbacks, compile time, CUDA graphs."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec.structs import replace

from pytest_torchprof.analysis.compilation import is_compiled_code
from pytest_torchprof.devices.cpu import operator_work
from pytest_torchprof.devices.kinds import OperatorWork
from pytest_torchprof.errors import UnknownLimit
from pytest_torchprof.limits.compile_time import max_compile_time, read_compile_time
from pytest_torchprof.limits.limit import (
    COMPILE,
    HOLDS,
    MISSED,
    Limit,
    Verdict,
    WorkRow,
    fraction,
    group_kernels,
    in_step,
    unmeasured,
    whole_number,
)
from pytest_torchprof.limits.own_code import OWN, divide, not_counted, unknown_names
from pytest_torchprof.reasons.composed import SkippedGraphsUnknown
from pytest_torchprof.reasons.limits import GraphLaunchesUntold, NoGraphRan
from pytest_torchprof.text import counted, path_from_here

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_torchprof.analysis.analysis import Analysis
    from pytest_torchprof.analysis.compilation import Compile
    from pytest_torchprof.analysis.steps import StepProfile
    from pytest_torchprof.kernels.kernel import Kernel
    from pytest_torchprof.reasons import Reason
    from pytest_torchprof.recording.metadata import GraphBreak, Recompile

    Found = TypeVar("Found", GraphBreak, Recompile)

_USUAL_CAUSES = (
    "usual causes: the test does not call what torch.compile returned; module.compile() of a module from torch.nn, "
    "whose own code is skipped (use torch.compile(module)); torch.compiler.disable, or a stance; no tensor among the "
    "arguments; another thread runs the code, and torch.profiler does not record it"
)


def _max_graph_breaks(analysis: Analysis, bound: int, *, own: Sequence[str] = ()) -> Verdict:
    compiled = analysis.compile
    found, others, untold = _of_own_code(compiled.graph_breaks or (), own)
    lines = [tuple(_break_lines(one)) for one in found]
    unknown = compiled.graph_breaks_unknown or untold
    verdict = _at_most(bound, "graph break", lines, unknown, compiled)
    return replace(verdict, remark=others, line=_first_line(found))


def _max_recompiles(analysis: Analysis, bound: int, *, own: Sequence[str] = ()) -> Verdict:
    compiled = analysis.compile
    found, others, untold = _of_own_code(compiled.recompiles or (), own)
    lines = [(one.reason if one.file is None else f"{_place(one)}: {one.reason}",) for one in found]
    unknown = compiled.recompiles_unknown or untold
    verdict = _at_most(bound, "recompile", lines, unknown, compiled)
    return replace(verdict, remark=others, line=_first_line(found))


def _of_own_code(found: Sequence[Found], own: Sequence[str]) -> tuple[Sequence[Found], str, Reason | None]:
    """Return what counts, what to say of the rest, and why that may be wrong; without ``own`` all counts."""
    if not own:
        return found, "", None
    counted_ones, others = divide(found, own)
    return counted_ones, not_counted(others), unknown_names(own, [one.file for one in found if one.file is not None])


def _first_line(found: Sequence[GraphBreak | Recompile]) -> tuple[str, int] | None:
    return next(((one.file, one.line) for one in found if one.file is not None and one.line is not None), None)


def _at_most(
    bound: int, noun: str, lines_of_each: Sequence[tuple[str, ...]], unknown: Reason | None, compiled: Compile
) -> Verdict:
    """Return the verdict on events of the compiler, with lines about each; ``unknown`` is why there may be more."""
    found, lines = len(lines_of_each), tuple(chain.from_iterable(lines_of_each))
    seen = counted(found, noun)
    if found > bound:
        return Verdict(measured=seen, number=found, status=MISSED, details=lines)
    if compiled.nothing is not None:
        details = lines_on_nothing(compiled)
        return Verdict(measured="nothing was compiled", number=found, status=MISSED, details=details)
    if unknown:
        return unmeasured(unknown, lines)
    return Verdict(measured=seen, number=found, status=HOLDS)


def lines_on_nothing(compiled: Compile) -> tuple[str, ...]:
    """Return what may be the reason why nothing was compiled; nothing where something was."""
    if compiled.nothing is None:
        return ()
    skipped = tuple(line for one in compiled.skipped_frames for line in _break_lines(one))
    return (*skipped, *compiled.nothing) or (_USUAL_CAUSES,)


def _break_lines(one: GraphBreak) -> Iterator[str]:
    if one.file is None:
        yield one.reason
        return
    what = "the whole frame runs uncompiled" if one.skipped_frame else f"{one.count + 1} graphs instead of 1"
    yield f"{_place(one)}: {one.reason} ({what})"
    if one.explanation:
        yield f"    {one.explanation}"


def _place(one: GraphBreak | Recompile) -> str:
    return f"{path_from_here(one.file or '')}:{one.line} in {one.function}"


def _max_fallbacks(analysis: Analysis, bound: int) -> Verdict:
    compiled = analysis.compile
    count = sum(one.count for one in compiled.fallbacks)
    lines = tuple(f"{one.count:>4} x {one.op}" for one in compiled.fallbacks)
    unknown = compiled.fallbacks_unknown if compiled.fx_graphs else NoGraphRan()
    if count <= bound and unknown:
        return unmeasured(unknown, lines)
    return Verdict(
        measured=f"{counted(count, 'aten kernel')} called by Inductor's graphs",
        number=count,
        status=HOLDS if count <= bound else MISSED,
        details=lines if count > bound else (),
    )


def _read_cuda_graph(value: object) -> object:
    if value is True or value == "all":
        return value
    if value is False:
        raise UnknownLimit('expected True, "all" or a share of all kernels such as 0.95, got False')
    try:
        return fraction(value)
    except UnknownLimit:
        raise UnknownLimit(f'expected True, "all" or a share of all kernels such as 0.95, got {value!r}') from None


def _cuda_graph(analysis: Analysis, asked: Any) -> Verdict:
    blocked = _why_graphs_are_unknown(analysis)
    if blocked:
        return unmeasured(blocked)
    skips = analysis.compile.cuda_graphs.skips
    if skips and asked is True:
        lines = tuple(f"no graph: {reason}" for reason in skips)
        return Verdict(measured="Inductor made no graph", status=MISSED, details=lines)
    said = ""
    for step in analysis.steps:
        problem, rows, said = _graphs_of_step(step, asked)
        if problem:
            return Verdict(measured=problem + in_step(analysis, step), status=MISSED, details=rows, step=step.name)
    unknown = analysis.compile.cuda_graphs.skips_unknown if asked is True else None
    if unknown:
        return unmeasured(SkippedGraphsUnknown(said, unknown))
    return Verdict(measured=said, status=HOLDS)


def _why_graphs_are_unknown(analysis: Analysis) -> Reason | None:
    if lacking := analysis.trace.device_kind.why_no("CUDA graphs"):
        return lacking
    if analysis.trace.attribution == "time":
        return GraphLaunchesUntold()
    return None


def _graphs_of_step(step: StepProfile, asked: Any) -> tuple[str | None, tuple[WorkRow, ...], str]:
    """Return what is wrong with one step (None: nothing), its kernels outside graphs, and what was seen."""
    total, inside = len(step.kernels), sum(kernel.in_graph for kernel in step.kernels)
    outside = [kernel for kernel in step.kernels if not kernel.in_graph]
    seen = f"{inside} of {counted(total, 'kernel')} ran in {counted(int(step.graph_launches), 'graph launch')}"
    if not step.graph_launches:
        return "no graph was launched", group_kernels(step, outside), seen
    if asked is True:
        held = list(_in_compiled_code(step.kernels))
        moved = [kernel for kernel in held if kernel.op is not None and operator_work(kernel.op) is OperatorWork.MOVES]
        loose = [kernel for kernel in held if kernel not in moved]
        seen += f", copies and fills before them: {len(moved)}" if moved else ""
        problem = f"{counted(len(loose), 'kernel')} of compiled code launched outside a graph" if loose else None
        return problem, group_kernels(step, loose), seen
    needed = 1.0 if asked == "all" else asked
    if inside < needed * total:
        return f"{seen} ({inside / total:.0%})", group_kernels(step, outside), seen
    return None, (), seen


def _in_compiled_code(kernels: Sequence[Kernel]) -> Iterator[Kernel]:
    """Yield the kernels outside graphs that compiled code, or a range with a graph launch in it, launched."""
    # The engine's own range is around all that a backward pass does, such as adding up gradients behind the graph.
    owners = {
        name
        for kernel in kernels
        if kernel.in_graph
        for name in kernel.op_chain
        if not name.startswith("autograd::engine::evaluate_function: ")
    }
    for kernel in kernels:
        if not kernel.in_graph and any(is_compiled_code(name) or name in owners for name in kernel.op_chain):
            yield kernel


COMPILE_LIMITS = (
    Limit(
        name="max_graph_breaks",
        read=whole_number,
        check=_max_graph_breaks,
        settings=(OWN,),
        needs=COMPILE,
        located=False,
        families=(),
    ),
    Limit(
        name="max_recompiles",
        read=whole_number,
        check=_max_recompiles,
        settings=(OWN,),
        needs=COMPILE,
        located=False,
        families=(),
    ),
    # What the CPU's code generator does says nothing about the GPU's: these wait for the real device.
    *(
        Limit(name=name, read=read, check=check, on_gpu_work=False, located=False, families=())
        for name, read, check in (
            ("max_fallbacks", whole_number, _max_fallbacks),
            ("max_compile_time", read_compile_time, max_compile_time),
        )
    ),
    Limit(name="cuda_graph", read=_read_cuda_graph, check=_cuda_graph, per_step=True, families=()),
)
