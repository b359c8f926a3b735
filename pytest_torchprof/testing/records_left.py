"""The message about a record that its history has not taken: why, and where the record is now."""

from __future__ import annotations

from typing import Final

from pytest_torchprof.history.belonging import ANYWAY
from pytest_torchprof.reasons import decoding  # noqa: TC001 - msgspec reads the annotations
from pytest_torchprof.reasons.statement import Phrase, Statement


class SentBy(Phrase):
    """The command that sends a record which waits."""

    PUSH = "push", "torchprof history push STORE sends it"
    PUSH_ANYWAY = "push-anyway", f"torchprof history push {ANYWAY} STORE sends it"
    """Where a history takes it that does not ask for its project."""
    PUSH_TO_ITS_OWN = "push-to-its-own", "torchprof history push sends it to a history of its own project"


class RecordWaits(Statement, frozen=True):
    """The record lies in a folder from which it can be sent."""

    SENTENCE = "The record of this run waits in {folder}: {sent_by}"

    folder: str
    sent_by: SentBy


class RecordLost(Statement, frozen=True):
    """The folder where records wait cannot take it either."""

    folder: str
    why: decoding.AnyReason

    @property
    def sentence(self) -> str:
        return f"Nor can {self.folder}: {self.why.text}. The record of this run is lost"


class RecordSeenByGit(Statement, frozen=True):
    """The record lies in a folder that git takes for one of the project."""

    SENTENCE = "The record of this run waits in {folder}, which cannot be hidden from git: {error}"

    folder: str
    error: str


Whereabouts = RecordWaits | RecordLost | RecordSeenByGit


class RecordNotTaken(Statement, frozen=True):
    """The history of a run has not taken its record."""

    history: str
    why: decoding.AnyReason
    now: Whereabouts

    @property
    def sentence(self) -> str:
        return f"--torchprof-history={self.history}: {self.why.text}. {self.now}"


KINDS: Final = (RecordWaits, RecordLost, RecordSeenByGit, RecordNotTaken)
