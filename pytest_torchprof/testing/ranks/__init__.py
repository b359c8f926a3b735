"""Tests of several ranks: each runs as a job of torch's own launcher, and has one result.

Loaded in every pytest run of every user: nothing is imported here that a plain run does not need.
"""

from __future__ import annotations

from typing import Final

VARIABLE: Final = "TORCHPROF_JOB"
"""The variable with the folder in which a rank of such a job finds its task, and leaves its results."""
