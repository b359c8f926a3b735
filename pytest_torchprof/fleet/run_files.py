"""The files that a run writes into its folder, which may lie among recordings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

LIST: Final = "list.json"
SUMMARY: Final = "summary.json"
PARTS: Final = "parts"
_LIST_BEGINS: Final = b'{"schema":'
"""How the list of a run begins, and no recording: recordings may have these names too."""


def is_of_run(path: Path) -> bool:
    """Return whether a file is one that a run has written into its folder."""
    if path.name not in (LIST, SUMMARY) or not path.with_name(PARTS).is_dir():
        return False
    try:
        with path.with_name(LIST).open("rb") as file:
            return file.read(len(_LIST_BEGINS)) == _LIST_BEGINS
    except OSError:
        return False
