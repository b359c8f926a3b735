"""Which ranges of a recording are the user's, and which may be meant by a name that none of them has."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_torchprof.text import near, printable_line

if TYPE_CHECKING:
    from pytest_torchprof.trace import Trace

_OTHERS = ("ProfilerStep#", "torchprof::", "## ", "nccl:", "gloo:", "mpi:", "ucc:")
"""How ranges begin that the profiler, this plugin, the compiler and backends of torch.distributed make."""


def user_ranges(trace: Trace) -> list[str]:
    """Return the names of the user's ranges, in order."""
    names = (trace.names[index] for index in set(trace.annotations.name))
    return sorted(name for name in names if not name.startswith(_OTHERS))


def instead_of(trace: Trace, name: str) -> tuple[str | None, tuple[str, ...]]:
    """Return the range that may be meant by a name, and which ones there are."""
    names = tuple(map(printable_line, user_ranges(trace)))
    return near(name, names), names
