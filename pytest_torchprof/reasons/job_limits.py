"""Reasons of limits on communication, and of those on all ranks of a job."""

from __future__ import annotations

from typing import Final

from pytest_torchprof.reasons.codes import Code
from pytest_torchprof.reasons.collectives import AnyRankDifference, Gap  # noqa: TC001 - msgspec reads the annotations
from pytest_torchprof.reasons.findings import unmatched_text
from pytest_torchprof.reasons.reason import Reason
from pytest_torchprof.text import and_more, first_of


class CollectiveUntold(Reason, frozen=True):
    """Which collective kernels that communicate belong to cannot be told."""

    CODE = Code.MATCH_UNKNOWN
    SENTENCE = "whether it is {name} cannot be told for {kernels:kernel} that {kernels:communicates|communicate}"

    name: str
    kernels: int


class MessageSizesUnknown(Reason, frozen=True):
    """How much collectives sent is not known."""

    CODE = Code.NOT_RECORDED
    SENTENCE = "the size of {collectives:collective} is not known: {first}: {because}"

    collectives: int
    first: str
    because: Gap


class NoCommunication(Reason, frozen=True):
    """Nothing was sent that computing could hide."""

    CODE = Code.NO_COMMUNICATION
    SENTENCE = "there is no communication that could be hidden"
    MEANING = (
        "no step ran a collective, so there is no share that could be hidden: one rank alone, a model that is not "
        "wrapped, or a backend that leaves nothing in the recording"
    )
    ADVICE = "run the test in several ranks; if no communication is meant, limit `collectives`"


_MOST_NAMED: Final = 8
"""How many ranks are named; reports have all of them."""


class AloneOfJob(Reason, frozen=True):
    """A limit is on all ranks, and there is the recording of one."""

    CODE = Code.ONE_RANK
    SENTENCE = "one rank's recording cannot show it"
    REMEDY = "adopt those of all ranks together (files=), or judge them (torchprof check DIR --ranks)"
    MEANING = "`max_rank_skew` and `same_kernels` concern all ranks together"
    ADVICE = (
        'let the ranks measure in step (`ranks=2`), adopt the recordings of all (`adopt(..., files="any")`), or '
        "keep them (`--torchprof-save=DIR`) and judge them with `torchprof check DIR --ranks`"
    )


class NoOtherRank(Reason, frozen=True):
    """A limit is on all ranks, and there is no other rank."""

    CODE = Code.ONE_RANK
    FOR_THE_DOCTOR = False
    REMEDY = (
        "record two ranks or more of a job; in a fleet, ask it by a rule whose `files` or `where` fit such recordings "
        "alone; in a test write ranks=2 into the marker"
    )
    MEANING = "`max_rank_skew` and `same_kernels` compare the ranks of one job"

    of_job: bool
    """Whether the recording says that it is of a job; else it says nothing of ranks."""

    @property
    def sentence(self) -> str:
        own = "the job of this one has no other" if self.of_job else "this one names no rank"
        return f"it takes the recordings of two ranks of one job, and {own}"


class TimesOfRankMeanNothing(Reason, frozen=True):
    """A setting makes each launch of one rank wait."""

    CODE = Code.LAUNCHES_WAIT
    SENTENCE = "rank {rank}: {setting} makes every launch wait, so that times mean nothing"

    rank: int
    setting: str


class SkewTooRough(Reason, frozen=True):
    """The ranks' clocks are not aligned well enough for the limit."""

    CODE = Code.NOT_RECORDED
    SENTENCE = "the clocks of the ranks are not aligned well enough to tell"


class SkewMayBeMore(Reason, frozen=True):
    """Collectives that are not compared with those of other ranks may have more skew."""

    CODE = Code.NOT_RECORDED

    collectives: tuple[tuple[int, Gap], ...]
    """How many, and why."""

    @property
    def sentence(self) -> str:
        return f"it may be more with those that are not compared with other ranks' ({unmatched_text(self.collectives)})"


class CollectivesDiffer(Reason, frozen=True):
    """The ranks have different collectives."""

    CODE = Code.DIFFERENT_COLLECTIVES
    MEANING = (
        "ranks disagree on sizes, types or the order of their collectives, or two collectives were taken for one"
        "; nothing says which belong together"
    )
    ADVICE = (
        "look at the rank that is named; the finding [`rank-differs`](findings.md#rank-differs) lists the others. "
        "With NCCL such a program may hang"
    )

    difference: AnyRankDifference
    """The first."""
    others: int
    """How many further differences there are."""

    @property
    def sentence(self) -> str:
        more = and_more(self.others, "difference")
        return f"ranks have different collectives: rank {self.difference.rank}: {self.difference}{more}"


class NoCollectiveInCommon(Reason, frozen=True):
    """There is no collective to compare."""

    CODE = Code.NO_COMMUNICATION
    SENTENCE = "the ranks have no collective in common"
    ADVICE = "run the same model on all ranks; `max_rank_skew` is for collectives of several ranks"


class NoCollectiveCompared(Reason, frozen=True):
    """No collective can be compared with those of other ranks."""

    CODE = Code.NOT_RECORDED

    collectives: tuple[tuple[int, Gap], ...]
    """How many, and why."""

    @property
    def sentence(self) -> str:
        return f"no collective is compared with those of other ranks; {unmatched_text(self.collectives)}"


class NoGroupOfTwo(Reason, frozen=True):
    """No process group of the name has two ranks among the recordings."""

    CODE = Code.NOT_IN_RECORDING
    SENTENCE = 'no process group "{group:line}" has two ranks among the recordings; there are: {there}'
    ADVICE = "name one of the groups in the text"

    group: str
    there: str


class KernelsOfRankUnknown(Reason, frozen=True):
    """Ranks are to be compared by their kernels, and the recording of one of them lacks these."""

    CODE = Code.NOT_RECORDED
    SENTENCE = "which kernels a rank ran is not known"


class MissingRanks(Reason, frozen=True):
    """Ranks of the job have no recording."""

    CODE = Code.NO_RANK

    ranks: tuple[int, ...]

    @property
    def sentence(self) -> str:
        missing, several = first_of(list(map(str, self.ranks)), _MOST_NAMED), len(self.ranks) > 1
        rank, them = ("ranks", "them") if several else ("rank", "it")
        return f"no recording of {rank} {missing}: nothing is known of {them}"
