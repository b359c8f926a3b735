"""How often the measured code is called where several ranks run it: each rank calls it equally often.

If it has collectives, a rank that made one call more than the others would wait for them for ever. So nothing that only
one rank knows may decide how often the code is called.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_torchprof.capture.rank import this_rank
from pytest_torchprof.reasons.composed import OfRank
from pytest_torchprof.reasons.decoding import from_plain, to_stored

if TYPE_CHECKING:
    from pytest_torchprof.reasons.goal import Goal
    from pytest_torchprof.reasons.reason import Reason


class Coordination:
    """The coordination of a process which decides by itself: alone, or unable to reach the other ranks of its job.

    In the second case the number of calls is fixed: one attempt, as many samples as all others, and no repeat.
    """

    in_step = False
    """Whether the ranks exchange what they know, and decide together."""

    @property
    def is_fixed(self) -> bool:
        """Whether there are other ranks that cannot be reached."""
        return not this_rank().alone

    def head_for(self, goal: Goal) -> None:
        """Announce the goal that this rank is about to reach, for those that wait for it."""

    def exchange(self, about: str, value: Any, kind: Any = Any) -> list[Any]:  # noqa: ARG002  (as the ranks have it)
        """Return each rank's value, in their order, once all have come here; NotMeasured if one does not.

        ``about`` is a name for what is exchanged, the same on all, which nobody reads; ``kind`` is the type of the
        value, if it is not one of JSON's.
        """
        return [value]

    def agree(self, about: str, reason: Reason | None) -> Reason | None:
        """Return why the measurement cannot be believed so far: this rank's reason, or else another's."""
        values = self.exchange(about, to_stored(reason))
        others = (OfRank(number, from_plain(stored)) for number, stored in enumerate(values) if stored is not None)
        return reason if reason is not None else next(others, None)

    def leave(self, reason: Reason) -> None:
        """Tell the others why this rank no longer takes part."""

    def close(self) -> None:
        """End the last exchange."""
