"""Findings about communication and the ranks of a job: a row for each."""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003  (the types of fields, which msgspec looks up)
from typing import ClassVar, Literal

from pytest_torchprof.analysis.rank_kernels import OtherCount, OtherStepCount  # noqa: TC001  (msgspec reads it)
from pytest_torchprof.findings.finding import Finding
from pytest_torchprof.reasons.collectives import AnyRankDifference  # noqa: TC001  (msgspec reads it)
from pytest_torchprof.text import and_more


class ExposedCommunication(Finding, frozen=True, kw_only=True, tag="exposed-communication"):
    """A device, or a rank of a job, only communicates."""

    TITLE = "Exposed communication"
    SENTENCE = (
        "{time_us:us} ({share:percent} of the time) the GPU only communicates ({longest:list}), with nothing to "
        "compute meanwhile{cause}"
    )
    REMEDY = "overlap it with computation ({ways:list}){needed}{compare}"
    ACTION = "overlap it with computation"
    _COMPARE = "; a collective that only waits shows that another rank is late: compare the ranks"
    _NEEDED: ClassVar[str] = ", where the next kernels do not need its result, as in tensor parallelism they do"
    _WAYS: ClassVar[Mapping[str, str]] = {"ddp": "DDP buckets", "fsdp": "prefetch in FSDP"}
    _SENT_BY: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "ddp": ("all_reduce",),
        "fsdp": ("all_gather", "reduce_scatter"),
    }
    """The collectives that each wrapper sends."""
    _ON_CPU = (
        "{time_us:us} ({share:percent} of the time) the process only communicates ({longest:list}), and no operator "
        "computes meanwhile{cause}"
    )
    _OF_RANK = "rank {rank} only communicates for {time_us:us} ({share:share} of its time){cause}"
    _REMEDIES: ClassVar[Mapping[str | None, str]] = {
        "skew-bound": "find what makes the last rank late",
        "inconclusive": "record all ranks, on hosts whose clocks agree: they tell which of them wait, and for whom",
    }
    _LATE = (
        "; collectives took {beyond_usual_us:us} more than the fastest quarter of those of the same kind and size, "
        "which suggests that another rank was late"
    )
    _FIND_LATE = (
        "first find which rank is late, and why: record all ranks and compare them (torchprof analyze DIR "
        "--ranks){held_up}; then "
    )
    _HELD_UP = (
        ", and give each process cores of its own: this one was held up (cpu-held-up), and so may be the ranks that it "
        "waits for"
    )
    _COMPARE_FIRST = (
        "compare the ranks first: a collective that only waits shows that another rank is late; only "
        "{computing_us:us} of computation is there to overlap it with ({ways:list}){needed}"
    )
    _SEND_LESS = "overlap it with computation, send less (types, buckets), or use faster links"
    _ACTIONS: ClassVar[Mapping[str | None, str]] = {
        "skew-bound": "find what makes the last rank late",
        "inconclusive": "record all ranks, on hosts whose clocks agree",
    }
    _OF_ANY_RANK = "overlap it with computation, send less, or use faster links"
    _LATE_FIRST = "record all ranks, then: torchprof analyze DIR --ranks"
    _RANKS_FIRST = "compare the ranks first"
    CAUSES: ClassVar[Mapping[str, str]] = {
        "skew-bound": "skew-bound: ranks wait for each other",
        "transfer-bound": "transfer-bound: sending takes the time",
        "mixed": "mixed (waiting, transfer): ranks wait for each other, and sending takes time too",
        "inconclusive": "inconclusive: whether ranks wait or send cannot be told",
    }
    """The causes of the time in collectives, by kind."""
    _AT_LEAST = (
        "; at least {waits_at_least:share} of what ranks spend in collectives is waiting, and more may be: recordings "
        "of ranks are missing"
    )

    time_us: float
    share: float
    on_cpu: bool = False
    """Whether the CPU is the device, and a backend such as gloo communicates."""
    rank: int | None = None
    """The rank that this is about, where all ranks of the job are looked at together."""
    kind: Literal["transfer-bound", "skew-bound", "mixed", "inconclusive"] | None = None
    wait_share: float | None = None
    waits_at_least: float | None = None
    """The share of the time in collectives that is waiting, where more may be: recordings of ranks are missing."""
    collectives_us: Mapping[str, float] | None = None
    """The time of each kind of collective, the longest first."""
    wrappers: tuple[Literal["ddp", "fsdp"], ...] = ()
    """The wrappers of torch's that ran, of which each has its own way to overlap."""

    beyond_usual_us: float = 0.0
    """The time by which collectives exceeded the lower quartile of their kind, size and group."""
    computing_us: float | None = None
    """How long the device computed, the most that communication can be overlapped with."""
    cpu_held_up: bool = False
    """Whether this process itself seems to have been held up, as others on its machine may have been."""

    @property
    def is_late(self) -> bool:
        """Whether most of it looks like waiting for another rank, where only this one's recording is at hand."""
        return self.kind is None and self.beyond_usual_us >= 0.5 * self.time_us

    @property
    def ways(self) -> tuple[str, ...]:
        """How to overlap it: a wrapper's own way where it sends what takes the longest."""
        first = self.longest[0] if self.longest else ""
        meant = [wrapper for wrapper in self.wrappers if first in self._SENT_BY[wrapper]]
        return (*(self._WAYS[wrapper] for wrapper in meant), "async_op=True")

    @property
    def needed(self) -> str:
        """The words for a result that may be needed at once; empty if a wrapper shows that it is not."""
        return self._NEEDED if "all_reduce" in self.longest[:1] and not self.wrappers else ""

    @property
    def compare(self) -> str:
        """The words for ranks that may wait for each other; empty if it is known, or the ranks were compared."""
        return "" if self.is_late or self.kind is not None else self._COMPARE

    @property
    def held_up(self) -> str:
        """The further remedy where this process itself was held up."""
        return self._HELD_UP if self.cpu_held_up else ""

    @property
    def longest(self) -> tuple[str, ...]:
        """The collectives that take the longest."""
        return tuple(self.collectives_us or ())[:3]

    @property
    def cause(self) -> str:
        """Where the time goes if the recordings of all ranks show it, or else what it looks like."""
        if self.is_late:
            return self.words(self._LATE)
        if self.kind == "inconclusive" and self.waits_at_least is not None:
            return self.words(self._AT_LEAST)
        return "" if self.kind is None else f"; {self.CAUSES[self.kind]}"

    @property
    def message(self) -> str:
        if self.rank is not None:
            return self.words(self._OF_RANK)
        return self.words(self._ON_CPU if self.on_cpu else self.SENTENCE)

    @property
    def remedy(self) -> str:
        if self.rank is not None:
            return self._REMEDIES.get(self.kind, self._SEND_LESS)
        if self.kind is None and not self.is_late and self.computing_us is not None:
            return self.words(self._COMPARE_FIRST if 2 * self.computing_us < self.time_us else self.REMEDY)
        return self.words((self._FIND_LATE if self.is_late else "") + self.REMEDY)

    @property
    def action(self) -> str:
        if self.rank is not None:
            return self._ACTIONS.get(self.kind, self._OF_ANY_RANK)
        if self.is_late:
            return self._LATE_FIRST
        is_short = self.kind is None and self.computing_us is not None and 2 * self.computing_us < self.time_us
        return self._RANKS_FIRST if is_short else self.ACTION


