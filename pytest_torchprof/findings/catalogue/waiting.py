"""Findings about who waits for whom, the GPU, the host, or ranks of a job: a row for each."""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003  (the types of fields, which msgspec looks up)
from typing import ClassVar, Literal

from pytest_torchprof.analysis.rank_kernels import OtherCount, OtherStepCount  # noqa: TC001  (msgspec reads it)
from pytest_torchprof.findings.finding import Finding, Severity
from pytest_torchprof.reasons.collectives import AnyRankDifference  # noqa: TC001  (msgspec reads it)
from pytest_torchprof.text import all_of, and_more, counted, enumerated, first_of, show_us


class _InRange(Finding, frozen=True, kw_only=True):
    """A finding that is told with the program's range, where most of it lies in one."""

    _WITHIN: ClassVar[str] = " in the range {within:name}"

    within: str | None = None
    """The narrowest range of the program's with at least half of it."""

    @property
    def in_range(self) -> str:
        """In which range most of it is, where there is such a one."""
        return "" if self.within is None else self.words(self._WITHIN)

    @property
    def at(self) -> str:
        return super().at or self.in_range


class OfLaunches(_InRange, frozen=True, kw_only=True, tag="of-launches"):
    """A finding about a GPU that waits for launches, and so about the CPU's pace."""

    _STACKS = "; Python's stacks were recorded too, which slows the CPU"

    _MOSTLY = ", most of it{in_range}"
    _WITHIN_TWO: ClassVar[str] = " in the ranges {within:name} and {within_too:name}"

    within_too: str | None = None
    """A second range, where none holds half of it, and the two do together."""
    stacks: bool = False
    """Whether functions of Python's are recorded."""

    @property
    def in_range(self) -> str:
        return super().in_range if self.within_too is None else self.words(self._WITHIN_TWO)

    @property
    def mostly(self) -> str:
        """In which range most of the time passed, where there is such a one."""
        return "" if self.within is None else self.words(self._MOSTLY)

    @property
    def slowed(self) -> str:
        """That the recording itself slowed the CPU, where it did."""
        return self._STACKS if self.stacks else ""


class OverheadBound(OfLaunches, frozen=True, kw_only=True, tag="overhead-bound"):
    """The CPU takes longer to launch the work than the GPU to do it."""

    TITLE = "Bound by overhead"
    SENTENCE = (
        "the CPU takes {launch_ratio:ratio} times as long to launch the work as the GPU to do it: "
        "{late_launches:percent} of the GPU operations came late, and the GPU idled {time_us:us} ({share:percent} of "
        "the time{set_up}) until they were launched{mostly}, the longest {longest_us:us} before {longest_before}"
        "{slowed}"
    )
    _SET_UP = ", {set_up_us:us} of it in one-time set-up"
    REMEDY = (
        "more work per launch (larger batches), fewer launches (torch.compile, foreach or fused variants), or one "
        'launch for all (mode="reduce-overhead")'
    )
    ACTION = "more work per launch: larger batches, fused code, CUDA graphs"

    _MOSTLY_ELSE = (
        "most of the recording is set-up, compilation or other work of the CPU: the GPU was busy for {busy_us:us} and "
        "waited for launches for {time_us:us}, {longest_us:us} of it before {longest_before}"
    )
    _WARM_UP = "record warm steps: more warm-up calls (warmup=), and what is done once before them"
    _WARM_STEPS = "record warm steps: more warm-up calls (warmup=)"
    _TOO_LARGE = 100
    """As a ratio from here on it says nothing about launches."""

    time_us: float
    """In which the GPU waited for launches; of several GPUs the mean."""
    share: float
    gaps: int
    launch_ratio: float
    """How many times as long the CPU launched as the GPU was busy."""
    launching_us: float
    """In which the CPU did what is recorded and neither waited, nor loaded data, nor did what is done once."""
    busy_us: float
    """In which the GPU ran what the steps launched."""
    late_launches: float
    """The share of the GPU operations that the device had to wait for."""
    longest_us: float
    """The longest of the waits."""
    longest_before: str
    set_up_us: float = 0.0
    """Of the time, what passed in what is done once, which warm steps have not."""

    @property
    def set_up(self) -> str:
        """What of the time is the cold start's, where that is enough to be seen."""
        return self.words(self._SET_UP) if self.set_up_us >= 0.1 * self.time_us else ""

    @property
    def message(self) -> str:
        return self.words(self.SENTENCE if self.launch_ratio <= self._TOO_LARGE else self._MOSTLY_ELSE)

    @property
    def remedy(self) -> str:
        return self.REMEDY if self.launch_ratio <= self._TOO_LARGE else self._WARM_UP

    @property
    def action(self) -> str:
        return self.ACTION if self.launch_ratio <= self._TOO_LARGE else self._WARM_STEPS


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
    """Of the GPU's time, from where on the host is next to hold it up."""
    REMEDY = "look at the longest kernels: their types, their sizes, and what could be fused"
    ACTION = "look at types and sizes of the longest kernels"
    SEVERITY = "information"

    time_us: float
    share: float
    launch_ratio: float = 0.0
    """How many times as long operators and calls ran, waits aside, as the GPU was busy with what the steps launched."""

    @property
    def barely(self) -> str:
        """That the CPU is nearly as busy, where it is."""
        return self.words(self._BARELY) if self.launch_ratio >= self._NEARLY_ALL else ""


