"""Data that is written into recordings, and copies of recordings: complete, or not at all."""

from __future__ import annotations

import gzip
import os
from mmap import mmap
from os import SEEK_END, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from pytest_torchprof.reasons.errors import TorchprofError, UnreadableRecording
from pytest_torchprof.reasons.errors import hide_our_frames as __tracebackhide__  # noqa: F401  (read by pytest)
from pytest_torchprof.reasons.unreadable import NoObjectsEnd
from pytest_torchprof.recording.reader import shown
from pytest_torchprof.recording.text import DamagedGzipError, inflated
from pytest_torchprof.system.replacing import replacing
from pytest_torchprof.trace.metadata import ADOPTED, KEY, SCHEMA, encode

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import BinaryIO

    from pytest_torchprof.trace import Trace
    from pytest_torchprof.trace.metadata import Adoption, Metadata

_OPENING = b',\n"%s": ' % KEY.encode()


def write_metadata(file: BinaryIO, metadata: Metadata) -> None:
    """Put our key into an exported, unpacked trace file, in place: the caller has given it a name of its own."""
    try:
        value = encode(metadata)
    except UnicodeEncodeError as error:
        raise _half_a_character(error) from None
    start = max(0, file.seek(0, SEEK_END) - 4096)
    file.seek(start)
    end = file.read().rfind(b"}")
    if end < 0:
        raise UnreadableRecording.of(NoObjectsEnd(shown(fspath(file.name))), shown(fspath(file.name)))
    _put_key(file, start + end, value)


def write_adopted(trace: Trace, target: str, adoption: Adoption) -> None:
    """Write a trace's file anew, unpacked, with the adoption beside everything that it held before.

    UnreadableRecording if it cannot be copied, TorchprofError if the label cannot be written.
    """
    source = str(trace.path)
    try:
        with open(target, "w+b") as file:  # noqa: PTH123
            _write(_as_object(inflated(source)), file)
            end, recorded = _own_key(file, trace)
            own = {"schema": SCHEMA} | {name: entry for name, entry in recorded.items() if name != ADOPTED}
            _put_key(file, end, msgspec.json.encode({**own, ADOPTED: adoption}))
    except UnicodeEncodeError as error:
        raise _half_a_character(error) from None
    except (EOFError, DamagedGzipError, OSError) as error:
        raise _not_copied(source, target, error) from None


def copy(source: str, target: str | os.PathLike[str]) -> None:
    """Copy a recording, packed or unpacked by the target's name; the target appears whole or not at all."""
    target = fspath(target)
    try:
        # No time stamp in the header, and no name: the same recording gives the same file.
        with (
            replacing(Path(target)) as unfinished,
            unfinished.open("wb") as raw,
            gzip.GzipFile("", "wb", 6, raw, mtime=0) if target.endswith(".gz") else raw as file,
        ):
            _write(inflated(source), file)
    except (EOFError, DamagedGzipError, OSError) as error:
        raise _not_copied(source, target, error) from None


def _write(parts: Iterable[bytes], file: Any) -> None:
    for part in parts:
        file.write(part)


def _as_object(parts: Iterable[bytes]) -> Iterable[bytes]:
    """Yield the text of a recording as a JSON object: the oldest files are bare lists of events."""
    listed: bool | None = None
    for part in parts:
        if listed is None and part.strip():
            listed = part.lstrip().startswith(b"[")
            yield b'{"traceEvents": ' if listed else b""
        yield part
    yield b"\n}\n" if listed else b""


def _own_key(file: BinaryIO, trace: Trace) -> tuple[int, dict[str, Any]]:
    """Return where our key begins, or else where the document ends, and the trace's value of the key."""
    file.flush()
    with mmap(file.fileno(), 0) as text:
        begin = text.rfind(_OPENING)
        if begin > 0 and (trace.metadata or trace.adoption):
            return begin, msgspec.json.decode(b"{" + text[begin + 1 :])[KEY]
        # Another program rewrote the file, or it never had our key.
        return text.rfind(b"}"), {} if trace.metadata is None else msgspec.json.decode(encode(trace.metadata))


def _put_key(file: BinaryIO, end: int, value: bytes) -> None:
    file.seek(end)
    file.truncate()
    file.write(_OPENING + value + b"\n}\n")


def _half_a_character(error: UnicodeEncodeError) -> TorchprofError:
    from pytest_torchprof.reasons.not_written import HalfCharacter  # noqa: PLC0415 - for what fails alone

    return TorchprofError.because(HalfCharacter(repr(error.object)))


def _not_copied(source: str, target: str, error: Exception) -> UnreadableRecording:
    from pytest_torchprof.reasons.not_written import RecordingNotCopied  # noqa: PLC0415 - for what fails alone

    return UnreadableRecording.because(RecordingNotCopied(shown(source), shown(target), str(error)))
