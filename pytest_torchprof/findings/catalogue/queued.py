"""The finding about a GPU that idles although work is queued."""

from __future__ import annotations

from pytest_torchprof.findings.finding import Finding, Severity
from pytest_torchprof.text import enumerated


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
    _TITLE_LACKING = "Kernels of CUDA graphs seem not to be recorded"
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
    _SHOW_ALL = "record longer, or synchronize (torch.cuda.synchronize()) before what is recorded"
    _LONGER = "record longer, or synchronize before what is recorded"
    _NO_GRAPHS = "do not act on idle times yet: record without CUDA graphs"
    _EARLIER = "work from before the recording, which the file does not have: nothing ran before on its stream"
    _DEVICE = "another GPU, whose work ended just before"
    _GRAPH = (
        "the start of a CUDA graph (a first launch uploads it: replay it once more in the warm-up), or another process "
        "on the GPU"
    )
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
    """The part of the time before operations of CUDA graphs; of several GPUs the mean."""
    graph_starts_us: float
    """The part of the time before the first operation of a CUDA graph; of several GPUs the mean."""
    graphs_again_us: float = 0.0
    """The part of that in steps after the first, in which no graph is launched for the first time."""
    after_other_gpu: bool
    """Whether the longest wait ended when another GPU's work did."""
    begins_with_it: bool = False
    """Whether the longest wait is that of its stream's first operation, in a recording that may begin anywhere."""
    may_lack_work: bool = True
    """Whether nothing says how many kernels each graph has; else the recording has as many."""
    from_before_us: float = 0.0
    """The time that passed before such operations; of several GPUs the mean."""
    cpu_waited_us: float = 0.0
    """The part of the time in which the CPU waited for a GPU."""
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
        """The time that passed between operations of one CUDA graph; of several GPUs the mean."""
        return self.in_graphs_us - self.graph_starts_us

    @property
    def lacks_work(self) -> bool:
        """Whether so much of it passed inside of graphs that work must be missing in the recording."""
        return self.may_lack_work and 4 * self.inside_graphs_us >= self.time_us

    @property
    def lacking(self) -> str:
        """The words for work that seems to be missing; empty if none does."""
        return self.words(self._LACKING) if self.lacks_work else ""

    @property
    def is_unexplained(self) -> bool:
        """Whether most of it is in CUDA graphs, and no upload of theirs: the recording does not show what for."""
        return 2 * (self.inside_graphs_us + self.graphs_again_us) >= self.time_us

    @property
    def meanwhile(self) -> str:
        """The words for the place where the CPU waited meanwhile; empty if it did so for less than most of the time."""
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
            return self._LONGER
        return self._NO_GRAPHS if self.lacks_work else self.ACTION

    @property
    def causes(self) -> str:
        """The causes that it may wait for, as far as the recording shows them."""
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
