"""Adds what the trace cannot know to a recording, under its top-level key `torchprof`."""

from __future__ import annotations

import json
import os
import shutil
from typing import IO, TYPE_CHECKING

from pytest_torchprof.errors import UnreadableRecording

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


def write_metadata(path: Path, metadata: Mapping[str, object]) -> None:
    """Put `metadata` under the key `torchprof` of the plain JSON trace at `path`, without parsing the trace.

    The file is replaced in one go or left as it was. Raises UnreadableRecording when it begins as no JSON object.
    """
    text = json.dumps(metadata, separators=(",", ":")).encode()
    new = path.with_name(f"{path.name}.{os.getpid()}.new")
    try:
        with path.open("rb") as old, new.open("wb") as out:
            _skip_opening_brace(old, path)
            out.write(b'{"torchprof":' + text + b",")
            shutil.copyfileobj(old, out, 1 << 20)
        new.replace(path)
    finally:
        new.unlink(missing_ok=True)


def _skip_opening_brace(file: IO[bytes], path: Path) -> None:
    head = file.read(64)
    brace = len(head) - len(head.lstrip())
    if head[brace : brace + 1] != b"{":
        raise UnreadableRecording(
            f"{path}: this is no trace as torch.profiler exports it: it begins with {head[:20]!r}"
        )
    file.seek(brace + 1)
