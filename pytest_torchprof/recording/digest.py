"""Whether a recording of ours is still what was written: checksums under its key.

They tell of a file that was edited, by hand or by a program that writes JSON anew. They are no signature: whoever means
to deceive can compute them as well.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, BinaryIO
from zlib import crc32

import msgspec

from pytest_torchprof.recording.metadata import ADOPTED, KEY
from pytest_torchprof.recording.text import GZIP, PIECE, inflated

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pytest_torchprof.trace import Trace

_OPENING = b',\n"%s": ' % KEY.encode()


Digest = tuple[int, int]
"""Checksums (CRC-32) of the text before our key and of the key's other entries."""


def sealed(encoded: Callable[[Digest | None], bytes], file: BinaryIO, end: int) -> bytes:
    """Return what goes behind the first ``end`` bytes of an exported trace: our key, with checksums of both.

    ``encoded`` returns the key's value as JSON, with the checksums or without.
    """
    file.seek(0)
    before = 0
    for start in range(0, end, PIECE):
        before = crc32(file.read(min(PIECE, end - start)), before)
    return _OPENING + encoded((before, crc32(encoded(None)))) + b"\n}\n"


def ending(text: bytes) -> bytes:
    """Return our key and what is behind it, of the last part of a recording's text; empty where it is elsewhere."""
    _, found, behind = text.rpartition(_OPENING)
    return found + behind if found else b""


def own_key(trace: Trace) -> dict[str, Any] | None:
    """Return our key as the recording's file has it; None where it has none, or not where we write it."""
    found: dict[str, Any] | None = msgspec.json.decode(b"{" + trace.ending[1:])[KEY] if trace.ending else None
    return found


def is_changed(trace: Trace) -> bool:
    """Return whether the recording's file is known to be another than was written; older ones do not tell."""
    told = trace.digest
    if told is None or trace.path is None:
        return False
    ours = own_key(trace)
    if ours is None:
        return True
    before, key = told
    del (ours if trace.adoption is None else ours[ADOPTED])["digest"]
    if crc32(msgspec.json.encode(ours)) != key:
        return True
    whole = crc32(trace.ending, before)
    return all(found != whole for found in _checksums(trace.path))


def _checksums(path: str) -> Iterator[int]:
    """Yield the text's checksum: of a packed file first the one that it has of itself, which is of its last part."""
    with open(path, "rb") as file:  # noqa: PTH123 - pathlib's import costs more than a small file
        if file.read(2) == GZIP:
            file.seek(-8, 2)
            yield int.from_bytes(file.read(4), "little")
    found = 0
    for part in inflated(path):
        found = crc32(part, found)
    yield found
