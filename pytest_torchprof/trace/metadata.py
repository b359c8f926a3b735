"""The value of the key ``torchprof`` that our recordings have beside the trace: its documented form.

Each class is an object of the JSON, each field one of its entries. An unknown entry is null or missing, and entries
that a later version adds are passed over. Times are microseconds, sizes bytes, unless a field says otherwise.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec
from msgspec import Struct

from pytest_torchprof.reasons.compiler_events import AnyCompilerEvent
from pytest_torchprof.reasons.disturbances import AnyDisturbance  # noqa: TC001 - msgspec reads the annotations
from pytest_torchprof.reasons.reason import StoredReason  # noqa: TC001 - msgspec reads the annotations
from pytest_torchprof.reasons.uncompiled import AnySetting, AnyWhyUncompiled
from pytest_torchprof.reasons.unreadable import Expected, KeyOfOthers, NewerSchema, WhyUnreadable, WrongEntry
from pytest_torchprof.text.reprs import ShownFields
from pytest_torchprof.trace.caches import Count  # noqa: TC001 - msgspec reads the annotations
from pytest_torchprof.trace.captured_graphs import CapturedGraph  # noqa: TC001 - as above
from pytest_torchprof.trace.compile_evidence import CompileEvidence

SCHEMA = 1
KEY = "torchprof"
ADOPTED = "adopted"


class Environment(ShownFields, frozen=True, kw_only=True):
    """The circumstances of a recording: hardware, versions, precision flags. No host names, no paths."""

    gpu: str | None = None
    """The product name; None if the CPU was the device."""
    compute_capability: str | None = None
    """Such as "9.0"."""
    gcn_arch: str | None = None
    """AMD's name of the architecture, such as "gfx942:sramecc+:xnack-"."""
    driver: str | None = None
    cudnn: int | None = None
    clocks_mhz: Mapping[str, int] | None = None
    """Clocks of the GPU by name when the recording was made, in MHz."""
    cuda: str | None = None
    rocm: str | None = None
    torch: str | None = None
    triton: str | None = None
    python: str | None = None
    cpu: str | None = None
    platform: str | None = None
    """System and architecture, such as "Linux-x86_64"."""
    tf32_matmul: bool | None = None
    tf32_cudnn: bool | None = None
    matmul_precision: str | None = None
    cuda_launch_blocking: bool | None = None
    launches_wait: str | None = None
    """The setting that makes the CPU wait for every kernel, as "CUDA_LAUNCH_BLOCKING=1": times then mean nothing."""

    @property
    def architecture(self) -> str:
        """The compilers' name of the GPU, such as "sm_90" or "gfx942"; empty if it is not known."""
        if self.gcn_arch or self.rocm:
            return (self.gcn_arch or "").partition(":")[0]
        return f"sm_{self.compute_capability.replace('.', '')}" if self.compute_capability else ""


class TensorLists(ShownFields, frozen=True, kw_only=True):
    """Operators that were given lists of tensors of the same types; the trace has no types of lists."""

    types: tuple[tuple[str, ...], ...]
    """For each list that holds tensors their types in torch's words, or the one type that all have."""
    operators: tuple[Count, ...]
    """Their numbers, which the trace calls "External id"."""


class Batch(ShownFields, frozen=True, kw_only=True):
    """Untraced times, one per call."""

    samples_us: tuple[float, ...]
    disturbed: tuple[AnyDisturbance | str, ...] = ()
    """The disturbances of the machine during that time; earlier versions wrote texts."""


class Timing(ShownFields, frozen=True, kw_only=True):
    """Times taken without the profiler after the steps, and how they were taken."""

    clock: str | None = None
    """"perf_counter" on the CPU, "events" on a GPU."""
    cache: str | None = None
    """"hot", or "cold": the last cache was emptied before each call."""
    threads: int | None = None
    """torch's threads, if the CPU is the device."""
    batches: tuple[Batch, ...] = ()
    why_not: StoredReason | None = None
    """Why there are no samples."""


