"""The columns of each kind of rows, in one table each, for the terminal, Markdown, JSON and the page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import astuple

from pytest_torchprof.analysis.numbers import BY_NAME
from pytest_torchprof.analysis.source_lines import MODULE
from pytest_torchprof.kernels.names.kernelname import FAMILY_NOT_KNOWN
from pytest_torchprof.report.row_columns import Among, RowColumn
from pytest_torchprof.text import counted, number_alike, printable
from pytest_torchprof.text.cutting import cut
from pytest_torchprof.text.units import show_share, show_us

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pytest_torchprof.analysis.analysis import Analysis
    from pytest_torchprof.analysis.collective_rows import CollectiveRow
    from pytest_torchprof.analysis.kernel_rows import KernelRow
    from pytest_torchprof.analysis.operator_rows import OpRow
    from pytest_torchprof.analysis.steps import StepProfile
    from pytest_torchprof.report.result import KernelCalls, Result


def _times(
    times: str, key: str, title: str | None, *, page: bool = False, when: Callable[[Among], bool] | None = None
) -> tuple[RowColumn, ...]:
    """Return the columns of a row's single calls; ``times`` is the attribute that holds them."""

    def column(name: str, **more: Any) -> RowColumn:
        return RowColumn(key=f"{key}{name}", of=lambda row, _: getattr(getattr(row, times), name), **more)

    def shown(what: str) -> dict[str, Any]:
        over = None if title is None else f"{title}{what}"
        return {"unit": "us", "title": over, "page": what if page else None, "when": when}

    def worst_step(row: Any, among: Among) -> str | None:
        index = getattr(row, times).worst_step
        return None if index is None else among.steps[index].name

    def show_worst(row: Any, among: Among) -> str:
        step = worst_step(row, among) or ""
        return f"{show_us(getattr(row, times).worst_step_us)} {step.removeprefix('ProfilerStep')}".rstrip()

    return (
        column("mean_us", **shown("mean"), leaves=9),
        column("min_us", **shown("min"), leaves=6),
        column("max_us", **shown("max"), leaves=8),
        RowColumn(key=f"{key}worst_step", of=worst_step),
        column(
            "worst_step_us",
            unit="us",
            title=None if title is None else "worst\nstep" if title else "worst step",
            show=show_worst,
            leaves=7,
            when=lambda among: len(among.steps) > 1 and (when is None or when(among)),
        ),
    )


_SHARE: Final = RowColumn(
    key="share",
    unit="share",
    of=lambda row, among: row.time_us / (among.total_us or 1.0),
    title="share",
    leaves=11,
    json=False,
)


def _decoded(key: str, page: str | None = None) -> RowColumn:
    return RowColumn(key=key, of=lambda row, _: getattr(row.decoded, key), page=page)


def _launched_by(row: KernelRow, among: Among) -> str:
    """Return the operator, and in a backward pass the operator whose backward it is: ``< conv2d``."""
    # A kernel of a backward pass shows whose backward it is, and needs more room for that.
    width = 31 if among.backward else 22
    op = printable(row.launcher or "-")
    if row.forward_op is None:
        return cut(op, width)
    forward = cut(printable(row.forward_op.removeprefix("aten::")), width - 12)
    return f"{cut(op.removeprefix('aten::'), width - len(forward) - 3)} < {forward}"


KERNELS: Final = (
    RowColumn(key="name", title="kernel", show=lambda row, among: among.names[row.name], page=""),
    RowColumn(key="short", of=lambda row, _: row.decoded.short or row.name, page="", json=False),
    _decoded("family", page=""),
    _decoded("library"),
    _decoded("dtype", page=""),
    _decoded("layout"),
    _decoded("tensor_core"),
    _decoded("triton"),
    RowColumn(key="count", unit="count", title="calls", leaves=10, page="calls", compared=True),
    RowColumn(key="time_us", unit="us", title="time", page="time", compared=True),
    _SHARE,
    *_times("times", "", "", page=True),
    RowColumn(key="tflops", unit="rate", title="TFLOP/s", leaves=3, optional=True, page="TFLOP/s"),
    RowColumn(key="gb_per_s", unit="rate", title="GB/s", leaves=2, optional=True, page="GB/s"),
    RowColumn(key="op", title="launched by", show=_launched_by, leaves=1),
    RowColumn(key="launcher", page="launched by", json=False),
    RowColumn(key="op_chain"),
    RowColumn(key="forward_op", page=""),
)
FAMILIES: Final = (
    RowColumn(key="name", of=lambda row, _: row.family or FAMILY_NOT_KNOWN, page="", json=False),
    RowColumn(key="family", title="family", show=lambda row, _: row.family or FAMILY_NOT_KNOWN, page=""),
    RowColumn(key="library", title="library", leaves=5, page="library"),
    RowColumn(key="count", unit="count", title="calls", leaves=10, page="calls", compared=True),
    RowColumn(key="time_us", unit="us", title="time", page="time", compared=True),
    _SHARE,
    *_times("times", "", "", page=True),
)


