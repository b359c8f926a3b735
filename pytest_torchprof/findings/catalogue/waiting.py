"""Findings about who waits for whom, the GPU or the host: a row for each."""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003  (the types of fields, which msgspec looks up)
from typing import ClassVar

from pytest_torchprof.findings.finding import Finding, InRange
from pytest_torchprof.text.units import show_us


class OfLaunches(InRange, frozen=True, kw_only=True, tag="of-launches"):
    """A finding about a GPU that waits for launches, and so about the CPU's pace."""

    _STACKS = "; Python's stacks were recorded too, which slows the CPU"

    _MOSTLY = ", most of it{in_range}"
    _WITHIN_TWO: ClassVar[str] = " in the ranges {within:name} and {within_too:name}"

    _SPREAD: ClassVar[str] = ", {gaps:in|spread over} {gaps:wait} for a launch{longest}"
    _LONGEST: ClassVar[str] = ", the longest {longest_us:us}{of_gap}"
    _OF_GAP: ClassVar[str] = " (part of a gap of {longest_gap_us:us})"

    within_too: str | None = None
    """A second range, where none holds half of it, and the two do together."""
    stacks: bool = False
    """Whether functions of Python's are recorded."""
    longest_gap_us: float | None = None
    """The idle time that the longest wait is a part of: the launch returns before its operation starts."""

    @property
    def in_range(self) -> str:
        return super().in_range if self.within_too is None else self.words(self._WITHIN_TWO)

    @property
    def at(self) -> str:
        return super().at or self.words(self._SPREAD)

    @property
    def longest(self) -> str:
        """The longest wait; empty if it takes longer than what can be saved, from which set-up is left out."""
        longest_us = getattr(self, "longest_us", None)
        is_part = longest_us is not None and (self.saves_us is None or longest_us <= self.saves_us)
        return self.words(self._LONGEST) if is_part else ""

    @property
    def of_gap(self) -> str:
        """The length of the gap with the longest wait, as others have it; empty if it reads the same."""
        longest = getattr(self, "longest_us", None)
        return "" if show_us(self.longest_gap_us) in ("-", show_us(longest)) else self.words(self._OF_GAP)

    @property
    def mostly(self) -> str:
        """The range in which most of the time passed, if there is one."""
        return "" if self.within is None else self.words(self._MOSTLY)

    @property
    def slowed(self) -> str:
        """The words for a recording that slowed the CPU itself; empty if it did not."""
        return self._STACKS if self.stacks else ""


class OverheadBound(OfLaunches, frozen=True, kw_only=True, tag="overhead-bound"):
    """The CPU takes longer to launch the work than the GPU to do it."""

    TITLE = "Bound by CPU overhead"
    SENTENCE = (
        "the CPU takes {launch_ratio:ratio} times as long to launch the work as the GPU to do it: "
        "{late_launches:percent} of the GPU operations came late, and the GPU idled {time_us:us} ({share:percent} of "
        "the time{set_up}) until they were launched{mostly}, the longest wait {longest_us:us}{of_gap} before "
        "{longest_before}{slowed}"
    )
    _SET_UP = ", {set_up_us:us} of it in one-time set-up"
    REMEDY = (
        "more work per launch (larger batches), fewer launches (torch.compile, foreach or fused variants), or one "
        'launch for all (mode="reduce-overhead")'
    )
    ACTION = "more work per launch: larger batches, fused code, CUDA graphs"
    _OF_COMPILED = 'more work per launch (larger batches), or one launch for all (mode="reduce-overhead")'
    _WITHOUT_STACKS = "record with_stack=False, then larger batches, CUDA graphs"

    _MOSTLY_ELSE = (
        "most of the recording is set-up, compilation or other work of the CPU: the GPU was busy for {busy_us:us} and "
        "waited for launches for {time_us:us}, {longest_us:us} of it before {longest_before}"
    )
    _WARM_UP = "record warm steps: more warm-up calls (warmup=), and what is done once before them"
    _WARM_STEPS = "record warm steps: more warm-up calls (warmup=)"
    _TOO_LARGE = 100
    """The launch ratio from which on it may say nothing about launches."""
    _LONG_US = 1000.0
    """A mean wait in which the CPU does more than launch; with Python's stacks recorded a launch takes half of it."""

    time_us: float
    """The time in which the GPU waited for launches; of several GPUs the mean."""
    share: float
    gaps: int
    launch_ratio: float
    """How many times as long the CPU launched as the GPU was busy."""
    launching_us: float
    """The time in which the CPU did recorded work other than waiting, loading data, and work that is done once."""
    busy_us: float
    """The time in which the GPU ran the launches of the steps."""
    late_launches: float
    """The share of the GPU operations that the device had to wait for."""
    longest_us: float
    """The longest of the waits."""
    longest_before: str
    set_up_us: float = 0.0
    """The part of the time in work that is done once, which warm steps do not have."""
    compiled: bool = False
    """Whether half of the time passed inside of compiled code."""

    @property
    def set_up(self) -> str:
        """The part of the time that is the cold start's, where that is enough to be seen."""
        return self.words(self._SET_UP) if self.set_up_us >= 0.1 * self.time_us else ""

    @property
    def message(self) -> str:
        return self.words(self._MOSTLY_ELSE if self._is_else else self.SENTENCE)

    @property
    def _is_else(self) -> bool:
        """Whether the CPU did something else than launch: an eager model has many short waits."""
        rarely = self.launch_ratio > self._TOO_LARGE and self.time_us >= self._LONG_US * self.gaps
        return rarely or self._is_once

    @property
    def _is_once(self) -> bool:
        """Whether the CPU did not launch but prepare, and so once that it is half of the time."""
        return self.launch_ratio > self._TOO_LARGE and 2 * self.longest_us >= self.time_us

    @property
    def remedy(self) -> str:
        if self._is_once:
            return self._WARM_UP
        return self._OF_COMPILED if self.compiled else self.REMEDY

    @property
    def action(self) -> str:
        if self._is_once:
            return self._WARM_STEPS
        return self._WITHOUT_STACKS if self.stacks else self.ACTION


