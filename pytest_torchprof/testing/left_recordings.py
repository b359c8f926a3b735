"""Recordings that another process leaves in a folder: finding them, waiting until they are whole, and of one job."""

from __future__ import annotations

import errno
import os
import re
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from pytest_torchprof.analysis.rank_parts import rank_and_size
from pytest_torchprof.reasons.adopting import (
    CopiedRecording,
    DifferentJobSizes,
    NoFileThere,
    NoRecordingLeft,
    OneTellsNoRank,
    PerfettoFile,
    RankTwice,
    RecordingTwice,
    StillIncomplete,
    StillUnnamed,
    TooFewRecordings,
    TooManyRecordings,
    WrittenBefore,
)
from pytest_torchprof.reasons.codes import Code
from pytest_torchprof.reasons.errors import NotMeasured, UnreadableRecording
from pytest_torchprof.reasons.errors import hide_our_frames as __tracebackhide__  # noqa: F401  (read by pytest)
from pytest_torchprof.reasons.unreadable import InsteadOfFile
from pytest_torchprof.recording.reader import read
from pytest_torchprof.recording.text import is_special
from pytest_torchprof.text import printable_line

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pytest_torchprof.reasons.reason import Reason
    from pytest_torchprof.reasons.unreadable import WhyUnreadable
    from pytest_torchprof.trace import Trace

    Stamp = tuple[int, int]

_ENDING = r"\.(?:json|pftrace)(?:\.gz)?"
_WHOLE = re.compile(rf"{_ENDING}$")
# A file has such a name while it is written, before it gets its own: kineto's ".tmp", our ".unfinished", "~".
_PART = re.compile(rf"^(?!.*{_ENDING}$).*{_ENDING}[.~]")
_SHORTEST_PAUSE_S, _LONGEST_PAUSE_S = 0.02, 0.5
_NAMED = 5
_FINAL = (Code.RECORDING_TOO_LARGE, Code.RECORDING_NEWER)
# The clock of another machine may be a little slow, and kineto's is converted from the processor's.
_CLOCKS_DIFFER_NS = 10**9
_EPOCH_NS = (1_400_000_000 * 10**9, 5_000_000_000 * 10**9)


class LeftRecording(Struct, frozen=True, kw_only=True):
    """A whole recording that another process has left."""

    name: str
    """Its path below the folder in which it was found, as sentences name it."""
    written_ns: int
    """When it was written, since the epoch."""
    trace: Trace


class _Candidate(Struct, frozen=True, kw_only=True):
    """A file that may be a recording; without a trace or a problem it is still to be read."""

    path: Path
    name: str
    stamp: Stamp
    """Size in bytes, and when it was written, in ns since the epoch."""
    trace: Trace | None = None
    problem: UnreadableRecording | None = None

    @property
    def is_something_else(self) -> bool:
        """Whether it is sound JSON without a trace's events, such as tools leave beside their traces."""
        return self._cause is not None and self._cause.OTHER_JSON

    @property
    def is_final(self) -> bool:
        """Whether it is whole as it is, and no waiting makes a recording of it."""
        return self._cause is not None and self._cause.IS_FINAL

    @property
    def _cause(self) -> WhyUnreadable | None:
        return None if self.problem is None else self.problem.cause


def left_in(source: Path, wanted: int | Literal["any"], *, timeout_s: float, patient: bool) -> list[LeftRecording]:
    """Return the recordings in a folder and those below it, or the one file, by name, once they are whole.

    NotMeasured where there are none, more or fewer than ``wanted``, or one is incomplete or unreadable after the time.
    A file that is there already is waited for; a missing one only if somebody may still write it (``patient``).
    """
    files: dict[Path, _Candidate] = {}
    deadline, pause = time.monotonic() + timeout_s, _SHORTEST_PAUSE_S
    while True:
        files = {path: _looked_at(source, path, files.get(path)) for path in _recordings_in(source)}
        whole = [
            LeftRecording(name=file.name, written_ns=file.stamp[1], trace=file.trace)
            for file in files.values()
            if file.trace is not None
        ]
        waiting = [file for file in files.values() if file.trace is None and not file.is_something_else]
        parts = [] if source.is_file() else list(_named(source, _PART))
        _refuse_at_once(waiting)
        if wanted != "any" and len(whole) > wanted:
            raise _too_many(whole, wanted)
        enough = len(whole) == wanted or (wanted == "any" and bool(whole))
        if enough and not waiting and not parts:
            return sorted(whole, key=lambda file: file.name)
        hopeless = not (patient or waiting or parts)
        if hopeless or time.monotonic() >= deadline:
            after_s = None if hopeless else timeout_s
            if waiting or parts:
                raise NotMeasured(_why_unfinished(waiting[0] if waiting else parts[0], after_s))
            others = [file.name for file in files.values() if file.is_something_else]
            raise _too_few(whole, others, wanted, after_s)
        time.sleep(min(pause, max(0.0, deadline - time.monotonic())))
        pause = min(pause * 1.5, _LONGEST_PAUSE_S)


def _recordings_in(source: Path) -> Iterator[Path]:
    return iter([source]) if source.is_file() or is_special(source) else _named(source, _WHOLE)


def _named(source: Path, pattern: re.Pattern[str]) -> Iterator[Path]:
    for folder, _, names in os.walk(source):
        yield from (Path(folder, name) for name in sorted(names) if pattern.search(name))


