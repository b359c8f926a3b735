"""The collectives of a recording: what each sends, in which group, when it ran, and how much of it computing hid."""

from __future__ import annotations

from collections import defaultdict
from functools import cached_property
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from pytest_torchprof.analysis.messages import NO_GROUP, ProcessGroup, Sent, bus_factor, message_bytes
from pytest_torchprof.reasons.collectives import Gap
from pytest_torchprof.text import counted
from pytest_torchprof.text.reprs import bracketed
from pytest_torchprof.text.units import show_bytes, show_us
from pytest_torchprof.trace import intervals
from pytest_torchprof.trace.columns import KERNEL, SEND

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_torchprof.analysis.launches import Launching
    from pytest_torchprof.analysis.parts import Part
    from pytest_torchprof.trace import Trace
    from pytest_torchprof.trace.intervals import Spans

NOTHING_SENT: Final = (Gap.ONE_RANK, Gap.NOTHING_TO_SEND)
"""The reasons of collectives that take no time."""
_TORCHS_OWN: Final = ("c10d::", "_c10d_functional", "record_param_comms")
"""Operators that ask for a collective or wait for it: where operators are the work, these compute nothing."""


class Collective(Struct, frozen=True, kw_only=True):
    """One collective that one rank took part in; unknown fields are None, with the reason in another field."""

    name: str | None
    """Its kind: "all_reduce"; None if its kernel may carry out several."""
    operator: str | None
    """The operator that asked for it ("c10d::allreduce_"), None where no operator is recorded."""
    step: int
    """Its index in ``profile.steps``."""
    group: ProcessGroup = NO_GROUP
    sent: Sent = Sent()
    asynchronous: bool | None = None
    """Whether the program went on without waiting for it."""
    start_ns: int | None = None
    """When its kernel started; without a GPU, when its backend began to work on it."""
    dur_ns: int | None = None
    hidden_ns: int | None = None
    """How much of that time the device computed meanwhile."""
    device: int | None = None
    stream: int | str | None = None
    together: int = 1
    """How many of them one kernel carried out."""
    sequence: int | None = None
    """Its number in its group."""
    comms_id: int | str | None = None
    """Its id, which is the same on all ranks; torch has it since 2.13."""
    peer: int | None = None
    """The rank that is sent to or received from."""
    tag: int | None = None
    """The tag that distinguishes messages between the same two ranks."""
    wait_ns: int | None = None
    """How long this rank was there before the last one came; None unless other ranks' recordings tell."""
    transfer_ns: int | None = None
    """The shortest time that a rank was in it; None unless other ranks' recordings tell."""
    why_no_bytes: Gap | None = None
    why_no_time: Gap | None = None

    def __repr__(self) -> str:
        size = None if self.message_bytes is None else show_bytes(self.message_bytes)
        took = None if self.duration_us is None else show_us(self.duration_us)
        ranks = None if self.group.size is None else counted(self.group.size, "rank")
        return bracketed(self, self.name or self.operator, self.dtype, size, ranks, took, f"step {self.step}")

    @property
    def is_with_others(self) -> bool:
        """Whether other ranks are waited for: not in a group of one, nor where there is nothing to send."""
        return self.group.size != 1 and self.why_no_time not in NOTHING_SENT

    @property
    def is_send(self) -> bool:
        """Whether this rank sends to another one."""
        return self.operator == SEND

    @property
    def wait_us(self) -> float | None:
        """How long this rank waited for the last one; None unless other ranks' recordings tell."""
        return None if self.wait_ns is None else self.wait_ns / 1000

    @property
    def transfer_us(self) -> float | None:
        """The shortest time that it took on any rank; None unless other ranks' recordings tell."""
        return None if self.transfer_ns is None else self.transfer_ns / 1000

    @property
    def dtype(self) -> str | None:
        """The type that is sent: "fp32"."""
        return self.sent.dtype

    @property
    def bytes_in(self) -> int | None:
        """How much this rank gives."""
        return self.sent.bytes_in

    @property
    def bytes_out(self) -> int | None:
        """How much this rank takes."""
        return self.sent.bytes_out

    @property
    def message_bytes(self) -> int | None:
        """The size of the whole message, as nccl-tests counts it: what is given or what is taken, the larger one."""
        return message_bytes(self.name or "", self.sent, self.group.size)

    @property
    def duration_us(self) -> float | None:
        """How long it ran, waiting for other ranks included."""
        return None if self.dur_ns is None else self.dur_ns / 1000

    @property
    def exposed_us(self) -> float | None:
        """How long it ran while the device computed nothing."""
        return None if self.dur_ns is None or self.hidden_ns is None else (self.dur_ns - self.hidden_ns) / 1000

    @property
    def overlap(self) -> float | None:
        """The share of its time that computing hid."""
        return self.hidden_ns / self.dur_ns if self.dur_ns and self.hidden_ns is not None else None

    @property
    def algorithm_gb_per_s(self) -> float | None:
        """The message's size by the time that it took, in 1e9 bytes per second."""
        return None if self.why_no_bandwidth else (self.message_bytes or 0) / (self.dur_ns or 1)

    @property
    def bus_gb_per_s(self) -> float | None:
        """The algorithm's bandwidth times the share that the busiest link carries: comparable with the hardware's."""
        if self.why_no_bandwidth or self.group.size is None:
            return None
        factor = bus_factor(self.name or "", self.group.size)
        return None if factor is None else factor * (self.message_bytes or 0) / (self.dur_ns or 1)

    @property
    def why_no_bandwidth(self) -> Gap | None:
        """Why there is no bandwidth; that of the bus asks for the group's size besides."""
        if self.together > 1:
            return Gap.BATCHED
        if self.name == "barrier":
            return Gap.BARRIER
        if not self.dur_ns:
            return self.why_no_time or Gap.NO_TIME
        return None if self.message_bytes is not None else self.why_no_bytes or Gap.NO_GROUP_SIZE


