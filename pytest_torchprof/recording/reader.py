"""The one reader of recordings: a trace file of any torch into a Trace."""

from __future__ import annotations

from functools import partial
from os import fspath
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from pytest_torchprof.devices.range_names import STEP
from pytest_torchprof.reasons.codes import Code
from pytest_torchprof.reasons.errors import TorchprofError, UnreadableRecording
from pytest_torchprof.reasons.errors import hide_our_frames as __tracebackhide__  # noqa: F401  (read by pytest)
from pytest_torchprof.reasons.unreadable import (
    BinaryData,
    EmptyFile,
    EventsNoList,
    Excess,
    GzipCutOff,
    GzipDamaged,
    InPerfettosFormat,
    IsFolder,
    JsonCutOff,
    JsonInvalid,
    ListOfOthers,
    NestedBeyondTraces,
    NoSuchFile,
    NotOpened,
    NotUtf8,
    NumberBeyondStamps,
    OtherText,
    SpecialFile,
    WithoutEvents,
    ZeroByteInPath,
    ZipArchive,
)
from pytest_torchprof.recording import text
from pytest_torchprof.recording.bounds import (
    AROUND,
    DEVICES,
    GPU_OPERATIONS,
    KERNEL_NAMES,
    MIB,
    STEPS,
    UNCUT,
    RefusedError,
    bounded,
    too_large,
)
from pytest_torchprof.recording.corrections import (
    name_fills_and_copies,
    name_operators,
    put_calls_on_their_threads,
)
from pytest_torchprof.recording.events import Columns
from pytest_torchprof.recording.kinds import kinds
from pytest_torchprof.recording.stamps import EXACT, STAMPS, WHOLE, TooFineError
from pytest_torchprof.recording.text import (
    ZIP,
    DamagedGzipError,
    UncuttableError,
    inflated,
    is_perfetto,
    is_special,
)
from pytest_torchprof.text import printable_line
from pytest_torchprof.trace import Trace
from pytest_torchprof.trace.captured import with_captured
from pytest_torchprof.trace.metadata import KEY, MalformedError, parse, parse_adoption

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping

    from pytest_torchprof.reasons.unreadable import OfPath
    from pytest_torchprof.recording.kinds import Kinds

_Read = TypeVar("_Read")
_EVENTS = "traceEvents"
_VALUES = msgspec.json.Decoder(dict[str, msgspec.Raw])
_BEFORE_JSON = b"\xef\xbb\xbf \t\r\n"
"""What may stand in front of JSON: a mark of the text's coding, blanks, new lines."""


class _NoTraceError(RefusedError):
    """The file, or the piece of it, cannot be read as a trace."""


def path_given(path: object, call: str) -> str:
    """Return a path that was given to a call as text; TorchprofError for anything else."""
    text = fspath(path) if hasattr(path, "__fspath__") else path
    if not isinstance(text, str):
        from pytest_torchprof.reasons.misuse import CallWithout, Takes  # noqa: PLC0415 - for what is refused alone

        raise TorchprofError.because(CallWithout(call, Takes.PATH, printable_line(repr(path), 60), Code.BAD_VALUE))
    return text


def read(path: str | os.PathLike[str]) -> Trace:
    """Return the recording in the file, gzipped or plain; UnreadableRecording with the cause and what to do."""
    path = fspath(path)
    if "\0" in path:
        raise _unreadable(ZeroByteInPath, path)
    if is_special(path):
        raise _unreadable(SpecialFile, path)
    try:
        try:
            columns = Columns()
            return _trace(path, columns, _in_pieces(path, columns))
        except UncuttableError as odd:
            return _whole(path, _uncut(path, odd.__cause__))
    except RefusedError as error:
        raise UnreadableRecording.of(error.cause, shown(path)) from None
    except tuple(_CAUSES) as error:
        kind = next(kind for raised, kind in _CAUSES.items() if isinstance(error, raised))
        raise _unreadable(kind, path) from None
    except (DamagedGzipError, OSError) as error:
        if isinstance(error, DamagedGzipError):
            raise _unreadable(GzipDamaged, path) from None
        raise _unreadable(NotOpened, path, error.strerror or str(error)) from None


def _unreadable(kind: Callable[..., OfPath], path: str, *facts: str) -> UnreadableRecording:
    return UnreadableRecording.of(kind(shown(path), *facts), shown(path))


_CAUSES: dict[type[Exception], type[OfPath]] = {
    FileNotFoundError: NoSuchFile,
    IsADirectoryError: IsFolder,
    EOFError: GzipCutOff,
    UnicodeDecodeError: NotUtf8,
    OverflowError: NumberBeyondStamps,
    RecursionError: NestedBeyondTraces,
}


