"""What the header of a packed recording tells: what is drawn, and how the columns behind it are read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_torchprof.report.page.facts import LaunchSettings

    Widths = Sequence[tuple[str, int]]
    """The name of each column and how many bytes its numbers have, 0 for zeros."""


class StepOnPage(Struct, frozen=True, kw_only=True):
    """A step, in ns since the recording began."""

    name: str | None
    start_ns: int
    end_ns: int
    until_ns: int
    """To the end of its last GPU operation."""
    gpu_ops: int
    gpu_ns: int


class LaneOnPage(Struct, frozen=True, kw_only=True):
    """A lane of the timeline."""

    kind: str
    title: str
    subtitle: str
    slices: int
    rows: int
    columns: Widths


class MemoryChart(Struct, frozen=True, kw_only=True):
    """The memory in use of a kind of device."""

    title: str
    points: int
    columns: Widths


class FlameTree(Struct, frozen=True, kw_only=True):
    """A flame graph."""

    kind: str
    nodes: int
    columns: Widths


class Mark(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Events that the page can show: slices, and gaps between them, which have no slice."""

    slices: int
    columns: Widths = ()
    gaps: int
    gap_columns: Widths = ()
    chains: Sequence[int]
    """How many of the slices belong to each chain."""


class Header(Struct, frozen=True, kw_only=True):
    """The header; what columns hold as numbers is the place in a list here, from 1 on."""

    version: int
    origin_ns: int
    unit_ns: int
    """Of the times in columns, which are since ``origin_ns``."""
    steps: Sequence[StepOnPage]
    worst: int
    """The index of the longest step."""
    lanes: Sequence[LaneOnPage]
    memory: Sequence[MemoryChart]
    flames: Sequence[FlameTree]
    marks: Sequence[Mark]
    names: Sequence[str]
    """From 0 on."""
    inputs: Sequence[str]
    origins: Sequence[str]
    variants: Sequence[tuple[str, str, str | None, str | None, str]]
    shapes: Sequence[LaunchSettings]
    left_out: str
    """A sentence on what is not drawn as recorded."""
