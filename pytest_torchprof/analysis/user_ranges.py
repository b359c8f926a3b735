"""Which ranges of a recording are the user's, and what to say to somebody who asks for one that is not there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_torchprof.text import nearest, printable_line

if TYPE_CHECKING:
    from pytest_torchprof.trace import Trace

_OTHERS = ("ProfilerStep#", "torchprof::", "## ", "nccl:", "gloo:", "mpi:", "ucc:")
"""How ranges begin that the profiler, this plugin, the compiler and backends of torch.distributed make."""
_MOST_NAMES = 10


def user_ranges(trace: Trace) -> list[str]:
    """Return the names of the user's ranges, in order."""
    names = (trace.names[one] for one in set(trace.annotations.name))
    return sorted(name for name in names if not name.startswith(_OTHERS))


def say_instead_of(trace: Trace, name: str) -> str:
    """Return which ranges there are, or the one that may be meant."""
    names = [printable_line(one) for one in user_ranges(trace)]
    why = "" if name.isascii() else ' (torch records names that are not ASCII as "unknown")'
    if not names:
        return f"the recording has no ranges of the user's{why}"
    told = nearest(name, names)
    if told.startswith("did you mean"):
        return f"{told}{why}"
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return f"ranges in the recording: {', '.join(names[:_MOST_NAMES])}{more}{why}"
