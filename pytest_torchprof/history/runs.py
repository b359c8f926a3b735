"""Which runs of a history are points of a branch, and in which order their commits came."""

from __future__ import annotations

from collections import Counter
from enum import StrEnum
from typing import TYPE_CHECKING, Final, TypeVar

from msgspec import Struct

from pytest_torchprof.history.ancestry import by_date, chain_to, date_of, parents_in, sha_of, tips_of
from pytest_torchprof.history.ci_knows import CiPause, ci_pause, unknown_to_ci
from pytest_torchprof.history.notes import Notes
from pytest_torchprof.history.record import Event
from pytest_torchprof.reasons.errors import TorchprofError
from pytest_torchprof.reasons.history_branches import BranchNotNamed, BranchWithoutRun, NoRunOfAnyBranch, NoSuchBranch

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pytest_torchprof.against.git import Repository
    from pytest_torchprof.history.reading import HistoryRun
    from pytest_torchprof.history.record import KernelCount, RunHead

_USUAL: Final = ("main", "master")
Run = TypeVar("Run", bound="RunHead")


class LeftOut(StrEnum):
    """Why a run does not count as a point of its branch."""

    NO_COMMIT = "no commit"
    DIRTY = "uncommitted changes"
    PR = "pull requests"
    NOT_IN_GIT = "not in git's order"
    NOT_PUSHED = "local commits that CI does not know"
    DIVERGED = "commits that left the branch"
    OTHER_BRANCH = "other branches"


class OrderedBy(StrEnum):
    """The source of the commits' order."""

    GIT = "git"
    """The first parents of a branch in a repository."""
    ANCESTRY = "ancestry"
    """The first parents that the records hold."""
    DATES = "dates"
    """When they were committed, where no ancestry connects them."""


class BranchRuns(Struct, frozen=True, kw_only=True):
    """The runs of one branch, oldest commit first, and those of one commit by their time."""

    branch: str
    runs: tuple[HistoryRun, ...]
    commits: tuple[str, ...]
    """The commits of the branch as far as they are known, oldest first: those without a run too."""
    ordered_by: OrderedBy
    commit_of: tuple[int, ...]
    """For each run the index of its commit among them."""
    kernels: Mapping[str, tuple[KernelCount, ...]]
    """The kernels of each structure."""
    left_out: Mapping[LeftOut, int]
    """How many runs are no points of it, by the reason."""
    notes: Notes = Notes()
    """The notes of people on the history."""
    not_in_git: tuple[str, ...] = ()
    """The measured commits of it that the repository which orders it does not hold, by their dates."""
    not_pushed: tuple[str, ...] = ()
    """The commits that somebody measured on it, and that no run of CI has or has before its own, by their dates."""
    ci_pause: CiPause | None = None
    """Where CI seems to have left the branch, so that what it does not know may be the branch's newest code."""
    diverged: tuple[str, ...] = ()
    """The commits measured on it that the repository holds aside from it, by their dates."""
    ahead: tuple[str, ...] = ()
    """The commits of it that came after the newest measured one, oldest first."""
    newest_was_due: bool = False
    """Whether the job of CI that asks was to measure the newest of these."""
    refused: int = 0
    """How many records cannot be believed: nobody knows what these runs measured, nor at which commit."""

    def between(self, before: str, after: str) -> tuple[str, ...] | None:
        """Return the commits after one up to another, oldest first; None where dates alone order them."""
        if self.ordered_by is OrderedBy.DATES:
            return None
        return self.commits[self.commits.index(before) + 1 : self.commits.index(after) + 1]


def branch_runs(
    records: Iterable[HistoryRun],
    kernels: Mapping[str, tuple[KernelCount, ...]],
    branch: str | None = None,
    repository: Repository | None = None,
    notes: Notes = Notes(),  # noqa: B008 - it cannot be changed
) -> BranchRuns:
    """Return the runs of a branch; without a name those of "main", of "master", or of the only branch there is.

    ``kernels``: those of each structure, by its name.
    TorchprofError if there is no such branch, or if it is not clear which branch is meant.
    """
    left_out: Counter[LeftOut] = Counter()
    usable = []
    for record in records:
        if (why := why_never(record)) is None:
            usable.append(record)
        else:
            left_out[why] += 1
    name = branch or _usual_branch(usable)
    commits, ordered_by, members = _ordered(usable, name, repository)
    aside = _aside(usable, name, commits, repository)
    for why, runs in aside.items():
        left_out[why] = len(runs)
    left_out[LeftOut.OTHER_BRANCH] = len(usable) - len(members) - sum(map(len, aside.values()))
    order = {sha: at for at, sha in enumerate(commits)}
    points = sorted(members, key=lambda run: (order[sha_of(run)], run.began, run.uuid))
    shas = {why: tuple(dict.fromkeys(map(sha_of, sorted(runs, key=date_of)))) for why, runs in aside.items()}
    return BranchRuns(
        branch=name,
        runs=tuple(points),
        commit_of=tuple(order[sha_of(run)] for run in points),
        kernels=kernels,
        commits=commits,
        ordered_by=ordered_by,
        left_out={why: count for why, count in left_out.items() if count},
        notes=notes,
        not_in_git=shas[LeftOut.NOT_IN_GIT],
        not_pushed=shas[LeftOut.NOT_PUSHED],
        ci_pause=ci_pause(points, aside[LeftOut.NOT_PUSHED], parents_in(usable)),
        diverged=shas[LeftOut.DIVERGED],
        ahead=commits[order[sha_of(points[-1])] + 1 :] if points else commits,
    )


