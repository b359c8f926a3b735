"""The result of judging one limit."""

from __future__ import annotations

from dataclasses import dataclass

HOLDS = "holds"
MISSED = "missed"
NOT_MEASURED = "not measured"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What one limit asked for, what was seen, and whether it holds."""

    limit: str
    """The keyword, e.g. ``max_kernels``."""
    expected: str
    """The value as the user wrote it; filled in by ``judge``, a check leaves it empty."""
    measured: str
    """What was seen, in words, or why it is not known."""
    number: float | None = None
    """What was seen where it is a number, in the unit of the number judged."""
    status: str
    """``"holds"``, ``"missed"`` or ``"not measured"``."""
    details: tuple[str, ...] = ()
    """Lines a person acts on: the kernels involved with the operators that launched them, or file and line."""
    step: str | None = None
    """The step shown, where one step decided."""
