"""The folder below the root directory of a project in which runs keep what nobody commits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

HIDDEN: Final = ".torchprof"


def hide(folder: Path) -> None:
    """Let git overlook a folder; a link that stands there is replaced, not followed."""
    ignored = folder / ".gitignore"
    if ignored.is_symlink() or not ignored.exists():
        ignored.unlink(missing_ok=True)
        ignored.write_text("*\n", encoding="utf-8")
