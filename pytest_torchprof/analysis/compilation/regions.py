"""What torch.compile leaves in a trace: regions, look-ups, compilations."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pytest_torchprof.trace import Span, Trace

FX_GRAPH = "## Call CompiledFxGraph "
_REGION = "Torch-Compiled Region"
_LOOKUP = "TorchDynamo Cache Lookup"
_COMPILE_ID = re.compile(r"\bcompile_id=(\d+)/(\d+)")
_COMPILED_CODE = (_REGION, "CompiledFunction", FX_GRAPH)


class Region(NamedTuple):
    """A range in which compiled code ran; `identity` is "0/1", frame and attempt, None in torch before 2.6."""

    name: str
    identity: str | None


class Regions(Struct, frozen=True, kw_only=True):
    """The regions of the steps, and which ran inside which."""

    regions: Sequence[Region]
    nested_by_step: Mapping[int, Sequence[tuple[Region, Region]]]
    """The nested ones with the region around each."""
    lookups_without_region: int

    @property
    def nested(self) -> list[tuple[Region, Region]]:
        return [pair for pairs in self.nested_by_step.values() for pair in pairs]

    @property
    def ids(self) -> set[str]:
        return {region.identity for region in self.regions if region.identity is not None}


class ByThread:
    """Finds the range of a thread that an instant lies in; ranges of one thread must not overlap."""

    def __init__(self, spans: Iterable[Span]) -> None:
        self._spans: dict[object, list[Span]] = defaultdict(list)
        for span in spans:
            self._spans[span.tid].append(span)
        self._starts = {tid: [span.start_ns for span in found] for tid, found in self._spans.items()}

    def __bool__(self) -> bool:
        return bool(self._spans)

    def at(self, tid: object, instant: int) -> Span | None:
        place = bisect_right(self._starts.get(tid, ()), instant) - 1
        if place < 0 or instant >= self._spans[tid][place].end_ns:
            return None
        return self._spans[tid][place]


def is_compiled_code(name: str) -> bool:
    """Whether a range of this name runs compiled code: a region, or a compiled function's forward or backward."""
    return name.startswith(_COMPILED_CODE)


def read(trace: Trace) -> Regions:
    """Return the regions that ran in the steps."""
    spans = [span for span in trace.spans(_REGION) if trace.step_at(span.start_ns) >= 0]
    nested: dict[int, list[tuple[Region, Region]]] = defaultdict(list)
    open_: dict[object, list[Span]] = defaultdict(list)
    for span in spans:
        around = open_[span.tid]
        while around and around[-1].end_ns <= span.start_ns:
            around.pop()
        if around:
            nested[trace.step_at(span.start_ns)].append((_region(span), _region(around[-1])))
        around.append(span)
    return Regions(
        regions=[_region(span) for span in spans],
        nested_by_step=nested,
        lookups_without_region=_lookups_without_region(trace, spans),
    )


def compiled_again(trace: Trace, seen: Regions) -> list[str]:
    """Return the ids of what was compiled inside the steps although a compilation of the same frame had run there.

    A frame whose first compilation lies in the steps too does not tell a guard that failed from a second module.
    """
    found = {match.groups() for name in trace.names if (match := _COMPILE_ID.search(name))}
    first = {frame for frame, attempt in found if attempt == "0"}
    ran = {tuple(identity.split("/")) for identity in seen.ids if "/" in identity}
    again = {
        (frame, attempt)
        for frame, attempt in found
        if attempt != "0" and frame not in first and any(f == frame and int(a) < int(attempt) for f, a in ran)
    }
    return [f"{frame}/{attempt}" for frame, attempt in sorted(again)]


def _region(span: Span) -> Region:
    _, _, identity = span.name.partition(": ")
    return Region(span.name, identity if identity and identity != "Unknown" else None)


def _lookups_without_region(trace: Trace, regions: Sequence[Span]) -> int:
    """Count look-ups that neither a region nor a compilation follows before the next look-up of the thread."""
    count = 0
    events: dict[object, list[tuple[int, str]]] = defaultdict(list)
    for span in trace.spans(_LOOKUP):
        if trace.step_at(span.start_ns) >= 0:
            events[span.tid].append((span.start_ns, _LOOKUP))
    if not events:
        return 0
    for span in (*regions, *trace.spans(suffix=" (dynamo_timed)")):
        events[span.tid].append((span.start_ns, _REGION))
    for found in events.values():
        kinds = [kind for _, kind in sorted(found)]
        count += sum(a == b == _LOOKUP for a, b in zip(kinds, [*kinds[1:], _LOOKUP], strict=True))
    return count
