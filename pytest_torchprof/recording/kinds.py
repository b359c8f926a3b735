"""The types into which msgspec decodes the events of a trace file, without unused fields."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, Union

import msgspec
from msgspec import Meta, Struct, defstruct

from pytest_torchprof.recording.bounds import LARGEST
from pytest_torchprof.recording.event_args import AllArgs, Allocation, FewArgs, Whole, part_of
from pytest_torchprof.recording.stamps import EXACT, WHOLE
from pytest_torchprof.trace.columns import KERNEL, MEMCPY, MEMSET

if TYPE_CHECKING:
    from collections.abc import Mapping
    from collections.abc import Set as AbstractSet


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
_OF_RANGES = frozenset(name for name in USUAL if ROLES.get(name.lower()) in (RANGE, NOTE, FRAME, OWN))
_OPERANDS = frozenset({"dims", "types", "settings", "strides"})
_OF_WORK = frozenset(
    {
        *("stream", "correlation", "registers", "shared", "blocks_per_sm", "grid", "block", "occupancy", "size"),
        *("ran_on", "graph", "node", "scope", "bare_scope", "first_scope", "module", "phase"),
    }
)
"""The fields of ``args`` that are not read of ranges on the CPU."""
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
    event = _complete(stamps, category, (_IDENTITY, _IDENTITY), AllArgs if all_args else FewArgs)
    others = _others(stamps, any_category=any_category)
    union: Any = Union[event, *others.values()]
    decoders = msgspec.json.Decoder(list[union]), msgspec.json.Decoder(union)
    other, start, finish, instant, counter = (others[phase] for phase in "MsfiC")
    return Kinds(stamps, all_args, any_category, event, other, start, finish, instant, counter, *decoders)


_IDENTITY: Any = Whole | str


def _complete(stamps: str, category: Any, ids: tuple[Any, Any], args: type[Struct]) -> type[Struct]:
    process, thread = ids
    stamp, took = _stamp(stamps), _stamp(stamps, -LARGEST if category is str else 0)
    fields = ("cat", category), ("name", str), ("pid", process), ("tid", thread), ("ts", stamp), ("dur", took)
    return defstruct("Event", [*fields, ("args", args, args())], tag_field="ph", tag="X", gc=False)


def _stamp(stamps: str, least: int = -LARGEST) -> Any:
    if stamps == EXACT:
        from decimal import Decimal  # noqa: PLC0415 - few files need it

        return Decimal
    bounds = Meta(ge=least, le=LARGEST)
    return Annotated[int, bounds] if stamps == WHOLE else Annotated[int, bounds] | Annotated[float, bounds]


@cache
def _others(stamps: str, *, any_category: bool) -> Mapping[str, type[Struct]]:
    """Return the types of events that are not complete, by phase."""
    stamp, identity = _stamp(stamps), _IDENTITY
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


RUN = 6
"""After so many pieces that are alike it is worth making types for the next ones."""
_FEW = 32
"""How many ids of processes and threads are listed at most."""


class Likely(NamedTuple):
    """What the events of the next pieces are likely to have in common, because those of the last ones had."""

    only: str | None
    """The category if all events are complete and of one."""
    categories: frozenset[str]
    ids: tuple[frozenset[int | str], frozenset[int | str]] | None
    """Of processes and of threads; None if they change within a run."""
    pieces: int
    """How many pieces in a row had the same."""


def categories_like(given: AbstractSet[str]) -> frozenset[str]:
    """Return the categories of which a piece that has these may have more: those with operands, the others, or all."""
    return next((part for part in (_OF_RANGES, USUAL - _OF_RANGES) if given <= part), USUAL)


def narrowed(types: Kinds, likely: Likely) -> Kinds:
    """Return types for what is likely alone, which are decoded in a tenth less time."""
    category, only, stamps = Literal[*likely.categories], likely.only, types.stamps
    ids: Any = (_IDENTITY, _IDENTITY)
    if likely.ids is not None and all(0 < len(some) <= _FEW for some in likely.ids):
        ids = tuple(Literal[*some] for some in likely.ids)
    args = _args_of(likely.categories, all_args=types.all_args)
    event: Any = _complete(stamps, category, ids, args)
    listed: Any = event if only else Union[event, *_others(stamps, any_category=False).values()]
    return types._replace(event=event, events=msgspec.json.Decoder(list[listed]), only=only)


@cache
def _args_of(categories: frozenset[str], *, all_args: bool) -> type[Struct]:
    args = AllArgs if all_args else FewArgs
    if categories == USUAL:
        return args
    return part_of(args, without=_OF_WORK if categories <= _OF_RANGES else _OPERANDS)