def _in_pieces(path: str, columns: Columns) -> dict[str, Any]:
    """Fold the events, one piece of the text at a time, and return the document's other entries."""
    source = inflated(path)
    head, rest = text.head(source)
    opening = text.OPENING.match(rest)
    if opening is None:
        raise UncuttableError
    try:
        for piece, is_last in text.cut(source, rest, opening[1]):
            if is_last:
                return _finish(columns, head, piece)
            _fold(columns, piece)
    except (msgspec.DecodeError, _NoTraceError) as error:
        raise UncuttableError from error
    raise AssertionError  # The loop always reaches the last piece.


def _fold(columns: Columns, text: bytes | msgspec.Raw) -> None:
    repaired(text, partial(_fold_events, columns))


def repaired(text: bytes | msgspec.Raw, reading: Callable[[bytes | msgspec.Raw], _Read]) -> _Read:
    """Return the content of the text, or of a repaired version of it; an error is that of the original text."""
    try:
        return reading(text)
    except msgspec.ValidationError:
        raise
    except msgspec.DecodeError as error:
        if "UTF-8" in str(error):
            # msgspec before 0.23 raises UnicodeDecodeError itself, with which such a text is refused.
            str(memoryview(text), "utf-8")
        from pytest_torchprof.recording.oddities import repairs  # noqa: PLC0415 - only broken files need it

        for mended in repairs(bytes(text)):
            try:
                return reading(mended)
            except msgspec.DecodeError:
                continue
        raise


def _fold_events(columns: Columns, text: bytes | msgspec.Raw) -> None:
    """Fold the events, read as those before or more thoroughly; one event at a time if one is odd."""
    if _fold_likely(columns, text):
        return
    types = columns.types
    while True:
        try:
            columns.fold(types.events.decode(text), types, types.stamps)
        except TooFineError:
            types = _finer(types)
        except msgspec.ValidationError as odd:
            if types.stamps == WHOLE and "`float`" in str(odd):
                types = _finer(types)
            elif not types.any_category and str(odd).endswith((".cat`", ".ph`", ".dur`")):
                types = kinds(types.stamps, all_args=types.all_args, any_category=True)
            elif not types.all_args:
                types = kinds(types.stamps, all_args=True, any_category=types.any_category)
            else:
                break
        else:
            columns.types = types
            return
    from pytest_torchprof.recording.oddities import events_of  # noqa: PLC0415 - only odd events need it

    types = kinds(types.stamps, all_args=True, any_category=True)
    columns.fold(events_of(text, types, columns.events), types, EXACT)


def _fold_likely(columns: Columns, text: bytes | msgspec.Raw) -> bool:
    """Fold the events if they are what is likely after those before, and return whether they are."""
    types = columns.narrow
    if types is None or not isinstance(text, bytes):
        return False
    try:
        # Where a run ends inside of a piece, the piece's last event shows it before all are decoded.
        types.events.decode(b"[" + text[text.rfind(b"{", 0, text.rfind(b'"ph"')) :])
    except msgspec.DecodeError:
        columns.narrow = None
        return False
    try:
        columns.fold(types.events.decode(text), types, types.stamps)
    except (TooFineError, msgspec.ValidationError):
        columns.narrow = None
        return False
    return True


def _finer(types: Kinds) -> Kinds:
    stamps = STAMPS[STAMPS.index(types.stamps) + 1]
    return kinds(stamps, all_args=types.all_args, any_category=types.any_category)


def _finish(columns: Columns, head: bytes, rest: bytes) -> dict[str, Any]:
    """Fold the last events and return the document's other entries; head and rest make a document of their own."""
    if not head:
        _fold(columns, rest)
        if columns.empty:
            # A list of anything looks like the oldest format; a single piece does not show whether it is a trace.
            raise UncuttableError
        return {}
    # The list that was cut must be the document's own, not one inside another value.
    _document(head + b"[]}")
    document = repaired(head + rest, _document)
    _fold(columns, document.pop(_EVENTS))
    return _header(document)


def _uncut(path: str, cause: BaseException | None) -> bytes:
    """Return all of the text, if it is small enough for that; ``cause`` is why it was not read in pieces."""
    try:
        return b"".join(bounded(inflated(path), UNCUT, Excess.UNCUT))
    except RefusedError:
        if type(cause) is msgspec.DecodeError:
            # The position in the message is one in a piece.
            raise _syntax(str(cause).partition(" (byte")[0]) from None
        raise


