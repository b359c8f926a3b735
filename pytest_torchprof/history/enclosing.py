"""Changes that one commit can have made: each is known to lie in a range of commits, which they then have in common."""

from __future__ import annotations

from typing import Generic, TypeVar

from msgspec import Struct

Change = TypeVar("Change")


class Enclosed(Struct, Generic[Change]):
    """Changes of one kind, and the range of commits in which all of them lie."""

    kind: tuple[object, ...]
    """The trait that the changes of one event share."""
    before: int
    """The index of the last commit that surely is without them."""
    after: int
    """The index of the first commit that surely has them."""
    changes: list[Change]

    def meets(self, other: Enclosed[Change]) -> bool:
        """Whether one commit can have made the changes of both."""
        same = (self.before, self.after) == (other.before, other.after)
        return self.kind == other.kind and (same or max(self.before, other.before) < min(self.after, other.after))

    def narrow(self, other: Enclosed[Change]) -> None:
        """Take the changes of another one that it meets."""
        self.before, self.after = max(self.before, other.before), min(self.after, other.after)
        self.changes += other.changes
