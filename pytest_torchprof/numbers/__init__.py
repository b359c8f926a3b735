"""Every number of a step and of the window, one function each; which events belong to a step; what may be believed."""

from __future__ import annotations

from pytest_torchprof.numbers.model import NAMES, OF_STEP, OF_WINDOW, Numbers, median, of_part, of_window, worst

__all__ = ["NAMES", "OF_STEP", "OF_WINDOW", "Numbers", "median", "of_part", "of_window", "worst"]
