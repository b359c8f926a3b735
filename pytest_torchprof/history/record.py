"""The record of a run: one JSON file, written once, that holds data and no sentences."""

from __future__ import annotations

import hashlib
from contextlib import contextmanager, suppress
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType
from msgspec.structs import replace

from pytest_torchprof.baseline.entry import Times  # noqa: TC001 - msgspec reads the annotations
from pytest_torchprof.history.contradictions import Contradiction, refuse_keys_twice, refuse_measurements, refuse_run
from pytest_torchprof.history.launched import LaunchRecord  # noqa: TC001 - msgspec reads the annotations
from pytest_torchprof.history.packing import NotPacked, first_member, packed, unpacked_whole
from pytest_torchprof.history.reported import ReportedRun  # noqa: TC001 - msgspec reads the annotations
from pytest_torchprof.reasons.codes import Code
from pytest_torchprof.reasons.contradictions import OtherTimesCount, PartMissing, PartOfRecord, StructureTwice
from pytest_torchprof.reasons.errors import TorchprofError
from pytest_torchprof.reasons.records import LaterRecord, NoRecordOfRun, OfRecord
from pytest_torchprof.recording.text import inflated_beginning
from pytest_torchprof.report.outcome import BaselineState, Outcome  # noqa: TC001 - msgspec reads the annotations
from pytest_torchprof.trace.metadata import Environment  # noqa: TC001 - msgspec reads the annotations

if TYPE_CHECKING:
    from collections.abc import Container, Iterator
    from pathlib import Path
    from typing import Self

    from pytest_torchprof.reasons.reason import Reason

SCHEMA: Final = 1
SUFFIX: Final = ".run.json.gz"
MOST_MEASUREMENTS: Final = 20_000
Uuid = Annotated[str, Meta(pattern=r"^[0-9a-f]{32}$")]
Sha = Annotated[str, Meta(pattern=r"^[0-9a-f]{40}([0-9a-f]{24})?$")]
"""The full hash of a commit."""
Moment = Annotated[datetime, Meta(tz=True)]
Name = Annotated[str, Meta(min_length=1)]
Count = Annotated[float, Meta(ge=0, multiple_of=1)]
"""A whole number, which JSON may write as 5 or 5.0."""


class Event(StrEnum):
    """The event that started a run."""

    PUSH = "push"
    PR = "pr"
    SCHEDULE = "schedule"
    LOCAL = "local"
    """Somebody, on a machine that is no CI service's."""
    OTHER = "other"
    """A CI service, for another reason or one that it does not tell."""


class CiJob(Struct, frozen=True, kw_only=True):
    """The job of a CI service; ids as it has them."""

    provider: str
    run: str | None = None
    attempt: str | None = None
    job: str | None = None


class CommitRecord(Struct, frozen=True, kw_only=True):
    """The commit whose code was measured, with what came before it."""

    project: str | None
    """The address of the remote "origin" without protocol, user and ``.git``; None without one."""
    folder: str
    """Where pytest's root directory lies below the repository's; empty where they are the same."""
    sha: Sha
    parents: tuple[Sha, ...]
    date: Moment
    """When it was committed."""
    ancestors: tuple[Sha, ...]
    """Its first parent, that one's first parent, and so on, as far as the clone has them: 200 at most."""
    shallow: bool
    branch: Name | None
    dirty: bool
    """Whether the working tree had changes that were not committed."""


class MachineRecord(Struct, frozen=True, kw_only=True):
    """The hardware and driver, on which times depend besides the code; no host name."""

    digest: str
    gpu: str | None = None
    cpu: str | None = None
    driver: str | None = None


class KernelCount(Struct, frozen=True, array_like=True):
    """How often a step launches the kernels of one name."""

    name: str
    count: Annotated[int, Meta(ge=0)]


