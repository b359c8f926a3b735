"""Reasons of a job whose ranks do not begin together, or do not end together."""

from __future__ import annotations

from pytest_torchprof.reasons import decoding  # noqa: TC001 - msgspec reads the annotations
from pytest_torchprof.reasons.codes import Code
from pytest_torchprof.reasons.reason import Reason
from pytest_torchprof.text import first_of


class GroupNotStarted(Reason, frozen=True):
    """torch.distributed does not start the process group."""

    CODE = Code.NO_JOB
    FOR_THE_DOCTOR = False
    ADVICE = "look at what NCCL says; use gloo where there is no NCCL"
    SENTENCE = (
        "torchprof.ranks: torch.distributed cannot start the process group {backend} on {rank}: {error}; "
        "NCCL_DEBUG=INFO says more. Where there is no NCCL, as on a simulated GPU, initialize torch.distributed with "
        '"gloo" in the test before it asks for its ranks'
    )

    backend: str
    rank: str
    error: str


class NotCollectedOnRank(Reason, frozen=True):
    """The process of a rank has collected no test of this id."""

    CODE = Code.RANK_LOST
    FOR_THE_DOCTOR = False
    ADVICE = "let each process collect the same tests, with parameters in one order"

    test: str
    function: str
    """The test without its parameters."""
    there: tuple[str, ...]
    """The tests of that function in that process."""

    @property
    def sentence(self) -> str:
        others = f"of {self.function} there are {first_of(self.there)}" if self.there else None
        return (
            f"the test was not collected there: {self.test} is no id in that process; "
            f"{others or f'no test there is called {self.function}'}"
        )


class NoRankGoesOn(Reason, frozen=True):
    """No rank of a job makes progress."""

    CODE = Code.SILENT_RANK
    FOR_THE_DOCTOR = False
    ADVICE = "look for what the ranks wait for there"

    waited_s: float
    ranks: tuple[int, ...]
    whys: tuple[decoding.AnyReason, ...]
    """Where each of them is."""

    @property
    def sentence(self) -> str:
        where = (f"rank {rank} {why.text}" for rank, why in zip(self.ranks, self.whys, strict=False))
        return f"no rank made progress for {self.waited_s:g} s: {'; '.join(where)}"


class LostBehindLastTest(Reason, frozen=True):
    """Ranks of a job did not come to its end, when all of its tests had ended."""

    CODE = Code.RANK_LOST
    FOR_THE_DOCTOR = False
    ADVICE = "look at what runs there at the end of a session"

    ranks: tuple[int, ...]
    whys: tuple[decoding.AnyReason, ...]
    """Why each of them did not."""

    @property
    def sentence(self) -> str:
        each = zip(self.ranks, self.whys, strict=False)
        return "; ".join(f"rank {rank} of the job, after its last test, {why.sentence}" for rank, why in each)
