"""The gaps in what is known of a collective, and how a rank's collectives differ from those of the others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Union

from pytest_torchprof.reasons.statement import Phrase, Statement
from pytest_torchprof.text import first_of
from pytest_torchprof.text.units import show_bytes


class Gap(Phrase):
    """Why something is not known of a collective, or why it is not compared with those of other ranks."""

    ONE_RANK = "one-rank", "a group of one rank sends nothing"
    NOTHING_TO_SEND = "nothing-to-send", "it has nothing to send"
    BARRIER = "barrier", "a barrier sends no message"
    NO_KERNEL = "no-kernel", "none of its kernels is in the recording"
    NO_RANGE = "no-range", "its backend left no range in the recording"
    NO_OPERATOR = (
        "no-operator",
        "what its kernel sends is not recorded: no operator of torch.distributed launched it",
    )
    NO_DIMENSIONS = (
        "no-dimensions",
        "what it sends is not recorded: neither its operands' sizes nor its backend's say",
    )
    NO_GROUP_SIZE = "no-group-size", "the size of its group is not known"
    NO_NAME = "no-name", "what it does is not recorded"
    NO_GROUP = "no-group", "its group, one of several, is not recorded"
    NO_PEER = "no-peer", "which rank it is with is not recorded"
    PEER_NOT_THERE = "peer-not-there", "the rank that it is with has no recording"
    PEER_HAS_OTHERS = "peer-has-others", "the rank that it is with does not have as many in the same step"
    BATCHED = "batched", "one kernel carried out several"
    UNLIKE = "unlike", "its size or type differs between ranks"
    OTHER_ORDER = "other-order", "its ranks asked for those of its group in different orders"
    NO_TIME = "no-time", "when it ran is not recorded"
    NO_CLOCK = "no-clock", "nothing aligns the clocks of its ranks' hosts"
    ALONE = "alone", "no other rank of its group has it"


class RankDifference(Statement, frozen=True):
    """A collective that differs on one rank from what it is on the others."""

    rank: int
    step: int
    """From 1."""
    than: int
    """The first of the ranks that agree with most."""


class OtherOrder(RankDifference, frozen=True):
    """A rank asks for the collectives of a group in another order."""

    collectives: tuple[str, ...]
    """From the first one on that differs; empty where it asks for no more."""
    elsewhere: tuple[str, ...]

    @property
    def sentence(self) -> str:
        mine, theirs = (first_of(names) or "no more" for names in (self.collectives, self.elsewhere))
        return (
            self.words("the collectives of a group in step {step} are ") + f"{mine}, and {theirs} on rank {self.than}"
        )


class OtherMessage(RankDifference, frozen=True):
    """A rank gives another size or type to a collective."""

    collective: str
    size_bytes: int | None
    dtype: str | None
    size_bytes_elsewhere: int | None
    dtype_elsewhere: str | None

    @property
    def sentence(self) -> str:
        mine = _message_text(self.size_bytes, self.dtype)
        theirs = _message_text(self.size_bytes_elsewhere, self.dtype_elsewhere)
        return f"{self.collective} in step {self.step} has {mine}, and {theirs} on rank {self.than}"


def _message_text(size_bytes: int | None, dtype: str | None) -> str:
    exact = "" if size_bytes is None else f"{size_bytes:,} B" if size_bytes >= 1024 else show_bytes(size_bytes)
    return " of ".join(filter(None, (exact, dtype))) or "no size"


KINDS: Final[tuple[type[RankDifference], ...]] = tuple(RankDifference.__subclasses__())

if TYPE_CHECKING:
    AnyRankDifference = RankDifference
else:
    # A field of this type is decoded to the kind whose tag it has.
    AnyRankDifference = Union[KINDS]  # noqa: UP007 - of as many as there are
