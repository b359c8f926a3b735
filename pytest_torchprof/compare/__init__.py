"""What is different between two measurements: of one test and its baseline, or of any two of the same code."""

from __future__ import annotations

from pytest_torchprof.compare.allowance import tolerance_for
from pytest_torchprof.compare.changes import Change
from pytest_torchprof.compare.comparison import GATED, Comparison, compare, lacking
from pytest_torchprof.compare.comparison_data import ComparisonData, data_of
from pytest_torchprof.compare.origins import Blame, blame
from pytest_torchprof.compare.profiles import ProfileDiff, diff
from pytest_torchprof.compare.sameness import kernels_of_no_type, lacking_kernels
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
    "kernels_of_no_type",
    "lacking",
    "lacking_kernels",
    "tolerance_for",
    "unsure",
]
