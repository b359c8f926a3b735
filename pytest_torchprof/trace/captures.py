"""What a recording knows of the capture of its CUDA graphs."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pytest_torchprof.trace.columns import ABSENT, Calls

if TYPE_CHECKING:
    from collections.abc import Mapping

LANE = "CUDA graphs, as captured"
"""The thread of what was captured."""


class Captured(NamedTuple):
    """Which GPU operations are of graphs whose capture is known."""

    calls: Calls
    """For each of them where its launch was captured."""
    of: Mapping[int, int]
    """The place in ``calls``, by GPU operation."""
    unsure: Mapping[int, tuple[str, ...]]
    """Operators that may have launched it or not, by GPU operation."""
    lane: int
    """The thread on which all of this is; no time passes there."""
    annotated: Mapping[int, str]
    """What torch's ``mark_kernels`` called the innermost scope of a node's capture, by GPU operation."""


NOT_CAPTURED = Captured(Calls(), {}, {}, ABSENT, {})