class Metadata(ShownFields, frozen=True, kw_only=True):
    """The whole value of the key."""

    schema: int = SCHEMA
    nodeid: str | None = None
    label: str | None = None
    rank: Count | None = None
    world_size: Count | None = None
    """The number of processes that measured together. Their groups are in the trace itself (``distributedInfo``)."""
    local_rank: Count | None = None
    """The rank's number among those on its host."""
    run_id: str | None = None
    """The launcher's name of the run, which is the same for all ranks of a job."""
    clock: str | None = None
    """The clock of its times: a digest that the ranks of a run on one host share, and that names no host."""
    device: str | None = None
    """"cpu" or "cuda:0"; ROCm's devices are "cuda:N" too, as in torch."""
    device_asked: str | None = None
    """The device that the test asked for: "auto", "cpu", "cuda" or "cuda:N"."""
    devices_used: tuple[Count, ...] | None = None
    """The ordinals of the GPUs on which the process held a context."""
    environment: Environment | None = None
    warmup: Count | None = None
    """Calls before the profiler started."""
    steps: Count
    """Calls under the profiler."""
    calls: Count | None = None
    """All calls of the measured code, including those of invalid attempts and of samples."""
    attempts: Count | None = None
    sentinel: str | None = None
    """The range with which the recording begins."""
    step_cpu_times_us: tuple[float, ...] | None = None
    """The CPU time of the thread in each step, if the CPU was the device."""
    threads: tuple[str, ...] | None = None
    """The work that the measured calls handed to other Python threads."""
    problems: tuple[StoredReason, ...] | None = None
    """Why the recording cannot be believed."""
    peak_memory_bytes: Count | None = None
    """The allocator's largest peak during the steps, of the GPUs in use."""
    peak_memory_why_not: StoredReason | None = None
    untraced_step_times_us: tuple[float, ...] | None = None
    """The times of the warm-up calls."""
    flops_per_step: int | None = None
    compile: CompileEvidence | None = None
    graph_replays: tuple[Count | None, ...] | None = None
    """For each replay of a CUDA graph, in order, the number of the graph's kernels; null if it is not known."""
    captured_graphs: tuple[CapturedGraph, ...] | None = None
    """The launches of the CUDA graphs that the steps replay, as far as their captures were seen."""
    triton_kernels: tuple[str, ...] | None = None
    """The names of kernels that Triton has made and that do not say so; None if nobody looked."""
    tensor_lists: tuple[TensorLists, ...] | None = None
    """The operators that were given lists of tensors; None if there are none, or if the profiler did not say."""
    lines: bool | None = None
    """Whether every line of the user's code that was reached is marked; None without marks."""
    timing: Timing | None = None


class Adoption(ShownFields, frozen=True, kw_only=True, omit_defaults=True):
    """Under "adopted": which test a recording of another process belongs to, and how that test reads it.

    Beside it is what that process had written under the key, unchanged, if this plugin had recorded there.
    """

    nodeid: str | None = None
    label: str | None = None
    step: str | None = None
    """The range on the CPU whose outermost occurrences are the steps."""
    device_asked: str | None = None
    """The device as in ``Metadata``: "cpu" is the device that was measured if the recording does not say so itself."""
    numbers: tuple[Count, ...] = ()
    """The numbers of all recordings that were adopted together; empty for one alone."""


# Written only if they are known; if they are missing, they were not recorded.
_ONLY_IF_KNOWN = (
    "local_rank",
    "run_id",
    "clock",
    "step_cpu_times_us",
    "peak_memory_why_not",
    "graph_replays",
    "captured_graphs",
    "triton_kernels",
    "tensor_lists",
    "lines",
    "timing",
)
_WHOLES: Mapping[str, type[Struct]] = {"compile": CompileEvidence, "timing": Timing}
_TAGGED: Final = {"cause": AnyWhyUncompiled | AnyCompilerEvent, "setting": AnySetting}
"""What kinds of facts there are inside the evidence of compilation, by the entry that names the kind."""
_LISTS = {
    **dict.fromkeys(("threads", "problems", "triton_kernels"), Expected.TEXTS),
    **dict.fromkeys(("devices_used", "graph_replays", "numbers"), Expected.COUNTS),
    **dict.fromkeys(("tensor_lists", "captured_graphs"), Expected.OBJECTS),
    **dict.fromkeys(("untraced_step_times_us", "step_cpu_times_us"), Expected.NUMBERS),
}


class MalformedError(Exception):
    """The key's value cannot be read; ``cause`` says why."""

    def __init__(self, cause: WhyUnreadable) -> None:
        super().__init__(cause)
        self.cause = cause


