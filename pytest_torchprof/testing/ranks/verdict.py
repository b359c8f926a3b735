"""The joint verdict of a job's ranks: one outcome of the test, and one result of each measurement."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct
from msgspec.structs import replace

from pytest_torchprof.capture.rank import Rank
from pytest_torchprof.capture.rank_messages import WORST_FIRST, PhaseEnd, expected_here
from pytest_torchprof.reasons.codes import Code
from pytest_torchprof.reasons.composed import OfRank
from pytest_torchprof.reasons.decoding import portable
from pytest_torchprof.reasons.error_texts import unmeasured_text
from pytest_torchprof.reasons.lost_ranks import CacheProcess, TestDidNotRunOnRank
from pytest_torchprof.reasons.ranks_started import NoRankGoesOn
from pytest_torchprof.reasons.reason import Reason  # noqa: TC001 - msgspec reads the annotations
from pytest_torchprof.report.account import RankLost, ReportedByPytest
from pytest_torchprof.report.outcome import Outcome
from pytest_torchprof.report.result import Result
from pytest_torchprof.testing.handed_over import ProcessResults
from pytest_torchprof.testing.ranks.reports import brief_of, code_of, expected_of, failure, short_of, text_of
from pytest_torchprof.text.wrapping import broken

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import pytest

    from pytest_torchprof.testing.ranks.launch import JobEnd, LostRank
    from pytest_torchprof.testing.ranks.task import RankEnd

_WORST_RESULT_FIRST: Final = (
    Outcome.FAILED,
    Outcome.ERROR,
    Outcome.NOT_MEASURED,
    Outcome.XFAILED,
    Outcome.SKIPPED,
    Outcome.WARNED,
    Outcome.PASSED,
)


class RankVerdict(Struct, frozen=True, kw_only=True):
    """The verdict of one rank: that of the phase whose report decides it, or its loss."""

    rank: Rank
    process: CacheProcess | None = None
    """The purpose of its process, if it is no rank of several."""
    outcome: str
    report: pytest.TestReport
    lost: Reason | None = None
    """Why it is lost; None if it came to its end."""
    order: float = 0.0
    """The lowest is that of the rank that may be the cause of the others' failure."""

    @property
    def name(self) -> str:
        """Its name in messages."""
        return str(self.process or self.rank)

    @property
    def line(self) -> str:
        """Why it has this outcome, in one line."""
        return brief_of(self.report)


class JobVerdict(Struct, frozen=True, kw_only=True):
    """The verdict of a test of several ranks."""

    job: JobEnd
    ranks: tuple[RankVerdict, ...]

    @property
    def outcome(self) -> str:
        """The outcome of the worst rank: "failed", "skipped", "xfailed" or "passed"."""
        return min((verdict.outcome for verdict in self.ranks), key=WORST_FIRST.index)

    @property
    def first(self) -> RankVerdict:
        """The rank that speaks for it: the lowest of those with the same outcome."""
        those = [verdict for verdict in self.ranks if verdict.outcome == self.outcome]
        cause = min(those, key=lambda verdict: verdict.order)
        return next(verdict for verdict in those if verdict.line == cause.line)

    @property
    def line(self) -> str:
        """The outcome and its cause, in one line."""
        if self.outcome == "passed":
            return ""
        if self.job.silent_s is not None:
            return str(self._why_silent(self.job.silent_s))
        alike = all(verdict.outcome == self.outcome and verdict.line == self.first.line for verdict in self.ranks)
        return self.first.line if alike and not self.first.lost else f"{self.first.name}: {self.first.line}"

    def _why_silent(self, silent_s: float) -> NoRankGoesOn:
        lost = {verdict.rank.number: verdict.lost for verdict in self.ranks if verdict.lost}
        return NoRankGoesOn(silent_s, tuple(lost), tuple(lost.values()))

    def loss(self, why: Reason) -> RankLost:
        """Return the loss of the rank that speaks for the job, for this reason, or of all where none goes on."""
        first, silent_s = self.first, self.job.silent_s
        if silent_s is not None:
            return RankLost(self._why_silent(silent_s))
        return RankLost(portable(why), first.process, first.rank.number, first.rank.world)

    @property
    def expected(self) -> str | None:
        """Why a failure is expected, with the ranks that passed all the same; None where the test was to pass."""
        reason = expected_of(self.first.report)
        if reason is None or self.outcome != "xfailed":
            return reason
        return expected_here(reason, {verdict.rank.number: PhaseEnd(verdict.outcome) for verdict in self.ranks})

    def text(self, *, short: bool = False, columns: int | None = None) -> str:
        """Return why it failed, as the first rank says it, below a line on each of the others.

        The lines on ranks are wrapped to ``columns``; None where the width is not known.
        """
        own = self.first.report
        if self.job.silent_s is not None:
            hung = (f"{verdict.rank}, {text_of(verdict.report)}" for verdict in self.ranks if verdict.lost)
            return "\n\n".join([broken(unmeasured_text(self.line), columns), *hung])
        others = [
            f"{verdict.rank}: {verdict.line or verdict.outcome}" for verdict in self.ranks if verdict is not self.first
        ]
        whole = (short_of(own) if short else "") or text_of(own)
        if self.first.process and not self.first.lost:
            return whole
        lines = [broken(line, columns) for line in (f"{self.first.name}: {self.first.line}", *others)]
        return "\n".join([*lines, "", whole])

    @property
    def sections(self) -> tuple[tuple[str, str], ...]:
        """The output of the ranks, each under headings that name it."""
        return tuple(
            (f"{name}, {verdict.name}", text)
            for verdict, end in zip(self.ranks, self.job.ranks, strict=True)
            for name, text in (end.reports[-1].sections if end.reports else ())
        )

    @property
    def properties(self) -> tuple[tuple[str, Any], ...]:
        """Rank 0's properties for JUnit's report."""
        reports = self.job.ranks[0].reports
        return tuple((name, value) for name, value in reports[-1].user_properties) if reports else ()


