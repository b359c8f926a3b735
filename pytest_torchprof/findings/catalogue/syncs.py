"""Findings about calls in which the host waits for the GPU: a row for each."""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003  (the types of fields, which msgspec looks up)
from typing import ClassVar, Literal

from pytest_torchprof.findings.finding import Finding
from pytest_torchprof.text import counted, first_of
from pytest_torchprof.text.units import show_us


class SyncOverLittleWork(Finding, frozen=True, kw_only=True, tag="sync-over-little-work"):
    """Long blocking calls, during which the GPU was hardly busy."""

    TITLE = "Waiting for little"
    SENTENCE = (
        "{count:blocking call} ({names:list}) took {time_us:us} in which the GPU was nearly idle: the awaited work was "
        "launched late, is itself waiting, or runs elsewhere"
    )
    REMEDY = "leave the synchronization out, or do it once at the end; queue the work before waiting for it"
    ACTION = "leave the synchronization out, or do it once at the end"

    time_us: float
    share: float
    calls: Mapping[str, int]

    @property
    def count(self) -> int:
        """How many calls there are."""
        return sum(self.calls.values())

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the calls."""
        return tuple(self.calls)


WaitedFor = Literal["value", "masks", "indices", "to_gpu", "to_cpu", "copies"]
"""What an operator may wait for: a value, the number of elements that a mask selects, indices on their way to the GPU,
copies to the GPU, to the CPU, or in directions that are not known."""


class ImplicitSync(Finding, frozen=True, kw_only=True, tag="implicit-sync"):
    """An operator made the CPU wait for the GPU, for which the program did not ask."""

    TITLE = "Operators make the CPU wait for the GPU"
    SENTENCE = "operators made the CPU wait for the GPU {syncs:time}, {time_us:us} in all, {meanwhile}: {named}"
    REMEDY = "{ways}"
    _IDLED = "of which the GPU idled {idle_us:us}"
    _HELD = " ({held_us:us} of it before work that was launched, and waited itself)"
    _WAYS: ClassVar[Mapping[WaitedFor, str]] = {
        "value": "keep the value on the GPU or read it once after the loop",
        "masks": "masks by torch.where instead of indexing",
        "indices": "indices that are on the GPU already, made there once, instead of lists and tensors of the CPU",
        "copies": "copies with non_blocking=True and pinned memory",
        "to_gpu": "copies with non_blocking=True from pinned memory",
        "to_cpu": "copies to the CPU into pinned memory with non_blocking=True, and an event to wait for only where "
        "they are read",
    }
    _FIRST_WAYS: ClassVar[Mapping[WaitedFor, str]] = {
        "indices": "indices that are on the GPU already, made there once",
        "to_cpu": "copies to the CPU into pinned memory with non_blocking=True",
    }
    """Where the way does not fit a line."""
    _WORTH = 0.05
    """The share of the time below which a way is not named."""

    time_us: float
    share: float
    idle_us: float
    """How much of that the GPU idled."""
    held_us: float = 0.0
    """The part of the idle time in which launched work waited itself."""
    ops: Mapping[str, int]
    """How often each operator waited, the longest first."""

    @property
    def at(self) -> str:
        return super().at or f", longest at {next(iter(self.ops))}"

    ops_us: Mapping[str, float]
    """And for how long."""
    syncs: int
    causes_us: Mapping[WaitedFor, float]
    """For how long what was waited for, the longest first."""
    causes_idle_us: Mapping[WaitedFor, float] = {}
    """And for how much of that the GPU idled."""

    @property
    def causes(self) -> tuple[WaitedFor, ...]:
        """The causes of long waits, the longest first."""
        # To wait for a GPU that works costs nothing.
        spent = self.causes_idle_us if sum(self.causes_idle_us.values()) > 0 else self.causes_us
        order = sorted(spent, key=lambda cause: -spent[cause])
        return tuple(cause for cause in order if spent[cause] >= self._WORTH * sum(spent.values()) or cause == order[0])

    @property
    def ways(self) -> str:
        """The remedies for the causes of long waits."""
        return "; ".join(self._WAYS[cause] for cause in self.causes)

    @property
    def action(self) -> str:
        return next((self._FIRST_WAYS.get(cause) or self._WAYS[cause] for cause in self.causes), "")

    @property
    def named(self) -> str:
        """The operators that waited longest."""
        each = [f"{name} {show_us(self.ops_us[name])} ({counted(count, 'time')})" for name, count in self.ops.items()]
        return first_of(each, 4)

    @property
    def meanwhile(self) -> str:
        """How long the GPU idled meanwhile, or that it worked, in words."""
        if not self.idle_us:
            return "in which the GPU worked"
        return self.words(self._IDLED) + (self.words(self._HELD) if self.held_us >= 0.1 * self.idle_us else "")
