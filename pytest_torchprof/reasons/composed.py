"""Reasons that hold others: what another rank says, and several at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_torchprof.reasons.reason import Reason

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pytest_torchprof.codes import Code


class OfRank(Reason, frozen=True):
    """A reason that another rank of the job has; it is for that rank's own doctor."""

    FOR_THE_DOCTOR = False

    rank: int
    why: Reason

    @property
    def code(self) -> Code | None:
        return self.why.code

    @property
    def text(self) -> str:
        return f"rank {self.rank}: {self.why.text}"


class Several(Reason, frozen=True):
    """Reasons of which each would be enough; the first is the one that users look up."""

    whys: tuple[Reason, ...]

    @classmethod
    def of(cls, whys: Iterable[Reason]) -> Reason:
        """Return one reason for all of these: the only one, or several."""
        different = tuple(dict.fromkeys(whys))
        return different[0] if len(different) == 1 else cls(different)

    @property
    def code(self) -> Code | None:
        return self.whys[0].code

    @property
    def for_the_doctor(self) -> bool:
        return any(why.for_the_doctor for why in self.whys)

    def __str__(self) -> str:
        return "; ".join(map(str, self.whys))
