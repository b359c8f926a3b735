"""How long a pause is usual: what has not been longer away than that is not missed."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Sequence

_RECENT: Final = 20
"""How many pauses count: a holiday of last year is no reason to wait as long today."""
A_DAY: Final = timedelta(days=1)
"""No pause of this length is missed, however fast runs follow one another: nights are longer than their pauses."""
Length = TypeVar("Length", int, timedelta)


def longest_usual(pauses: Sequence[Length], shortest: Length) -> Length:
    """Return how long a pause may be after these, in commits or in time, but not less than the shortest that counts."""
    # A lone pause may be chance: whoever came twice on one day may well come each second day.
    longest = shortest
    for pause in pauses[-_RECENT:]:
        longest = max(longest, pause)
    return longest + longest if len(pauses) == 1 else longest
