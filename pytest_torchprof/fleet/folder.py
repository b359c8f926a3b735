"""The folder of a run: the list, the parts that any number of drivers add, and what they come to together."""

from __future__ import annotations

import hashlib
import os
import re
import uuid
from collections import Counter
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, BinaryIO, Final, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from pytest_torchprof.analysis.ranks import RankPart  # noqa: TC001 - msgspec reads the annotations
from pytest_torchprof.fleet.bucket import Bucket
from pytest_torchprof.fleet.jobs import GatheredJobs, JobRecord, JobsSummary, jobs_summed, judged_job
from pytest_torchprof.fleet.judging import FileRecord, FileTask
from pytest_torchprof.fleet.origin import ListOrigin  # noqa: TC001 - msgspec reads the annotations
from pytest_torchprof.fleet.rules import FleetRule, question_of
from pytest_torchprof.fleet.sources import LIST, PARTS, SUMMARY, Listed, from_root
from pytest_torchprof.limits import MISSED
from pytest_torchprof.reasons.codes import Code
from pytest_torchprof.reasons.errors import TorchprofError
from pytest_torchprof.report.outcome import Outcome
from pytest_torchprof.system.remote.addresses import is_remote, without_local_protocol
from pytest_torchprof.system.replacing import replacing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

_Kind = TypeVar("_Kind")
SCHEMA: Final = 1
_PART: Final = ".part.jsonl"
RECORDS: Final = "records.jsonl"
JOBS: Final = "jobs.jsonl"


class FrozenList(Struct, frozen=True, kw_only=True):
    """What a run judges, and by what: written once, before anything is judged."""

    schema: int = SCHEMA
    version: str
    """pytest-torchprof's."""
    sources: tuple[str, ...]
    limits: tuple[str, ...]
    rules: tuple[FleetRule, ...]
    files: tuple[Listed, ...]
    origin: ListOrigin | None = None
    """When and of which commit it was made; None in lists of earlier versions."""

    def tasks(self) -> Iterator[FileTask]:
        """Yield the tasks of the list in its order."""
        for file in self.files:
            question = question_of(file, self.rules, self.limits)
            whole = msgspec.json.encode((self.version, file, question), order="deterministic")
            yield FileTask(key=hashlib.sha256(whole).hexdigest()[:32], file=file, question=question)


class FleetSummary(Struct, frozen=True, kw_only=True):
    """The results of all files in numbers: the same for the same list, however it was judged."""

    schema: int = SCHEMA
    version: str
    listed: int
    judged: int
    not_measured: int
    quarantined: int
    hold: int
    """Judged by limits, all of which hold."""
    missed: int
    without_limits: int
    """Judged, and nothing was asked of them: figures and findings."""
    limits_missed: dict[str, int]
    """In how many files each limit was missed."""
    findings: dict[str, int]
    """How many files have each finding."""
    not_measured_because: dict[str, int]
    """By code."""
    quarantined_because: dict[str, int]
    jobs: JobsSummary = JobsSummary()
    """Those whose ranks are among the files."""


class _LinePlace(Struct, frozen=True, array_like=True):
    """Where a record lies."""

    is_quarantined: bool
    part: str
    at: int
    length: int


class _KeyInLine(Struct, frozen=True):
    key: str
    quarantined: dict[str, Any] | None = None


class _PartInLine(Struct, frozen=True):
    part: RankPart | None = None


