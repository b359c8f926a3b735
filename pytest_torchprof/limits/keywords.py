"""The keywords of limits and of the marker with the types of their values, for editors and type checkers.

What a limit is and how its value is read stands in ``limits/``; this says the same to who looks at a call before it
runs. Limits of other plugins are not among them: ``profile.expect(**more)`` with ``more: dict[str, Any]``.
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
"""So many, or from the first to the second."""
# By pattern. A mapping of texts would be none of patterns to a type checker, so the keys are looked at when it runs.
PatternCounts = Mapping[Any, Count]
Words = str | Sequence[str] | AbstractSet[str]
Recordable = Literal["stacks", "modules", "memory"]


class Limits(TypedDict, total=False):
    """Every limit, with what it takes; ``torchprof explain WORD`` says more of each.

    To share them: ``STRICT: Limits = {"max_graph_breaks": 0}``, and then ``profile.expect(**STRICT)``.
    """

    max_kernels: int
    min_kernels: int
    max_launches: int
    max_memcpys: int
    allow_memcpys: Words
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
    """The limits, and what the kernels are that no table knows."""

    own_kernels: Mapping[str, str]


class MarkerKeywords(LimitsOfProfile, total=False):
    """Every keyword of the marker: the limits, how to measure, and how to compare.

    pytest types no marker. ``FUSED: MarkerKeywords = {"max_kernels": 5}`` is checked where it stands, and is then the
    marker's: ``@pytest.mark.torchprof(**FUSED)``.
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
