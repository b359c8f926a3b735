"""The jobs whose ranks are among the files: judged from what the files' records keep of their collectives."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, BinaryIO

import msgspec
from msgspec import Struct

from pytest_torchprof.analysis.joining import joined
from pytest_torchprof.findings.catalogue import AnyFinding  # noqa: TC001 - msgspec reads the annotations
from pytest_torchprof.findings.ranks import find_in_job
from pytest_torchprof.fleet.rules import Question, asked_of, limits_of
from pytest_torchprof.limits import HOLDS, MISSED, Verdict
from pytest_torchprof.limits.rank_limits import check_job, divided_among_ranks, missing_ranks
from pytest_torchprof.reasons import decoding  # noqa: TC001 - msgspec reads the annotations
from pytest_torchprof.reasons.decoding import portable
from pytest_torchprof.reasons.errors import TorchprofError
from pytest_torchprof.report.outcome import Outcome

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from pytest_torchprof.analysis.ranks import Job, RankPart
    from pytest_torchprof.fleet.judging import FileRecord, FileTask
    from pytest_torchprof.fleet.records import Records
    from pytest_torchprof.limits import Asked


class JobsSummary(Struct, frozen=True, kw_only=True):
    """The results of all jobs in numbers."""

    listed: int = 0
    hold: int = 0
    """Judged by limits, all of which hold."""
    missed: int = 0
    not_measured: int = 0
    without_limits: int = 0
    """Nothing was asked of their ranks: figures and findings."""


class JobName(Struct, frozen=True, order=True, omit_defaults=True):
    """The name that the recordings of one job share."""

    run: str = ""
    """The launcher's name for the run; empty where the recordings do not have it."""
    folder: str = ""
    """Where the recordings lie; empty where the name of the run says enough."""
    ranks: int = 0
    """How many of them there are."""
    test: str = ""
    label: str = ""

    def __str__(self) -> str:
        """Return how people read it."""
        parts = (self.folder, self.run and f"run {self.run}", self.test, self.label and f"({self.label})")
        return " ".join(filter(None, parts))


class RankFile(Struct, frozen=True):
    """One file of a job, before the others are known."""

    key: str
    rank: int
    folder: str
    question: Question


class JobRecord(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The result of a job."""

    job: JobName
    files: int
    outcome: Outcome
    missing: tuple[int, ...] = ()
    """The ranks that have no recording among the files judged."""
    reason: decoding.AnyReason | None = None
    """Why it is not judged."""
    limits: tuple[Verdict, ...] = ()
    """On all ranks together."""
    findings: tuple[AnyFinding, ...] = ()
    skew_us: float | None = None
    """The median over its collectives from the first rank's start to the last one's."""
    late: int | None = None
    """The rank that keeps the others waiting."""


class GatheredJobs:
    """Gathers the files of each job, one record after the other."""

    def __init__(self) -> None:
        """Know no job yet."""
        self._files: dict[JobName, list[RankFile]] = defaultdict(list)

    def gather(self, records: Iterable[FileRecord], tasks: Iterable[FileTask]) -> Iterator[FileRecord]:
        """Yield the records of tasks, each after it was noted."""
        for record, task in zip(records, tasks, strict=True):
            if record.part is not None:
                self._note(record, record.part, task.question)
            yield record

    def _note(self, record: FileRecord, part: RankPart, question: Question) -> None:
        test, label = part.test
        folder = record.name.rpartition("/")[0]
        run = part.run_id or ""
        name = JobName(run, "" if run else folder, part.world_size, test or "", label or "")
        self._files[name].append(RankFile(record.key, part.rank, folder, question))

    def each(self) -> Iterator[tuple[JobName, list[RankFile]]]:
        """Yield the jobs in the order of their names, each with its files in the order in which they were seen.

        Recordings of a single rank are no job, however many there are, unless something is asked of all ranks together.
        """
        apart = [job for name, files in self._files.items() for job in _by_folder(name, files)]
        yield from sorted(apart, key=lambda job: job[0])


def _by_folder(name: JobName, files: list[RankFile]) -> Iterator[tuple[JobName, list[RankFile]]]:
    """Yield the jobs of a run; by folders where ranks occur several times, for names of runs are used again."""
    times = Counter(file.rank for file in files)
    folders = sorted({file.folder for file in files})
    is_divided = len(folders) > 1 and max(times.values()) > 1
    # Several files of one rank, such as those of several nights, are not of one job.
    are_of_several = len(times) > 1
    for job, own in (_in_folder(name, files, folder) for folder in folders) if is_divided else [(name, files)]:
        if (len(own) > 1 and are_of_several) or any(_together(file.question) for file in own):
            yield job, own


def _in_folder(name: JobName, files: list[RankFile], folder: str) -> tuple[JobName, list[RankFile]]:
    own = [file for file in files if file.folder == folder]
    return JobName(name.run, folder, name.ranks, name.test, name.label), own


def _together(question: Question) -> tuple[Asked, ...]:
    """Return the limits that are asked of all ranks together."""
    return divided_among_ranks(asked_of(question)[1])[1]


def judged_job(name: JobName, files: Sequence[RankFile], parts: Iterable[RankPart]) -> JobRecord:
    """Return the result of a job whose files have kept these ``parts``."""
    questions = list(dict.fromkeys(file.question for file in files))
    try:
        job = joined(parts)
    except TorchprofError as problem:
        is_asked = any(asked_of(question)[1] for question in questions)
        return JobRecord(
            job=name,
            files=len(files),
            outcome=Outcome.NOT_MEASURED if is_asked else Outcome.RECORDED,
            missing=tuple(sorted(set(range(name.ranks)) - {file.rank for file in files})),
            reason=portable(problem.reason),
        )
    verdicts = _verdicts(job, questions)
    unmeasured = next((verdict for verdict in verdicts if verdict.status not in (HOLDS, MISSED)), None)
    if any(verdict.status == MISSED for verdict in verdicts):
        outcome = Outcome.FAILED
    elif unmeasured is not None:
        outcome = Outcome.NOT_MEASURED
    else:
        outcome = Outcome.PASSED if verdicts else Outcome.RECORDED
    return JobRecord(
        job=name,
        files=len(files),
        outcome=outcome,
        missing=job.missing,
        reason=unmeasured.reason if unmeasured is not None and outcome is Outcome.NOT_MEASURED else None,
        limits=verdicts,
        findings=find_in_job(job),
        skew_us=job.skew_us,
        late=job.straggler,
    )


def _verdicts(job: Job, questions: Sequence[Question]) -> tuple[Verdict, ...]:
    """Return the verdicts on the limits that are asked of any of its ranks; not measured if ranks are missing."""
    verdicts: list[Verdict] = []
    for question in questions:
        may_be_idle = limits_of(question).get("min_kernels") == 0
        own = check_job(job, _together(question), may_be_idle=may_be_idle)
        verdicts += [verdict for verdict in own if verdict not in verdicts]
    is_asked = any(asked_of(question)[1] for question in questions)
    return (*verdicts, *(missing_ranks(job, verdicts) if is_asked else ()))


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


def jobs_summed(outcomes: Counter[Outcome]) -> JobsSummary:
    """Return the results of all jobs in numbers, given how many came out in which way."""
    return JobsSummary(
        listed=outcomes.total(),
        hold=outcomes[Outcome.PASSED],
        missed=outcomes[Outcome.FAILED],
        not_measured=outcomes[Outcome.NOT_MEASURED],
        without_limits=outcomes[Outcome.RECORDED],
    )