class ComputeBound(Finding, frozen=True, kw_only=True, tag="compute-bound"):
    """The GPU computes nearly all of the time."""

    TITLE = "Bound by the GPU"
    SENTENCE = (
        "the GPU computes {share:percent} of the time: faster kernels make it faster, a faster host does not{barely}"
    )
    _BARELY = (
        "; but only just: launching this takes the CPU {launch_ratio:ratio} times as long as the GPU takes to run it, "
        "so that what makes kernels faster has to spare launches too"
    )
    _NEARLY_ALL = 0.75
    """The share of the GPU's time from which on the host is the next to hold it up."""
    REMEDY = "look at the longest kernels: their types, their sizes, and what could be fused"
    ACTION = "look at types and sizes of the longest kernels"
    SEVERITY = "information"

    time_us: float
    share: float
    launch_ratio: float = 0.0
    """How many times as long operators and calls ran, waits aside, as the GPU was busy with what the steps launched."""

    @property
    def barely(self) -> str:
        """The words for a CPU that is nearly as busy; empty if it is not."""
        return self.words(self._BARELY) if self.launch_ratio >= self._NEARLY_ALL else ""


class LaunchGaps(OfLaunches, frozen=True, kw_only=True, tag="launch-gaps"):
    """The GPU idled because the next operation was not launched yet; of several GPUs the mean."""

    TITLE = "The GPU waits for launches"
    _FOR_DATA = "The GPU waits for data"
    SENTENCE = (
        "{time_us:us} ({share:percent} of the time) the GPU idled because the next operation was not launched yet, in "
        "{gaps:wait} for a launch{mostly}, the longest {longest_us:us}{of_gap} before {longest_before}{loading}{slowed}"
    )
    _LOADING = "; {data_loading_us:us} of it passed while data was being loaded"
    REMEDY = "launch earlier: {silence}fewer and larger launches, {graphs_in_use}{no_waits}"
    _SILENT = (
        "first find out what the program does in {silent_us:us} of it, for which the recording shows no CPU "
        "activity{silent_place}: {seeing}; then "
    )
    _SEEING: ClassVar[Mapping[bool, str]] = {
        False: 'record Python functions too (with_stack=True, in a test record=["stacks"])',
        True: "mark parts of the program with torch.profiler.record_function",
    }
    _SILENT_PLACE = ", most of it between {silent_after} and {silent_before}"
    ACTION = "larger batches, {larger_launches}"
    _LOAD = "load data in the background (num_workers, pin_memory)"
    _LONGER_WARM_UP = "warm up longer (warmup=)"
    _LOOK_FIRST: ClassVar[Mapping[bool, str]] = {
        False: "record Python functions (with_stack=True) to see what runs",
        True: "mark parts of the program with torch.profiler.record_function",
    }
    _WARM_UP = "warm up longer (warmup=): {capturing_us:us} of it passed in calls that captured CUDA graphs"
    _NO_WAITS = ", and no synchronization in between ({after_waits_us:us} of it came after one)"
    _GRAPHS: ClassVar[Mapping[bool, str]] = {False: "CUDA graphs", True: "more of the work in the CUDA graphs"}
    _LARGER: ClassVar[Mapping[bool, str]] = {False: "torch.compile, CUDA graphs", True: _GRAPHS[True]}

    time_us: float
    share: float
    host_wait_us: float
    """HTA's classes of idle time, of all devices together."""
    kernel_wait_us: float
    other_us: float
    gaps: int
    longest_us: float
    longest_before: str
    data_loading_us: float
    """The part of the time while data was loaded; of several GPUs the mean."""
    loads_long: bool
    """Whether data is loaded for so long that this is what to change first."""
    after_waits_us: float
    """The part of the time in gaps that began while the CPU waited for the GPU; of several GPUs the mean."""
    waits_long: bool
    """Whether that is so long that it is worth a change."""
    capturing_us: float
    """The part of the time in outermost operators that captured a CUDA graph; of several GPUs the mean."""
    graphs: bool
    """Whether CUDA graphs are launched already."""
    silent_us: float = 0.0
    """The part of the time without any event; of several GPUs the mean."""
    silent_after: str | None = None
    """The operator before most of that, if few gaps between the same two operators are most of it."""
    silent_before: str | None = None
    """The operator behind it."""

    @property
    def is_for_data(self) -> bool:
        """Whether most of it passed while data was loaded."""
        return 2 * self.data_loading_us >= self.time_us

    @property
    def is_for_captures(self) -> bool:
        """Whether most of it passed while CUDA graphs were captured."""
        return 2 * self.capturing_us >= self.time_us

    @property
    def title(self) -> str:
        return self._FOR_DATA if self.is_for_data else self.TITLE

    @property
    def loading(self) -> str:
        """For how long data was loaded, where that is long."""
        return self.words(self._LOADING) if self.loads_long else ""

    @property
    def silent_place(self) -> str:
        """The operators between which most of that lies, if there are any."""
        return "" if self.silent_after is None or self.silent_before is None else self.words(self._SILENT_PLACE)

    @property
    def is_silent(self) -> bool:
        """Whether most of it has no event."""
        return 2 * self.silent_us >= self.time_us

    @property
    def seeing(self) -> str:
        """How to see what ran."""
        return self._SEEING[self.stacks]

    @property
    def silence(self) -> str:
        """The words for time that something other than launching takes; empty unless most of it has no event."""
        return self.words(self._SILENT) if self.is_silent else ""

    @property
    def remedy(self) -> str:
        others = (
            (self.loads_long, self.is_for_data, self._LOAD),
            (self.capturing_us, self.is_for_captures, self._WARM_UP),
        )
        first, last = (
            [way for is_there, is_most, way in others if is_there and is_most is before] for before in (True, False)
        )
        return self.words("; ".join([*first, self.REMEDY, *last]))

    @property
    def asks_for_stacks(self) -> bool:
        return self.is_unseen and not self.stacks

    @property
    def is_unseen(self) -> bool:
        """Whether what the CPU does meanwhile has to be found out first."""
        return self.is_silent and not (self.is_for_captures or (self.loads_long and self.is_for_data))

    @property
    def action(self) -> str:
        ways = (
            (self.loads_long and self.is_for_data, self._LOAD),
            (self.is_for_captures, self._LONGER_WARM_UP),
            (self.is_unseen, self._LOOK_FIRST[self.stacks]),
        )
        return next((way for is_there, way in ways if is_there), super().action)

    @property
    def no_waits(self) -> str:
        """The advice that nothing should wait between launches; empty if nothing waits long."""
        return self.words(self._NO_WAITS) if self.waits_long else ""

    @property
    def graphs_in_use(self) -> str:
        """The advice on CUDA graphs, by whether they are in use."""
        return self._GRAPHS[self.graphs]

    @property
    def larger_launches(self) -> str:
        """The way to fewer launches of the same work, by whether CUDA graphs are in use."""
        return self._LARGER[self.graphs]


class LaunchDelay(Finding, frozen=True, kw_only=True, tag="launch-delay"):
    """The way from a launch to its kernel is long although the GPU has nothing else to do."""

    TITLE = "Launches arrive late"
    SENTENCE = "the first kernel ran {first_us:us} after its launch, the median is {median_us:us}"
    REMEDY = (
        "a late first kernel is start-up (the profiler's buffers, loading of code): warm up longer; a late median on "
        "an idle GPU is another process on the GPU, the driver or a throttled CPU"
    )
    ACTION = "warm up longer if only the first kernel comes late"
    SEVERITY = "information"

    first_us: float
    median_us: float
    time_us: float
    share: float
