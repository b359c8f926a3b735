"""The kernels that a step runs more often than before, and whether they do the work of kernels that are gone."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from pytest_torchprof.reasons.statement import Phrase, Statement
from pytest_torchprof.text import counted

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pytest_torchprof.compare.change import Change


class NewWork(Phrase):
    """Whose work new pointwise kernels may do."""

    FORMERLY_FUSED_OR_ADDED = "formerly-fused-or-added", ": no longer fused, or added"
    """Their own, or that of kernels which are gone."""
    ADDED = "added", ", and none is gone"
    """Their own: there is no kernel that may have done it."""


class NewKernels(Statement, frozen=True):
    """A step runs kernels more often than before."""

    count: int
    family: str | None = None
    """The family of all of them; None where they differ."""
    work: NewWork | None = None

    @property
    def sentence(self) -> str:
        noun = f"new {self.family} kernel" if self.family else "new kernel"
        return f"{counted(self.count, noun)}{self.work or ''}"


def new_kernels(changes: Iterable[Change]) -> NewKernels | None:
    """Return the new kernels of the step that has most of them; None where no step runs any more often."""
    changes = tuple(changes)
    of_step: dict[int, Counter[str | None]] = {}
    for change in changes:
        if change.fails and change.kind in ("added", "count"):
            of_step.setdefault(change.step, Counter())[change.after[0].family] += change.times
    families = max(of_step.values(), key=Counter.total, default=Counter())
    if not families:
        return None
    (family,) = families if len(families) == 1 else (None,)
    if family != "pointwise":
        return NewKernels(families.total(), family)
    gone = any(map(_loses, changes))
    return NewKernels(families.total(), family, NewWork.FORMERLY_FUSED_OR_ADDED if gone else NewWork.ADDED)


def _loses(change: Change) -> bool:
    """Whether a kernel is gone, or runs less often."""
    fewer = change.kind == "count" and (change.new or 0) < (change.old or 0)
    return fewer or change.kind in ("removed", "changed", "renamed", "replaced")
