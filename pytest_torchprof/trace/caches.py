"""The facts that a recording keeps of torch.compile's caches: their hits and misses, and how they were at its start."""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003 - msgspec reads the annotations
from typing import Annotated, Literal

from msgspec import Meta, Struct

from pytest_torchprof.reasons.reason import StoredReason  # noqa: TC001 - the type of a field, which msgspec looks up
from pytest_torchprof.text.reprs import ShownFields

Count = Annotated[int, Meta(ge=0)]
Phase = Literal["cold", "warm"]


class CacheUse(Struct, frozen=True, kw_only=True):
    """The lookups in a cache, by their result; None if this torch does not count them."""

    hits: Count | None = None
    misses: Count | None = None
    bypasses: Count | None = None
    """Lookups of things that it cannot keep, and that are compiled each time."""


class CacheUses(ShownFields, frozen=True, kw_only=True):
    """The use of each cache."""

    dynamo: CacheUse = CacheUse()
    """The code that Dynamo keeps for other processes (``caching_precompile``)."""
    aot_autograd: CacheUse = CacheUse()
    inductor: CacheUse = CacheUse()
    """Inductor's graphs."""
    triton: CacheUse = CacheUse()
    """Compiled kernels of Triton's, in a folder of the measurement's own."""


class ColdStart(ShownFields, frozen=True, kw_only=True):
    """The record of the process that filled the caches which a warm process uses."""

    time_us: Mapping[str, int] | None = None
    uses: CacheUses = CacheUses()


class CompileCaches(ShownFields, frozen=True, kw_only=True):
    """The caches of torch.compile in one measurement."""

    uses: CacheUses = CacheUses()
    phase: Phase | None = None
    """"cold" or "warm": their state when the process began, in a folder of its own; None if nobody asked for one."""
    doubt: StoredReason | None = None
    """Why they were not in this state; None if they were."""
    cold: ColdStart | None = None
    """The process that has filled them, if they were warm."""
