"""The search for the commit that changed the kernels of a test, or was the first to miss a limit."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Final

import pytest

from pytest_torchprof.against import history
from pytest_torchprof.against.commits import CommitRuns
from pytest_torchprof.against.folders import run_folders
from pytest_torchprof.against.request import refuse_clashes, repository_of, request_for, seed_arguments
from pytest_torchprof.against.search_facts import (
    AllUnmeasured,
    AnswerChanged,
    AnyWhyAnswered,
    BadEndIsGood,
    CommitAnswer,
    EndNotMeasured,
    GoodEndIsBad,
    KernelsDiffer,
    LimitJudged,
    MeasurementMissing,
    NothingChanged,
    NothingMarked,
    OnlySkippedLeft,
    RecordingMissing,
    SameKernels,
)
from pytest_torchprof.against.start import ended_in_order
from pytest_torchprof.against.warm import warm_python
from pytest_torchprof.compare import compare
from pytest_torchprof.limits import MISSED, NOT_MEASURED, check_limits
from pytest_torchprof.reasons.commit_gaps import EndedEarlier
from pytest_torchprof.reasons.commits_measured import (
    BadNotAfterGood,
    BisectWithTimes,
    Kinship,
    NoTestFound,
    PytestNotStarted,
    SameEnds,
)
from pytest_torchprof.reasons.errors import TorchprofError
from pytest_torchprof.report import Reference
from pytest_torchprof.text import counted, reason_line

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from pytest_torchprof.against.commits import Commits
    from pytest_torchprof.against.git import NamedCommit, Repository
    from pytest_torchprof.against.measured import CommitMeasurements
    from pytest_torchprof.against.search_facts import WhyAnswered, WhyNotFound
    from pytest_torchprof.compare import Comparison
    from pytest_torchprof.limits import Asked
    from pytest_torchprof.reasons.commit_gaps import CommitGap


_FOR_GIT: Final = {CommitAnswer.GOOD: history.GOOD, CommitAnswer.BAD: history.BAD, CommitAnswer.SKIPPED: history.SKIP}


class SearchOutcome(StrEnum):
    """The outcome of a search."""

    FOUND = "found"
    NOT_THERE = "not there"
    """Both ends are good, or both are bad: no such commit is between them."""
    NOT_MEASURED = "not measured"


@dataclass(frozen=True, slots=True, kw_only=True)
class BisectTask:
    """The condition that makes a commit bad, and the two commits between which the first bad one is searched."""

    arguments: Sequence[str]
    """The arguments for pytest: the test, and the user's options."""
    good: str
    bad: str
    limits: tuple[Asked, ...]
    """Without a limit, a commit is bad if its kernels differ from those of the good one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """A commit that was measured, and the answer for git."""

    sha: str
    answer: CommitAnswer
    why: AnyWhyAnswered


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchResult:
    """The result of a search: its outcome, with the reason, and the commits."""

    outcome: SearchOutcome
    why: WhyAnswered | WhyNotFound
    """Why the commit that is found is bad; otherwise why none is found."""
    good: Reference
    bad: Reference
    commits: tuple[Judged, ...]
    """The commits that were measured, in that order."""
    candidates: tuple[NamedCommit, ...] = ()
    """The first bad commit; several if only skipped commits are between the last good and the first bad one."""
    parent: str | None = None
    """The parent of the first bad commit."""
    differences: Mapping[str, Comparison] = field(default_factory=dict)
    """By test, its differences from the parent; empty if the parent cannot be measured."""
    left_out: Mapping[str, CommitGap] = field(default_factory=dict)
    """Requested tests that take no part, or their files -> why the bad commit has not measured them."""


def bisect(task: BisectTask, write_line: Callable[[str], None]) -> SearchResult:
    """Return the result of the search for ``task``; ``write_line`` gets each line as soon as it is known.

    Raises TorchprofError if the search cannot begin.
    """
    settings = _Settings(task, write_line)
    pytest.main([*task.arguments, "-q"], plugins=[settings])
    if settings.result is None:
        raise TorchprofError.because(PytestNotStarted())
    return settings.result


class _Settings:
    """A plugin that uses the settings that pytest reads from its files and arguments, instead of running tests."""

    def __init__(self, task: BisectTask, write_line: Callable[[str], None]) -> None:
        self._task, self._write_line = task, write_line
        self.result: SearchResult | None = None

    @pytest.hookimpl(tryfirst=True)
    def pytest_cmdline_main(self, config: pytest.Config) -> int:
        refuse_clashes(config, "torchprof bisect")
        _refuse_times(config)
        repository = repository_of(config)
        good = Reference(ref=self._task.good, sha=repository.commit(self._task.good, "--good"), dirty=False)
        bad = Reference(ref=self._task.bad, sha=repository.commit(self._task.bad, "--bad"), dirty=False)
        _refuse_strangers(repository, good, bad)
        with ended_in_order(), run_folders(config.rootpath) as folders, warm_python(repository.top) as warm:
            request = request_for(config, repository, bad, folders)
            # The measurement at a commit does not depend on the names of the ends.
            asked = (*self._task.arguments, *seed_arguments(config.option), "--torchprof-against=HEAD")
            request = replace(request, arguments=asked, keeps_recordings=True, run=warm.run)
            search = Search(
                limits=self._task.limits,
                commits=CommitRuns(request),
                asked=tuple(config.args),
                repository=repository,
                folder=request.results / "search",
                good=good,
                bad=bad,
                write_line=self._write_line,
            )
            self.result = search.run()
        return 0


def _refuse_times(config: pytest.Config) -> None:
    """Raise TorchprofError if times are to be compared."""
    if config.option.torchprof_against_time is not None or config.option.torchprof_against_budget is not None:
        raise TorchprofError.because(BisectWithTimes())


def _refuse_strangers(repository: Repository, good: Reference, bad: Reference) -> None:
    """Raise TorchprofError if the bad commit does not come after the good one."""
    if good.sha == bad.sha:
        raise TorchprofError.because(SameEnds(good.sha[:7]))
    if repository.descends(bad.sha, good.sha):
        return
    parted_at = None
    if repository.is_shallow:
        kinship = Kinship.CUT_OFF
    elif repository.descends(good.sha, bad.sha):
        kinship = Kinship.EXCHANGED
    elif parted := repository.branch_point(good.sha, bad.sha):
        kinship, parted_at = Kinship.PARTED, parted[:7]
    else:
        kinship = Kinship.STRANGERS
    raise TorchprofError.because(BadNotAfterGood(good.shown, bad.shown, kinship, parted_at))


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """The search among the commits between two, each measured once."""

    limits: tuple[Asked, ...]
    commits: Commits
    asked: Sequence[str]
    """The tests that are asked for, as users name them."""
    repository: Repository
    folder: Path
    """For git: it is not there yet."""
    good: Reference
    bad: Reference
    write_line: Callable[[str], None]
    _measured: dict[str, CommitMeasurements] = field(default_factory=dict)
    _judged: dict[str, Judged] = field(default_factory=dict)

    def run(self) -> SearchResult:
        """Measure both ends, then the commits that git chooses."""
        repository = self.repository
        between = counted(repository.distance(self.good.sha, self.bad.sha), "commit")
        self.write_line(f"{between} from {self.good.shown}, good, to {self.bad.shown}, bad")
        if not self._names:
            return self._result(SearchOutcome.NOT_MEASURED, EndNotMeasured(self.bad.shown, self._why_nothing()))
        for end, wanted in ((self.bad, CommitAnswer.BAD), (self.good, CommitAnswer.GOOD)):
            judged = self._judge(end.sha)
            if judged.answer is CommitAnswer.SKIPPED:
                return self._result(SearchOutcome.NOT_MEASURED, EndNotMeasured(end.shown, judged.why))
            if judged.answer is not wanted:
                return self._result(SearchOutcome.NOT_THERE, self._contradiction(end, judged))
        shas = history.first_bad(
            repository,
            good=self.good.sha,
            bad=self.bad.sha,
            judge=lambda sha: _FOR_GIT[self._judge(sha).answer],
            folder=self.folder,
        )
        candidates = tuple(map(repository.named, shas))
        if len(candidates) > 1:
            return self._result(SearchOutcome.NOT_MEASURED, OnlySkippedLeft(len(candidates)), candidates)
        if (doubt := self._doubt(*shas)) is not None:
            return self._result(SearchOutcome.NOT_MEASURED, doubt, candidates)
        return self._result(SearchOutcome.FOUND, self._judge(*shas).why, candidates)

    def _doubt(self, sha: str) -> AnswerChanged | None:
        """Measure a commit and its parent once more; return which answer changed, None if neither did."""
        for commit in (sha, self.repository.parent(sha)):
            if commit not in self._judged:  # The parent of a merge may be on another branch, or missing from a clone.
                continue
            before, (answer, why) = self._judged[commit].answer, self._answer(self.commits.measure(commit, again=True))
            self.write_line(f"{commit[:7]}  {answer:<9}once more: {reason_line(str(why))}")
            if answer is not before:
                return AnswerChanged(commit[:7], before, answer, why)
        return None

    def _result(
        self, outcome: SearchOutcome, why: WhyAnswered | WhyNotFound, candidates: tuple[NamedCommit, ...] = ()
    ) -> SearchResult:
        parent, differences = None, {}
        if outcome is SearchOutcome.FOUND:
            (first,) = candidates
            parent = self.repository.parent(first.sha)
            before = {} if parent is None else self._measure(parent).entries
            after = self._measure(first.sha).entries
            differences = {name: compare(before[name], after[name]) for name in before if name in after}
        return SearchResult(
            outcome=outcome,
            why=why,
            good=self.good,
            bad=self.bad,
            commits=tuple(self._judged.values()),
            candidates=candidates,
            parent=parent,
            differences=differences,
            left_out=self._left_out,
        )

    def _contradiction(self, end: Reference, judged: Judged) -> WhyNotFound:
        """Return the reason for which an end is not what it is said to be."""
        if end is self.good:
            return GoodEndIsBad(end.shown, judged.why)
        if self.limits:
            return BadEndIsGood(end.shown, judged.why)
        return NothingChanged(end.shown, before=self.good.shown)

    @property
    def _names(self) -> tuple[str, ...]:
        """The names of the requested measurements, as the bad commit has them."""
        return tuple(self._measure(self.bad.sha).entries)

    @property
    def _left_out(self) -> Mapping[str, CommitGap]:
        measured = self._measure(self.bad.sha)
        known = {measured.test_of(name) for name in self._names}
        troubles = measured.outcomes.troubles
        return {test: gap for test, gap in troubles.items() if test not in known}

    def _why_nothing(self) -> WhyAnswered:
        """Return why the bad commit measured nothing; TorchprofError if there is no such test."""
        outcomes = self._measure(self.bad.sha).outcomes
        if outcomes.troubles:
            return AllUnmeasured(next(iter(outcomes.troubles.values())))
        if outcomes.tests:
            return NothingMarked()
        last_lines = tuple(self.commits.output(self.bad.sha))
        if outcomes.status in (pytest.ExitCode.NO_TESTS_COLLECTED, pytest.ExitCode.USAGE_ERROR):
            raise TorchprofError.because(NoTestFound(tuple(self.asked), self.bad.shown, last_lines))
        return AllUnmeasured(outcomes.broken or EndedEarlier(outcomes.status), last_lines)

    def _measure(self, sha: str) -> CommitMeasurements:
        if sha not in self._measured:
            self._measured[sha] = self.commits.measure(sha)
        return self._measured[sha]

    def _judge(self, sha: str) -> Judged:
        if sha not in self._judged:
            answer, why = self._answer(self._measure(sha))
            self._judged[sha] = Judged(sha=sha, answer=answer, why=why)
            self.write_line(f"{sha[:7]}  {answer:<9}{reason_line(str(why))}")
        return self._judged[sha]

    def _answer(self, measured: CommitMeasurements) -> tuple[CommitAnswer, WhyAnswered]:
        return self._by_limits(measured) if self.limits else self._by_kernels(measured)

    def _by_limits(self, measured: CommitMeasurements) -> tuple[CommitAnswer, WhyAnswered]:
        profiles = dict(measured.profiles())
        judged = {
            verdict.status: LimitJudged(verdict, self._if_others(name))
            for name in self._names
            if name in profiles and name in measured.entries
            for verdict in check_limits(profiles[name], self.limits)
        }
        if MISSED in judged:
            return CommitAnswer.BAD, judged[MISSED]
        if (missing := self._missing(measured)) is not None:
            return CommitAnswer.SKIPPED, missing
        if NOT_MEASURED in judged or not judged:
            return CommitAnswer.SKIPPED, judged.get(NOT_MEASURED, RecordingMissing())
        return CommitAnswer.GOOD, next(iter(judged.values()))

    def _by_kernels(self, measured: CommitMeasurements) -> tuple[CommitAnswer, WhyAnswered]:
        if (missing := self._missing(measured)) is not None:
            return CommitAnswer.SKIPPED, missing
        good = self._measure(self.good.sha)
        for name in self._names:
            comparison = compare(good.entries.get(name), measured.entries[name])
            if comparison.kernels_differ:
                return CommitAnswer.BAD, KernelsDiffer(comparison, self._if_others(name))
        return CommitAnswer.GOOD, SameKernels()

    def _missing(self, measured: CommitMeasurements) -> MeasurementMissing | None:
        """Return which requested measurement is missing, and why; None if there are all of them."""
        lacking = next((name for name in self._names if name not in measured.entries), None)
        if lacking is None:
            return None
        return MeasurementMissing(measured.why_not(lacking), self._if_others(lacking))

    def _if_others(self, name: str) -> str | None:
        """Return the name of a measurement, None if there is no other."""
        return None if len(self._names) == 1 else name
