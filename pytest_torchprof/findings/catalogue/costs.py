"""Findings about what takes the time: a row for each."""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003  (the types of fields, which msgspec looks up)
from typing import ClassVar

from pytest_torchprof.findings.finding import Finding, OfKernels
from pytest_torchprof.text import counted
from pytest_torchprof.text.units import show_us


class Hotspot(Finding, frozen=True, kw_only=True, tag="hotspot"):
    """A kernel, or an operator with all that it launches, takes most of the kernel time."""

    TITLE = "Hotspot"
    SENTENCE = "{subject} takes {kernel_share:percent} of the kernel time ({time_us:us}, {count:kernel})"
    REMEDY = "start here: this is where faster kernels save most"
    SEVERITY = "information"
    _IDLE = "the GPU idles {idle_share:percent} of the time: first give it work to do, then look at its kernels"
    _GIVE_WORK = "the GPU idles {idle_share:percent} of the time: first give it work to do"

    subject: str
    time_us: float
    share: float
    kernel_share: float
    kernels: tuple[str, ...]
    ops: tuple[str, ...]
    count: int
    idle_share: float | None = None
    """The share of the window in which the GPU idles, where that is so much that it has to be looked at first."""

    @property
    def remedy(self) -> str:
        return self.REMEDY if self.idle_share is None else self.words(self._IDLE)

    @property
    def action(self) -> str:
        return self.REMEDY if self.idle_share is None else self.words(self._GIVE_WORK)

    @property
    def place(self) -> int:
        """Behind what else is good to know, where the GPU idles: its kernels are not what takes the time."""
        return super().place if self.idle_share is None else 3


class ManySmallCalls(Finding, frozen=True, kw_only=True, tag="many-small-calls"):
    """Operators launch very often, each time for a few microseconds."""

    TITLE = "Many small calls"
    SENTENCE = "{in_step}{calls}; a launch of this recording keeps the CPU busy for {launch_us:us} in the median"
    REMEDY = "batch them (one call on stacked tensors, _foreach_ and fused variants), or let torch.compile fuse them"
    ACTION = "batch the calls, or let torch.compile fuse them"
    _BY_MASKS = (
        "select by torch.where instead of masks, or index once by stacked masks: how many elements a mask selects only "
        "the GPU knows, so that torch.compile cannot fuse it"
    )
    _INSTEAD_OF_MASKS = "select by torch.where instead of masks"
    _OF_LIBRARIES = frozenset(
        {f"aten::{name}{way}" for name in ("_cudnn_rnn", "miopen_rnn") for way in ("", "_backward")}
    )
    """The operators whose kernels cuDNN or MIOpen launches by itself, for each moment of a sequence."""
    _WITHIN: ClassVar[Mapping[bool, str]] = {False: "in a step", True: "in the recording"}
    _IN_A_GRAPH = "launch them in a CUDA graph"
    _OF_OTHERS = "launch them in a CUDA graph, or see whether the library whose operators these are has larger kernels"

    time_us: float
    """The time that launching them takes."""
    share: float
    ops: Mapping[str, int]
    """How many kernels each operator launches in a step, most first."""
    mean_us: Mapping[str, float]
    """How long a kernel of each takes."""
    launch_us: float
    """The median length of a launch."""
    has_steps: bool = True
    """Whether the recording has steps; without any, the whole of it counts as one."""

    @property
    def in_step(self) -> str:
        """Of what the numbers of calls are."""
        return "in a step " if self.has_steps else ""

    @property
    def _is_by_masks(self) -> bool:
        return next(iter(self.ops), None) == "aten::nonzero"

    @property
    def _is_of_torch(self) -> bool:
        return any(op.startswith("aten::") and op not in self._OF_LIBRARIES for op in self.ops)

    @property
    def remedy(self) -> str:
        if self._is_by_masks:
            return self._BY_MASKS
        return self.REMEDY if self._is_of_torch else self._OF_OTHERS

    @property
    def action(self) -> str:
        if self._is_by_masks:
            return self._INSTEAD_OF_MASKS
        return self.ACTION if self._is_of_torch else self._IN_A_GRAPH

    @property
    def calls(self) -> str:
        """The launches of the operators."""
        return ", ".join(
            f"{op} launches {counted(count, 'kernel')} of {show_us(self.mean_us[op])} each"
            for op, count in list(self.ops.items())[:3]
        )


