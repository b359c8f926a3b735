"""How reasons are read from elsewhere; all their kinds are imported once there is one to read.

A field of the type ``decoding.AnyReason`` is looked up when the first value of its structure is read: a run in which
nothing fails, and a recording in which nothing is missing, do without the modules of all kinds.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import ModuleType

    from pytest_torchprof.reasons.reason import Reason

    AnyReason = Reason

__all__ = ["AnyReason", "from_plain", "from_stored", "portable", "to_stored"]


def __getattr__(name: str) -> object:
    if name == "AnyReason":
        return _catalogue().AnyReason
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _catalogue() -> ModuleType:
    # By its name: kinds that hold a reason of any kind are in the catalogue themselves.
    return import_module(f"{__package__}.catalogue")


def from_plain(plain: Mapping[str, Any] | str) -> Reason:
    """Return the reason of which ``Reason.to_plain`` made these values, as `catalogue.from_plain` does."""
    reason: Reason = _catalogue().from_plain(plain)
    return reason


def from_stored(stored: Mapping[str, Any] | str | None) -> Reason | None:
    """Return the reason that was kept, None where there was none."""
    return None if stored is None else from_plain(stored)


def to_stored(reason: Reason | None) -> dict[str, Any] | None:
    """Return the stored form of a reason, None for none."""
    return None if reason is None else reason.to_plain()


def portable(reason: Reason) -> Reason:
    """Return a reason that other processes can read, as `catalogue.portable` does."""
    made: Reason = _catalogue().portable(reason)
    return made
