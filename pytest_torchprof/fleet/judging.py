"""The result of one file: the one function of a fleet, which needs nothing but the file."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from pytest_torchprof.analysis.rank_parts import part_of, rank_and_size
from pytest_torchprof.analysis.ranks import RankPart  # noqa: TC001 - msgspec reads the annotations
from pytest_torchprof.analysis.tables import rows_by
from pytest_torchprof.baseline.entry import structure_hash, times_of
from pytest_torchprof.fleet.at_hand import NotFetched, at_hand, is_same
from pytest_torchprof.fleet.listed import Listed  # noqa: TC001 - msgspec reads the annotations
from pytest_torchprof.fleet.rules import Question, asked_of
from pytest_torchprof.limits import HOLDS, MISSED, check_limits
from pytest_torchprof.limits.rank_limits import divided_among_ranks
from pytest_torchprof.profiles import Profile, load_file
from pytest_torchprof.reasons import decoding  # noqa: TC001 - msgspec reads the annotations
from pytest_torchprof.reasons.decoding import portable
from pytest_torchprof.reasons.errors import TorchprofError, UnreadableRecording, describe
from pytest_torchprof.reasons.fleet import ChangedSinceListed, JudgingFailed
from pytest_torchprof.reasons.recordings import Unreadable
from pytest_torchprof.reasons.unreadable import OfPath
from pytest_torchprof.report.outcome import Outcome
from pytest_torchprof.report.recorded import recorded_result
from pytest_torchprof.report.result import Result, calls_of
from pytest_torchprof.trace.metadata import Adoption

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_torchprof.limits import Verdict

_FINAL: Final = (FileNotFoundError, PermissionError, IsADirectoryError)
"""Errors that another try would meet again."""


class FileTask(Struct, frozen=True, kw_only=True):
    """A file, and the question asked of it."""

    key: str
    """The same for the same file, question and version."""
    file: Listed
    question: Question
    copy: str | None = None
    """Where the driver has put a copy, of a file that no other process reaches."""


class FamilyTime(Struct, frozen=True, kw_only=True):
    """The kernels of one family and library, of all steps."""

    family: str | None
    """None: the kernels whose family is not known."""
    library: str
    count: int
    time_us: float


class FileRecord(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The record of a file: its result, or why it was not judged."""

    key: str
    url: str
    member: str | None = None
    metadata: dict[str, str] = {}
    rule: str | None = None
    result: Result | None = None
    """None of a file that is quarantined."""
    families: tuple[FamilyTime, ...] = ()
    part: RankPart | None = None
    """The facts by which its job is judged; None unless the file is that of one rank of several."""
    quarantined: decoding.AnyReason | None = None

    @property
    def name(self) -> str:
        """The name of the file as people read it."""
        return self.url if self.member is None else f"{self.url}: {self.member}"


class Hindrance(StrEnum):
    """Why a try had no result, which another try may have."""

    READING = "reading"
    MEMORY = "memory"
    TIME = "time"
    DEATH = "death"


class Trouble(Struct, frozen=True, kw_only=True):
    """The problem for which a file could not be judged in this try."""

    cause: Hindrance
    reason: decoding.AnyReason | None = None
    """Why it is quarantined if no other try comes to more."""


Tasks = tuple[FileTask, ...]
"""Files that are given to a process together: a few small ones, or one."""
Answers = list[bytes | Trouble]
"""Their records, encoded, in their order; fewer, and a Trouble as the last, if the process ended early."""


def judge(task: FileTask) -> bytes | Trouble:
    """Return the record of a file's outcome, encoded; Trouble where another try may come to more."""
    try:
        return encoded(_judged(task))
    except MemoryError:
        return Trouble(cause=Hindrance.MEMORY)
    except NotFetched as problem:
        return Trouble(cause=Hindrance.READING, reason=_reason(problem, task.file))
    except TorchprofError as problem:
        behind = problem.__context__
        reason = _reason(problem, task.file)
        if isinstance(behind, OSError) and not isinstance(behind, _FINAL):
            return Trouble(cause=Hindrance.READING, reason=reason)
        return encoded(quarantined(task, reason))
    except Exception as problem:  # noqa: BLE001 - whatever a file brings about, the others go on
        return encoded(quarantined(task, JudgingFailed(describe(problem))))


def quarantined(task: FileTask, reason: decoding.AnyReason) -> FileRecord:
    """Return the record of a file that is not judged, with the reason."""
    return replace(_record(task), quarantined=reason)


