"""The numbers of a recording, one table: counts per step, times in microseconds, shares of the whole window."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal, Self, overload

from msgspec import Struct
from msgspec.structs import replace

from pytest_torchprof.analysis.parts import StepWork, Window, lost_copies
from pytest_torchprof.devices.kinds import CallKind
from pytest_torchprof.reasons.decoding import from_stored
from pytest_torchprof.reasons.lost_work import InsideGraph, LostCopies, UnknownLaunch
from pytest_torchprof.reasons.recordings import Absent, NumberNotRecorded
from pytest_torchprof.text import plural
from pytest_torchprof.text.units import show_bytes, show_ratio, show_us
from pytest_torchprof.trace.columns import KERNEL, MEMSET

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from pytest_torchprof.analysis.compilation import Compile
    from pytest_torchprof.analysis.gpu_time import Occupation
    from pytest_torchprof.analysis.parts import Part
    from pytest_torchprof.reasons.reason import Reason
    from pytest_torchprof.trace import Trace

Unit = Literal["count", "us", "bytes", "share", "ratio"]


class Number(Struct, frozen=True, kw_only=True):
    """A row of the table: everything about one number except its values."""

    name: str
    noun: str
    """The thing that is counted, in the singular, or the name of the number."""
    noun_anywhere: str = ""
    """Its name where the device may be the CPU: no GPU is busy there. Empty: the usual one."""
    of: Callable[[Any], float | None]
    """How it is computed: from the `StepWork` of a step or from the `Window`."""
    unit: Unit = "count"
    scope: Literal["step", "window"] = "step"
    better: Literal["lower", "higher"] | None = "lower"
    exact: bool = True
    """Whether the code decides it. Numbers that vary from run to run are compared by their medians."""
    gated: bool = False
    """Whether a test fails if it is worse than its baseline."""
    tolerance: str = ""
    """The keyword of the tolerance with which a baseline gates it, where that is not its name."""
    follows: str = ""
    """A number that it closely follows: reports that show that number leave this one out."""
    headline: bool = False
    """Whether it is in the short forms: JUnit's properties, histories, the summary of a comparison."""
    detail: bool = False
    """Whether it is left out of tables that people read."""
    needs: Literal["gpu", "kernels"] | None = "gpu"
    """"gpu": a GPU. "kernels": an event for every kernel, which the CPU as device may have too. None: neither."""
    absent: Absent | None = None
    """Why a GPU's recording may not hold it."""
    absent_for: Callable[[Trace], Reason | None] | None = None
    """Returns what in a recording keeps it from being known; None if nothing does."""
    absent_field: str = ""
    """The field of the recording's metadata that says why."""

    @property
    def on_time(self) -> bool:
        """Whether it depends on how long work took, and so on the clocks."""
        return self.unit in ("us", "share", "ratio")

    @property
    def title(self) -> str:
        """Its title above a column or beside its value."""
        return plural(self.noun) if self.unit == "count" else self.noun

    def title_on(self, *, gpu: bool) -> str:
        """Return the title as it holds on a GPU or on the CPU."""
        return (not gpu and self.noun_anywhere) or self.title

    def show(self, value: float | None) -> str:
        """Return the value with its unit, "-" for None."""
        return "-" if value is None else _SHOW[self.unit](value)

    def why_absent(self, trace: Trace) -> Reason:
        """Return why the recording does not hold it."""
        if self.needs == "gpu" and (lacking := trace.device_kind.why_no(self.title)):
            return lacking
        reason = from_stored(getattr(trace.metadata, self.absent_field, None) if self.absent_field else None)
        reason = reason or (self.absent_for(trace) if self.absent_for is not None else None)
        return reason or NumberNotRecorded(self.name, self.absent)


def _show_count(value: float) -> str:
    return str(round(value)) if value == round(value) else f"{value:g}"


_SHOW: Final[dict[str, Callable[[Any], str]]] = {
    "count": _show_count,
    "us": show_us,
    "bytes": lambda value: show_bytes(round(value)),
    "share": show_ratio,
    "ratio": show_ratio,
}
_GRAPHS: Final = frozenset({CallKind.GRAPH_LAUNCH})


def _within_a_graph(trace: Trace) -> Reason | None:
    return InsideGraph() if trace.captured.of else None


def _unknown_launches(trace: Trace) -> Reason | None:
    names = sorted(trace.names[name] for name in trace.links.unknown)
    return UnknownLaunch(names[0]) if names else _within_a_graph(trace)


def _lost_copies(trace: Trace) -> Reason | None:
    names = lost_copies(trace)
    return LostCopies(len(names), names[0]) if names else None


def _copies_one_way(name: str, noun: str, direction: str) -> Number:
    return Number(
        name=name, noun=noun, of=lambda work: work.copies(direction), gated=True, follows="memcpys", detail=True
    )


