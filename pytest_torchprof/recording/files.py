"""The folder of files that nobody commits, and the names of recordings in it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

HIDDEN: Final = ".torchprof"
"""The folder below the root directory of a project."""
_STACKS_ENDING: Final = ".stacks.json"


def hide(folder: Path) -> None:
    """Let git ignore a folder; a link in its place is replaced, not followed."""
    ignored = folder / ".gitignore"
    if ignored.is_symlink() or not ignored.exists():
        ignored.unlink(missing_ok=True)
        ignored.write_text("*\n", encoding="utf-8")


def stacks_name(name: str) -> str:
    """Return the file name that a repeat with marks for lines and modules has beside a recording of this name."""
    return f"{name.removesuffix('.gz').removesuffix('.json')}{_STACKS_ENDING}.gz"


def is_stacks_name(name: str) -> bool:
    """Return whether a file of this name is such a repeat, which lies beside its recording."""
    return name.endswith((_STACKS_ENDING, f"{_STACKS_ENDING}.gz"))
