"""The known captures of a recording's CUDA graphs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from pytest_torchprof.trace.columns import ABSENT, Calls

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_torchprof.trace.graph_annotations import Annotation

LANE = "CUDA graphs, as captured"
"""The thread on which captured operators are put."""


class Captured(Struct, frozen=True):
    """The GPU operations of graphs whose capture is known."""

    calls: Calls
    """For each of them a call at the instant at which its launch was captured."""
    of: Mapping[int, int]
    """The index in ``calls`` of the launch, by GPU operation."""
    unsure: Mapping[int, tuple[str, ...]]
    """The operators that may or may not have launched it, by GPU operation."""
    lane: int
    """The thread of all captured operators; no time passes there."""
    annotated: Mapping[int, Annotation]
    """The notes of torch's ``mark_kernels`` on a node's capture, by GPU operation."""


NOT_CAPTURED = Captured(Calls(), {}, {}, ABSENT, {})
