"""How the JSON of a record is packed: what only reports tell is a part of its own, behind all the rest."""

from __future__ import annotations

import gzip
import io
from typing import TYPE_CHECKING, Final

from pytest_torchprof.reasons.records import (
    ContentInstead,
    LargerThanRecords,
    MoreBehindEnd,
    OtherContent,
    RecordCutOff,
    RecordGzipDamaged,
)
from pytest_torchprof.recording.text import GZIP, ZIP, DamagedGzipError, inflated_member

if TYPE_CHECKING:
    from pytest_torchprof.reasons.reason import Reason

MOST_BYTES: Final = 64 << 20
"""How large a record may be, unpacked."""


class NotPacked(ValueError):
    """The fault of a file's content, without its name."""

    def __init__(self, why: Reason) -> None:
        """Make the error of a reason."""
        super().__init__(why.text)
        self.why = why


def packed(content: bytes) -> bytes:
    """Return a part of a record's file."""
    file_content = io.BytesIO()
    # Neither a name nor a time of its own: a record that is written twice is the same file.
    with gzip.GzipFile(filename="", mode="wb", fileobj=file_content, mtime=0) as file:
        file.write(content)
    return file_content.getvalue()


def unpacked_whole(data: bytes) -> bytes:
    """Return the content of all parts of a file; NotPacked, also for more than a record has."""
    figures, behind = first_member(data)
    if not behind:
        return figures
    reported, behind = first_member(behind, MOST_BYTES - len(figures)) if behind[:2] == GZIP else (b"", behind)
    if behind:
        raise NotPacked(MoreBehindEnd())
    return figures + reported


def first_member(data: bytes, most: int = MOST_BYTES) -> tuple[bytes, bytes]:
    """Return the content of the first part of a file, and what is behind it; NotPacked for more than ``most`` bytes."""
    if data[: len(GZIP)] != GZIP and not (0 < len(data) < len(GZIP)):
        raise NotPacked(OtherContent(_kind_of(data)))
    try:
        content, behind = inflated_member(data, most)
    except EOFError:
        raise NotPacked(RecordCutOff()) from None
    except DamagedGzipError:
        raise NotPacked(RecordGzipDamaged()) from None
    if len(content) > most:
        raise NotPacked(LargerThanRecords(MOST_BYTES >> 20, unpacked=True))
    return content, behind


def _kind_of(data: bytes) -> ContentInstead:
    """Return the kind of content of a file that does not begin as a record does."""
    if not data:
        return ContentInstead.NOTHING
    if data.startswith(ZIP):
        return ContentInstead.ZIP
    return ContentInstead.BINARY if b"\0" in data[:4096] else ContentInstead.TEXT