class FleetFolder(Struct, frozen=True):
    """The folder of a run."""

    path: Path
    """On this machine."""
    bucket: Bucket | None = None
    """Where it lies if that is elsewhere; the path then holds copies, as far as they were asked for."""
    writer: str = ""
    """Whose parts are added: a shard's, or those of another try; empty for all others."""

    @property
    def shown(self) -> str:
        """The folder as people read it."""
        return str(self.path) if self.bucket is None else self.bucket.shown

    def file(self, name: str) -> str:
        """Return the path or address of one of its files, as people read it."""
        return str(self.path / name) if self.bucket is None else f"{self.bucket.shown}/{name}"

    @property
    def has_list(self) -> bool:
        """Whether a run has begun there; TorchprofError if that cannot be decided."""
        if self.bucket is not None and not (self.path / LIST).exists():
            return self.bucket.fetch(LIST, self.path / LIST)
        return (self.path / LIST).exists()

    def freeze(self, made: Callable[[], FrozenList]) -> FrozenList:
        """Return the list of the run, which is made and kept if there is none yet."""
        frozen = None if self.has_list else made()
        with self._written():
            (self.path / PARTS).mkdir(parents=True, exist_ok=True)
            if frozen is not None and self.bucket is not None:
                self.bucket.put_once(LIST, msgspec.json.encode(frozen))
                # Another command may have been first.
                self.bucket.fetch(LIST, self.path / LIST)
            elif frozen is not None:
                with suppress(FileExistsError):
                    _write_once(self.path / LIST, msgspec.json.encode(frozen))
            return self.frozen()

    def frozen(self) -> FrozenList:
        """Return the list of the run; TorchprofError where there is none."""
        if not self.has_list:
            text = f"{self.shown}: is no folder of a fleet: it has no {LIST}; torchprof fleet run --into makes one"
            raise TorchprofError(text, Code.BAD_RECORD)
        try:
            content = (self.path / LIST).read_bytes()
            return msgspec.json.decode(content, type=FrozenList)
        except (msgspec.DecodeError, UnicodeDecodeError) as problem:
            text = f"{self.file(LIST)}: is no list of a fleet that this version reads: {problem}. Name another folder."
            raise TorchprofError(text, Code.BAD_RECORD) from None

    def add(self, lines: Iterable[bytes]) -> None:
        """Keep records as a part of its own; TorchprofError if it cannot be written."""
        part = self.path / PARTS / f"{self.writer}{'-' if self.writer else ''}{uuid.uuid4().hex}{_PART}"
        with self._written(), replacing(part, lasting=True) as unfinished:
            unfinished.write_bytes(b"".join(line + b"\n" for line in lines))
        if self.bucket is not None:
            self.bucket.put(f"{PARTS}/{part.name}", part)

    def parts(self) -> list[str]:
        """Return the names of the parts that are there."""
        return sorted(part.name for part in (self.path / PARTS).glob(f"*{_PART}"))

    def known(self, note: Callable[[str], None]) -> Records:
        """Return where the records of the run lie; ``note`` gets a sentence about each part that cannot be read."""
        if self.bucket is not None:
            self._copy_parts(self.bucket)
        places: dict[str, _LinePlace] = {}
        for part in (self.path / PARTS / name for name in self.parts()):
            try:
                with part.open("rb") as file:
                    own = list(_places(part.name, file))
            except (OSError, msgspec.DecodeError, UnicodeDecodeError) as problem:
                note(f"{part}: cannot be read, and its files are judged again: {problem}")
                continue
            for key, place in own:
                before = places.get(key)
                # Two drivers may both have judged it, one of them in a bad moment.
                if before is None or self._rank(place) < self._rank(before):
                    places[key] = place
        return Records(path=self.path / PARTS, places=places)

    def _copy_parts(self, bucket: Bucket) -> None:
        there = set(bucket.names(PARTS))
        with self._written():
            (self.path / PARTS).mkdir(exist_ok=True)
            for name in sorted(there):
                part = self.path / PARTS / name
                # A part is never changed.
                if name.endswith(_PART) and not part.exists():
                    with replacing(part) as unfinished:
                        bucket.fetch(f"{PARTS}/{name}", unfinished)

    def _rank(self, place: _LinePlace) -> tuple[bool, int, bytes]:
        with (self.path / PARTS / place.part).open("rb") as file:
            return place.is_quarantined, -retry_of(place.part), _read(file, place)

    def sum_up(
        self,
        frozen: FrozenList,
        records: Records,
        see: Callable[[FileRecord], None],
        see_job: Callable[[JobRecord], None],
    ) -> FleetSummary:
        """Write all records in the list's order, those of jobs and the summary, and return the summary.

        ``see`` is called with each file's, ``see_job`` with each job's. TorchprofError if they cannot be written.
        """
        jobs = GatheredJobs()
        with self._written():
            with replacing(self.path / RECORDS, lasting=True) as unfinished, unfinished.open("wb") as file:
                each = records.each((task.key for task in frozen.tasks()), see, file)
                summary = summed(frozen.version, jobs.gather(each, frozen.tasks()))
            with replacing(self.path / JOBS, lasting=True) as unfinished, unfinished.open("wb") as file:
                summary = replace(summary, jobs=judged(jobs, records, see_job, file))
            with replacing(self.path / SUMMARY, lasting=True) as unfinished:
                unfinished.write_bytes(msgspec.json.format(msgspec.json.encode(summary), indent=1) + b"\n")
        if self.bucket is not None:
            for name in (RECORDS, JOBS, SUMMARY):
                self.bucket.put(name, self.path / name)
        return summary

    def _written(self) -> _Written:
        return _Written(self.path)


