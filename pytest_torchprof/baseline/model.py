"""What a baseline keeps of one measurement: kernels per step in launch order, numbers, environment."""

from __future__ import annotations

import hashlib
import re
import textwrap
from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from pytest_torchprof.baseline.timing import times_of
from pytest_torchprof.kernels import names
from pytest_torchprof.text.escape import printable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_torchprof.analysis.analysis import Analysis
    from pytest_torchprof.baseline.timing import Times
    from pytest_torchprof.kernels.kernel import Kernel

STRUCTURAL: Final = frozenset({"gemm", "conv", "attention"})
"""Families whose kernels are told apart by dtype and layout: their names change with tile, library and GPU."""

COUNTS: Final = (
    "kernels",
    "launches",
    "graph_launches",
    "memcpys",
    "memcpys_h2d",
    "memcpys_d2h",
    "memcpys_d2d",
    "memcpy_bytes",
    "memsets",
    "syncs",
    "graph_breaks",
    "recompiles",
)
"""Numbers that code decides: the worst step's value is kept, exactly."""

VARYING: Final = (
    "kernel_time_us",
    "gpu_time_us",
    "gpu_busy_us",
    "gpu_span_us",
    "cpu_time_us",
    "cpu_gpu_ratio",
    "gpu_utilization",
    "sm_efficiency",
    "achieved_occupancy",
    "peak_memory_bytes",
)
"""Numbers that differ from run to run: the median over the steps is kept."""

ENVIRONMENT: Final = (
    "gpu",
    "compute_capability",
    "torch",
    "triton",
    "cuda",
    "rocm",
    "cudnn",
    "driver",
    "tf32_matmul",
    "tf32_cudnn",
    "matmul_precision",
)
# A GPU's driver and libraries say nothing about a test that ran on the CPU of the same machine.
_CPU_ENVIRONMENT: Final = ("torch", "matmul_precision")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One distinct kernel of a test."""

    name: str
    family: str = "other"
    dtype: str | None = None
    layout: str | None = None
    helper: str | None = None
    """What the kernel does for another one ("split-k reduce"), None if it stands for itself."""
    op: str | None = None
    """The operator that launched it."""

    @property
    def structure(self) -> tuple[str | None, ...]:
        """What stays the same across software versions: family, dtype, layout."""
        return (self.family, self.dtype, self.layout, self.helper)

    @property
    def identity(self) -> tuple[str | None, ...]:
        """What makes it the same kernel: its structure for gemm, conv and attention, else its name's normal form."""
        return self.structure if self.family in STRUCTURAL else (normal_name(self.name),)

    @property
    def short(self) -> str:
        """At most 60 printable characters that a person recognises."""
        return printable(names.decode(self.name).short or self.name[:60])


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """What is kept of one measurement."""

    source: str
    """Hash of the test's source."""
    environment: Mapping[str, str | bool]
    kernels: tuple[Row, ...]
    """The distinct kernels, by first launch."""
    steps: tuple[tuple[int, ...], ...]
    """The distinct launch orders that steps had, as indices into ``kernels``."""
    numbers: Mapping[str, int]
    varying: Mapping[str, float]
    time: Times | None = None
    """Untraced times, where a test asked for them."""

    def counts(self) -> tuple[int, ...]:
        """Return how often each of ``kernels`` is launched in the step that launches it most."""
        per_step = [Counter(order) for order in self.steps]
        return tuple(max(counts[i] for counts in per_step) for i in range(len(self.kernels)))

    def launched(self) -> tuple[tuple[Row, ...], ...]:
        """Return the distinct steps as kernels in launch order."""
        return tuple(tuple(self.kernels[i] for i in order) for order in self.steps)


def entry_of(profile: Analysis, *, source_hash: str) -> Entry:
    """Return what a baseline keeps of ``profile``; it must be measured."""
    rows: dict[Row, int] = {}
    orders: dict[tuple[int, ...], None] = {}
    for step in profile.steps:
        orders[tuple(rows.setdefault(_row(kernel), len(rows)) for kernel in step.kernels)] = None
    worst, median = profile.worst, profile.median
    counts = {name: getattr(worst, name) for name in COUNTS}
    varying = {name: getattr(median, name) for name in VARYING}
    environment = profile.trace.environment
    kept = _CPU_ENVIRONMENT if profile.trace.on_cpu else ENVIRONMENT
    return Entry(
        source=source_hash,
        environment={key: _plain(key, value) for key in kept if (value := getattr(environment, key)) is not None},
        kernels=tuple(rows),
        steps=tuple(orders),
        numbers={name: int(value) for name, value in counts.items() if value is not None},
        varying={name: _rounded(value) for name, value in varying.items() if value is not None},
        time=times_of(profile),
    )


def key_of(nodeid: str, label: str | None) -> str:
    """Return the key of a measurement in its test file's baseline: the test id without the file, and the label.

    Two measurements never share a key: parentheses of a label are escaped, so that the last " (" begins the label.
    """
    test = nodeid.partition("::")[2] if "::" in nodeid else nodeid
    if label:
        escaped = re.sub(r"([\\()])", r"\\\1", label)
        return f"{test} ({escaped})"
    # What looks like a label without being one is closed by an empty label.
    return f"{test} ()" if test.endswith(")") else test


def split_key(key: str) -> tuple[str, str | None]:
    """Return the test id (without the file) and the label of a key made by `key_of`."""
    if not key.endswith(")") or " (" not in key:
        return key, None
    test, _, label = key[:-1].rpartition(" (")
    return test, re.sub(r"\\(.)", r"\1", label) or None


def source_hash(source: str) -> str:
    """Return a hash of a test's source that comments, blank lines, indentation as a whole and line ends do not move."""
    lines = [line.rstrip() for line in textwrap.dedent(source.replace("\r\n", "\n")).splitlines()]
    said = "\n".join(line for line in lines if line and not line.lstrip().startswith("#"))
    return hashlib.sha256(said.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _row(kernel: Kernel) -> Row:
    return Row(
        name=kernel.name,
        family=kernel.family,
        dtype=kernel.dtype,
        layout=kernel.layout,
        helper=kernel.decoded.helper,
        op=kernel.op,
    )


def _plain(key: str, value: object) -> str | bool:
    # "2.13.0+cu130" and "2.13.0+cpu" are one torch; CUDA is kept by itself.
    return value if isinstance(value, bool) else str(value).partition("+")[0] if key == "torch" else str(value)


def _rounded(value: float) -> float:
    # Four digits: more would be noise in a file that people review. Bytes stay whole.
    return value if isinstance(value, int) else float(f"{value:.4g}")


@lru_cache(maxsize=4096)
def normal_name(name: str) -> str:
    """Return a kernel name without what differs from run to run (Triton's index) and template noise."""
    return names.normal_name(name)