def _looked_at(source: Path, path: Path, known: _Candidate | None) -> _Candidate:
    """Return the present state of a file; one that has changed since the last look is read when it rests."""
    name = printable_line(path.relative_to(source).as_posix() if path != source else path.name, 120)
    file = _Candidate(path=path, name=name, stamp=_stamp(path))
    if known is not None and known.stamp != file.stamp:
        return file
    if known is not None and (known.trace is not None or known.problem is not None):
        return known
    try:
        file = replace(file, trace=read(path))
    except UnreadableRecording as problem:
        file = replace(file, problem=problem)
    # A file that was written to meanwhile may have been read only in part.
    return file if _stamp(path) == file.stamp else _Candidate(path=path, name=name, stamp=_stamp(path))


def _stamp(path: Path) -> Stamp:
    try:
        status = path.stat()
    except OSError:
        return 0, 0
    return status.st_size, status.st_mtime_ns


def _refuse_at_once(files: Sequence[_Candidate]) -> None:
    """Raise NotMeasured for a file that no waiting makes readable."""
    for file in files:
        if (instead := _kind_instead(file.path)) is not None:
            raise NotMeasured(NoFileThere(file.name, instead))
        if file.path.name.endswith((".pftrace", ".pftrace.gz")):
            raise NotMeasured(PerfettoFile(file.name))
        if file.problem is not None and (file.problem.code in _FINAL or file.is_final):
            raise NotMeasured(file.problem.reason)


def _kind_instead(path: Path) -> InsteadOfFile | None:
    """Return the kind of entry at a path where a recording was expected; None for a file, and if nothing is there."""
    if is_special(path):
        return InsteadOfFile.SPECIAL
    try:
        path.stat()
    except OSError as error:
        if error.errno == errno.ELOOP:
            return InsteadOfFile.LOOP
    return None


def _too_many(files: Sequence[LeftRecording], wanted: int) -> NotMeasured:
    return NotMeasured(TooManyRecordings(len(files), wanted, tuple(file.name for file in files)))


def _too_few(
    files: Sequence[LeftRecording], others: Sequence[str], wanted: object, after_s: float | None
) -> NotMeasured:
    if files:
        return NotMeasured(TooFewRecordings(str(wanted), after_s, tuple(file.name for file in files)))
    return NotMeasured(NoRecordingLeft(after_s, tuple(others)))


def _why_unfinished(file: _Candidate | Path, after_s: float | None) -> Reason:
    if not isinstance(file, _Candidate):
        return StillUnnamed(file.name, after_s)
    if file.problem is None or file.problem.code == Code.RECORDING_CUT_OFF or not file.stamp[0]:
        return StillIncomplete(file.name, after_s)
    return file.problem.reason


def why_stale(file: LeftRecording, began_ns: int) -> Reason | None:
    """Return the reason if a recording is older than the call that was to make it (ns since the epoch); else None."""
    if file.written_ns < began_ns:
        return WrittenBefore(file.name, (began_ns - file.written_ns) / 1e9)
    ended_ns = _ended_ns(file.trace)
    if ended_ns is not None and ended_ns < began_ns - _CLOCKS_DIFFER_NS:
        return CopiedRecording(file.name, (began_ns - ended_ns) / 1e9)
    return None


def _ended_ns(trace: Trace) -> int | None:
    """Return when the last event ended, in ns since the epoch; None where the time stamps do not say."""
    base = trace.header.get("baseTimeNanoseconds")
    parts = (trace.ops, trace.annotations, trace.calls, trace.gpu)
    last = max((max(part.end) for part in parts if len(part)), default=0)
    # Files without a base have times since the epoch themselves, or those of another clock.
    ended = last + (base if isinstance(base, int) else 0)
    return ended if _EPOCH_NS[0] < ended < _EPOCH_NS[1] else None


class JobMember(NamedTuple):
    """Which process of a job a recording says that it is of; None for what it does not say."""

    rank: int | None
    world: int | None
    session: str | None
    """The recording's own id."""


def _member_of_job(trace: Trace) -> JobMember:
    rank, world = rank_and_size(trace) or (None, None)
    session = trace.header.get("trace_id")
    return JobMember(rank, world, str(session) if session else None)


def why_mixed(files: Sequence[LeftRecording]) -> Reason | None:
    """Return why the recordings are not those of one job, or which of them is there twice; None if they are fine."""
    members = {file.name: _member_of_job(file.trace) for file in files}
    silent = [name for name, member in members.items() if member.rank is None]
    if silent and len(silent) < len(members):
        return OneTellsNoRank(silent[0], next(name for name in members if name not in silent))
    if len({member.world for member in members.values()}) > 1:
        return DifferentJobSizes(tuple((name, member.world) for name, member in members.items()))
    ranks = {name: member.rank for name, member in members.items() if member.rank is not None}
    if twice := _twice(ranks):
        return RankTwice(tuple(twice), ranks[twice[0]])
    if twice := _twice({name: member.session for name, member in members.items()}):
        return RecordingTwice(tuple(twice))
    return None


def _twice(values: Mapping[str, object]) -> list[str]:
    """Return the names that share a value, for the first value that several have."""
    counts = Counter(value for value in values.values() if value is not None)
    value = next((value for value, count in counts.items() if count > 1), None)
    return [] if value is None else [name for name, own in values.items() if own == value]


def numbers_of(files: Sequence[LeftRecording]) -> tuple[int, ...]:
    """Return the numbers of the recordings: their ranks, where each says its own, else their order by name."""
    ranks = [_member_of_job(file.trace).rank for file in files]
    numbers = [rank for rank in ranks if rank is not None and rank >= 0]
    return tuple(numbers) if len(numbers) == len(files) else tuple(range(len(files)))
