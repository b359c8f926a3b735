"""Two baselines' entries of the same tests side by side, in the words of the gate."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from pytest_torchprof.compare import Change, contrast
from pytest_torchprof.text.escape import printable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_torchprof.baseline import Entry

_Key = TypeVar("_Key", str, tuple[str, str])


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """What two entries of one test have to say about each other."""

    summary: str
    """In a few words; "same" where nothing decides anything."""
    lines: tuple[str, ...] = ()
    changes: tuple[Change, ...] = ()
    kernels_differ: bool

    def told(self, key: str) -> list[str]:
        """Return it as lines under the test's name, fit for a terminal."""
        return [printable(f"{key}: {self.summary}"), *(f"  {printable(line)}" for line in self.lines)]

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return {
            "kernels_differ": self.kernels_differ,
            "summary": self.summary,
            "changes": [asdict(change) for change in self.changes],
        }


def differences(before: Mapping[_Key, Entry], after: Mapping[_Key, Entry]) -> dict[_Key, Difference]:
    """Return the difference of each test that either has, in order."""
    return {key: _difference(before.get(key), after.get(key)) for key in sorted(before.keys() | after.keys())}


def _difference(old: Entry | None, new: Entry | None) -> Difference:
    if old is None or new is None:
        return Difference(summary=f"only in {'the first' if new is None else 'the second'}", kernels_differ=True)
    found = contrast(old, new, sides=("the first was", "the second"))
    return Difference(
        summary=found.summary,
        lines=found.lines,
        changes=found.changes,
        # Another order of the same kernels is no other kernels.
        kernels_differ=any(change.kind not in ("number", "reordered") for change in found.changes),
    )