def encoded(record: FileRecord) -> bytes:
    """Return a record as a line of JSON without its end: it travels and is kept in this form alone."""
    return msgspec.json.encode(record, enc_hook=str)


def is_quarantined(line: bytes) -> bool:
    """Whether an encoded record is of a file that was not judged."""
    return msgspec.json.decode(line, type=_Quarantined).quarantined is not None


class SomeReason(Struct, frozen=True):
    """A reason in JSON, of which it is asked alone whether it is there."""


class _Quarantined(Struct, frozen=True):
    """As much of a record as says whether its file was judged."""

    quarantined: SomeReason | None = None


def _record(task: FileTask) -> FileRecord:
    file = task.file
    return FileRecord(key=task.key, url=file.shown, member=file.member, metadata=file.metadata, rule=task.question.rule)


def _judged(task: FileTask) -> FileRecord:
    own_kernels, asked, rules = asked_of(task.question)
    fetched = task.file.is_remote and task.file.member is None
    if not (fetched or _is_same(task)):
        return quarantined(task, ChangedSinceListed())
    with at_hand(task.file, task.copy) as path:
        # What was fetched is asked about once, when it is there.
        if fetched and not _is_same(task):
            return quarantined(task, ChangedSinceListed())
        try:
            read = load_file(path, device=task.question.device)
        except TorchprofError as problem:
            if path == task.file.url:
                raise
            return quarantined(task, _reason(problem, task.file, unpacked=path))
    if not (fetched or _is_same(task)):
        return quarantined(task, ChangedSinceListed())
    profile = _with_steps(read, task.question.step).with_own_kernels(own_kernels)
    part = _part(profile, task.file)
    verdicts = check_limits(profile, asked if part is None else divided_among_ranks(asked)[0])
    base = recorded_result(profile, task.file.name, rules)
    rank, ranks = rank_and_size(profile.trace) or (None, None)
    known = profile.measured and profile.kernels_unknown is None
    outcome, why = _outcome(profile, verdicts)
    return replace(
        _record(task),
        result=replace(
            base,
            time=times_of(profile),
            rank=rank,
            ranks=ranks,
            device=task.question.device or "auto",
            outcome=outcome,
            account=(),
            reason=why,
            limits=verdicts,
            structure=structure_hash(profile) if known else None,
            kernels=calls_of(profile.launching.brief_kernels(profile.fullest_step.part)) if known else (),
        ),
        families=_families(profile) if known else (),
        part=part,
    )


def _part(profile: Profile, file: Listed) -> RankPart | None:
    """Return the facts of one rank's recording that its job is judged by; None unless there are several ranks."""
    _, size = rank_and_size(profile.trace) or (0, 1)
    return replace(part_of(profile), path=file.name) if size > 1 else None


def _is_same(task: FileTask) -> bool:
    # Whoever made a copy has looked.
    return task.copy is not None or is_same(task.file)


def _reason(problem: TorchprofError, file: Listed, *, unpacked: str = "") -> decoding.AnyReason:
    """Return why a file is not judged, without the path of an ``unpacked`` member, which is gone by then."""
    if isinstance(problem, UnreadableRecording) and (cause := problem.cause) is not None:
        return Unreadable(replace(cause, path=file.name) if unpacked and isinstance(cause, OfPath) else cause)
    return portable(problem.reason)


def _with_steps(profile: Profile, step: str | None) -> Profile:
    if step is None:
        return profile
    trace = profile.trace
    nodeid, label = trace.of_test
    adoption = replace(trace.adoption or Adoption(nodeid=nodeid, label=label), step=step)
    return Profile.from_trace(replace(trace, adoption=adoption))


def _outcome(profile: Profile, verdicts: Sequence[Verdict]) -> tuple[Outcome, decoding.AnyReason | None]:
    """Return how a file came out, and why it is not measured."""
    if not verdicts:
        return (Outcome.RECORDED, None) if profile.doubt is None else (Outcome.NOT_MEASURED, portable(profile.doubt))
    if any(verdict.status == MISSED for verdict in verdicts):
        return Outcome.FAILED, None
    unmeasured = next((verdict for verdict in verdicts if verdict.status != HOLDS), None)
    return (Outcome.PASSED, None) if unmeasured is None else (Outcome.NOT_MEASURED, unmeasured.reason)


def _families(profile: Profile) -> tuple[FamilyTime, ...]:
    return tuple(
        FamilyTime(family=row.family, library=row.library, count=row.count, time_us=row.time_us)
        for row in rows_by("family", profile, profile.steps)
    )
