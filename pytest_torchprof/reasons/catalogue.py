"""All kinds of reasons, by the names under which they travel as JSON values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec.json import encode

from pytest_torchprof.reasons import capturing, compiling, composed, limits, recordings  # noqa: F401 - their kinds
from pytest_torchprof.reasons.reason import Reason, Verbatim

if TYPE_CHECKING:
    from collections.abc import Mapping

KINDS: Final[tuple[type[Reason], ...]] = tuple(Reason.__subclasses__())
"""Those of the modules above."""
_BY_TAG: Final = {kind.__struct_config__.tag: kind for kind in KINDS}


def from_plain(plain: Mapping[str, Any] | str) -> Reason:
    """Return the reason of which ``Reason.to_plain`` made these values.

    A text is what earlier versions wrote. A kind that only a later version knows, or one that somebody has edited, is
    told as it stands: that there is a reason must not be lost.
    """
    if isinstance(plain, str):
        return Verbatim(plain)
    try:
        made = _BY_TAG[plain["reason"]](**{name: _field(value) for name, value in plain.items() if name != "reason"})
        str(made)
    except (AttributeError, IndexError, KeyError, TypeError, ValueError):
        return Verbatim(f"for a reason that this version does not know: {encode(plain).decode()}")
    return made


def _field(value: Any) -> Any:
    if isinstance(value, dict):
        return from_plain(value) if "reason" in value else value
    return tuple(map(_field, value)) if isinstance(value, list) else value


def to_stored(reason: Reason | None) -> dict[str, Any] | None:
    """Return what is kept of a reason where there may be none."""
    return None if reason is None else reason.to_plain()


def from_stored(stored: Mapping[str, Any] | str | None) -> Reason | None:
    """Return the reason that was kept, None where there was none."""
    return None if stored is None else from_plain(stored)
