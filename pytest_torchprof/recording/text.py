"""A trace file as text: unpacked a slice at a time and cut between two events, or refused because of its form."""

from __future__ import annotations

import os
import re
import stat
from typing import TYPE_CHECKING, Any

from pytest_torchprof.reasons.unreadable import Excess, InsteadOfFile
from pytest_torchprof.recording.bounds import AROUND, MEMBERS, UNPACKED, bounded, too_large

try:
    from isal import igzip_lib as igzip
    from isal import isal_zlib as gunzip
except ImportError:  # Some platforms have no wheel of it; zlib takes three times as long.
    import zlib as gunzip  # type: ignore[no-redef]

    igzip = None  # type: ignore[assignment]

if TYPE_CHECKING:
    from collections.abc import Iterator
    from io import FileIO


PIECE = 256 * 1024
"""The bytes of text that are decoded at once; more take more memory, fewer take more time."""
_SLICE = 16 * 1024 if igzip is None else 64 * 1024
"""The bytes of a compressed file that are read at once: of zlib's, which gives all that they unpack to, fewer."""
GZIP = b"\x1f\x8b"
ZIP = (b"PK\x03\x04", b"PK\x05\x06")
"""The beginnings of an archive: of its first file, or of the end of one that holds none."""
SPECIAL = InsteadOfFile.SPECIAL.text
"""The text about a path that :func:`is_special`."""
_EVENTS_KEY = re.compile(rb'"traceEvents"\s*:\s*\[')
OPENING = re.compile(rb'\s*(\{\s*"[^"\\]*")')
"""The beginning of an event: in a file that a program wrote, all events begin alike."""
_LIST = re.compile(rb"\s*\[")
"""The beginning of a file that is a list of events, with nothing around it."""
_BORDER = re.compile(rb"\}\s*,\s*$")
_ANY_OPENING = b"{"
_TRIES = 1000
"""How many candidates for a border are tried in a part; in a program's file the first or second is one."""


_GUNZIP_ERROR: Any = gunzip.error


class DamagedGzipError(Exception):
    """The content of a gzip-compressed file does not match its checksum."""


class UncuttableError(Exception):
    """The file cannot be cut between its events; it has to be decoded whole."""


def is_special(path: str | os.PathLike[str]) -> bool:
    """Return whether a path is a pipe, a socket or a device, on which a reader may wait forever."""
    try:
        mode = os.stat(path).st_mode  # noqa: PTH116 - as below
    except OSError:
        return False
    return not stat.S_ISREG(mode) and not stat.S_ISDIR(mode)


def inflated(path: str) -> Iterator[bytes]:
    """Yield the file's bytes, unpacked.

    RefusedError if it unpacks to more than any recording has, DamagedGzipError if it is damaged, EOFError if it
    is cut off.
    """
    with open(path, "rb", buffering=0) as file:  # noqa: PTH123 - pathlib's import costs more than a small file
        part = file.read(_SLICE)
        if part[:2] == GZIP:
            yield from bounded(_unpacked(file, part), UNPACKED, Excess.UNPACKED)
            return
        while part:
            yield part
            part = file.read(PIECE)


def inflated_member(data: bytes, most: int) -> tuple[bytes, bytes]:
    """Return the content of the first gzip member, of a larger one ``most`` bytes and one more, and what follows it.

    DamagedGzipError if it is damaged or no gzip member; EOFError if it is cut off.
    """
    unpack = gunzip.decompressobj(wbits=31)
    try:
        content: bytes = unpack.decompress(data, most + 1)
    except _GUNZIP_ERROR as error:
        raise DamagedGzipError(str(error)) from None
    if len(content) <= most and not unpack.eof:
        raise EOFError
    return content, unpack.unused_data


def inflated_beginning(data: bytes, at_once: int) -> Iterator[bytes]:
    """Yield the content of so many bytes of the beginning of a gzip member, then of the next ones, up to any damage."""
    unpack = gunzip.decompressobj(wbits=31)
    # As below, and what isal has not given out yet is in no unconsumed_tail.
    for at in range(0, len(data), at_once):
        try:
            text: bytes = unpack.decompress(data[at : at + at_once])
        except _GUNZIP_ERROR:
            return
        yield text


