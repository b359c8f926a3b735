"""One thing that differs from the baseline."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

BETTER: Final = "better"
WORSE: Final = "worse"
NEUTRAL: Final = "neutral"
AMBIGUOUS: Final = "ambiguous"
"""It may be worse; the samples do not tell."""

Kind = Literal["added", "removed", "changed", "count", "reordered", "number"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One difference, with which way it goes and whether that fails the test."""

    kind: Kind
    what: str
    """A kernel's short name, or a number's name."""
    old: str | float | None
    """The kernel's raw name or count, the number; None where the baseline has none."""
    new: str | float | None
    direction: str
    gated: bool
    """Whether it counts for the verdict: worse fails, better is better."""
    words: str
    times: int = 1
    """How many launches of a step it concerns."""

    @property
    def fails(self) -> bool:
        """Whether it fails the test."""
        return self.gated and self.direction == WORSE
