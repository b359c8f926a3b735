"""The types into which msgspec decodes the events of a trace file, without unused fields."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, Union

import msgspec
from msgspec import Meta, Struct, defstruct

from pytest_torchprof.recording.bounds import LARGEST
from pytest_torchprof.recording.event_args import AllArgs, Allocation, FewArgs, Whole
from pytest_torchprof.recording.stamps import EXACT, WHOLE
from pytest_torchprof.trace.columns import KERNEL, MEMCPY, MEMSET

if TYPE_CHECKING:
    from collections.abc import Mapping


class Kinds(NamedTuple):
    """The types of events for one way of reading time stamps; decoders of a list of events and of a single one."""

    stamps: str
    all_args: bool
    """Whether graphs and collectives are read; without it, decoding them is an error."""
    any_category: bool
    """Whether events of any category and phase are read, and without an end; without it, decoding them is an error."""
    event: type[Struct]
    other: type[Struct]
    """Any event that is not complete; its ``label`` is the name of an instant, and the category of other events."""
    start: type[Struct]
    """The start of an arrow."""
    finish: type[Struct]
    instant: type[Struct]
    counter: type[Struct]
    events: msgspec.json.Decoder[list[Any]]
    single: msgspec.json.Decoder[Any]
    only: str | None = None
    """The category of all events, if nothing else is read."""
    only_thread: int | str | None = None
    """The thread of all events, if no other one is read."""


RANGE, NOTE, FRAME, CALL, OWN, GPU_NOTE = "range", "note", "frame", "call", "own", "GPU note"
GPU = {"kernel": KERNEL, "memcpy": MEMCPY, "memset": MEMSET}
"""The kinds of GPU operations, by role."""
FORWARD_BACKWARD, MEMORY = "fwdbwd", "[memory]"
"""The category of arrows from an operator to its backward, and the name of allocations."""
ROLES = {
    "cpu_op": RANGE,
    "operator": RANGE,
    "user_annotation": NOTE,
    "python_function": FRAME,
    "cuda_runtime": CALL,
    "cuda_driver": CALL,
    "runtime": CALL,
    "xpu_runtime": CALL,
    "xpu_driver": CALL,
    "kernel": "kernel",
    "gpu_memcpy": "memcpy",
    "memcpy": "memcpy",
    "gpu_memset": "memset",
    "memset": "memset",
    "overhead": OWN,
    "gpu_user_annotation": GPU_NOTE,
}
"""The roles of complete events by category; in the oldest files some categories begin with a capital."""
LEFT_OUT = {
    *("cuda_sync", "cuda_event", "cuda_profiler_range", "external_correlation", "trace"),
    *("cpu_instant_event", "collective_comm", "gpu_pm_counter", "xpu_sync", "glow_runtime"),
    # torch 2.15's own profiler (CuspyConfig): nodes of graphs that run on the CPU, or only record an event.
    *("graph_host_node", "graph_event_node", "hardware_counters"),
}
"""Categories of kineto that are not the GPU's work, although some name a stream (kineto's ActivityType.cpp)."""

USUAL = frozenset((*ROLES, *LEFT_OUT, *map(str.capitalize, (*ROLES, *LEFT_OUT))))
"""The categories of which msgspec makes no text: it returns the one that stands here, for each event the same."""
_LAUNCH_ARROWS = ("ac2g", "async", "async_cpu_to_gpu", "async_gpu")
"""Categories of arrows from a launch to its work, which nothing uses: correlation ids say the same."""

_USUAL_PHASES = "stfiMC"
"""What kineto writes beside complete events: arrows, instants, names and counters."""
_PHASES = _USUAL_PHASES + "IBEbenNODPRcVv()pFTS"
"""All of Chrome's trace format."""


@cache
def kinds(stamps: str, *, all_args: bool, any_category: bool) -> Kinds:
    """Return the event types for this way of reading time stamps; exact time stamps take three times as long."""
    category: Any = str if any_category else Literal[*USUAL]
    event = complete(stamps, category, (IDENTITY, IDENTITY), AllArgs if all_args else FewArgs)
    rest = others(stamps, any_category=any_category)
    union: Any = Union[event, *rest.values()]
    decoders = msgspec.json.Decoder(list[union]), msgspec.json.Decoder(union)
    other, start, finish, instant, counter = (rest[phase] for phase in "MsfiC")
    return Kinds(stamps, all_args, any_category, event, other, start, finish, instant, counter, *decoders)


IDENTITY: Any = Whole | str
"""A process or a thread."""


def complete(
    stamps: str, category: Any, ids: tuple[Any, Any], args: type[Struct], *, alone: bool = False
) -> type[Struct]:
    """Return a type of complete events; ``alone`` if it is decoded beside no other one."""
    process, thread = ids
    stamp, took = _stamp(stamps), _stamp(stamps, -LARGEST if category is str else 0)
    fields = ("cat", category), ("name", str), ("pid", process), ("tid", thread), ("ts", stamp), ("dur", took)
    # An event may lack the tag of the only type there is, but no field without a default.
    tagged: Any = {} if alone else {"tag_field": "ph", "tag": "X"}
    phase = [("ph", Literal["X"])] if alone else []
    return defstruct("Event", [*phase, *fields, ("args", args, args())], gc=False, **tagged)


def _stamp(stamps: str, least: int = -LARGEST) -> Any:
    if stamps == EXACT:
        from decimal import Decimal  # noqa: PLC0415 - few files need it

        return Decimal
    bounds = Meta(ge=least, le=LARGEST)
    return Annotated[int, bounds] if stamps == WHOLE else Annotated[int, bounds] | Annotated[float, bounds]


@cache
def others(stamps: str, *, any_category: bool) -> Mapping[str, type[Struct]]:
    """Return the types of events that are not complete, by phase."""
    stamp, identity = _stamp(stamps), IDENTITY
    label: Any = ("label", str, "")
    arrow = [label, ("id", identity, 0), ("tid", identity, ""), ("ts", stamp, 0)]
    if not any_category:
        # Three of ten events are such arrows.
        arrow = [("label", Literal[_LAUNCH_ARROWS], "")]
    instant = [label, ("tid", identity, ""), ("ts", stamp, 0), ("args", Allocation, Allocation())]
    more = {"s": arrow, "f": arrow, "i": instant, "C": [label, ("name", str, "")]}
    return {
        phase: defstruct(
            f"Event_{ord(phase)}",
            more.get(phase, [label]),
            rename={"label": "name" if phase == "i" else "cat"},
            tag_field="ph",
            tag=phase,
            gc=False,
        )
        for phase in (_PHASES if any_category else _USUAL_PHASES)
    }
