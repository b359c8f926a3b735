"""The flaws in the steps of a baseline's entry."""

from __future__ import annotations

from pytest_torchprof.reasons.statement import Phrase


class StepFlaw(Phrase):
    """A flaw of steps; what is written there, or may be there at most, stands in the place of the braces."""

    TOO_MANY_LAUNCHES = "too-many-launches", '"steps" has more than {} launches'
    TOO_MANY_ORDERS = "too-many-orders", '"steps" has more than {} launch orders'
    TOO_MANY_NAMES = "too-many-names", '"steps" has kernels of more than {} names'
    NOT_CLOSED = "not-closed", 'a list of kernels does not close with "end" (merged by hand?)'
    EMPTY_BLOCK = "empty-block", "a block that is repeated has no kernel (merged by hand?)"
    OUTSIDE_BLOCK = "outside-block", '"only_in" stands outside of a block that is repeated (merged by hand?)'
    NOT_IN_ORDER = "not-in-order", '"only_in": "{}" is not in order (merged by hand?)'
    BEYOND_REPEAT = "beyond-repeat", '"only_in" names a round beyond "repeat": {} (merged by hand?)'

    def words(self, most: int | None = None, written: str | None = None) -> str:
        """Return the words with what stands in the place of the braces."""
        if self is StepFlaw.BEYOND_REPEAT:
            return self.text.format(most)
        return self.text.format(written if most is None else f"{most:,}")