class LaunchGaps(OfLaunches, frozen=True, kw_only=True, tag="launch-gaps"):
    """The GPU idled because the next operation was not launched yet; of several GPUs the mean."""

    TITLE = "The GPU waits for launches"
    _FOR_DATA = "The GPU waits for data"
    SENTENCE = (
        "{time_us:us} ({share:percent} of the time) the GPU idled because the next operation was not launched yet, in "
        "{gaps:gap}{mostly}, the longest {longest_us:us} before {longest_before}{loading}{slowed}"
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
    ACTION = "fewer and larger launches, {graphs_in_use}"
    _LOAD = "load data in the background (num_workers, pin_memory)"
    _LONGER_WARM_UP = "warm up longer (warmup=)"
    _LOOK_FIRST: ClassVar[Mapping[bool, str]] = {
        False: "record Python functions (with_stack=True) to see what runs then",
        True: "mark parts of the program with torch.profiler.record_function",
    }
    _WARM_UP = "warm up longer (warmup=): {capturing_us:us} of it passed in calls that captured CUDA graphs"
    _NO_WAITS = ", and no synchronization in between ({after_waits_us:us} of it came after one)"
    _GRAPHS: ClassVar[Mapping[bool, str]] = {False: "CUDA graphs", True: "more of the work in the CUDA graphs"}

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
    """Of the time, what passed while data was loaded; of several GPUs the mean."""
    loads_long: bool
    """Whether data is loaded for so long that this is what to change first."""
    after_waits_us: float
    """Of the time, what is in gaps that began while the CPU waited for the GPU; of several GPUs the mean."""
    waits_long: bool
    """Whether that is so long that it is worth a change."""
    capturing_us: float
    """Of the time, what passed in outermost operators that captured a CUDA graph; of several GPUs the mean."""
    graphs: bool
    """Whether CUDA graphs are launched already."""
    silent_us: float = 0.0
    """Of the time, what passed without any event; of several GPUs the mean."""
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
        """Between which operators most of that lies, where there are such."""
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
        """That something else than launching takes the time, where most of it has no event."""
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
        return self.action == self._LOOK_FIRST[False]

    @property
    def action(self) -> str:
        ways = (
            (self.loads_long and self.is_for_data, self._LOAD),
            (self.is_for_captures, self._LONGER_WARM_UP),
            (self.is_silent, self._LOOK_FIRST[self.stacks]),
        )
        return next((way for is_there, way in ways if is_there), super().action)

    @property
    def no_waits(self) -> str:
        """That nothing should wait between launches, where something does."""
        return self.words(self._NO_WAITS) if self.waits_long else ""

    @property
    def graphs_in_use(self) -> str:
        """What graphs can do, in use or not."""
        return self._GRAPHS[self.graphs]


class LaunchedWorkWaits(Finding, frozen=True, kw_only=True, tag="queued-work-waits"):
    """The GPU idled before operations whose launch had returned; of several GPUs the mean."""

    TITLE = "Launched work waits"
    SENTENCE = (
        "{time_us:us} ({share:percent} of the time) the GPU idled although the next operation was launched, in "
        "{gaps:gap}, the longest {longest_us:us} before {longest_before}{of_graph}{lacking}{meanwhile}"
    )
    _MEANWHILE = "; for {cpu_waited_us:us} of it the CPU waited for the GPU, most of that in {cpu_waited_in}{in_range}"
    _IN_RANGE = " in the range {cpu_waited_within:name}"
    REMEDY = "look at what the operation waits for: {causes}"
    ACTION = "look at what the operation waits for"
    _TITLE_LACKING = "Work that is not recorded"
    _LACKING = (
        "; {inside_graphs_us:us} of it lies between operations of one graph, which wait for nothing outside of it: the "
        "recording seems to lack kernels"
    )
    _SHOW_GRAPHS = (
        "do not act on idle times yet: record without CUDA graphs, or with Nsight Systems (nsys profile "
        "--cuda-graph-trace=node), which shows what ran in the graphs"
    )
    _FROM_BEFORE = (
        "for {time_us:us} ({share:percent} of the time) nothing of the GPU is recorded, although the next operation "
        "was launched: {longest_before}{of_graph} waited for work from before the recording"
    )
    _TITLE_BEFORE = "Work from before the recording"
    _SHOW_ALL = "record more steps, or synchronize before the first one (torch.cuda.synchronize())"
    _MORE_STEPS = "record more steps, or synchronize before the first one"
    _NO_GRAPHS = "do not act on idle times yet: record without CUDA graphs"
    _EARLIER = "work from before the recording, which the file does not have: nothing ran before on its stream"
    _DEVICE = "another GPU, whose work ended just before"
    _GRAPH = "the start of a CUDA graph (a first launch uploads it: replay it once more in the warm-up)"
    _GRAPHS_AGAIN = (
        "the starts of CUDA graphs, in later steps too, so that it is not their upload; the recording does not show "
        "what they wait for, nor whether the GPU works meanwhile on something that has no event"
    )
    _NOTHING_SEEN = (
        "nothing in the recording shows it; it may be work that the file does not have, another process on the GPU, "
        "the driver, or clocks of CPU and GPU that differ"
    )

    time_us: float
    share: float
    gaps: int
    gaps_in_graphs: int
    longest_us: float
    longest_before: str
    longest_in_graph: bool
    in_graphs_us: float = 0.0
    """Of the time, what passed before operations of CUDA graphs; of several GPUs the mean."""
    graph_starts_us: float
    """Of the time, what passed before the first operation of a CUDA graph; of several GPUs the mean."""
    graphs_again_us: float = 0.0
    """Of that, what passed in steps after the first, in which no graph is launched for the first time."""
    after_other_gpu: bool
    """Whether the longest wait ended when another GPU's work did."""
    begins_with_it: bool = False
    """Whether the longest wait is that of its stream's first operation, in a recording that may begin anywhere."""
    from_before_us: float = 0.0
    """What passed before such operations; of several GPUs the mean."""
    cpu_waited_us: float = 0.0
    """Of the time, in which the CPU waited for a GPU."""
    cpu_waited_in: str | None = None
    """The operator, or the call, in which most of that passed."""
    cpu_waited_within: str | None = None
    """The program's range in which most of that passed."""

    @property
    def is_from_before(self) -> bool:
        """Whether it is hardly anything but work that the file does not have."""
        return self.from_before_us >= 0.9 * self.time_us

    @property
    def inside_graphs_us(self) -> float:
        """What passed between operations of one CUDA graph; of several GPUs the mean."""
        return self.in_graphs_us - self.graph_starts_us

    @property
    def lacks_work(self) -> bool:
        """Whether so much of it passed inside of graphs that work must be missing in the recording."""
        return 4 * self.inside_graphs_us >= self.time_us

    @property
    def lacking(self) -> str:
        """That work seems to be missing, where it does."""
        return self.words(self._LACKING) if self.lacks_work else ""

    @property
    def is_unexplained(self) -> bool:
        """Whether most of it is in CUDA graphs, and no upload of theirs: the recording does not show what for."""
        return 2 * (self.inside_graphs_us + self.graphs_again_us) >= self.time_us

    @property
    def meanwhile(self) -> str:
        """Where the CPU waited at the same time, if it did so for most of it."""
        return self.words(self._MEANWHILE) if 2 * self.cpu_waited_us >= self.time_us else ""

    @property
    def in_range(self) -> str:
        """The range of the program's in which it waited, where there is one."""
        return "" if self.cpu_waited_within is None else self.words(self._IN_RANGE)

    @property
    def title(self) -> str:
        if self.is_from_before:
            return self._TITLE_BEFORE
        return self._TITLE_LACKING if self.lacks_work else self.TITLE

    @property
    def severity(self) -> Severity:
        is_of_recording = self.is_from_before or self.lacks_work or self.is_unexplained
        return "recording" if is_of_recording else self.SEVERITY

    @property
    def message(self) -> str:
        return self.words(self._FROM_BEFORE if self.is_from_before else self.SENTENCE)

    @property
    def remedy(self) -> str:
        if self.is_from_before:
            return self._SHOW_ALL
        return self._SHOW_GRAPHS if self.lacks_work else self.words(self.REMEDY)

    @property
    def action(self) -> str:
        if self.is_from_before:
            return self._MORE_STEPS
        return self._NO_GRAPHS if self.lacks_work else self.ACTION

    @property
    def causes(self) -> str:
        """What it may wait for, as far as the recording has such a thing."""
        graphs = self._GRAPHS_AGAIN if 2 * self.graphs_again_us >= self.graph_starts_us else self._GRAPH
        seen = (
            (self.begins_with_it, self._EARLIER),
            (self.after_other_gpu, self._DEVICE),
            (2 * self.graph_starts_us >= self.time_us, graphs),
        )
        return enumerated([cause for is_there, cause in seen if is_there] or [self._NOTHING_SEEN])

    @property
    def of_graph(self) -> str:
        """Whether a graph launched what waited longest."""
        return " of a CUDA graph" if self.longest_in_graph else ""


class LaunchDelay(Finding, frozen=True, kw_only=True, tag="launch-delay"):
    """The way from a launch to its kernel is long although the GPU has nothing else to do."""

    TITLE = "Launches arrive late"
    SENTENCE = "the first kernel ran {first_us:us} after its launch, the median is {median_us:us}"
    REMEDY = (
        "a late first kernel is start-up (the profiler's buffers, loading of code): warm up longer; a late median on "
        "an idle GPU is the driver or a throttled CPU"
    )
    ACTION = "warm up longer if only the first kernel comes late"
    SEVERITY = "information"

    first_us: float
    median_us: float
    time_us: float
    share: float


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
        """What they are called."""
        return tuple(self.calls)


WaitedFor = Literal["value", "masks", "indices", "to_gpu", "to_cpu", "copies"]
"""What an operator may wait for: a value, the number of elements that a mask selects, indices on their way to the GPU,
copies to the GPU, to the CPU, or in directions that are not known."""


class ImplicitSync(Finding, frozen=True, kw_only=True, tag="implicit-sync"):
    """An operator made the CPU wait for the GPU, for which the program did not ask."""

    TITLE = "Hidden synchronization"
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
    """Of the time, below which a way is not named."""

    time_us: float
    share: float
    idle_us: float
    """How much of that the GPU idled."""
    held_us: float = 0.0
    """Of the idle time, what passed although work was launched, which waited itself."""
    ops: Mapping[str, int]
    """How often each operator waited, the longest first."""
    ops_us: Mapping[str, float]
    """And for how long."""
    syncs: int
    causes_us: Mapping[WaitedFor, float]
    """For how long what was waited for, the longest first."""
    causes_idle_us: Mapping[WaitedFor, float] = {}
    """And for how much of that the GPU idled."""

    @property
    def causes(self) -> tuple[WaitedFor, ...]:
        """What was waited for long, the longest first."""
        # To wait for a GPU that works costs nothing.
        spent = self.causes_idle_us if sum(self.causes_idle_us.values()) > 0 else self.causes_us
        order = sorted(spent, key=lambda cause: -spent[cause])
        return tuple(cause for cause in order if spent[cause] >= self._WORTH * sum(spent.values()) or cause == order[0])

    @property
    def ways(self) -> str:
        """What to do about what was waited for, where that was long."""
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
        """What the GPU did."""
        if not self.idle_us:
            return "in which the GPU worked"
        return self.words(self._IDLED) + (self.words(self._HELD) if self.held_us >= 0.1 * self.idle_us else "")


class GraphRecaptured(_InRange, frozen=True, kw_only=True, tag="graph-recaptured"):
    """Calls capture a CUDA graph of what an earlier call has captured."""

    TITLE = "Graph captured again"
    SENTENCE = (
        "{count} of {captures} calls that captured a CUDA graph captured the same one, which was launched in between: "
        "{time_us:us} ({share:percent} of the time){idled}; they are calls of {ops:list}{in_range}, which began "
        "{begun} after the start"
    )
    _IDLED = ", for {idle_us:us} of which the GPU idled"
    REMEDY = (
        "find out why they keep re-capturing it (more warm-up does not end it): parameters or inputs at new addresses, "
        "results of the last call that are still in use (torch.compiler.cudagraph_mark_step_begin()), or a graph that "
        "is made in the loop; sizes are the same; TORCH_LOGS=cudagraphs tells more"
    )
    ACTION = "look for inputs at new addresses and results still in use"
    _MOST_NAMED = 4

    time_us: float
    share: float
    count: int
    captures: int
    """All calls that captured a graph."""
    idle_us: float | None = None
    """For how long of the time the GPU idled; of several the mean."""
    ops: tuple[str, ...]
    """The operators whose calls they are, those that took longest first."""
    begun_us: tuple[float, ...]
    """When each of the calls began, from the first step's start on."""

    @property
    def idled(self) -> str:
        """For how long of the time the GPU idled, where it computed meanwhile."""
        if self.idle_us is None or show_us(self.idle_us) == show_us(self.time_us):
            return ""
        return self.words(self._IDLED)

    @property
    def begun(self) -> str:
        """When the first of the calls began."""
        return all_of([show_us(each) for each in self.begun_us], self._MOST_NAMED)


class ExposedCommunication(Finding, frozen=True, kw_only=True, tag="exposed-communication"):
    """A device, or a rank of a job, only communicates."""

    TITLE = "Exposed communication"
    SENTENCE = (
        "{time_us:us} ({share:percent} of the time) the GPU only communicates ({longest:list}), with nothing to "
        "compute meanwhile{cause}"
    )
    REMEDY = "overlap it with computation ({ways:list}){needed}{compare}"
    ACTION = "overlap it with computation"
    _COMPARE = "; a collective that only waits shows that another rank is late: compare the ranks"
    _NEEDED: ClassVar[str] = ", where the next kernels do not need its result, as in tensor parallelism they do"
    _WAYS: ClassVar[Mapping[str, str]] = {"ddp": "DDP buckets", "fsdp": "prefetch in FSDP"}
    _SENT_BY: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "ddp": ("all_reduce",),
        "fsdp": ("all_gather", "reduce_scatter"),
    }
    """What the wrappers send."""
    _ON_CPU = (
        "{time_us:us} ({share:percent} of the time) the process only communicates ({longest:list}), and no operator "
        "computes meanwhile{cause}"
    )
    _OF_RANK = "{time_us:us} ({share:share} of the steps) rank {rank} only communicates{cause}"
    _REMEDIES: ClassVar[Mapping[str | None, str]] = {
        "skew-bound": "find what makes the last rank late",
        "inconclusive": "record all ranks, on hosts whose clocks agree: they tell which of them wait, and for whom",
    }
    _LATE = (
        "; collectives took {beyond_usual_us:us} more than the fastest quarter of those of the same kind and size, "
        "which suggests that another rank was late"
    )
    _FIND_LATE = (
        "first find which rank is late, and why: record all ranks and compare them (torchprof analyze DIR "
        "--ranks){held_up}; then "
    )
    _HELD_UP = (
        ", and give each process cores of its own: this one was held up (cpu-held-up), and so may be the ranks that it "
        "waits for"
    )
    _COMPARE_FIRST = (
        "compare the ranks first: a collective that only waits shows that another rank is late; only "
        "{computing_us:us} of computation is there to overlap it with ({ways:list}){needed}"
    )
    _SEND_LESS = "overlap it with computation, send less (types, buckets), or use faster links"
    _ACTIONS: ClassVar[Mapping[str | None, str]] = {
        "skew-bound": "find what makes the last rank late",
        "inconclusive": "record all ranks, on hosts whose clocks agree",
    }
    _OF_ANY_RANK = "overlap it with computation, send less, or use faster links"
    _LATE_FIRST = "record all ranks and compare them: torchprof analyze DIR --ranks"
    _RANKS_FIRST = "compare the ranks first"
    CAUSES: ClassVar[Mapping[str, str]] = {
        "skew-bound": "skew-bound: ranks wait for each other",
        "transfer-bound": "transfer-bound: sending takes the time",
        "mixed": "mixed (waiting, transfer): ranks wait for each other, and sending takes time too",
        "inconclusive": "inconclusive: whether ranks wait or send cannot be told",
    }
    """What the time in collectives is spent with, by kind."""

    time_us: float
    share: float
    on_cpu: bool = False
    """Whether the CPU is the device, and a backend such as gloo communicates."""
    rank: int | None = None
    """The rank that this is about, where all ranks of the job are looked at together."""
    kind: Literal["transfer-bound", "skew-bound", "mixed", "inconclusive"] | None = None
    wait_share: float | None = None
    collectives_us: Mapping[str, float] | None = None
    """The time of each kind of collective, the longest first."""
    wrappers: tuple[Literal["ddp", "fsdp"], ...] = ()
    """The wrappers of torch's that ran, of which each has its own way to overlap."""

    beyond_usual_us: float = 0.0
    """By how much collectives took longer than the lower quartile of those of their kind, size and group."""
    computing_us: float | None = None
    """How long the device computed, the most that communication can be overlapped with."""
    cpu_held_up: bool = False
    """Whether this process seems to have been held up itself, as the others of its machine may have been."""

    @property
    def is_late(self) -> bool:
        """Whether most of it looks like waiting for another rank, where only this one's recording is at hand."""
        return self.kind is None and self.beyond_usual_us >= 0.5 * self.time_us

    @property
    def ways(self) -> tuple[str, ...]:
        """How to overlap it: a wrapper's own way where it sends what takes the longest."""
        first = self.longest[0] if self.longest else ""
        meant = [wrapper for wrapper in self.wrappers if first in self._SENT_BY[wrapper]]
        return (*(self._WAYS[wrapper] for wrapper in meant), "async_op=True")

    @property
    def needed(self) -> str:
        """That it may be needed at once, where no wrapper tells that it is not."""
        return self._NEEDED if "all_reduce" in self.longest[:1] and not self.wrappers else ""

    @property
    def compare(self) -> str:
        """That ranks may wait for each other, where that is not known."""
        return "" if self.is_late else self._COMPARE

    @property
    def held_up(self) -> str:
        """What else to do where this process was held up itself."""
        return self._HELD_UP if self.cpu_held_up else ""

    @property
    def longest(self) -> tuple[str, ...]:
        """The collectives that take the longest."""
        return tuple(self.collectives_us or ())[:3]

    @property
    def cause(self) -> str:
        """What the time is spent with, where the recordings of all ranks tell, or what it looks like."""
        if self.is_late:
            return self.words(self._LATE)
        return "" if self.kind is None else f"; {self.CAUSES[self.kind]}"

    @property
    def message(self) -> str:
        if self.rank is not None:
            return self.words(self._OF_RANK)
        return self.words(self._ON_CPU if self.on_cpu else self.SENTENCE)

    @property
    def remedy(self) -> str:
        if self.rank is not None:
            return self._REMEDIES.get(self.kind, self._SEND_LESS)
        if self.kind is None and not self.is_late and self.computing_us is not None:
            return self.words(self._COMPARE_FIRST if 2 * self.computing_us < self.time_us else self.REMEDY)
        return self.words((self._FIND_LATE if self.is_late else "") + self.REMEDY)

    @property
    def action(self) -> str:
        if self.rank is not None:
            return self._ACTIONS.get(self.kind, self._OF_ANY_RANK)
        if self.is_late:
            return self._LATE_FIRST
        is_short = self.kind is None and self.computing_us is not None and 2 * self.computing_us < self.time_us
        return self._RANKS_FIRST if is_short else self.ACTION


