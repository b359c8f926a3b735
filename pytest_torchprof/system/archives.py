"""What can go wrong with archives that other people have made."""

from __future__ import annotations

import zipfile
import zlib
from typing import Final

DAMAGED: Final = (EOFError, OSError, RuntimeError, ValueError, zipfile.BadZipFile, zlib.error)
"""What zipfile raises for archives that are damaged, encrypted, or packed in a rare way."""
