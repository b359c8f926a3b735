"""The jobs on the page: which measurements are of ranks of the same one."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec import Struct

from pytest_torchprof.analysis.analysis import Analysis
from pytest_torchprof.analysis.joining import joined
from pytest_torchprof.analysis.rank_parts import named_part
from pytest_torchprof.reasons.errors import TorchprofError
from pytest_torchprof.recording.reader import read
from pytest_torchprof.report.page.ranks import ranks_together

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pytest_torchprof.analysis.ranks import Job, RankPart
    from pytest_torchprof.report.page.ranks import RanksTogether

_RANK_IN_NAME: Final = re.compile(r"\.rank\d+of\d+(?=\.json)")


class RankOnPage(NamedTuple):
    """The part of a rank's recording that is kept, and its position on the page."""

    part: RankPart
    number: int | None
    """Which of the page's measurements it is; None if it only stands beside one of them."""


class NotJoined(Struct, frozen=True):
    """The reason why ranks cannot be joined."""

    why_not: str


class JobOnPage(NamedTuple):
    """The ranks of a job, as the page shows them."""

    numbers: tuple[int, ...]
    """The measurements of the page that are of its ranks."""
    ranks: RanksTogether | NotJoined
    job: Job | None
    """The ranks together; None where they cannot be joined."""

    def is_all_of(self, count: int) -> bool:
        """Whether a page with so many measurements is of this job alone, and of more than one of its ranks."""
        return self.job is not None and 1 < len(self.numbers) == count


def parts_beside(analysis: Analysis) -> tuple[RankPart, ...]:
    """Return the parts kept of the other ranks' recordings that a run left beside this one, if they can be read."""
    path = Path(analysis.trace.path or "")
    own = _RANK_IN_NAME.search(path.name)
    if own is None:
        return ()
    begin, end = path.name[: own.start()], path.name[own.end() :]
    others = (
        other
        for other in sorted(path.parent.iterdir())
        if other.name != path.name
        and (rank := _RANK_IN_NAME.search(other.name)) is not None
        # The same name but for the rank.
        and (other.name[: rank.start()], other.name[rank.end() :]) == (begin, end)
    )
    return tuple(part for other in others if (part := _part_in(other)) is not None)


def _part_in(path: Path) -> RankPart | None:
    try:
        return named_part(Analysis(read(path)))
    except TorchprofError:
        return None


def jobs_among(ranks: Iterable[RankOnPage]) -> list[JobOnPage]:
    """Return the jobs with several ranks on the page."""
    return [job for group in _groups(ranks) if (job := _job(group)) is not None]


def _groups(ranks: Iterable[RankOnPage]) -> Iterator[list[RankOnPage]]:
    """Yield the ranks of each run; if a rank is there twice, the ranks of each folder."""
    by_run: defaultdict[object, list[RankOnPage]] = defaultdict(list)
    for rank in ranks:
        if rank.part.world_size > 1:
            by_run[rank.part.test, rank.part.world_size, rank.part.run_id].append(rank)
    for group in by_run.values():
        if not _is_repeated(group):
            yield group
            continue
        by_folder: defaultdict[Path, list[RankOnPage]] = defaultdict(list)
        for rank in group:
            by_folder[Path(rank.part.path).parent].append(rank)
        # Recordings of one rank of many runs tell nothing of any run.
        yield from (members for members in by_folder.values() if not _is_repeated(members))


def _is_repeated(group: Sequence[RankOnPage]) -> bool:
    return max(Counter(rank.part.rank for rank in group).values()) > 1


def _job(group: Sequence[RankOnPage]) -> JobOnPage | None:
    if len(group) < 2:
        return None
    numbers = tuple(rank.number for rank in group if rank.number is not None)
    try:
        job = joined(rank.part for rank in group)
    except TorchprofError as problem:
        return JobOnPage(numbers, NotJoined(str(problem)), None)
    return JobOnPage(numbers, ranks_together(job, {rank.part.rank: rank.number for rank in group}), job)
