"""A series that the newest run was to measure and did not: nobody knows what the newest code launches there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import asdict

from pytest_torchprof.history.digest import digest_of

if TYPE_CHECKING:
    from pytest_torchprof.history.notes import Notes
    from pytest_torchprof.history.points import Point, SeriesKey


class LackingSeries(Struct, frozen=True, kw_only=True):
    """A series without a point of the newest run that was to measure it."""

    key: SeriesKey
    last: Point | None
    """The newest that it has; None if it was never judged."""

    @property
    def id(self) -> str:
        """What it is accepted under: another one where it is measured again, and lacks again."""
        return digest_of(["lacking", asdict(self.key), None if self.last is None else self.last.commit])

    def accepted_because(self, notes: Notes) -> str | None:
        """Return why it is accepted; None if it is not."""
        return notes.accepted.get(self.id)