class CopiesTakeLong(Finding, frozen=True, kw_only=True, tag="copies-take-long"):
    """Copies between memories take much of the time."""

    TITLE = "Copies take long"
    SENTENCE = (
        "{count:copy} took {time_us:us} ({share:percent} of the time), {alone_us:us} of it without a kernel beside "
        "them; the longest took {longest_us:us} ({longest:line})"
    )
    REMEDY = "{pin}{way}"
    _ACROSS = (
        "keep data on the GPU, copy it once, or while kernels run (a stream of its own, non_blocking=True with pinned "
        "memory)"
    )
    _WITHIN = (
        "copy less within the GPU's memory: views in place of copies, operators that write where it is needed (out=)"
    )
    _PIN = "pin the memory (pin_memory), which is pageable for {pageable_us:us} of it; "
    _PIN_FIRST = "pin the memory (pin_memory)"
    _COPY_LESS = "copy less within the GPU's memory"
    _COPY_ONCE = "keep data on the GPU, copy it once, or while kernels run"

    time_us: float
    share: float
    count: int
    bytes: int | None = None
    """None where a copy does not tell its size."""
    directions_us: Mapping[str, float]
    """The time of each direction, such as HtoD, the longest first."""
    pageable_us: float
    """The time of copies from or to memory that is not pinned."""
    alone_us: float
    """The part of that time in which no kernel ran on the device; with several devices, the longest."""
    longest_us: float
    longest: str

    @property
    def is_within(self) -> bool:
        """Whether copies within the GPU's memory take longest."""
        return next(iter(self.directions_us), "") == "DtoD"

    @property
    def way(self) -> str:
        """The remedy for copies in the direction that takes longest."""
        return self._WITHIN if self.is_within else self._ACROSS

    @property
    def action(self) -> str:
        if self.pageable_us:
            return self._PIN_FIRST
        return self._COPY_LESS if self.is_within else self._COPY_ONCE

    @property
    def pin(self) -> str:
        """The remedy for pageable memory, where it takes time."""
        return self.words(self._PIN) if self.pageable_us else ""


class CopyKernels(OfKernels, frozen=True, kw_only=True, tag="copy-kernels"):
    """Kernels that copy, cast or quantize take much of the kernel time."""

    TITLE = "Kernels that only move data"
    SENTENCE = (
        "{count:kernel} that {count:copies, casts or quantizes|copy, cast or quantize} took {time_us:us} "
        "({kernel_share:percent} of the kernel time), most {longest}{of_norms}"
    )
    _OF_NORMS = "; {of_norms_us:us} of it are casts of an unfused norm (unfused-norm)"
    REMEDY = (
        "keep one type and one layout through the model, weights in the type that computes; torch.compile puts casts "
        "into the kernels beside them"
    )
    ACTION = "keep one type and one layout through the model"

    kernel_share: float
    of_norms_us: float = 0.0
    """The part of that time that RMSNorm spends on casts where it is written as operators."""

    @property
    def of_norms(self) -> str:
        """How much of it another finding would save."""
        return self.words(self._OF_NORMS) if self.of_norms_us else ""


class CostlyChildren(Finding, frozen=True, kw_only=True, tag="costly-children"):
    """The operator with the most time spends nearly all of it in what it calls."""

    TITLE = "Costly children"
    SENTENCE = (
        "{parent} takes {time_us:us} of CPU time, {inside_share:percent} of it in what it calls, most in {child} "
        "({child_us:us}){further}"
    )
    REMEDY = "look at {last}, not at {parent} itself"
    SEVERITY = "information"
    _FURTHER = "; half of that and more is in {innermost} ({innermost_us:us})"

    time_us: float
    share: float
    self_us: float
    inside_share: float
    """The share of its time that is in what it calls."""
    ops: tuple[str, str]
    """The operator, and what takes the longest of what it calls."""
    child_us: float
    innermost: str | None = None
    """The operator or call that takes the longest, as deep as half of the time is in one place."""
    innermost_us: float | None = None

    @property
    def parent(self) -> str:
        """The operator."""
        return self.ops[0]

    @property
    def child(self) -> str:
        """The operator that takes the longest among those that it calls."""
        return self.ops[1]

    @property
    def last(self) -> str:
        """The place to look at."""
        return self.innermost or self.child

    @property
    def further(self) -> str:
        """The operator further inside that takes the longest, in words; empty if it is the one above."""
        return self.words(self._FURTHER) if self.innermost not in (None, self.child) else ""


class RepeatedConstant(Finding, frozen=True, kw_only=True, tag="repeated-constant"):
    """Constants are made again and again in a step."""

    TITLE = "A constant is made again and again"
    SENTENCE = (
        "{most_often} ran {most_calls:grouped} times{in_step} and made the same values each time{others}: "
        "{time_us:us} of CPU time, apart from what is computed from them"
    )
    REMEDY = (
        "make it once on the device where it is used, and keep it: register_buffer in a module, functools.cache around "
        "a function; with what follows from it alone, such as masks and index tables"
    )
    ACTION = "make it once on the device where it is used"
    SEVERITY = "information"

    time_us: float
    share: float = 1.0
    """The share of the window."""
    count: int
    """How often they were made."""
    different: int
    """How many constants there are."""
    constants: tuple[str, ...]
    """The constants that are made most often, at most five."""
    ops: tuple[str, ...] = ()
    """The operators that make these."""
    calls_per_step: tuple[int, ...]
    """How often each of these is made in the step that makes it most often."""
    has_steps: bool = True
    """Whether the recording has steps; without any, the whole of it counts as one."""

    @property
    def in_step(self) -> str:
        """Within what it ran so often."""
        return " in a step" if self.has_steps else ""

    @property
    def most_often(self) -> str:
        """The constant that is made most often."""
        return self.constants[0]

    @property
    def most_calls(self) -> int:
        """How often it is made in a step."""
        return self.calls_per_step[0]

    @property
    def others(self) -> str:
        """How many other constants there are."""
        others = self.different - 1
        return f", and so did {counted(others, 'other constant')}" if others else ""