def parse(value: Any) -> Metadata:
    """Return the key's value; MalformedError if another project wrote it, or a newer version of this one.

    An entry of the wrong type is refused as well. Wrong values further inside count as not recorded: a setting of the
    environment by itself, evidence of compilation and times as a whole, since a list that is missing means "none". A
    kind of fact about compilation that only a later version knows is told by its name.
    """
    _check_schema(value)
    upgraded = _upgraded(value)
    try:
        return msgspec.convert(upgraded, Metadata)
    except msgspec.ValidationError:
        pass
    try:
        return msgspec.convert({**upgraded, **_well_typed(upgraded)}, Metadata)
    except msgspec.ValidationError as error:
        raise _malformed(error) from None


def parse_adoption(value: Any) -> tuple[Adoption | None, Any]:
    """Return the adoption, and the rest of the key's value; each is None if there is none."""
    if not isinstance(value, Mapping) or ADOPTED not in value:
        return None, value
    _check_schema(value)
    try:
        adoption = msgspec.convert(value[ADOPTED], Adoption)
    except msgspec.ValidationError as error:
        raise _malformed(error) from None
    own = {name: entry for name, entry in value.items() if name != ADOPTED}
    return adoption, own if own.keys() - {"schema"} else None


def _check_schema(value: Any) -> None:
    schema: Any = value.get("schema") if isinstance(value, Mapping) else None
    if not isinstance(schema, int) or isinstance(schema, bool) or schema < 0:
        raise MalformedError(KeyOfOthers())
    if schema > SCHEMA:
        raise MalformedError(NewerSchema(schema, SCHEMA))


def _malformed(error: msgspec.ValidationError) -> MalformedError:
    return MalformedError(_wrong_entry(str(error)))


def encode(metadata: Metadata) -> bytes:
    """Return the key's value as JSON."""
    entries: Mapping[str, Any] = msgspec.to_builtins(metadata)
    return msgspec.json.encode(
        {name: value for name, value in entries.items() if value is not None or name not in _ONLY_IF_KNOWN}
    )


def _upgraded(value: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the value as this version writes it: the first ones knew only one setting that makes launches wait."""
    environment = value.get("environment")
    if not isinstance(environment, Mapping) or not environment.get("cuda_launch_blocking"):
        return value
    return {**value, "environment": {"launches_wait": "CUDA_LAUNCH_BLOCKING=1", **environment}}


def _well_typed(value: Mapping[str, Any]) -> dict[str, Any]:
    """Return the objects inside the value, without their parts of a wrong type."""
    if isinstance(compiled := value.get("compile"), Mapping):
        value = {**value, "compile": _with_known_kinds(compiled)}
    fitting: dict[str, Any] = {
        name: part if _fits(part, kind) else None
        for name, kind in _WHOLES.items()
        if isinstance(part := value.get(name), Mapping)
    }
    if isinstance(settings := value.get("environment"), Mapping):
        fitting["environment"] = {
            field.name: settings[field.name]
            for field in msgspec.structs.fields(Environment)
            if field.name in settings and _fits(settings[field.name], field.type)
        }
    return fitting


def _with_known_kinds(value: Any) -> Any:
    """Return evidence of compilation with a text for each fact whose kind is not known."""
    if isinstance(value, list):
        return [_with_known_kinds(entry) for entry in value]
    if not isinstance(value, Mapping):
        return value
    # Reasons are decoded where they are asked for.
    known = {name: entry if name == "unknown" else _with_known_kinds(entry) for name, entry in value.items()}
    tag = next((name for name in _TAGGED if isinstance(known.get(name), str)), None)
    if tag is None or _fits(known, _TAGGED[tag]):
        return known
    from pytest_torchprof.reasons.catalogue import of_another_version  # noqa: PLC0415 - only of other versions

    return of_another_version(known, tag).said


def _fits(value: Any, kind: Any) -> bool:
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError:
        return False
    return True


def _wrong_entry(error: str) -> WrongEntry:
    """Return which entry msgspec's sentence is about, and what it should be."""
    if missing := re.search(r"missing required field `(\w+)`", error):
        return WrongEntry(missing[1], Expected.INT)
    named, expected = re.findall(r"`\$\.(\w+)", error), re.findall(r"Expected `(\w+)", error)[0]
    name = named[-1] if named else ADOPTED
    return WrongEntry(name, _LISTS.get(name) or Expected[expected.upper()])
