"""The differences between two measurements: of a test and its baseline, or of any two of the same code."""

from __future__ import annotations

from pytest_torchprof.compare.change import Change
from pytest_torchprof.compare.comparison import Comparison
from pytest_torchprof.compare.entries import compare
from pytest_torchprof.compare.new_kernels import new_kernels
from pytest_torchprof.compare.number_changes import GATED, lacking, tolerance_for
from pytest_torchprof.compare.origins import Blame, blame
from pytest_torchprof.compare.recordings import diff
from pytest_torchprof.compare.sameness import has_types, lacking_kernels
from pytest_torchprof.compare.time_changes import unsure

__all__ = [
    "GATED",
    "Blame",
    "Change",
    "Comparison",
    "blame",
    "compare",
    "diff",
    "has_types",
    "lacking",
    "lacking_kernels",
    "new_kernels",
    "tolerance_for",
    "unsure",
]
