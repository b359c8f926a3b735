"""The demands of ``compile_cache`` on a test's process: that torch.compile's caches are empty, or filled before."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pytest_torchprof.capture.rank import this_rank
from pytest_torchprof.reasons.asked_wrongly import CachesOfRanks, WarmBoundCold
from pytest_torchprof.reasons.decoding import from_stored
from pytest_torchprof.reasons.errors import UnknownLimit
from pytest_torchprof.reasons.testing import NoProcessOfItsOwn

if TYPE_CHECKING:
    from pytest_torchprof.capture.cache_phase import CachePhase
    from pytest_torchprof.profiles import Profile
    from pytest_torchprof.reasons.reason import Reason


def phase_asked(options: Mapping[str, Any], limits: Mapping[str, object]) -> str | None:
    """Return how the caches are to be, "cold" or "warm": as the marker says, or as its bound on the compile time.

    Raises UnknownLimit where one process cannot have what it asks for.
    """
    asked, bound = options.get("compile_cache"), limits.get("max_compile_time")
    phases = bound if isinstance(bound, Mapping) else ()
    if asked == "cold" and "warm" in phases:
        raise UnknownLimit.because(WarmBoundCold())
    phase: str | None = asked or next((name for name in ("warm", "cold") if name in phases), None)
    if phase is not None and "ranks" in options:
        raise UnknownLimit.because(CachesOfRanks(phase, options["ranks"]))
    return phase


def why_no_phase(asked: str | None, phase: CachePhase | None) -> Reason | None:
    """Return why a test that asks for cold or warm caches cannot have them in this process; None where it has them."""
    if asked is None or phase is not None:
        return None
    here = this_rank()
    return NoProcessOfItsOwn(asked) if here.alone else NoProcessOfItsOwn(asked, here.number, here.world)


def doubt_of(profile: Profile) -> Reason | None:
    """Return why the caches were not as the test asked; None where they were, or where it did not ask."""
    own = profile.trace.metadata
    caches = None if own is None or own.compile is None else own.compile.caches
    return None if caches is None else from_stored(caches.doubt)
