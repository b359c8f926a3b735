"""Reasons about torch.compile: what it did is not known, or not recorded."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_torchprof.reasons.reason import Reason

if TYPE_CHECKING:
    from pytest_torchprof.codes import Code


class SkippedGraphsUnknown(Reason, frozen=True):
    """What replayed is known, and whether Inductor left out other graphs is not."""

    seen: str
    """What replayed, in words."""
    why: Reason

    @property
    def code(self) -> Code | None:
        return self.why.code

    @property
    def text(self) -> str:
        return f"{self.seen}, but whether Inductor skipped a graph is not known: {self.why.text}"