def _whole(path: str, text: bytes) -> Trace:
    if not text.strip():
        raise _NoTraceError(EmptyFile())
    if is_perfetto(text):
        raise _NoTraceError(InPerfettosFormat())
    read = partial(_decoded, path)
    try:
        # A text that is neither an object nor a list would be repaired to "null", which is sound JSON of another kind.
        return repaired(text, read) if text.lstrip()[:1] in b"{[" else read(text)
    except msgspec.DecodeError as error:
        raise (_foreign_format(text) or _syntax(str(error), len(text))) from None


def _decoded(path: str, text: bytes | msgspec.Raw) -> Trace:
    columns = Columns()
    header: dict[str, Any] = {}
    if bytes(text).lstrip()[:1] == b"[":
        listed = msgspec.json.decode(text)
        if not any(isinstance(item, dict) and "ph" in item for item in listed):
            raise _NoTraceError(ListOfOthers())
        _fold_events(columns, text)
    else:
        document = _document(text)
        _fold_events(columns, document.pop(_EVENTS))
        header = _header(document)
    return _trace(path, columns, header)


def _document(text: bytes) -> dict[str, msgspec.Raw]:
    """Return the document's values by key, undecoded; an error if it has no list of events."""
    try:
        document = _VALUES.decode(text)
    except msgspec.ValidationError:
        document = {}
    if bytes(memoryview(document.get(_EVENTS, b""))[:1]) != b"[":
        raise _NoTraceError(EventsNoList() if _EVENTS in document else WithoutEvents())
    return document


def _header(document: Mapping[str, msgspec.Raw]) -> dict[str, Any]:
    if sum(map(len, document)) + sum(memoryview(value).nbytes for value in document.values()) > AROUND:
        raise too_large(Excess.AROUND, AROUND // MIB)
    return {key: msgspec.json.decode(value) for key, value in document.items()}


def _foreign_format(content: bytes) -> _NoTraceError | None:
    """Return the error for a file that nobody has written as JSON; None where it may be JSON that is damaged."""
    if content.startswith(ZIP):
        return _NoTraceError(ZipArchive())
    if b"\0" in content[:4096]:
        return _NoTraceError(BinaryData())
    return None if content.lstrip(_BEFORE_JSON)[:1] in b"{[" else _NoTraceError(OtherText())


def _syntax(error: str, length: int | None = None) -> _NoTraceError:
    # A number at the end of the text may go on.
    if "truncated" in error or error.endswith(f"(byte {length})"):
        return _NoTraceError(JsonCutOff())
    return _NoTraceError(JsonInvalid(error))


def _trace(path: str, columns: Columns, header: dict[str, Any]) -> Trace:
    try:
        adoption, own = parse_adoption(header.pop(KEY, None))
        metadata = None if own is None else parse(own)
    except MalformedError as malformed:
        raise _NoTraceError(malformed.cause) from None
    names = list(columns.names)
    name_operators(names, columns.ops)
    name_fills_and_copies(names, columns.gpu)
    put_calls_on_their_threads(columns.ops, columns.annotations, columns.calls, columns.gpu)
    trace = Trace(
        path=path,
        events=columns.events,
        header=header,
        metadata=metadata,
        adoption=adoption,
        taken_for="cpu" if adoption is not None and adoption.device_asked == "cpu" else None,
        names=names,
        threads=columns.threads.labels,
        streams=columns.streams.labels,
        processes=columns.processes.labels,
        inputs=[b"[%b]" % operands for operands in columns.inputs],
        ops=columns.ops,
        annotations=columns.annotations,
        frames=columns.frames,
        overheads=columns.overheads,
        calls=columns.calls,
        gpu=columns.gpu,
        arrows=columns.arrows,
        allocations=columns.allocations,
        unended=columns.unended,
        unknown_work=columns.unknown,
        samples_hardware=columns.samples_hardware,
        gpu_annotations=columns.gpu_annotations,
        shapes=list(columns.shapes),
        collectives=columns.collectives,
        parameters=columns.parameters,
    )
    _check_counts(trace)
    return with_captured(trace, columns.annotated)


def _check_counts(trace: Trace) -> None:
    """Refuse more GPU operations, devices, names or steps than any recording has."""
    gpu = trace.gpu
    if len(gpu) > GPU_OPERATIONS:
        raise too_large(Excess.GPU_OPERATIONS, GPU_OPERATIONS)
    if len(trace.processes) > DEVICES:
        raise too_large(Excess.DEVICES, DEVICES)
    if len(trace.names) > KERNEL_NAMES and len(set(gpu.name)) > KERNEL_NAMES:
        raise too_large(Excess.NAMES, KERNEL_NAMES)
    if len(trace.ops) + len(trace.annotations) > STEPS and len(trace.spans(STEP)) > STEPS:
        raise too_large(Excess.STEPS, STEPS)


def shown(path: str) -> str:
    """Return a path as errors show it."""
    return "".join(letter if letter.isprintable() else "?" for letter in path)