def newest_first(records: Iterable[Run], branch: str) -> list[Run]:
    """Return the runs that are points of a branch, those of its newest commit first; empty where there are none."""
    usable = [record for record in records if why_never(record) is None]
    try:
        commits, _, members = _ordered(usable, branch, None)
    except TorchprofError:
        return []
    order = {sha: at for at, sha in enumerate(commits)}
    return sorted(members, key=lambda run: (order[sha_of(run)], run.began, run.uuid), reverse=True)


def why_never(record: RunHead) -> LeftOut | None:
    """Return why a run is no point of any branch; None where it is one."""
    if record.commit is None:
        return LeftOut.NO_COMMIT
    if record.event is Event.PR:
        return LeftOut.PR
    return LeftOut.DIRTY if record.commit.dirty else None


def branches_of(records: Iterable[RunHead]) -> list[str]:
    """Return the branches of which some runs are points, those with the most runs first."""
    usable = (record.commit for record in records if why_never(record) is None)
    counts = Counter(commit.branch for commit in usable if commit is not None and commit.branch is not None)
    return sorted(counts, key=lambda name: (-counts[name], name))


def _usual_branch(records: Sequence[HistoryRun]) -> str:
    known = sorted(branches_of(records))
    if name := next((name for name in _USUAL if name in known), known[0] if len(known) == 1 else None):
        return name
    if known:
        raise TorchprofError.because(BranchNotNamed(tuple(known)))
    raise TorchprofError.because(NoRunOfAnyBranch())


def _ordered(
    records: Sequence[Run], branch: str, repository: Repository | None
) -> tuple[tuple[str, ...], OrderedBy, list[Run]]:
    """Return the commits of a branch, what orders them, and the runs of these commits."""
    if repository is not None:
        commits = _first_parents(repository, branch)
        known = set(commits)
        if repository.is_shallow:
            # Before the first commit that it holds, the records may know more.
            earlier = [sha for sha in chain_to(commits[0], parents_in(records)) if sha not in known]
            commits = (*earlier, *commits)
            known.update(earlier)
        return commits, OrderedBy.GIT, [record for record in records if sha_of(record) in known]
    on_branch = [record for record in records if record.commit is not None and record.commit.branch == branch]
    if not on_branch:
        raise TorchprofError.because(BranchWithoutRun(branch, tuple(branches_of(records))))
    parents = parents_in(records)
    local = unknown_to_ci(on_branch, parents)
    on_branch = [record for record in on_branch if sha_of(record) not in local]
    tips = tips_of(on_branch, parents)
    commits = chain_to(sha_of(max(tips, key=date_of)), parents)
    known = set(commits)
    # A commit that was checked out by its hash is known by the ancestors of those that came after it.
    members = [record for record in records if sha_of(record) in known]
    if all(sha_of(record) in known for record in tips):
        return commits, OrderedBy.ANCESTRY, members
    return by_date(on_branch, parents), OrderedBy.DATES, on_branch


def _first_parents(repository: Repository, branch: str) -> tuple[str, ...]:
    listed = [*filter(None, map(repository.first_parents, (branch, f"origin/{branch}")))]
    if not listed:
        raise TorchprofError.because(NoSuchBranch(str(repository.top), branch))
    own, fetched = listed[0], listed[-1]
    # A clone from which nobody works has fetched more than its own branch has.
    return fetched if repository.descends(fetched[-1], own[-1]) else own


def _aside(
    records: Sequence[Run], branch: str, commits: Sequence[str], repository: Repository | None
) -> dict[LeftOut, list[Run]]:
    """Return the runs that name a branch at a commit which is not on it, by what is known of that commit."""
    known = set(commits)
    lacking = [
        record
        for record in records
        if record.commit is not None and record.commit.branch == branch and record.commit.sha not in known
    ]
    aside: dict[LeftOut, list[Run]] = {why: [] for why in (LeftOut.NOT_IN_GIT, LeftOut.NOT_PUSHED, LeftOut.DIVERGED)}
    if not lacking:
        return aside
    on_branch = [record for record in records if record.commit is not None and record.commit.branch == branch]
    local = unknown_to_ci(on_branch, parents_in(records))
    whys: dict[str, LeftOut | None] = {}
    for sha in set(map(sha_of, lacking)):
        held = None if repository is None else _why_not_held(repository, commits[-1], sha)
        whys[sha] = LeftOut.NOT_PUSHED if sha in local and held is not LeftOut.OTHER_BRANCH else held
    for record in lacking:
        if (why := whys[sha_of(record)]) in aside:
            aside[why].append(record)
    return aside


def _why_not_held(repository: Repository, tip: str, sha: str) -> LeftOut:
    """Return the reason, as a repository knows it, why a commit is not among a branch's first parents."""
    if repository.descends(tip, sha):
        return LeftOut.OTHER_BRANCH  # It was merged.
    # What a clone lacks may come after all that it has, and so may what it holds of a branch that moved on.
    known = not repository.is_shallow and repository.has_commit(sha)
    return LeftOut.DIVERGED if known and not repository.descends(sha, tip) else LeftOut.NOT_IN_GIT
