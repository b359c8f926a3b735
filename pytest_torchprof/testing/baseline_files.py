"""The baseline files that a run looks into."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_torchprof import baseline

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pytest_torchprof.baseline import Entry


class BaselineFiles:
    """The baseline files that a run looks into, each read once."""

    def __init__(self) -> None:
        self._entries: dict[Path, Mapping[str, Entry]] = {}

    def entries(self, file: Path) -> Mapping[str, Entry]:
        """Return the entries of a file by key, empty where it is missing; raises UnreadableBaseline."""
        if file not in self._entries:
            self._entries[file] = baseline.read_or_empty(file).entries
        return self._entries[file]

    def update(self, file: Path, changes: Mapping[str, Entry | None]) -> None:
        """Write entries into a file; None removes one. Raises TorchprofError where it cannot be written."""
        self._entries.pop(file, None)
        baseline.update(file, changes)
