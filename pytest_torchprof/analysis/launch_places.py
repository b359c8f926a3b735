"""From where in the user's code a part's work was launched, and its operators were called."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from msgspec.structs import replace

from pytest_torchprof.analysis.origin import Origin, Places, Work, in_code
from pytest_torchprof.analysis.part_order import kernels_in_order
from pytest_torchprof.analysis.waits import blocking_calls

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_torchprof.analysis.launches import Launching
    from pytest_torchprof.analysis.parts import Part
    from pytest_torchprof.trace import Trace
    from pytest_torchprof.trace.graph_annotations import Annotation


def places_of(trace: Trace, launching: Launching, part: Part) -> Places:
    """Return the origins of a part's work; of that of compiled kernels also without recorded stacks."""
    captured = trace.captured
    if not (launching.origins.recorded or launching.generated or captured.of or captured.annotated):
        return Places()
    work: dict[Work, list[Origin | None]] = defaultdict(list)
    for launched, origin in _origins_of(trace, launching, part):
        work[launched].append(origin)
    operators: dict[str, Counter[Origin]] = defaultdict(Counter)
    for op in launching.operators.that_ran(part):
        if (origin := launching.origins.of_operator(op)) is not None:
            operators[trace.names[trace.ops.name[op]]][origin] += 1
    return Places(work=work, kernels=_work(trace, launching, part), operators=operators)


def _work(trace: Trace, launching: Launching, part: Part) -> list[Work]:
    """Return the name and the operator of each of the part's kernels, in launch order."""
    names, gpu = trace.names, trace.gpu
    if not trace.device_kind.has_launches:
        return [(name, name) for name in [names[trace.ops.name[op]] for op in part.operators]]
    return [(names[gpu.name[i]], launching.op_name(launching.op_of[i])) for i in kernels_in_order(trace, part)]


def _origins_of(trace: Trace, launching: Launching, part: Part) -> Iterator[tuple[Work, Origin | None]]:
    names, origins, generated = trace.names, launching.origins, launching.generated
    for op in part.operators:
        name = names[trace.ops.name[op]]
        yield (name, name), in_code(origins.of_operator(op), generated.lines(op, launching.code_of_operator(op)))
    for i in part.gpu_ops:
        op = launching.op_of[i]
        lines = generated.lines(op, launching.code(i))
        captured = trace.captured.of.get(i)
        recorded = origins.of_call(trace.links.call_of[i], op) if captured is None else origins.of_capture(captured)
        origin = in_code(_annotated(recorded, trace.captured.annotated.get(i)), lines)
        yield (names[trace.gpu.name[i]], launching.op_name(op)), origin
    for call, op in trace.nesting.around_each(trace.calls, blocking_calls(trace, part.calls)).items():
        yield (names[trace.calls.name[call]], launching.op_name(op)), origins.of_call(call, op)


def _annotated(origin: Origin | None, annotation: Annotation | None) -> Origin | None:
    """Return a place with the annotation of a graph's node, which the launch of the graph does not tell."""
    if annotation is None:
        return origin
    return replace(origin or Origin(), module=annotation.place, backward=annotation.backward)
