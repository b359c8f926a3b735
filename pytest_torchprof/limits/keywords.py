"""The keywords of limits and of the marker with the types of their values, for editors and type checkers.

``limits/`` defines what a limit is and how its value is read; this module says the same to tools that look at a call
before it runs. It lacks limits of other plugins: ``profile.expect(**more)`` with ``more: dict[str, Any]``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from pytest_torchprof.kernels.selectors import Selector

if TYPE_CHECKING:
    import torch

Pattern = str | Selector
"""A part of a kernel's name, a glob, "re:...", or what it computes: ``gemm(layout="tn")``."""
Patterns = Pattern | Sequence[Pattern] | AbstractSet[Pattern]
Count = int | tuple[int, int]
"""An exact number, or from the first to the second."""
# By pattern. A type checker takes no mapping of texts for one of patterns, so the keys are checked at run time.
PatternCounts = Mapping[Any, Count]
Words = str | Sequence[str] | AbstractSet[str]
Recordable = Literal["stacks", "modules", "memory"]


class Limits(TypedDict, total=False):
    """Every limit, with the values that it takes; ``torchprof explain WORD`` says more about each.

    To share them: ``STRICT: Limits = {"max_graph_breaks": 0}``, and then ``profile.expect(**STRICT)``.
    """

    max_kernels: int
    min_kernels: int
    max_launches: int
    max_memcpys: int
    allow_memcpys: Words
    allow_ops: Words
    max_memsets: int
    max_syncs: int
    allow_syncs: Words
    waits: Literal["calls", "all"]
    max_gpu_time: str | float
    max_cpu_gpu_ratio: float
    min_gpu_utilization: float
    min_sm_efficiency: float
    min_mfu: float
    max_peak_memory: str | int
    kernels: Patterns | PatternCounts
    forbid_kernels: Patterns
    only_kernels: Patterns
    ops: Words | Mapping[str, Count]
    forbid_ops: Words
    fused: str | Sequence[str] | Sequence[Sequence[str]]
    not_fused: Sequence[str] | Sequence[Sequence[str]]
    collectives: Words | Mapping[str, Count]
    max_comm_bytes: str | int
    max_exposed_communication: str | float
    min_overlap: float
    max_rank_skew: str | float
    same_kernels: Literal[True] | str
    max_graph_breaks: int
    max_recompiles: int
    own: Words
    max_fallbacks: int
    max_compile_time: float | Mapping[Literal["cold", "warm"], float]
    cuda_graph: Literal[True, "all"] | float
    forbid: Words
    ranges: Mapping[str, Limits]


class LimitsOfProfile(Limits, total=False):
    """The limits, and the kernels that no table knows."""

    own_kernels: Mapping[str, str]


class MarkerKeywords(LimitsOfProfile, total=False):
    """Every keyword of the marker: the limits, how to measure, and how to compare.

    pytest types no marker. ``FUSED: MarkerKeywords = {"max_kernels": 5}`` is checked where it is written, and is then
    passed to the marker: ``@pytest.mark.torchprof(**FUSED)``.
    """

    device: str | torch.device
    warmup: int
    steps: int
    ranks: int
    compile_cache: Literal["cold", "warm"]
    record: Recordable | Sequence[Recordable] | AbstractSet[Recordable]
    baseline: bool
    tolerance: Mapping[str, float | str]
    names: Literal["exact"]
