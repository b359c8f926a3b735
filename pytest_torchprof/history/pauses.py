"""How long a pause is usual: what has not been longer away than that is not missed."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

_RECENT: Final = 20
"""How many pauses count: a holiday of last year is no reason to wait as long today."""
SHORTEST: Final = timedelta(days=1)
"""No pause of this length is missed, however fast runs follow one another: nights are longer than their pauses."""


def longest_commits(pauses: Sequence[int]) -> int:
    """Return how many commits may pass until the next run, from how many passed before."""
    # A lone pause may be chance: whoever came twice on one day may well come each second day.
    return max(pauses[-_RECENT:]) * (2 if len(pauses) == 1 else 1)


def longest_time(pauses: Sequence[timedelta]) -> timedelta:
    """Return how much time may pass until the next run, from how much passed before."""
    # As above.
    return max([*pauses[-_RECENT:], SHORTEST]) * (2 if len(pauses) == 1 else 1)
