"""The catalogue of reasons: all kinds, the type of a field that holds any of them, and how they are kept as values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import ValidationError, convert
from msgspec.json import encode

from pytest_torchprof.reasons.composed import KINDS, AnyReason
from pytest_torchprof.reasons.reason import Reason, Verbatim

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["KINDS", "AnyReason", "from_plain", "from_stored", "portable", "to_stored"]


def from_plain(plain: Mapping[str, Any] | str) -> Reason:
    """Return the reason of which ``Reason.to_plain`` made these values.

    A text is what earlier versions wrote. A kind that only another version knows, or knows with other facts, is told by
    its name, its facts and, where the kind is known, its code: that there is a reason must not be lost.
    """
    if isinstance(plain, str):
        return Verbatim(plain)
    try:
        reason: Reason = convert(plain, AnyReason)
        str(reason), reason.code
    except (IndexError, ValidationError):
        return _of_another_version(plain)
    return reason


def _of_another_version(plain: Mapping[str, Any]) -> Verbatim:
    tag, facts = plain.get("reason", ""), {name: fact for name, fact in plain.items() if name != "reason"}
    shown = "; ".join(f"{name.replace('_', ' ')}: {_value(fact)}" for name, fact in facts.items() if fact is not None)
    known = next((kind.CODE for kind in KINDS if kind.__struct_config__.tag == tag and hasattr(kind, "CODE")), None)
    named = " ".join(filter(None, [_value(tag), f"({shown})" if shown else ""]))
    return Verbatim(f"for a reason that this version does not know in this form: {named}".rstrip(": "), known)


def _value(fact: object) -> str:
    return fact if isinstance(fact, str) else encode(fact).decode()


def portable(reason: Reason) -> Reason:
    """Return a reason that other processes can read: one of a kind that only another plugin knows, in its words."""
    return reason if type(reason) in KINDS else Verbatim.of(reason.text, reason.code)


def to_stored(reason: Reason | None) -> dict[str, Any] | None:
    """Return what is kept of a reason where there may be none."""
    return None if reason is None else reason.to_plain()


def from_stored(stored: Mapping[str, Any] | str | None) -> Reason | None:
    """Return the reason that was kept, None where there was none."""
    return None if stored is None else from_plain(stored)
