"""Findings about the CPU's own time, in which it was held up or nothing is recorded: a row for each."""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003  (the type of a field, which msgspec looks up)
from typing import ClassVar

from pytest_torchprof.findings.finding import Finding, Severity


class CpuHeldUp(Finding, frozen=True, kw_only=True, tag="cpu-held-up"):
    """Calls and operators that take microseconds took a millisecond and more, views among them, which do nothing."""

    TITLE = "The CPU seems to be held up"
    SENTENCE = (
        "at least {count:call} that usually {count:takes|take} microseconds took {time_us:us} ({share:percent} of the "
        "time), {views} of them views, which compute nothing; the longest, {longest}, took {longest_us:us}, usually "
        "{usual_us:us}; none of them waits or computes for so long by itself, so most likely something else ran in the "
        "thread's place{idled}"
    )
    _IDLED = "; here the GPU idled for {idle_us:us} only, since launches were ahead of it"
    REMEDY = (
        "see what else the machine runs on these cores (other ranks, workers that load data, a container's quota of "
        "CPU time), and give each process cores of its own; gaps and waits in this recording may follow from it"
    )
    ACTION = "see what else the machine runs on these cores"
    SEVERITY = "recording"

    time_us: float
    share: float
    count: int
    views: int
    """How many of them are views."""
    longest_us: float
    longest: str
    usual_us: float
    """The median of those of its name."""
    idle_us: float | None = None
    """How long a GPU idled in the window, the one that did so for longest: no more can follow from it here."""

    @property
    def is_hidden(self) -> bool:
        """Whether little follows from it in this process."""
        return self.idle_us is not None and 4 * self.idle_us <= self.time_us

    @property
    def severity(self) -> Severity:
        """Where little follows from it, it puts nothing else in doubt, and other findings come first."""
        return "warning" if self.is_hidden else self.SEVERITY

    @property
    def idled(self) -> str:
        """The words for a process in which little follows from it; empty otherwise."""
        return self.words(self._IDLED) if self.is_hidden else ""


class NothingRecorded(Finding, frozen=True, kw_only=True, tag="nothing-recorded"):
    """For much of the window neither the CPU nor the GPU has an event."""

    TITLE = "Time without any event"
    SENTENCE = (
        "for {time_us:us} ({share:percent} of the time) there is no event of any kind, in "
        "{gaps:gap}{most}, the longest {longest_us:us}{around}: {cause}"
    )
    _MOST = ", {few_us:us} of it in the {few} that last for {few_least_us:us} and more"
    _AROUND = " between {after} and {before}"
    REMEDY = "{way}"
    _CAUSES: ClassVar[Mapping[bool, str]] = {
        False: "Python between the operators, or work and waiting that the profiler does not see",
        True: "no function of Python's ran either, as far as stacks tell; it is work or waiting that the profiler does "
        "not see",
    }
    _WAYS: ClassVar[Mapping[bool, str]] = {
        False: 'record Python functions too (with_stack=True, in a test record=["stacks"]), and mark parts of the '
        "program with torch.profiler.record_function",
        True: "mark parts of the program with torch.profiler.record_function; look at other threads and processes",
    }
    _FIRST_WAYS: ClassVar[Mapping[bool, str]] = {
        False: "record Python functions too (with_stack=True)",
        True: "mark parts of the program with torch.profiler.record_function",
    }

    time_us: float
    share: float
    gaps: int
    longest_us: float
    few: int = 0
    """How many of the gaps, the longest ones, hold three quarters of it."""
    few_us: float = 0.0
    """How long these are together."""
    few_least_us: float = 0.0
    """The shortest of them."""
    after: str | None = None
    """The operator before the longest gap."""
    before: str | None = None
    """The operator behind it."""
    stacks: bool
    """Whether functions of Python's are recorded."""

    @property
    def most(self) -> str:
        """The words for few gaps that are most of the time; empty if they are not."""
        return self.words(self._MOST) if 0 < 10 * self.few <= self.gaps else ""

    @property
    def around(self) -> str:
        """The operators between which the longest gap lies, if there are any."""
        return "" if self.after is None or self.before is None else self.words(self._AROUND)

    @property
    def cause(self) -> str:
        """The possible cause."""
        return self._CAUSES[self.stacks]

    @property
    def way(self) -> str:
        """How to see more."""
        return self._WAYS[self.stacks]

    @property
    def action(self) -> str:
        return self._FIRST_WAYS[self.stacks]

    @property
    def asks_for_stacks(self) -> bool:
        return not self.stacks
