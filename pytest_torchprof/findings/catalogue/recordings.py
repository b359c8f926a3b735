"""Findings about what puts a recording in doubt: a row for each."""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003  (the types of fields, which msgspec looks up)
from typing import Literal

from pytest_torchprof.findings.finding import Finding, Severity
from pytest_torchprof.text import counted, first_of
from pytest_torchprof.text.units import show_us


class NothingLaunched(Finding, frozen=True, kw_only=True, tag="no-gpu-work"):
    """Steps launched nothing, and nothing ran in them."""

    TITLE = "No GPU work"
    SENTENCE = (
        "nothing was launched{where}: the code ran on another device, or a compiler removed results that nobody uses"
    )
    REMEDY = "check that model and inputs are on the GPU, and return what the code computes"
    ACTION = "check that model and inputs are on the GPU"
    SEVERITY = "recording"
    _NO_CALL = (
        "nothing was launched, and the recording has no call to a GPU at all: the code ran on the CPU, or the profiler "
        "was not asked for the GPU"
    )
    _RECORD_IT = (
        "where the code ran on a GPU, record it too (ProfilerActivity.CUDA); where the CPU was to be measured, say so "
        '(--device cpu, load(path, device="cpu"))'
    )

    _RECORD_GPU = "where the code ran on a GPU, record it too (ProfilerActivity.CUDA)"
    _STOP_LATER = "stop the profiler after the last whole step"
    _ENDS_EARLY = (
        "the last of {of_steps:step} is empty: no operator began in it, so the profiler was stopped before its work "
        "began; the figures of this step say nothing"
    )
    _LEAVE_IT_OUT = (
        "stop the profiler after the last whole step; with a schedule, leave the loop when its last active step is "
        "done; look at one step with --step"
    )

    steps: tuple[str | None, ...]
    of_steps: int
    calls_recorded: bool
    """Whether the recording has any call to a GPU, in a step or not."""
    ends_early: bool = False
    """Whether it is the last step alone, in which no operator began."""

    @property
    def message(self) -> str:
        if self.ends_early:
            return self.words(self._ENDS_EARLY)
        return self.words(self.SENTENCE if self.calls_recorded else self._NO_CALL)

    @property
    def remedy(self) -> str:
        if self.ends_early:
            return self._LEAVE_IT_OUT
        return self.words(self.REMEDY if self.calls_recorded else self._RECORD_IT)

    @property
    def action(self) -> str:
        if self.ends_early:
            return self._STOP_LATER
        return self.ACTION if self.calls_recorded else self._RECORD_GPU

    @property
    def severity(self) -> Severity:
        """That the recording ends early is good to know, and says nothing against it."""
        return "information" if self.ends_early else self.SEVERITY

    @property
    def where(self) -> str:
        """In how many steps, where it is not all of them."""
        empty = len(self.steps)
        return "" if empty == self.of_steps else f" in {empty} of {counted(self.of_steps, 'step')}"


class KernelsLost(Finding, frozen=True, kw_only=True, tag="lost-kernels"):
    """Launches have no kernel in the recording."""

    TITLE = "Lost kernels"
    SENTENCE = "{lost_kernels} of {launches:launch} {lost_kernels:has|have} no kernel in the recording: {cause}"
    REMEDY = "synchronize every device before the profiler stops; look for a second profiler (nsys, ncu, DCGM)"
    ACTION = "synchronize every device before the profiler stops"
    SEVERITY = "recording"

    lost_kernels: int
    launches: int

    @property
    def cause(self) -> str:
        """The flaw of the recording."""
        all_lost = self.lost_kernels == self.launches
        return "the GPU side of the recording is missing" if all_lost else "the profiler lost events"


class KernelsInFlight(Finding, frozen=True, kw_only=True, tag="in-flight-kernels"):
    """GPU operations were launched before the recording began."""

    TITLE = "Kernels in flight"
    SENTENCE = (
        "{orphans:GPU operation} ({time_us:us}) launched before the recording began; {orphans:it belongs|they belong} "
        "to no step"
    )
    REMEDY = "synchronize every device before the profiler starts"
    SEVERITY = "information"

    orphans: int
    time_us: float