def _group_name(row: CollectiveRow, _: Among) -> str:
    size = "" if row.group_size is None else counted(row.group_size, "rank")
    return printable(": ".join(word for word in (row.group, size) if word) or "-")


COLLECTIVES: Final = (
    RowColumn(key="name", title="collective"),
    RowColumn(key="group", title="group", show=_group_name, leaves=5, optional=True),
    RowColumn(key="group_size", unit="count"),
    RowColumn(key="dtype", title="dtype", leaves=1),
    RowColumn(key="calls", unit="count", title="calls"),
    RowColumn(key="bytes", unit="bytes", title="bytes", leaves=10),
    RowColumn(key="time_us", unit="us", title="time"),
    RowColumn(
        key="exposed_us",
        unit="us",
        title="exposed",
        show=lambda row, _: "-" if row.exposed_share is None else show_share(row.exposed_share),
        leaves=12,
    ),
    RowColumn(key="bus_gb_per_s", unit="rate", title="bus GB/s", leaves=11),
    *_times("times", "", ""),
)


def _has_gpu(among: Among) -> bool:
    return among.has_gpu


def _has_none(among: Among) -> bool:
    return not among.has_gpu


RANGES: Final = (
    RowColumn(key="name", title="name", show=lambda row, _: printable(row.name.removeprefix(MODULE)), page=""),
    RowColumn(key="calls", unit="count", title="calls", page="calls", compared=True),
    RowColumn(key="self_cpu_us", unit="us", title="self\nCPU", leaves=2, page="own CPU"),
    RowColumn(key="cpu_us", unit="us", title="CPU\ntotal", leaves=3, page="CPU total", compared=True),
    RowColumn(key="kernels", unit="count", title="kernels", leaves=4, page="kernels"),
    RowColumn(key="self_gpu_us", unit="us", title="self\n{device}", leaves=1, page="own GPU"),
    RowColumn(key="gpu_us", unit="us", title="{device}\ntotal", page="GPU total", compared=True),
    *_times("cpu", "cpu_", None),
    *_times("gpu", "gpu_", "{device}\n"),
)
"""User annotations and modules."""

_LONGEST_SHAPES: Final = 400
_EVALUATED: Final = "autograd::engine::evaluate_function: "


def _shapes_text(row: OpRow) -> str:
    return ", ".join(map(str, filter(None, row.shapes or ())))[:_LONGEST_SHAPES]


def _memory(side: str, when: Callable[[Among], bool]) -> tuple[RowColumn, ...]:
    own, device = f"self_{side}_memory_bytes", "CUDA" if side == "gpu" else "CPU"
    return (
        RowColumn(key=f"{side}_memory_bytes", unit="bytes", title=f"{device}\nMem", leaves=2, optional=True, when=when),
        RowColumn(
            key=own,
            unit="bytes",
            title=f"Self\n{device} Mem",
            leaves=1,
            optional=True,
            when=when,
            page=f"{side.upper()} memory",
        ),
    )


OPERATORS: Final = (
    RowColumn(
        key="name",
        title="name",
        # Nodes of autograd differ in the operator that they evaluate.
        show=lambda row, _: printable(row.name.replace(_EVALUATED, "autograd:: .. ")),
        page="",
    ),
    RowColumn(key="calls", unit="count", title="# of\nCalls", page="calls", compared=True),
    RowColumn(key="self_cpu_us", unit="us", title="Self\nCPU", leaves=4, page="own CPU"),
    RowColumn(key="cpu_us", unit="us", title="CPU\ntotal", leaves=5, page="CPU total", compared=True),
    RowColumn(key="self_gpu_us", unit="us", title="Self\nCUDA", leaves=3, when=_has_gpu, page="own GPU"),
    RowColumn(key="gpu_us", unit="us", title="CUDA\ntotal", leaves=5, when=_has_gpu, page="GPU total", compared=True),
    *_memory("gpu", _has_gpu),
    *_memory("cpu", _has_none),
    *_times("gpu", "gpu_", "CUDA\n", when=lambda among: among.on_gpu),
    *_times("cpu", "cpu_", "CPU\n", when=lambda among: not among.on_gpu),
    RowColumn(key="shapes"),
    RowColumn(key="operands", of=lambda row, _: _shapes_text(row) or None, page="", json=False),
    RowColumn(key="forward_op", page=""),
)
"""The profiler's columns, and the times of a call."""


def _mean_us(row: KernelCalls, _: Among) -> float:
    return row.time_us / (row.count or 1)