def _time_on_gpu(name: str, noun: str, of: Callable[[StepWork], float], **more: Any) -> Number:
    return Number(name=name, noun=noun, of=of, unit="us", exact=False, needs="kernels", **more)


def _occupation(
    name: str,
    noun: str,
    of: Callable[[Occupation], float | None],
    absent: Absent | None = None,
    *,
    noun_anywhere: str = "",
) -> Number:
    return Number(
        name=name,
        noun=noun,
        noun_anywhere=noun_anywhere,
        of=lambda window: of(window.occupation),
        unit="share",
        scope="window",
        better="higher",
        exact=False,
        absent=absent,
    )


TABLE: Final = (
    Number(
        name="kernels", noun="kernel", of=lambda work: work.count(KERNEL), gated=True, headline=True, needs="kernels"
    ),
    Number(
        name="launches",
        noun="launch",
        of=lambda work: work.launches,
        gated=True,
        follows="kernels",
        headline=True,
        absent=Absent.LAUNCHES,
        absent_for=_unknown_launches,
    ),
    # More graph launches are as often the aim as fewer.
    Number(name="graph_launches", noun="graph launch", of=lambda work: work.calls(_GRAPHS), better=None),
    Number(
        name="memcpys",
        noun="copy",
        of=lambda work: work.memcpys,
        gated=True,
        headline=True,
        absent_for=_lost_copies,
    ),
    _copies_one_way("memcpys_h2d", "host-to-device copy", "HtoD"),
    _copies_one_way("memcpys_d2h", "device-to-host copy", "DtoH"),
    _copies_one_way("memcpys_d2d", "device-to-device copy", "DtoD"),
    Number(name="memcpy_bytes", noun="bytes copied", of=lambda work: work.bytes_copied, unit="bytes"),
    Number(name="memsets", noun="fill", of=lambda work: work.count(MEMSET)),
    Number(
        name="syncs",
        noun="blocking call",
        of=lambda work: work.syncs,
        gated=True,
        headline=True,
        absent=Absent.CALLS,
        absent_for=_within_a_graph,
    ),
    _time_on_gpu("kernel_time_us", "kernel time", lambda work: work.kernel_us, follows="gpu_busy_us"),
    _time_on_gpu(
        "gpu_time_us", "GPU time", lambda work: work.gpu_us, noun_anywhere="time", follows="gpu_busy_us", detail=True
    ),
    _time_on_gpu("gpu_busy_us", "GPU busy", lambda work: work.busy_us, noun_anywhere="busy", headline=True),
    _time_on_gpu("gpu_span_us", "GPU span", lambda work: work.span_us, noun_anywhere="span", follows="gpu_busy_us"),
    Number(
        name="cpu_time_us",
        noun="CPU time",
        of=lambda work: work.cpu_us,
        unit="us",
        exact=False,
        needs=None,
        absent=Absent.CPU_WORK,
        absent_for=_within_a_graph,
    ),
    Number(
        name="cpu_gpu_ratio",
        noun="CPU/GPU ratio",
        of=lambda work: work.cpu_gpu_ratio,
        unit="ratio",
        exact=False,
        absent=Absent.GPU_WORK_OF_STEP,
        absent_for=_within_a_graph,
    ),
    _occupation(
        "gpu_utilization",
        "GPU utilization",
        lambda gpus: gpus.utilization,
        Absent.GPU_WORK,
        noun_anywhere="utilization",
    ),
    _occupation(
        "sm_efficiency",
        "SM efficiency",
        lambda gpus: gpus.sm_efficiency,
        Absent.BLOCKS,
    ),
    _occupation("achieved_occupancy", "occupancy", lambda gpus: gpus.achieved_occupancy),
    Number(
        name="graph_breaks",
        noun="graph break",
        of=lambda window: _length(window.compile.graph_breaks),
        scope="window",
        gated=True,
        headline=True,
        needs=None,
    ),
    Number(
        name="recompiles",
        noun="recompile",
        of=lambda window: _length(window.compile.recompiles),
        scope="window",
        needs=None,
    ),
    Number(
        name="peak_memory_bytes",
        noun="peak memory",
        of=lambda window: window.peak_memory,
        unit="bytes",
        scope="window",
        exact=False,
        tolerance="memory",
        headline=True,
        absent=Absent.PEAK_MEMORY,
        absent_field="peak_memory_why_not",
    ),
)
"""Every number, in the order in which they are printed and kept."""
BY_NAME: Final = {number.name: number for number in TABLE}
_OF_STEP: Final = tuple(number for number in TABLE if number.scope == "step")
_OF_WINDOW: Final = tuple(number for number in TABLE if number.scope == "window")
OF_STEP: Final = tuple(number.name for number in _OF_STEP)
OF_WINDOW: Final = tuple(number.name for number in _OF_WINDOW)


