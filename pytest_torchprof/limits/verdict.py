"""The result of judging one limit."""

from __future__ import annotations

from dataclasses import dataclass

from pytest_torchprof.text import units

HOLDS = "holds"
MISSED = "missed"
NOT_MEASURED = "not measured"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Work of one kind that a limit is about: kernels of one name, copies, blocking calls. Printable text only."""

    count: int
    name: str
    full: str
    """The name uncut."""
    time_us: float | None = None
    note: str = ""
    """What else there is to say: how much was copied."""
    ops: tuple[str, ...] = ()
    """The operators that launched it."""
    places: tuple[tuple[int, str], ...] = ()
    """How often from where in the user's code, where the recording tells."""

    def launched_by(self, name: str) -> list[str]:
        """Return the operators that ``name`` does not show already: on the CPU the operator is the kernel."""
        return [op for op in self.ops if op not in name]

    def __str__(self) -> str:
        """Return all of it in one line."""
        spent = units.show_us(self.time_us) if self.time_us is not None else ""
        facts = [spent, self.note, ", ".join(self.launched_by(self.name))]
        facts += [f"{count} x {place}" if len(self.places) > 1 else place for count, place in self.places]
        return "  ".join([f"{self.count:>4} x {self.name}", *filter(None, facts)])


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
    details: tuple[str | Row, ...] = ()
    """What a person acts on: rows of kernels with the operators that launched them, or lines with file and line."""
    step: str | None = None
    """The step shown, where one step decided."""
