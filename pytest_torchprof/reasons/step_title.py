"""The step of a measurement that a text speaks of."""

from __future__ import annotations

from msgspec import Struct


class StepTitle(Struct, frozen=True, kw_only=True):
    """A step of a measurement, or an occurrence of a range in it, as people call it."""

    step: int
    """Its number, from one."""
    steps: int
    """How many steps there are."""
    name: str | None = None
    """The recording's own name, where it differs."""
    occurrence: int | None = None
    """Which occurrence of a range in the step, from one; None for the whole step."""
    occurrences: int = 0
    """How many the step has."""
    place: str | None = None
    """Where the range was entered, "model.py:212"."""

    def __str__(self) -> str:
        """Return "step 3 of 5", or "occurrence 17 of 24 in step 2 of 5, model.py:212"."""
        of_step = f"step {self.step} of {self.steps}" + (f" ({self.name})" if self.name else "")
        if self.occurrence is None:
            return of_step
        within = f" in {of_step}" if self.steps > 1 else ""
        return f"occurrence {self.occurrence} of {self.occurrences}{within}" + (f", {self.place}" if self.place else "")
