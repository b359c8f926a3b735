"""What is different between two measurements: of one test and its baseline, or of any two of the same code."""

from __future__ import annotations

from pytest_torchprof.compare.allowance import tolerance_for
from pytest_torchprof.compare.changes import Change
from pytest_torchprof.compare.comparison import GATED, Comparison, compare, lacking
from pytest_torchprof.compare.comparison_data import ComparisonData, data_of
from pytest_torchprof.compare.origins import Blame, blame
from pytest_torchprof.compare.profiles import ProfileDiff, diff
from pytest_torchprof.compare.sameness import lacking_kernels, tells_a_type
from pytest_torchprof.compare.time_changes import unsure

__all__ = [
    "GATED",
    "Blame",
    "Change",
    "Comparison",
    "ComparisonData",
    "ProfileDiff",
    "blame",
    "compare",
    "data_of",
    "diff",
    "lacking",
    "lacking_kernels",
    "tells_a_type",
    "tolerance_for",
    "unsure",
]
