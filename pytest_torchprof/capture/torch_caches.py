"""The hits and misses of torch.compile's caches, by private names of torch and of Triton.

Run with torch 2.13.0 and 2.15.0 on Python 3.11. A count that a version does not keep is None, which is shown as "not
known": torch's counters have no entry for events that never happened, so its source shows which ones it keeps.
"""

from __future__ import annotations

import inspect
import sys
from functools import cache
from typing import TYPE_CHECKING, Final, NamedTuple

from pytest_torchprof.capture.torch_compile import counters
from pytest_torchprof.trace.caches import CacheUse, CacheUses

if TYPE_CHECKING:
    from pathlib import Path


class _Counter(NamedTuple):
    """Where the counts of a cache are."""

    module: str
    """The module of torch that counts; nothing was counted before it is loaded."""
    group: str
    hits: str
    misses: str
    bypasses: str


_COUNTERS: Final = {
    "dynamo": _Counter(
        "torch._dynamo.package", "dynamo_cache", "dynamo_cache_hit", "dynamo_cache_miss", "dynamo_cache_error"
    ),
    "aot_autograd": _Counter(
        "torch._functorch._aot_autograd.autograd_cache",
        "aot_autograd",
        "autograd_cache_hit",
        "autograd_cache_miss",
        "autograd_cache_bypass",
    ),
    "inductor": _Counter(
        "torch._inductor.codecache", "inductor", "fxgraph_cache_hit", "fxgraph_cache_miss", "fxgraph_cache_bypass"
    ),
}
_NONE: Final = CacheUse(hits=0, misses=0, bypasses=0)
NO_USES: Final = CacheUses(**dict.fromkeys(CacheUses.__struct_fields__, _NONE))
"""The uses before torch.compile was in use."""


def uses_so_far(triton: Path | None) -> CacheUses:
    """Return the uses in this process so far; ``triton`` is the folder of Triton's cache, None if others use it."""
    return CacheUses(triton=_triton_use(triton), **{name: _use(counter) for name, counter in _COUNTERS.items()})


def uses_between(before: CacheUses, now: CacheUses) -> CacheUses:
    """Return the uses in between; a count that has become smaller was cleared, and is not known."""

    def use(name: str) -> CacheUse:
        first, last = getattr(before, name), getattr(now, name)
        return CacheUse(
            **{count: _grown(getattr(first, count), getattr(last, count)) for count in CacheUse.__struct_fields__}
        )

    return CacheUses(**{name: use(name) for name in CacheUses.__struct_fields__})


def _grown(first: int | None, last: int | None) -> int | None:
    return None if first is None or last is None or last < first else last - first


def _use(counter: _Counter) -> CacheUse:
    if counter.module not in sys.modules:
        return _NONE
    counted = counters(counter.group)
    return CacheUse(
        **{
            count: counted.get(name, 0) if _is_kept(counter.module, name) else None
            for count in CacheUse.__struct_fields__
            for name in [getattr(counter, count)]
        }
    )


@cache
def _is_kept(module: str, name: str) -> bool:
    try:
        return f'"{name}"' in inspect.getsource(sys.modules[module])
    except OSError:
        return False


def _triton_use(folder: Path | None) -> CacheUse:
    """Return how many kernels were compiled, in any process: each leaves one file that names its parts.

    Triton reports its hits only to a listener in its own process, and Inductor compiles in others.
    """
    if folder is None:
        return CacheUse() if "triton" in sys.modules else _NONE
    compiled = sum(1 for _ in folder.rglob("__grp__*")) if folder.is_dir() else 0
    return CacheUse(hits=None if compiled else 0, misses=compiled, bypasses=0)


def graphs_kept(folder: Path) -> int:
    """Return the number of graphs in Inductor's cache in this folder: each has a folder, below one of two letters."""
    return sum(1 for _ in folder.glob("fxgraph/*/*"))