class StepCommunication(Struct, frozen=True, kw_only=True):
    """The collectives of a step, or of a range, together; times are of unions of intervals, summed over devices."""

    collectives: tuple[Collective, ...]
    time_us: float
    """How long at least one of them ran."""
    exposed_us: float
    """How long of that the device computed nothing."""
    span_us: float
    """From the first work of the step to the end of the last one, its communication included."""
    why_no_time: Gap | None
    """Why the times of some are not known, None where all are."""

    @property
    def overlap(self) -> float | None:
        """The share of the time of communication that computing hid; None without communication."""
        return 1 - self.exposed_us / self.time_us if self.time_us else None


class Overlap:
    """When each device computed, and how much of other times that hides."""

    def __init__(self, trace: Trace, launching: Launching, communication: frozenset[int]) -> None:
        """Take the trace and its communication kernels."""
        self._trace, self._launching, self._communication = trace, launching, communication

    @cached_property
    def computing(self) -> dict[int | None, Spans]:
        """When each device computed; of the CPU as device, under None, when operators did."""
        trace = self._trace
        computed: dict[int | None, list[tuple[int, int]]] = defaultdict(list)
        if not trace.device_kind.has_launches:
            ops, names = trace.ops, trace.names
            own = {name for name in set(ops.name) if names[name].startswith(_TORCHS_OWN)}
            for part in self._launching.parts:
                computed[None] += [(ops.start[i], ops.end[i]) for i in part.operators if ops.name[i] not in own]
        gpu, device_of = trace.gpu, trace.device_of
        for i, kind in enumerate(gpu.kind):
            if kind == KERNEL and i not in self._communication:
                computed[device_of[gpu.process[i]]].append((gpu.start[i], gpu.end[i]))
        return {device: intervals.merged(spans) for device, spans in computed.items()}

    def hidden_ns(self, device: int | None, spans: Spans) -> int:
        """Return how much of these, in order and disjoint, the device computed meanwhile."""
        computing = self.computing.get(device)
        return intervals.length_within(spans, computing) if computing and spans else 0


def communication_of(
    trace: Trace, part: Part, overlap: Overlap, collectives: Sequence[Collective]
) -> StepCommunication:
    """Return the times of the collectives of a step, or of a range, together."""
    on_gpu = trace.device_kind.has_launches
    timed = [
        collective
        for collective in collectives
        if collective.start_ns is not None and (collective.device is not None) == on_gpu
    ]
    of_device: dict[int | None, list[tuple[int, int]]] = defaultdict(list)
    for collective in timed:
        start = collective.start_ns or 0
        of_device[collective.device].append((start, start + (collective.dur_ns or 0)))
    spans = {device: intervals.merged(covered) for device, covered in of_device.items()}
    ns = {device: intervals.length(covered) for device, covered in spans.items()}
    hidden = sum(overlap.hidden_ns(device, covered) for device, covered in spans.items())
    columns, members = (trace.gpu, part.gpu_ops) if on_gpu else (trace.ops, part.operators)
    ends = [columns.end[i] for i in members] + [covered.ends[-1] for covered in spans.values()]
    starts = [columns.start[i] for i in members] + [covered.starts[0] for covered in spans.values()]
    unknown = (
        collective.why_no_time for collective in collectives if collective.why_no_time not in (None, *NOTHING_SENT)
    )
    return StepCommunication(
        collectives=tuple(collectives),
        time_us=sum(ns.values()) / 1000,
        exposed_us=(sum(ns.values()) - hidden) / 1000,
        span_us=(max(ends) - min(starts)) / 1000 if ends else 0.0,
        why_no_time=next(unknown, None),
    )
