"""Where a step's kernels, copies and blocking calls come from, told by name and launching operator."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from msgspec import Struct, field

from pytest_torchprof.devices.base import BLOCKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from pytest_torchprof.analysis.launches import Launching
    from pytest_torchprof.analysis.parts import Part
    from pytest_torchprof.analysis.source_lines import Origin
    from pytest_torchprof.trace import Trace

Work = tuple[str, str | None]
"""The name of a kernel, copy or blocking call, and the operator that made it."""


class Places(Struct, frozen=True, kw_only=True):
    """The origins of one step's work, and why there are none where they were looked for."""

    work: Mapping[Work, Counter[Origin]] = field(default_factory=dict)
    operators: Mapping[str, Counter[Origin]] = field(default_factory=dict)
    """Those of the operators that launched it or enclose one that did."""
    why_not: str | None = None

    def of(self, work: Iterable[Work]) -> list[tuple[int, Origin]]:
        """Return how often this work was done from where, the most frequent place first."""
        counted: Counter[Origin] = Counter()
        for one in work:
            counted.update(self.work.get(one, {}))
        return _listed(counted)

    def of_operator(self, name: str) -> list[tuple[int, Origin]]:
        """Return how often an operator of this name was called from where, likewise."""
        return _listed(self.operators.get(name, Counter()))


def _listed(counted: Counter[Origin]) -> list[tuple[int, Origin]]:
    return [(count, origin) for origin, count in counted.most_common()]


def places_of(trace: Trace, launching: Launching, part: Part) -> Places:
    """Return the origins of a part's work; nothing is found, and nothing computed, without recorded stacks."""
    if not launching.origins.recorded:
        return Places()
    work: dict[Work, Counter[Origin]] = defaultdict(Counter)
    for one, origin in _origins(trace, launching, part):
        if origin is not None:
            work[one][origin] += 1
    operators: dict[str, Counter[Origin]] = defaultdict(Counter)
    for op in launching.holders(part):
        if (origin := launching.origins.of_operator(op)) is not None:
            operators[trace.names[trace.ops.name[op]]][origin] += 1
    return Places(work=work, operators=operators)


def _origins(trace: Trace, launching: Launching, part: Part) -> Iterator[tuple[Work, Origin | None]]:
    origins, names = launching.origins, trace.names
    for op in part.operators:
        name = names[trace.ops.name[op]]
        yield (name, name), origins.of_operator(op)
    for i in part.gpu_ops:
        op = launching.op_of[i]
        yield (names[trace.gpu.name[i]], launching.op_name(op)), origins.of_call(trace.links.call_of[i], op)
    blocking = trace.call_names(BLOCKING)
    waits = [call for call in part.calls if trace.calls.name[call] in blocking]
    for call, op in trace.nesting.around_each(trace.calls, waits).items():
        yield (names[trace.calls.name[call]], launching.op_name(op)), origins.of_call(call, op)
