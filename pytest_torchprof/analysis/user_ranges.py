"""Which ranges of a recording are the user's, and which may be meant by a name that none of them has."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_torchprof.analysis.annotated_ranges import annotated_ranges
from pytest_torchprof.devices.range_names import is_users
from pytest_torchprof.text import printable_line
from pytest_torchprof.text.suggestions import near
from pytest_torchprof.trace.graph_annotations import is_of_graphs

if TYPE_CHECKING:
    from pytest_torchprof.trace import Trace


def user_ranges(trace: Trace) -> list[str]:
    """Return the names of the user's ranges, in order."""
    names = (trace.names[index] for index in set(trace.annotations.name))
    return sorted([*filter(is_users, names), *annotated_ranges(trace)])


def instead_of(trace: Trace, name: str) -> tuple[str | None, tuple[str, ...]]:
    """Return the range that may be meant by a name, and which ones there are."""
    names = tuple(map(printable_line, user_ranges(trace)))
    in_graphs = next((other for other in names if is_of_graphs(other) and other.startswith(f"{name} (")), None)
    return in_graphs or near(name, names), names