class Straggler(Finding, frozen=True, kw_only=True, tag="straggler"):
    """A rank comes last in most of the waiting at collectives."""

    TITLE = "A rank keeps the others waiting"
    _LAST: ClassVar[str] = "comes last in {share:share} of the waiting at collectives"
    _NAMED: ClassVar[str] = "Rank {rank} keeps the others waiting"
    SENTENCE = "rank {rank} " + _LAST + ", {caused_us:us} in all"
    HEADLINE: ClassVar[str] = _NAMED + ", {caused_us:us} in all: it " + _LAST
    REMEDY = (
        "compare its steps with another rank's (torchprof diff A B): more work, a slower device, a busy CPU, data that "
        "comes late"
    )
    ACTION = "compare rank {rank}'s steps with another rank's"

    rank: int
    caused_us: float
    share: float
    collectives: int

    @property
    def title(self) -> str:
        return self.words(self._NAMED)

    @property
    def headline(self) -> str:
        """The headline of a job that has such a rank."""
        return self.words(self.HEADLINE)


class OtherWorkOnRank(Finding, frozen=True, kw_only=True, tag="rank-differs"):
    """A rank runs other kernels or other collectives than the others."""

    TITLE = "A rank does something else"
    REMEDY = "where it is not meant (in pipelines it is): a branch on the rank, or a fallback kernel on one device"
    ACTION = "look for a branch on the rank, or a fallback on one device"
    _ALONE = "rank {rank} has collectives that the other recordings of its group have not: {alone}"
    _UNLIKE = "rank {rank} does not do the same as the others: {first}{more}"
    _KERNELS = "rank {rank} against rank {against}: {first}{more}"
    _NAMED: ClassVar[str] = "Rank {rank} does something else"

    rank: int
    collectives: Mapping[str, int] | None = None
    """The ones that only this rank has, and how many of each."""
    differences: tuple[AnyRankDifference | OtherCount | OtherStepCount, ...] = ()
    against: int | None = None
    """The rank whose kernels are others."""

    @property
    def title(self) -> str:
        return self.words(self._NAMED)

    @property
    def alone(self) -> str:
        """The collectives that it has alone."""
        return ", ".join(f"{count} x {name}" for name, count in sorted((self.collectives or {}).items()))

    @property
    def first(self) -> str:
        """The first difference."""
        return str(self.differences[0])

    @property
    def more(self) -> str:
        """How many other differences there are."""
        return and_more(len(self.differences) - 1, "difference")

    @property
    def message(self) -> str:
        if self.collectives is not None:
            return self.words(self._ALONE)
        return self.words(self._UNLIKE if self.against is None else self._KERNELS)