CALLS: Final = (
    RowColumn(key="name", title="kernel", page=""),
    RowColumn(key="count", unit="count", title="calls", page="calls"),
    RowColumn(key="time_us", unit="us", title="time", page="time"),
    RowColumn(key="mean_us", unit="us", of=_mean_us, title="mean", leaves=4, page="mean"),
    RowColumn(key="min_us", unit="us", title="min", leaves=2, page="min"),
    RowColumn(key="max_us", unit="us", title="max", leaves=3, page="max"),
    RowColumn(
        key="ops",
        of=lambda row, _: ", ".join(row.ops) or None,
        title="launched by",
        show=lambda row, _: cut(printable(", ".join(row.ops)), 30),
        leaves=1,
        page="launched by",
    ),
)
"""Kernels that a measurement keeps without its recording."""


def _number(key: str, title: str, *, page: str = "", leaves: int) -> RowColumn:
    """Return the column of a number, as verdicts name it: of the worst step where the code decides it."""

    def of(row: Any, _: Among) -> float | None:
        return None if row.summary is None else row.summary.decisive(BY_NAME[key])

    return RowColumn(
        key=key,
        unit="count",
        of=of,
        title=title,
        show=lambda row, among: BY_NAME[key].show(of(row, among)),
        leaves=leaves,
        page=page or title,
    )


def _show_caches(row: Result, _: Among) -> str:
    """Return the state of the caches, and how many of a compilation's requests they answered: "warm 2/2"."""
    caches = row.compile_caches
    if caches is None or caches.phase is None:
        return "-"
    uses = astuple(caches.uses)
    hits, misses = sum(use.hits or 0 for use in uses), sum(use.misses or 0 for use in uses)
    return f"{caches.phase} {hits}/{hits + misses}"


def _show_time(row: Result, _: Among) -> str:
    """Return how the time of a measurement compares, in a cell: "worse +21% (+18% to +23%)"."""
    compared = row.against_time
    if compared is None:
        return "-"
    if (step := compared.step) is None:
        return compared.verdict
    return f"{compared.verdict} {step.share:+.0%} ({step.low:+.0%} to {step.high:+.0%})"


def _show_comparison(row: Result, among: Among) -> str:
    return (row.baseline_state if among.brief else row.baseline) or "-"


TESTS: Final = (
    RowColumn(key="name", title="test"),
    _number("kernels", "kernels", leaves=7),
    _number("launches", "launches", leaves=2),
    _number("gpu_busy_us", "busy", leaves=4),
    _number("cpu_gpu_ratio", "CPU/GPU", leaves=1),
    _number("graph_breaks", "breaks", page="graph breaks", leaves=3),
    RowColumn(key="compile_caches", title="cache hits", show=_show_caches, leaves=5, optional=True),
    RowColumn(key="against_time", title="time", show=_show_time, leaves=5, optional=True),
    RowColumn(key="baseline", title="{compared}", show=_show_comparison, leaves=6),
    RowColumn(key="outcome", title="verdict"),
)
"""Measurements of a run; columns with nothing to show leave a narrow terminal first."""

COLUMNS: Final[Mapping[str, tuple[RowColumn, ...]]] = {
    "kernel": KERNELS,
    "family": FAMILIES,
    "op": OPERATORS,
    "range": RANGES,
    "module": RANGES,
    "collective": COLLECTIVES,
}
"""By the kind of rows, which `analysis.tables` makes."""


def among(  # noqa: PLR0913 - the options of a table
    way: str,
    analysis: Analysis,
    steps: Sequence[StepProfile],
    rows: Sequence[Any],
    shown: Sequence[Any],
    *,
    sorted_by: str | None = None,
) -> Among:
    """Return the facts that the columns of the shown rows depend on; ``sorted_by`` is the key of a column."""
    if way in ("kernel", "family", "collective"):
        kernels = shown if way == "kernel" else ()
        labels = number_alike([printable(_kernel_name(row)) for row in kernels])
        return Among(
            steps=steps,
            total_us=sum(row.time_us for row in rows),
            names={row.name: label for row, label in zip(kernels, labels, strict=True)},
            backward=any(row.forward_op for row in kernels),
        )
    has_gpu = len(analysis.trace.gpu) > 0
    on_gpu = has_gpu and sorted_by not in ("cpu_us", "self_cpu_us")
    return Among(
        steps=steps,
        # If operators on the CPU are the kernels, the time is theirs.
        words={"device": "GPU" if analysis.trace.device_kind.has_launches else "kernels'"},
        has_gpu=has_gpu,
        on_gpu=on_gpu,
        stays=frozenset({"gpu_us" if on_gpu else "cpu_us", *([sorted_by] if sorted_by else [])})
        if way == "op"
        else frozenset(),
    )


def _kernel_name(row: KernelRow) -> str:
    """Return a short description of the kernel and its operands, or else its name."""
    decoded = row.decoded
    return (decoded.short if decoded.family in (None, "other") else decoded.short_with_facts) or row.name