class Straggler(Finding, frozen=True, kw_only=True, tag="straggler"):
    """A rank comes last in most of the waiting at collectives."""

    TITLE = "A rank keeps the others waiting"
    SENTENCE = "rank {rank} comes last in {share:share} of the waiting at collectives, {caused_us:us} in all"
    REMEDY = (
        "compare its steps with another rank's (torchprof diff A B): more work, a slower device, a busy CPU, data that "
        "comes late"
    )
    ACTION = "compare its steps with another rank's"

    rank: int
    caused_us: float
    share: float
    collectives: int


class OtherWorkOnRank(Finding, frozen=True, kw_only=True, tag="rank-differs"):
    """A rank runs other kernels or other collectives than the others."""

    TITLE = "A rank does something else"
    REMEDY = "where it is not meant (in pipelines it is): a branch on the rank, or a fallback kernel on one device"
    ACTION = "look for a branch on the rank, or a fallback on one device"
    _ALONE = "rank {rank} has collectives that the other recordings of its group have not: {alone}"
    _UNLIKE = "rank {rank} does not do the same as the others: {first}{more}"
    _KERNELS = "rank {rank} against rank {against}: {first}{more}"

    rank: int
    collectives: Mapping[str, int] | None = None
    """Those that it has alone, and how many of each."""
    differences: tuple[AnyRankDifference | OtherCount | OtherStepCount, ...] = ()
    against: int | None = None
    """The rank whose kernels are others."""

    @property
    def alone(self) -> str:
        """The collectives that it has alone."""
        return ", ".join(f"{count} x {name}" for name, count in sorted((self.collectives or {}).items()))

    @property
    def first(self) -> str:
        """The first difference."""
        return str(self.differences[0])

    @property
    def more(self) -> str:
        """How many other differences there are."""
        return and_more(len(self.differences) - 1, "difference")

    @property
    def message(self) -> str:
        if self.collectives is not None:
            return self.words(self._ALONE)
        return self.words(self._UNLIKE if self.against is None else self._KERNELS)
