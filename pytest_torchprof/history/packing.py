"""How the JSON of a record is packed: what only reports tell is a part of its own, behind all the rest."""

from __future__ import annotations

import gzip
import io
from typing import Final

from pytest_torchprof.recording.text import GZIP, ZIP, DamagedGzipError, inflated_member

MOST_BYTES: Final = 64 << 20
"""How large a record may be, unpacked."""


class NotPacked(ValueError):
    """What is wrong with a file's content, without its name."""


def packed(content: bytes) -> bytes:
    """Return a part of a record's file."""
    file_content = io.BytesIO()
    # Neither a name nor a time of its own: a record that is written twice is the same file.
    with gzip.GzipFile(filename="", mode="wb", fileobj=file_content, mtime=0) as file:
        file.write(content)
    return file_content.getvalue()


def unpacked_whole(data: bytes) -> bytes:
    """Return what all parts of a file hold; NotPacked, also for more than a record has."""
    figures, behind = first_member(data)
    if not behind:
        return figures
    reported, behind = first_member(behind, MOST_BYTES - len(figures)) if behind[:2] == GZIP else (b"", behind)
    if behind:
        raise NotPacked("something stands behind its end")
    return figures + reported


def first_member(data: bytes, most: int = MOST_BYTES) -> tuple[bytes, bytes]:
    """Return what the first part of a file holds, and what stands behind it; NotPacked for more bytes than ``most``."""
    if data[: len(GZIP)] != GZIP and not (0 < len(data) < len(GZIP)):
        raise NotPacked(f"no record of a run: {_kind_of(data)}")
    try:
        content, behind = inflated_member(data, most)
    except EOFError:
        raise NotPacked("cut off: it ends in the middle of its gzip data") from None
    except DamagedGzipError:
        raise NotPacked("damaged: its gzip data cannot be unpacked") from None
    if len(content) > most:
        raise NotPacked(f"larger than {MOST_BYTES >> 20} MiB when unpacked, which no run's record is")
    return content, behind


def _kind_of(data: bytes) -> str:
    """Return what a file is that does not begin as a record does."""
    if not data:
        return "the file is empty"
    if data.startswith(ZIP):
        return "it is a ZIP archive, and is not called .zip"
    return "it is binary data" if b"\0" in data[:4096] else "it is a text"