class Numbers(Struct, frozen=True, kw_only=True):
    """The numbers of a step or over the steps; times in microseconds, None if not recorded."""

    kernels: float | None = None
    launches: float | None = None
    graph_launches: float | None = None
    memcpys: float | None = None
    memcpys_h2d: float | None = None
    memcpys_d2h: float | None = None
    memcpys_d2d: float | None = None
    memcpy_bytes: float | None = None
    memsets: float | None = None
    syncs: float | None = None
    kernel_time_us: float | None = None
    gpu_time_us: float | None = None
    gpu_busy_us: float | None = None
    gpu_span_us: float | None = None
    cpu_time_us: float | None = None
    cpu_gpu_ratio: float | None = None
    gpu_utilization: float | None = None
    sm_efficiency: float | None = None
    achieved_occupancy: float | None = None
    graph_breaks: int | None = None
    recompiles: int | None = None
    peak_memory_bytes: int | None = None

    def __repr__(self) -> str:
        shown = ", ".join(f"{number.name}={getattr(self, number.name)}" for number in TABLE if number.headline)
        return f"<Numbers: {shown}, ...>"


class NumberAttribute:
    """An attribute that is the number of the same name."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, holder: None, owner: type) -> Self: ...
    @overload
    def __get__(self, holder: StepAttributes, owner: type) -> Any: ...
    def __get__(self, holder: StepAttributes | None, owner: type) -> Any:
        return self if holder is None else holder._number(self._name)  # noqa: SLF001 - both are of this module


class StepAttributes:
    """A base class with the numbers of a step as attributes; ``kernels`` are the kernels themselves."""

    launches = NumberAttribute()
    graph_launches = NumberAttribute()
    memcpys = NumberAttribute()
    memcpys_h2d = NumberAttribute()
    memcpys_d2h = NumberAttribute()
    memcpys_d2d = NumberAttribute()
    memcpy_bytes = NumberAttribute()
    memsets = NumberAttribute()
    syncs = NumberAttribute()
    kernel_time_us = NumberAttribute()
    gpu_time_us = NumberAttribute()
    gpu_busy_us = NumberAttribute()
    gpu_span_us = NumberAttribute()
    cpu_time_us = NumberAttribute()
    cpu_gpu_ratio = NumberAttribute()

    def _number(self, name: str) -> Any:
        raise NotImplementedError


class AllAttributes(StepAttributes):
    """A base class with the numbers of the whole window as attributes too."""

    gpu_utilization = NumberAttribute()
    sm_efficiency = NumberAttribute()
    achieved_occupancy = NumberAttribute()
    graph_breaks = NumberAttribute()
    recompiles = NumberAttribute()
    peak_memory_bytes = NumberAttribute()


def of_part(trace: Trace, part: Part, *, hidden: bool = False) -> Numbers:
    """Return the numbers of a step or range; ``hidden`` kernels left no event, so that their numbers are not known."""
    return _computed(StepWork(trace, part), _OF_STEP, trace, hidden=hidden)


def of_window(trace: Trace, compiled: Compile) -> Numbers:
    """Return the numbers that only the whole window has."""
    return _computed(Window(trace, compiled), _OF_WINDOW, trace)


def _computed(source: StepWork | Window, numbers: Iterable[Number], trace: Trace, *, hidden: bool = False) -> Numbers:
    unknown = trace.device_kind.lacks | ({"kernels"} if hidden else set())
    values: dict[str, Any] = {number.name: number.of(source) for number in numbers if number.needs not in unknown}
    return Numbers(**values)


def median(steps: Sequence[Numbers], whole: Numbers) -> Numbers:
    """Return the median over steps of the numbers that steps have, and the window's own."""
    return _reduced(steps, whole, middle)


def worst(steps: Sequence[Numbers], whole: Numbers) -> Numbers:
    """Return the largest over steps of the numbers that steps have, and the window's own."""
    return _reduced(steps, whole, max)


def _reduced(steps: Sequence[Numbers], whole: Numbers, choose: Callable[[list[Any]], Any]) -> Numbers:
    if len(steps) == 1:
        return replace(whole, **{name: getattr(steps[0], name) for name in OF_STEP})
    chosen = {}
    for name in OF_STEP:
        values = [value for step in steps if (value := getattr(step, name)) is not None]
        # A step without GPU operations has no ratio; the others' still says something. A count or a size that a step
        # does not tell may be larger there than in all others.
        is_known = len(values) == len(steps) or not BY_NAME[name].exact
        chosen[name] = choose(values) if values and is_known else None
    return replace(whole, **chosen)


def middle(values: Sequence[float]) -> float:
    """Return the median of one value or more."""
    # statistics.median, whose module costs more to import than a small recording to read.
    ordered, half = sorted(values), len(values) // 2
    return ordered[half] if len(values) % 2 else (ordered[half - 1] + ordered[half]) / 2


def _length(evidence: Sequence[object] | None) -> int | None:
    return None if evidence is None else len(evidence)