class StructureRecord(Struct, frozen=True, array_like=True):
    """The kernels that a structure launches, by their number, the most frequent first."""

    name: str
    """A hash of the kernels in launch order."""
    kernels: tuple[KernelCount, ...]


class MeasurementRecord(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The facts of one measurement that the code decides: the same in the next run if nothing has changed."""

    test: Name
    """pytest's node id."""
    label: str | None = None
    rank: int | None = None
    ranks: int | None = None
    """In a job of how many ranks it ran; None alone."""
    device: str = "auto"
    """As it was asked for."""
    outcome: Outcome
    code: str | None = None
    """Why it was not measured."""
    source: str | None = None
    """A hash of the test's source."""
    environment: int | None = None
    """Which of the run's environments it had; None if nothing was recorded."""
    structure: str | None = None
    """Which of the run's structures it launched."""
    counts: dict[str, Count] = {}
    """The exact numbers of the worst step, without those that are not known; empty if it was not judged."""

    @property
    def key(self) -> tuple[str, str | None, int | None, str]:
        """The key of a measurement in its run: its test, label, rank and device."""
        return self.test, self.label, self.rank, self.device


class VaryingRecord(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The figures of one measurement that vary from run to run."""

    numbers: dict[str, float] = {}
    """Times in microseconds, shares and sizes, without those that are not known."""
    time: Times | None = None
    """The untraced time, where the test asked for it."""
    compile_us: dict[str, int] = {}
    """How long torch.compile took in each phase, without the phases inside it; only those that torch has measured."""
    baseline: BaselineState | None = None
    findings: tuple[str, ...] = ()
    """The codes of what stands out."""
    launched: int | None = None
    """Which of the run's launch orders its steps have."""
    also: dict[str, float] = {}
    """The varying figures that a baseline keeps besides the numbers, as times by the kernels' families."""
    samples_hardware: bool = False
    """Whether the GPU's units were sampled too, at locked clocks."""


class AllTests(Struct, frozen=True, kw_only=True):
    """The project's tests as known to a run that left none out: any other test is gone."""

    below: tuple[str, ...]
    """The folders and files of which all tests were selected, as node ids name them; "" is the root directory."""
    unmeasured: tuple[str, ...] = ()
    """The tests that were to be measured and left nothing behind: skipped, or failed too early."""

    def covers(self, test: str) -> bool:
        """Return whether a test stands where all were selected."""
        file = test.partition("::")[0]
        return any(own in ("", file) or file.startswith(f"{own}/") for own in self.below)


class RunHead(Struct, frozen=True, kw_only=True):
    """The run itself: its time, its commit, its machine."""

    schema: int = SCHEMA
    uuid: Uuid
    version: str
    """pytest-torchprof's."""
    began: Moment
    ended: Moment
    complete: bool
    """Whether all selected tests ran: nobody stopped it."""
    all_tests: AllTests | None = None
    """None if tests may have been left out, or if that is not known, as to earlier versions."""
    suite: bool = False
    """Whether rules of a suite measured tests that do not ask for it themselves."""
    event: Event
    ci: CiJob | None = None
    commit: CommitRecord | None = None
    """None outside a working tree of git."""
    machine: MachineRecord
    environments: tuple[Environment, ...] = ()


class RunRecord(RunHead, frozen=True, kw_only=True):
    """The measurements of a run of pytest, and its code: the one value that its reports and all exports are made from.

    What the code decides stands apart from what varies, so that a reader of many runs need not read again what it has
    read of the run before.
    """

    measurements: Annotated[tuple[MeasurementRecord, ...], Meta(max_length=MOST_MEASUREMENTS)] = ()
    structures: tuple[StructureRecord, ...] = ()
    varying: tuple[VaryingRecord, ...] = ()
    """One for each of the measurements."""
    launched: LaunchRecord | UnsetType = UNSET
    """The launches that later runs are compared with; earlier versions did not record them."""
    reported: ReportedRun | UnsetType = UNSET
    """The results that its reports tell besides; last, since a reader of many runs has no use for them."""


Head = TypeVar("Head", bound=RunHead)


class BadRecord(TorchprofError):
    """A file that is no record of a run, or one that may not be believed; the error's text names the file."""

    code = Code.BAD_RECORD
    uuid: str | None = None
    """Under which id a database keeps it."""
    taken_anyway: bool = False
    """Whether a history takes it that does not ask for its project."""

    @classmethod
    def of(cls, name: str, why: Reason) -> Self:
        """Return the error of a record that is called so."""
        return cls.because(OfRecord(name, why))

    def kept_as(self, uuid: str) -> BadRecord:
        """Say under which id a database keeps the record; return the error."""
        self.uuid = uuid
        return self

    def unless_anyway(self) -> BadRecord:
        """Say that a history takes the record where its project is not asked for; return the error."""
        self.taken_anyway = True
        return self


class NewerRecord(BadRecord):
    """A record that a newer version has written: nothing is wrong with it."""


@contextmanager
def _naming(name: str) -> Iterator[None]:
    """Raise BadRecord, which names the file, for what is wrong with its content."""
    try:
        yield
    except (Contradiction, NotPacked) as problem:
        raise BadRecord.of(name, problem.why) from None


_ENCODER: Final = msgspec.json.Encoder(enc_hook=str)
_DECODER: Final = msgspec.json.Decoder(RunRecord)
_HEAD_DECODER: Final = msgspec.json.Decoder(RunHead)
_LONGEST_HEAD: Final = 1 << 20
_HEAD_AT_ONCE: Final = 6 << 10
"""How much of a record is unpacked before its head is looked for: most heads are shorter."""
BEGINNING_BYTES: Final = 32 << 10
"""How much of a record holds its head, as most do."""


def encode(record: RunRecord) -> bytes:
    """Return the content of a record's file: the same for the same record."""
    if record.reported is UNSET:
        return packed(_ENCODER.encode(record))
    # In a member of its own: readers of many runs unpack the first one only.
    figures = _ENCODER.encode(replace(record, reported=UNSET)).removesuffix(b"}")
    return packed(figures) + packed(b',"reported":' + _ENCODER.encode(record.reported) + b"}")


def as_written(record: RunRecord) -> RunRecord:
    """Return a record that JSON can hold: a lone surrogate, as of a branch whose name is no UTF-8, is written out."""
    try:
        _ENCODER.encode(record)
    except UnicodeEncodeError:
        return msgspec.convert(_with_whole_text(msgspec.to_builtins(record, enc_hook=str)), RunRecord)
    return record


def _with_whole_text(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode(errors="backslashreplace").decode()
    if isinstance(value, dict):
        return {_with_whole_text(name): _with_whole_text(held) for name, held in value.items()}
    return [_with_whole_text(held) for held in value] if isinstance(value, list | tuple) else value


def digest_of(record: RunRecord) -> str:
    """Return a hash of what a record holds, however it was packed and written."""
    # A number that a run has as 5 is 5.0 once it was read.
    as_read = _DECODER.decode(_ENCODER.encode(record))
    return hashlib.sha256(_ENCODER.encode(as_read)).hexdigest()


def decode(data: bytes, name: str) -> RunRecord:
    """Return the record in a file's content; BadRecord, which names the file, if there is none."""
    content = unpacked(data, name)
    record = parsed(_DECODER, content, name)
    if len(record.varying) != len(record.measurements):
        raise other_number_of_times(len(record.measurements), len(record.varying), name)
    structures = {structure.name for structure in record.structures}
    if len(structures) < len(record.structures):
        raise structure_twice(name)
    with _naming(name):
        refuse_keys_twice(content)
        refuse_measurements(record)
    orders = 0 if record.launched is UNSET else len(record.launched.orders)
    for measured, varying in zip(record.measurements, record.varying, strict=True):
        refuse_unknown_parts(measured, len(record.environments), structures, name)
        if varying.launched is not None and not 0 <= varying.launched < orders:
            raise BadRecord.of(name, PartMissing(measured.test, PartOfRecord.LAUNCH_ORDER))
    return record


def read(path: Path) -> RunRecord:
    """Return the record in a file; BadRecord if it has none, OSError if it cannot be read."""
    return decode(path.read_bytes(), str(path))


def unpacked(data: bytes, name: str) -> bytes:
    """Return the JSON in a file's content; BadRecord if it cannot be unpacked."""
    with _naming(name):
        return unpacked_whole(data)


def unpacked_figures(data: bytes, name: str) -> bytes:
    """Return the JSON in a file's content without what only reports tell; BadRecord if it cannot be unpacked."""
    with _naming(name):
        figures, behind = first_member(data)
    return figures + b"}" if behind else figures


def parsed(decoder: msgspec.json.Decoder[Head], content: bytes, name: str) -> Head:
    """Return a record's decoded JSON; BadRecord if it is no record, one of a later schema, or of no possible run."""
    record = _decoded(decoder, content, name)
    with _naming(name):
        refuse_run(record)
    return record


def _decoded(decoder: msgspec.json.Decoder[Head], content: bytes, name: str) -> Head:
    try:
        record = decoder.decode(content)
        _refuse_newer(record.schema, name)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        # What is of a later schema may have any other form besides.
        with suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            _refuse_newer(_SCHEMA_DECODER.decode(content).schema, name)
        raise BadRecord.of(name, NoRecordOfRun(str(error))) from None
    return record


def read_head(data: bytes, name: str) -> RunHead:
    """Return which run a record is of, without reading what it has measured; BadRecord as `decode` raises it."""
    head = head_in(data, name)
    return parsed(_HEAD_DECODER, unpacked(data, name), name) if head is None else head


def head_in(beginning: bytes, name: str, decoder: msgspec.json.Decoder[Any] | None = None) -> RunHead | None:
    """Return which run a record is of, as far as the beginning of its content tells; None where it does not.

    ``decoder``: of heads that are known to be right. BadRecord as `decode` raises it.
    """
    text = b""
    for piece in inflated_beginning(beginning, _HEAD_AT_ONCE):
        text += piece
        # No text of JSON holds a quotation mark by itself.
        head, behind, _ = text.partition(b',"measurements":[')
        if behind:
            if decoder is None:
                return parsed(_HEAD_DECODER, head + b"}", name)
            known: RunHead = _decoded(decoder, head + b"}", name)
            return known
        if len(text) >= _LONGEST_HEAD:
            break
    return None


def _refuse_newer(schema: int, name: str) -> None:
    if schema > SCHEMA:
        raise NewerRecord.of(name, LaterRecord(schema))


def other_number_of_times(measurements: int, varying: int, name: str) -> BadRecord:
    """Return the refusal of a record that has not one row of what varies for each measurement."""
    return BadRecord.of(name, OtherTimesCount(measurements, varying))


def refuse_unknown_parts(measured: MeasurementRecord, environments: int, structures: Container[str], name: str) -> None:
    """Raise BadRecord if a measurement names an environment or a structure that its record does not have."""
    if measured.environment is not None and not 0 <= measured.environment < environments:
        raise BadRecord.of(name, PartMissing(measured.test, PartOfRecord.ENVIRONMENT))
    if measured.structure is not None and measured.structure not in structures:
        raise BadRecord.of(name, PartMissing(measured.test, PartOfRecord.STRUCTURE))


def structure_twice(name: str) -> BadRecord:
    """Return the refusal of a record in which the launches of a structure are not known."""
    return BadRecord.of(name, StructureTwice())


class _OnlySchema(Struct):
    schema: int


_SCHEMA_DECODER: Final = msgspec.json.Decoder(_OnlySchema)