def _unpacker() -> Any:
    return gunzip.decompressobj(wbits=31) if igzip is None else igzip.IgzipDecompressor(flag=igzip.DECOMP_GZIP)


def _unpacked_part(unpack: Any, part: bytes) -> Iterator[bytes]:
    """Yield the unpacked bytes of a part, a piece at a time; DamagedGzipError."""
    try:
        if igzip is None:
            # Its output is not bounded: unconsumed_tail would copy the rest at each call.
            yield unpack.decompress(part)
            return
        # Texts of one size take the memory of those before them; others had each a growing buffer of its own.
        yield unpack.decompress(part, PIECE)
        while not (unpack.eof or unpack.needs_input):
            yield unpack.decompress(b"", PIECE)
    except _GUNZIP_ERROR as error:
        raise DamagedGzipError(str(error)) from None


def _unpacked(file: FileIO, part: bytes) -> Iterator[bytes]:
    unpack, members = _unpacker(), 1
    while part:
        yield from _unpacked_part(unpack, part)
        if not unpack.eof:
            part = file.read(_SLICE)
            continue
        part = unpack.unused_data
        if len(part) < len(GZIP):
            part += file.read(_SLICE)
        if not part.startswith(GZIP):
            return
        unpack, members = _unpacker(), members + 1
        if members > MEMBERS:
            raise too_large(Excess.MEMBERS, MEMBERS)
    raise EOFError


def cut(source: Iterator[bytes], rest: bytes, mark: bytes) -> Iterator[tuple[bytes, bool]]:
    """Yield lists of whole events, as text, each with whether it is the last one.

    The last list is not closed: it contains the text behind the list of events too.
    """
    parts: list[bytes | memoryview] = [b"[", rest]
    held = len(rest)
    for part in source:
        parts.append(part)
        held += len(part)
        if held >= PIECE and (at := border(part, mark) or border(part, _ANY_OPENING)):
            parts[-1] = memoryview(part)[: at[0]]
            parts.append(b"]")
            yield b"".join(parts), False
            rest = part[at[1] :]
            parts, held = [b"[", rest], len(rest)
        elif held > AROUND:
            raise UncuttableError
    yield b"".join(parts), True


def head(source: Iterator[bytes]) -> tuple[bytes, bytes]:
    """Return the text before the list of events, and the beginning of the list's content."""
    # Most often the first part has the key, and is not copied.
    text, looked, events = b"", 0, 0
    for part in source:
        text += part
        if not events and not looked and (listed := _LIST.match(text)):
            events = listed.end()
        elif not events and (key := _EVENTS_KEY.search(text, looked)):
            events = key.end()
        # Blanks open nothing; to look through all of them at each part takes the square of their number.
        if events and not part.isspace() and OPENING.match(text, events):
            before = text[: events - 1]
            return before if before.strip() else b"", text[events:]
        if len(text) > AROUND:
            break
        # The key may cross the border of two parts.
        looked = max(0, len(text) - 64)
    raise UncuttableError


def border(part: bytes, mark: bytes) -> tuple[int, int] | None:
    """Return where the last event that ends in the part ends, and where the next begins; None without such an event.

    A wrong border, in a string or inside an event, leaves brackets open: the text before it is no JSON.
    """
    at = len(part)
    for _ in range(_TRIES):
        at = part.rfind(mark, 0, at)
        if at <= 0:
            return None
        before = _BORDER.search(part, max(0, at - 64), at)
        if before:
            return before.start() + 1, at
    return None


_PACKET = rb"\n([\x80-\xff]{0,9}[\x00-\x7f])"
"""The first field of the file's one message, a packet, and its length."""
_NOT_IN_JSON = rb"[\x00-\x08\x0b\x0c\x0e-\x1f]"


def is_perfetto(text: bytes) -> bool:
    """Return whether it is in Perfetto's format, which torch can write since 2.14: packets only, maybe cut off."""
    packet = re.compile(_PACKET)
    first = packet.match(text)
    if first is None or not re.search(_NOT_IN_JSON, text[:4096]):
        return False
    length = sum((byte & 0x7F) << (7 * index) for index, byte in enumerate(first[1]))
    behind = first.end() + length
    return behind >= len(text) or packet.match(text, behind) is not None