class ProfilerGap(Finding, frozen=True, kw_only=True, tag="profiler-gap"):
    """A device idled while the profiler handled its own buffers."""

    TITLE = "The profiler's own gap"
    SENTENCE = (
        "for {time_us:us} the GPU idled while the profiler handled its own buffers; this is left out of idle times; "
        "without the profiler it does not occur"
    )
    REMEDY = "none needed; record longer to see that it does not come back again and again"
    ACTION = "nothing, unless it comes back again and again"
    SEVERITY = "information"

    time_us: float
    share: float

    @property
    def place(self) -> int:
        """Behind all others: there is nothing to do about it."""
        return 4


class ColdRecording(Finding, frozen=True, kw_only=True, tag="cold-start"):
    """The first step is much longer, something is set up inside the recording, or a first call comes late."""

    TITLE = "Cold start"
    REMEDY = "run more warm-up calls before you start recording (warmup=), or use the schedule's warmup"
    ACTION = "run more warm-up calls before you start recording"
    _FIRST_STEP = (
        "the first step takes {first_step_took_us:us}, the median of the others is {other_steps_us:us}, "
        "the slowest of them {slowest_other_us:us}"
    )
    _SET_UP = "{set_up} inside the recording took {setup_us:us}{idled}"
    _IDLED = ", for {setup_idle_us:us} of which the GPU idled"
    _FIRST_CALL = "{first_took_us:us} pass from entering {entered} to its first operator, later {usual_us:us}"

    time_us: float
    share: float
    steps: tuple[str | None, ...]
    first_step_us: float | None = None
    """The time by which the first step exceeds the others' median."""
    first_step_took_us: float | None = None
    other_steps_us: float | None = None
    slowest_other_us: float | None = None
    setup_us: float | None = None
    setup_idle_us: float | None = None
    """For how long of that the GPU idled; of several the mean."""
    setup: Mapping[str, int] | None = None
    """The work that is done once, and how often it was, the longest first."""
    first_call_us: float | None = None
    """The time by which a range's first call takes longer to its first operator than the other calls."""
    first_took_us: float | None = None
    usual_us: float | None = None
    entered: str | None = None

    @property
    def set_up(self) -> str:
        """The things that are set up, most of the time first."""
        return first_of([f"{name} x{count}" if count > 1 else name for name, count in (self.setup or {}).items()], 3)

    @property
    def idled(self) -> str:
        """For how long of the set-up the GPU idled, where it computed meanwhile."""
        if self.setup_us is None or self.setup_idle_us is None:
            return ""
        return self.words(self._IDLED) if show_us(self.setup_idle_us) != show_us(self.setup_us) else ""

    @property
    def message(self) -> str:
        parts = (
            (self.first_step_us, self._FIRST_STEP),
            (self.setup_us, self._SET_UP),
            (self.first_call_us, self._FIRST_CALL),
        )
        return "; ".join(self.words(sentence) for us, sentence in parts if us is not None)


class KernelTimeVaries(Finding, frozen=True, kw_only=True, tag="kernel-time-varies"):
    """Kernels took longer than the same kernels on the same sizes elsewhere in the recording."""

    TITLE = "Kernel times vary"
    SENTENCE = (
        "{count:kernel} took {time_us:us} longer than the same kernels did elsewhere, {where}; {slowest} took "
        "{took_us:us} instead of {usual_us:us}"
    )
    REMEDY = "clocks, heat, or another program on the GPU: compare medians, not means; lock the clocks to be sure"
    ACTION = "lock the clocks, and compare medians"

    time_us: float
    share: float
    kernels: tuple[str, ...]
    """The kernels that lost most time."""
    count: int
    kind: Literal["outlier", "drift"]
    """Whether nearly all of it is in one step."""
    steps: tuple[str | None, ...]
    worst_step: str | None = None
    of_steps: int
    took_us: float
    usual_us: float

    @property
    def slowest(self) -> str:
        """The kernel that lost most time."""
        return self.kernels[0]

    @property
    def where(self) -> str:
        """The steps in which it happened, in words."""
        if self.kind == "outlier":
            return f"nearly all of it in {self.worst_step}"
        return f"in {len(self.steps)} of {counted(self.of_steps, 'step')}"