@contextmanager
def folder_of_run(into: str, retries: int, writer: str = "") -> Iterator[FleetFolder]:
    """Yield the folder that a path or an address means; TorchprofError for one that no run can be written to."""
    if not is_remote(into):
        yield FleetFolder(from_root(without_local_protocol(into)), writer=writer)
        return
    bucket = Bucket(into.rstrip("/"), retries)
    bucket.refuse_unusable()
    with TemporaryDirectory(prefix="torchprof-") as copies:
        yield FleetFolder(Path(copies), bucket, writer)


def retry_of(part: str) -> int:
    """Return the number of the retry that has written a part; 0 for the run itself."""
    match = _RETRY.match(part)
    return int(match[1]) if match else 0


_RETRY: Final = re.compile(r"retry(\d+)-")


class _Written:
    """Turns an error in writing into our own."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> None:
        """Nothing is to be done."""

    def __exit__(self, kind: type[BaseException] | None, problem: BaseException | None, _: object) -> None:
        """Raise our own error; what has been written so far stays, and the same command goes on from there."""
        if isinstance(problem, OSError):
            text = (
                f"{self._path}: cannot be written: {problem.strerror or problem}. What was judged so far stays; the "
                "same command goes on from there."
            )
            raise TorchprofError(text, Code.REPORT_NOT_WRITTEN) from None


class Records(Struct, frozen=True, kw_only=True):
    """Where the records of a run lie."""

    path: Path
    places: dict[str, _LinePlace]

    def each(
        self, keys: Iterable[str], see: Callable[[FileRecord], None], copied: BinaryIO | None = None
    ) -> Iterator[FileRecord]:
        """Yield the records of these keys, after ``see`` was called with each; their lines are ``copied`` to a file."""
        for line in self.lines(keys):
            if copied is not None:
                copied.write(line + b"\n")
            record = self.decoded(line, FileRecord)
            see(record)
            yield record

    def parts(self, keys: Iterable[str]) -> Iterator[RankPart]:
        """Yield what the files of these keys have kept of their ranks."""
        for line in self.lines(keys):
            part = self.decoded(line, _PartInLine).part
            if part is not None:
                yield part

    def decoded(self, line: bytes, kind: type[_Kind]) -> _Kind:
        """Return a record; TorchprofError for one that was damaged, although it still is JSON."""
        try:
            return msgspec.json.decode(line, type=kind)
        except msgspec.DecodeError as problem:
            part = self.path / self.places[msgspec.json.decode(line, type=_KeyInLine).key].part
            text = f"{part}: a record in it cannot be read: {problem}."
            remedy = "Remove this part, and torchprof fleet run judges its files again."
            raise TorchprofError(f"{text} {remedy}", Code.BAD_RECORD) from None

    def lines(self, keys: Iterable[str]) -> Iterator[bytes]:
        """Yield the records of these keys, encoded."""
        opened: dict[str, BinaryIO] = {}
        with ExitStack() as stack:
            for key in keys:
                place = self.places[key]
                if place.part not in opened:
                    if len(opened) >= _MOST_OPEN:
                        stack.close()
                        opened.clear()
                    opened[place.part] = stack.enter_context((self.path / place.part).open("rb"))
                yield _read(opened[place.part], place)


_MOST_OPEN: Final = 200


class FleetTally:
    """Counts what records come to, one after the other."""

    def __init__(self, version: str) -> None:
        self.version = version
        self._outcomes: Counter[str] = Counter()
        self._missed: Counter[str] = Counter()
        self._findings: Counter[str] = Counter()
        self._unmeasured: Counter[str] = Counter()
        self._apart: Counter[str] = Counter()

    def see(self, record: FileRecord) -> None:
        """Count a record."""
        result = record.result
        if result is None:
            self._apart[_code(record.quarantined.code if record.quarantined else None)] += 1
            return
        self._outcomes[result.outcome] += 1
        self._missed.update({verdict.limit for verdict in result.limits if verdict.status == MISSED})
        self._findings.update({finding.code for finding in result.findings})
        if result.outcome is Outcome.NOT_MEASURED:
            self._unmeasured[_code(result.reason.code if result.reason else None)] += 1

    def summary(self) -> FleetSummary:
        """Return the summary of the records that were counted."""
        judged = [self._outcomes[outcome] for outcome in (Outcome.PASSED, Outcome.FAILED, Outcome.RECORDED)]
        return FleetSummary(
            version=self.version,
            listed=self._outcomes.total() + self._apart.total(),
            judged=sum(judged),
            not_measured=self._outcomes[Outcome.NOT_MEASURED],
            quarantined=self._apart.total(),
            hold=judged[0],
            missed=judged[1],
            without_limits=judged[2],
            limits_missed=dict(sorted(self._missed.items())),
            findings=dict(sorted(self._findings.items())),
            not_measured_because=dict(sorted(self._unmeasured.items())),
            quarantined_because=dict(sorted(self._apart.items())),
        )


def summed(version: str, records: Iterable[FileRecord]) -> FleetSummary:
    """Return the summary of records, which are read once."""
    tally = FleetTally(version)
    for record in records:
        tally.see(record)
    return tally.summary()


def judged(
    jobs: GatheredJobs, records: Records, see: Callable[[JobRecord], None], copied: BinaryIO | None = None
) -> JobsSummary:
    """Judge the jobs one after the other, call ``see`` with each, and return their summary."""
    outcomes: Counter[Outcome] = Counter()
    for name, files in jobs.each():
        record = judged_job(name, files, records.parts(file.key for file in files))
        if copied is not None:
            copied.write(msgspec.json.encode(record, enc_hook=str) + b"\n")
        outcomes[record.outcome] += 1
        see(record)
    return jobs_summed(outcomes)


def _code(code: str | None) -> str:
    return str(code or Code.NOT_MEASURED)


def _places(part: str, file: BinaryIO) -> Iterator[tuple[str, _LinePlace]]:
    at = 0
    for line in file:
        own = msgspec.json.decode(line, type=_KeyInLine)
        yield own.key, _LinePlace(own.quarantined is not None, part, at, len(line))
        at += len(line)


def _read(file: BinaryIO, place: _LinePlace) -> bytes:
    file.seek(place.at)
    return file.read(place.length).rstrip(b"\n")


def _write_once(path: Path, content: bytes) -> None:
    """Write a file that appears whole; FileExistsError where another process was first."""
    unfinished = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
    try:
        with unfinished.open("wb") as file:
            file.write(content)
            file.flush()
            # Not even a power cut leaves a name without the content.
            os.fsync(file.fileno())
        try:
            os.link(unfinished, path)
        except FileExistsError:
            raise
        except OSError:  # A file system without hard links: whoever comes last is the one whose list all read.
            unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)
