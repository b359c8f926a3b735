"""The folder of a run: its list, the parts that any number of drivers add, and the files that sum them up."""

from __future__ import annotations

import hashlib
import re
import uuid
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from pytest_torchprof.fleet.bucket import Bucket
from pytest_torchprof.fleet.jobs import GatheredJobs, JobRecord, judged
from pytest_torchprof.fleet.judging import FileRecord, FileTask
from pytest_torchprof.fleet.listed import Listed, from_root
from pytest_torchprof.fleet.origin import ListOrigin  # noqa: TC001 - msgspec reads the annotations
from pytest_torchprof.fleet.records import Records, RecordSpan, read_line, spans_in
from pytest_torchprof.fleet.rules import FleetRule, question_of
from pytest_torchprof.fleet.run_files import LIST, PARTS, SUMMARY
from pytest_torchprof.fleet.summary import FleetSummary, summed
from pytest_torchprof.reasons.errors import TorchprofError
from pytest_torchprof.reasons.fleet_folders import FleetNotWritten, ListNotRead, NoFolderOfFleet, OtherListSchema
from pytest_torchprof.system.remote.addresses import is_remote, without_local_protocol
from pytest_torchprof.system.replacing import creating, replacing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

SCHEMA: Final = 1
_PART: Final = ".part.jsonl"
RECORDS: Final = "records.jsonl"
JOBS: Final = "jobs.jsonl"


class FrozenList(Struct, frozen=True, kw_only=True):
    """The files and limits of a run: written once, before anything is judged."""

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


class _SchemaOfList(Struct, frozen=True):
    schema: int = SCHEMA


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
        with self._written(has_begun=frozen is None):
            (self.path / PARTS).mkdir(parents=True, exist_ok=True)
            if frozen is not None and self.bucket is not None:
                self.bucket.put_once(LIST, msgspec.json.encode(frozen))
                # Another command may have been first.
                self.bucket.fetch(LIST, self.path / LIST)
            elif frozen is not None:
                with suppress(FileExistsError), creating(self.path / LIST) as unfinished:
                    unfinished.write_bytes(msgspec.json.encode(frozen))
            return self.frozen()

    def frozen(self) -> FrozenList:
        """Return the list of the run; TorchprofError where there is none."""
        if not self.has_list:
            raise TorchprofError.because(NoFolderOfFleet(self.shown, LIST))
        try:
            content = (self.path / LIST).read_bytes()
            schema = msgspec.json.decode(content, type=_SchemaOfList).schema
            if schema != SCHEMA:
                raise TorchprofError.because(OtherListSchema(self.file(LIST), schema, SCHEMA))
            return msgspec.json.decode(content, type=FrozenList)
        except (msgspec.DecodeError, UnicodeDecodeError) as problem:
            raise TorchprofError.because(ListNotRead(self.file(LIST), str(problem))) from None

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
        spans: dict[str, RecordSpan] = {}
        for part in (self.path / PARTS / name for name in self.parts()):
            try:
                with part.open("rb") as file:
                    own = list(spans_in(part.name, file))
            except (OSError, msgspec.DecodeError, UnicodeDecodeError) as problem:
                note(f"{part}: cannot be read, and its files are judged again: {problem}")
                continue
            for key, span in own:
                before = spans.get(key)
                # Two drivers may both have judged it, one of them in a bad moment.
                if before is None or self._rank(span) < self._rank(before):
                    spans[key] = span
        return Records(path=self.path / PARTS, spans=spans)

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

    def _rank(self, span: RecordSpan) -> tuple[bool, int, bytes]:
        with (self.path / PARTS / span.part).open("rb") as file:
            return span.is_quarantined, -retry_of(span.part), read_line(file, span)

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

    def _written(self, *, has_begun: bool = True) -> _Written:
        return _Written(self.path, has_begun=has_begun)


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

    def __init__(self, path: Path, *, has_begun: bool) -> None:
        self._path, self._has_begun = path, has_begun

    def __enter__(self) -> None:
        """Nothing is to be done."""

    def __exit__(self, kind: type[BaseException] | None, problem: BaseException | None, _: object) -> None:
        """Raise our own error; once a run has begun, what was judged stays, and the same command goes on from there."""
        if isinstance(problem, OSError):
            error = str(problem.strerror or problem)
            raise TorchprofError.because(FleetNotWritten(str(self._path), error, self._has_begun)) from None
