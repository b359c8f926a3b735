"""Archives that other people have made: which are read, and what can go wrong with them."""

from __future__ import annotations

import zipfile
import zlib
from typing import Final

DAMAGED: Final = (EOFError, OSError, RuntimeError, ValueError, zipfile.BadZipFile, zlib.error)
"""What zipfile raises for archives that are damaged, encrypted, or packed in a rare way."""
_TAR: Final = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz", ".tar.zst")


def is_archive(name: str) -> bool:
    """Return whether a file of this name is an archive that is read."""
    return name.lower().endswith(".zip")


def is_tar(name: str) -> bool:
    """Return whether a file of this name is an archive that no file can be read from without all before it."""
    return name.lower().endswith(_TAR)
