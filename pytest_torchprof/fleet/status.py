"""How far a run is: what its files have come to so far, all together and shard by shard."""

from __future__ import annotations

import re
from collections import Counter, deque
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from pytest_torchprof.fleet.jobs import GatheredJobs, JobsSummary, judged
from pytest_torchprof.report.outcome import Outcome

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pytest_torchprof.fleet.folder import FleetFolder
    from pytest_torchprof.fleet.judging import FileTask
    from pytest_torchprof.fleet.records import Records

SCHEMA: Final = 1
_SHARD: Final = re.compile(r"shard\d+of(\d+)-")


class FilesSoFar(Struct, frozen=True, kw_only=True):
    """How far some of the files are."""

    listed: int
    judged: int
    missed: int
    """How many of those judged missed a limit."""
    not_measured: int
    quarantined: int
    left: int
    """How many have no record yet."""


class ShardSoFar(FilesSoFar, frozen=True, kw_only=True):
    """How far one shard is."""

    shard: int
    among: int


class FleetStatus(Struct, frozen=True, kw_only=True):
    """How far a run is."""

    schema: int = SCHEMA
    files: FilesSoFar
    """All of them."""
    shards: tuple[ShardSoFar, ...]
    """Of each number of shards that was begun, all shards; empty where the run is not divided."""
    jobs: JobsSummary = JobsSummary()
    """The jobs whose ranks are among the files; none while files are left."""


class _OutcomeOfResult(Struct, frozen=True):
    outcome: Outcome


class _RankInLine(Struct, frozen=True):
    rank: int


class _OutcomeInLine(Struct, frozen=True):
    """The part of a record that says what its file came to, and whether it is a rank's."""

    result: _OutcomeOfResult | None = None
    part: _RankInLine | None = None


def writer_of(which: int, among: int) -> str:
    """Return how the names of a shard's parts begin; empty if there is only one shard."""
    return "" if among == 1 else f"shard{which}of{among}"


def status_of(folder: FleetFolder, tasks: Sequence[FileTask], records: Records) -> FleetStatus:
    """Return how far the run is whose files these are, in the list's order."""
    there = [task for task in tasks if task.key in records.spans]
    lines = records.lines(task.key for task in there)
    came = {task.key: records.decoded(line, _OutcomeInLine) for task, line in zip(there, lines, strict=True)}
    outcomes = [_outcome(came[task.key]) if task.key in came else None for task in tasks]
    ranks = [task for task in tasks if task.key in came and came[task.key].part is not None]
    begun = sorted({int(match[1]) for part in folder.parts() if (match := _SHARD.match(part))})
    shards = [
        ShardSoFar(shard=which, among=among, **_counts(outcomes[which - 1 :: among]))
        for among in begun
        for which in range(1, among + 1)
    ]
    jobs = _jobs(ranks, records) if len(there) == len(tasks) else JobsSummary()
    return FleetStatus(files=FilesSoFar(**_counts(outcomes)), shards=tuple(shards), jobs=jobs)


def _jobs(ranks: Sequence[FileTask], records: Records) -> JobsSummary:
    jobs = GatheredJobs()
    deque(jobs.gather(records.each((task.key for task in ranks), lambda _: None), ranks), maxlen=0)
    return judged(jobs, records, lambda _: None)


def _outcome(line: _OutcomeInLine) -> str:
    return _QUARANTINED if line.result is None else line.result.outcome


_QUARANTINED: Final = "quarantined"


def _counts(outcomes: Iterable[str | None]) -> dict[str, Any]:
    counts = Counter(outcomes)
    judged = counts[Outcome.PASSED] + counts[Outcome.FAILED] + counts[Outcome.RECORDED]
    return {
        "listed": counts.total(),
        "judged": judged,
        "missed": counts[Outcome.FAILED],
        "not_measured": counts[Outcome.NOT_MEASURED],
        "quarantined": counts[_QUARANTINED],
        "left": counts[None],
    }
