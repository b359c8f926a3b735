"""The tests that pytest leaves out while it collects, after which nobody knows all of them."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Final

import pytest

if TYPE_CHECKING:
    from pathlib import Path

NOT_COLLECTED: pytest.StashKey[bool] = pytest.StashKey()
"""That a file could not be collected, or was skipped or ignored as a whole."""
_ENVIRONMENTS: Final = ("pyvenv.cfg", "bin/activate", "conda-meta/history")
"""What a folder of installed packages has."""


def note_ignored(path: Path, config: pytest.Config) -> None:
    """Take note of a file or a folder that is ignored, unless no test is expected there."""
    if not _is_without_tests(path, config):
        config.stash[NOT_COLLECTED] = True


def _is_without_tests(path: Path, config: pytest.Config) -> bool:
    if path.is_dir():
        never = ("__pycache__", *config.getini("norecursedirs"))
        return any(fnmatchcase(path.name, pattern) for pattern in never) or any(
            (path / mark).exists() for mark in _ENVIRONMENTS
        )
    # A pattern may have folders before the name.
    return not any(fnmatchcase(path.name, pattern.rpartition("/")[2]) for pattern in config.getini("python_files"))
