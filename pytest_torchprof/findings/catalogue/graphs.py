"""Findings about CUDA graphs: a row for each."""

from __future__ import annotations

from pytest_torchprof.findings.finding import Finding, InRange, OfKernels
from pytest_torchprof.reasons.compiler_events import AnyCompilerEvent  # noqa: TC001  (the type of a field, which msgspec looks up)
from pytest_torchprof.text import all_of
from pytest_torchprof.text.units import show_us


class CudaGraphSkipped(Finding, frozen=True, kw_only=True, tag="cuda-graph-skipped"):
    """Inductor did not record CUDA graphs although it was asked to."""

    TITLE = "CUDA graph skipped"
    SENTENCE = "Inductor skipped CUDA graphs {count:time}, the first because: {first}"
    REMEDY = "remove the cause (inputs on the CPU, mutated inputs, dynamic sizes), or do without the mode"
    ACTION = "remove what kept torch from using a CUDA graph"

    reasons: tuple[AnyCompilerEvent | str, ...]

    @property
    def count(self) -> int:
        """How often."""
        return len(self.reasons)

    @property
    def first(self) -> str:
        """Inductor's first reason."""
        return str(self.reasons[0]).rstrip(": ")


class CopiesIntoGraphs(OfKernels, frozen=True, kw_only=True, tag="cudagraph-input-copy"):
    """Compiled code copies into the inputs of a graph before it launches it."""

    TITLE = "Copies into a graph's inputs"
    SENTENCE = "{count:copy} ({time_us:us}) filled the static inputs of CUDA graphs before they were launched"
    REMEDY = (
        "inputs at the same address each time: mark them with torch._dynamo.mark_static_address, or write new data "
        "into the same tensor"
    )
    ACTION = "keep inputs at the same address (mark_static_address)"

    bytes: int | None = None
    """None where a copy does not tell its size."""


class GraphRecaptured(InRange, frozen=True, kw_only=True, tag="graph-recaptured"):
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
    ACTION = "reuse the same input tensors (x.copy_(new)), clone kept results"
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