def verdict_of(job: JobEnd) -> JobVerdict:
    """Return the verdict of a job."""
    return JobVerdict(job=job, ranks=tuple(_rank_verdict(job, number) for number in range(len(job.ranks))))


def _rank_verdict(job: JobEnd, number: int) -> RankVerdict:
    rank, end = Rank(number, len(job.ranks)), job.ranks[number]
    order, lost = next(((order, lost) for order, lost in enumerate(job.lost) if lost.number == number), (0, None))
    if lost is not None and not (lost.outlived and end.failed):
        line = str(lost.why) if job.silent_s is None else lost.why.text
        report = failure("", _last_words(lost), line)
        at = float("inf") if lost.outlived else float(order - len(job.lost))
        return RankVerdict(rank=rank, process=job.process, outcome="failed", report=report, lost=lost.why, order=at)
    outcome, report = min(map(_outcome, _reports(end)), key=lambda pair: WORST_FIRST.index(pair[0]))
    # A rank that has heard of another rank's end is not the cause.
    at = float("inf") if code_of(report) == Code.OTHER_RANK else report.stop
    return RankVerdict(rank=rank, process=job.process, outcome=outcome, report=report, order=at)


def _last_words(lost: LostRank) -> str:
    stack = () if lost.stack is None else ("where it was, the innermost call first:", *lost.stack.of_user)
    return "\n".join([*stack, "the last lines that it wrote:", *(f"  {line}" for line in lost.last_lines or ["none"])])


def _reports(end: RankEnd) -> Iterable[pytest.TestReport]:
    """Return the reports of a rank that came to its end, the call's first; a test that was not called failed."""
    called = [report for report in end.reports if report.when == "call"]
    if called or any(report.outcome != "passed" for report in end.reports):
        return (*called, *end.reports)
    return (failure("", line=str(TestDidNotRunOnRank(end.last.status))),)


def _outcome(report: pytest.TestReport) -> tuple[str, pytest.TestReport]:
    is_expected = report.outcome == "skipped" and expected_of(report) is not None
    return "xfailed" if is_expected else report.outcome, report


def merged_state(nodeid: str, verdict: JobVerdict) -> ProcessResults:
    """Return the results that the ranks hand over together: for each measurement that of the worst rank.

    Baselines are rank 0's, and written if the test has passed on all.
    """
    of_ranks = [end.last.results or ProcessResults() for end in verdict.job.ranks]
    first = of_ranks[0]
    updates = first.baselines.updates if verdict.outcome == "passed" else {}
    return replace(
        first,
        results=tuple(_results(nodeid, verdict, of_ranks)),
        of_ranks=tuple(_results_of_each(nodeid, verdict, of_ranks)) if len(of_ranks) > 1 else (),
        replayed=tuple(sorted(set(chain.from_iterable(handed.replayed for handed in of_ranks)))),
        problems=tuple(dict.fromkeys(chain.from_iterable(handed.problems for handed in of_ranks))),
        # This process itself knows which tests were collected and have passed.
        baselines=replace(first.baselines, updates=updates, collected={}, passed={}),
        lacks_gpu=False,
        slow_export=any(handed.slow_export for handed in of_ranks),
    )


def _results_of_each(nodeid: str, verdict: JobVerdict, of_ranks: Sequence[ProcessResults]) -> Iterator[Result]:
    """Yield each rank's own results, and for a rank that was lost results that are not measured."""
    known = {result.label: result for handed in of_ranks for result in handed.results}
    for rank, handed in zip(verdict.ranks, of_ranks, strict=True):
        yield from handed.results
        if rank.lost:
            for label in known.keys() - {result.label for result in handed.results} or {None}:
                yield Result(
                    nodeid=nodeid,
                    label=label,
                    rank=rank.rank.number,
                    ranks=rank.rank.world,
                    device=known[label].device if label in known else "auto",
                    outcome=Outcome.NOT_MEASURED,
                    reason=rank.lost,
                )


def _results(nodeid: str, verdict: JobVerdict, of_ranks: Sequence[ProcessResults]) -> Iterator[Result]:
    of_label: dict[str | None, list[Result]] = {}
    for rank, handed in zip(verdict.ranks, of_ranks, strict=True):
        for result in handed.results:
            of_label.setdefault(result.label, []).append(replace(result, for_ranks=not rank.process))
    worst = {label: min(those, key=_severity) for label, those in of_label.items()}
    first = verdict.first
    if verdict.outcome == "failed" and first.lost is not None:
        known = worst.get(None) or next(iter(worst.values()), Result(nodeid=nodeid, label=None, outcome=Outcome.FAILED))
        why = first.lost if first.process else OfRank(first.rank.number, first.lost)
        worst[None] = replace(
            known,
            label=None,
            outcome=Outcome.NOT_MEASURED,
            account=(verdict.loss(first.lost),),
            reason=why,
            for_ranks=False,
        )
    elif verdict.outcome == "failed" and not any(result.outcome.is_failure for result in worst.values()):
        # A rank failed before it measured, or after.
        reported = ReportedByPytest(verdict.line)
        for result in worst.values():
            yield replace(result, outcome=Outcome.FAILED, account=(reported,), for_ranks=False)
        return
    yield from worst.values()


def _severity(result: Result) -> int:
    return _WORST_RESULT_FIRST.index(result.outcome)
