"""The regions that compiled code leaves in a trace, and which ran inside which."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import TYPE_CHECKING

from msgspec import Struct

from pytest_torchprof.devices.range_names import PLUGIN

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_torchprof.trace import Span, Trace

PACKAGE = f"{PLUGIN}aotinductor"
"""The range that a measurement puts around each call of a package of AOTInductor's, whose kernels leave none."""
PACKAGES = (PACKAGE, "AOTIModelContainerRunner::")
"""With what such ranges begin: ours, and torch's own (2.15 has them, 2.14 has not)."""
REGION = "Torch-Compiled Region"
_LOOKUP = "TorchDynamo Cache Lookup"
_COMPILE_ID = r"\bcompile_id=(\d+)/(\d+)"


class Region(Struct, frozen=True):
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


def regions_of(trace: Trace) -> Regions:
    """Return the regions that ran in the steps, without those that torch compiled for itself."""
    spans = trace.spans_in_steps(REGION)
    evidence = None if trace.metadata is None else trace.metadata.compile
    of_torch = () if evidence is None else evidence.of_torch
    users = [span for span in spans if region_of(span).identity not in of_torch]
    nested: dict[int, list[tuple[Region, Region]]] = defaultdict(list)
    open_: dict[object, list[Span]] = defaultdict(list)
    for span in users:
        around = open_[span.tid]
        while around and around[-1].end_ns <= span.start_ns:
            around.pop()
        if around:
            nested[trace.step_at(span.start_ns)].append((region_of(span), region_of(around[-1])))
        around.append(span)
    return Regions(
        regions=[region_of(span) for span in users],
        nested_by_step=nested,
        lookups_without_region=_lookups_without_region(trace, spans),
    )


def compiled_again(trace: Trace, seen: Regions) -> list[str]:
    """Return the ids of what was compiled inside the steps although a compilation of the same frame had run there.

    A frame whose first compilation lies in the steps too does not tell a guard that failed from a second module.
    """
    # The word boundary keeps the pattern from a quick search for the text behind it.
    named = [name for name in trace.names if "compile_id=" in name]
    compiled = {match.groups() for name in named if (match := re.search(_COMPILE_ID, name))}
    first = {frame for frame, attempt in compiled if attempt == "0"}
    ran = {tuple(identity.split("/")) for identity in seen.ids if "/" in identity}
    again = {
        (frame, attempt)
        for frame, attempt in compiled
        if attempt != "0" and frame not in first and any(f == frame and int(a) < int(attempt) for f, a in ran)
    }
    return [f"{frame}/{attempt}" for frame, attempt in sorted(again)]


def region_of(span: Span) -> Region:
    """Return the region that a range of this kind is."""
    _, _, identity = span.name.partition(": ")
    return Region(span.name, identity if identity and identity != "Unknown" else None)


def _lookups_without_region(trace: Trace, regions: Sequence[Span]) -> int:
    """Count look-ups that neither a region nor a compilation follows before the next look-up of the thread."""
    count = 0
    events: dict[object, list[tuple[int, str]]] = defaultdict(list)
    for span in trace.spans_in_steps(_LOOKUP):
        events[span.tid].append((span.start_ns, _LOOKUP))
    if not events:
        return 0
    for span in (*regions, *trace.spans(suffix=" (dynamo_timed)")):
        events[span.tid].append((span.start_ns, REGION))
    for of_thread in events.values():
        kinds = [kind for _, kind in sorted(of_thread)]
        count += sum(a == b == _LOOKUP for a, b in zip(kinds, [*kinds[1:], _LOOKUP], strict=True))
    return count
