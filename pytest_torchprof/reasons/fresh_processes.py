"""Why a fresh process, which was to show what torch.profiler records, came to nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Union

from pytest_torchprof.reasons.signals import signal_name
from pytest_torchprof.reasons.statement import Statement


class FreshFailure(Statement, frozen=True, tag_field="failure"):
    """Why a fresh process did not come to an end; where Python says it, its words are told instead."""


class FreshNotStarted(FreshFailure, frozen=True):
    """The system refuses to start it."""

    SENTENCE = "it could not be started: {error}"

    error: str


class NotDoneInTime(FreshFailure, frozen=True):
    """It took too long, and was ended."""

    SENTENCE = "it did not end within {limit_s:.0f} s"

    limit_s: float


class EndedSilently(FreshFailure, frozen=True):
    """It ended without a result, and without an error of Python's."""

    status: int
    """As Python has it: negative for a signal."""

    @property
    def sentence(self) -> str:
        return f"it {how_it_ended(self.status)}"


def how_it_ended(status: int) -> str:
    """Return how a process with this exit status ended, as a clause without its subject: "was ended by SIGKILL"."""
    if status >= 0:
        return f"ended with exit status {status}"
    return f"was ended by {signal_name(-status)}"


KINDS: Final[tuple[type[FreshFailure], ...]] = tuple(FreshFailure.__subclasses__())

if TYPE_CHECKING:
    AnyFreshFailure = FreshFailure
else:
    # A field of this type is decoded to the kind whose tag it has.
    AnyFreshFailure = Union[KINDS]  # noqa: UP007 - of as many as there are
