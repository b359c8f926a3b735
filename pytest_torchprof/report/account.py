"""The account of how a result came out: facts, put into words where somebody reads them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, Union

from msgspec import Struct

from pytest_torchprof.limits import DEFAULT, HOLDS, Failure, Verdict, failure_text, in_one_line
from pytest_torchprof.reasons import decoding  # noqa: TC001 - msgspec reads the annotations
from pytest_torchprof.reasons.codes import Code, coded
from pytest_torchprof.reasons.error_texts import unmeasured_text, unmeasured_texts
from pytest_torchprof.reasons.lost_ranks import CacheProcess  # noqa: TC001 - msgspec reads the annotations
from pytest_torchprof.reasons.other_ranks import explained
from pytest_torchprof.reasons.skips import unjudged_without_gpu
from pytest_torchprof.reasons.statement import Statement
from pytest_torchprof.report.baseline_failure import BaselineFailure  # noqa: TC001 - msgspec reads the annotations
from pytest_torchprof.text import first_line, printable_line
from pytest_torchprof.text.cutting import width_of, with_middles_of_words
from pytest_torchprof.text.wrapping import broken

if TYPE_CHECKING:
    from pytest_torchprof.compare.time_comparison import TimeComparison
    from pytest_torchprof.limits import FailureLine, Screen


class Kept(Struct, frozen=True, kw_only=True):
    """The facts that a failure names besides: the test that rules alone reach, these rules, and the kept recordings."""

    test: str | None = None
    """File and line of a test that asks for nothing itself: no line of its code is named elsewhere."""
    rules: tuple[str, ...] = ()
    allow_file: str = ""
    """Where exceptions to the rules stand; empty where there are none to what does not hold."""
    recording: str | None = None
    with_lines: str | None = None
    """The repeat with stacks."""

    def lines(self, columns: int | None) -> str:
        """Return the lines below a failure, each begun by the end of the line above; a path may need one of its own."""
        exceptions = f"; exceptions are listed in {self.allow_file}" if self.allow_file else ""
        rule = f"  rule: {', '.join(self.rules)}{exceptions}"
        shown = (
            f"  test: {self.test}" if self.test else "",
            broken(rule, columns) if self.rules else "",
            broken("  recording: ", columns, command=self.recording) if self.recording else "",
            broken("  with source lines: ", columns, command=self.with_lines) if self.with_lines else "",
        )
        return "".join(f"\n{line}" for line in shown if line)


def labelled(label: str | None, text: str, columns: int | None = None) -> str:
    """Return a text about a measurement behind its label, or below it where the first line has no room for both."""
    if not label or not text:
        return text
    title = f"{printable_line(label)}:"
    if columns is None or width_of(f"{title} {first_line(text)}") <= columns:
        return f"{title} {text}"
    return f"{broken(with_middles_of_words(title, columns - 2), columns)}\n{text}"


class AccountSubject(NamedTuple):
    """The subject of an account."""

    label: str | None
    """The measurement's."""
    limits: tuple[Verdict, ...]
    time: TimeComparison | None
    """How its time compares with a commit's."""


class Account(Statement, frozen=True, tag_field="account"):
    """A fact about how a result came out."""

    def text_of(self, about: AccountSubject, screen: Screen) -> str:  # noqa: ARG002 - limits are no part of it
        """Return it in words, at the length that the screen allows."""
        return self.text


class LimitsNotHeld(Account, frozen=True, kw_only=True):
    """Limits of the result do not hold, or it is worse than its baseline."""

    failure: Failure
    judged: int
    """How many of the result's limits fail the test: the first ones; those behind them only warn."""
    warns: bool = False
    """Whether it is those that only warn."""
    baseline: BaselineFailure | None = None
    kept: Kept = Kept()

    def text_of(self, about: AccountSubject, screen: Screen) -> str:
        text = failure_text(*self._facts(about.limits), screen)
        return f"{labelled(about.label, text, screen.columns)}{self.kept.lines(screen.columns)}"

    def in_one_line(self, limits: tuple[Verdict, ...]) -> str:
        """Return the line on it that pytest's summary has, where these are the result's limits."""
        not_held, _, lines = self._facts(limits)
        return in_one_line(not_held, lines)

    def _facts(self, limits: tuple[Verdict, ...]) -> tuple[list[Verdict], Failure, tuple[FailureLine, ...]]:
        of_this = limits[self.judged :] if self.warns else limits[: self.judged]
        not_held = [verdict for verdict in of_this if verdict.status != HOLDS]
        lines = () if self.baseline is None else tuple(self.baseline.lines(beside_limits=bool(not_held)))
        return not_held, self.failure, lines


class WithoutMeasurement(Account, frozen=True, kw_only=True):
    """There is no measurement to judge."""

    why: decoding.AnyReason
    asks_doctor: bool = False
    """Whether the profiler or the device is the cause."""
    kept: Kept = Kept()

    def text_of(self, about: AccountSubject, screen: Screen) -> str:
        text = unmeasured_texts(self.why, screen.columns, ask_the_doctor=self.asks_doctor).whole
        return f"{labelled(about.label, text, screen.columns)}{self.kept.lines(screen.columns)}"


class Doubted(Account, frozen=True):
    """The recording's numbers cannot be believed."""

    SENTENCE = "{why}"

    why: decoding.AnyReason


class NotJudgedOnCpu(Account, frozen=True):
    """The CPU stood in for a GPU that is missing, and cannot answer all that was asked."""

    numbers: tuple[str, ...]

    @property
    def sentence(self) -> str:
        return unjudged_without_gpu(self.numbers)


class BodyFailed(Account, frozen=True):
    """The test's own code raised an error."""

    SENTENCE = "the test itself failed: {error}"

    error: str
    """The error's class."""


class PassedUnexpectedly(Account, frozen=True):
    """The test is marked as expected to fail, and did not."""

    SENTENCE = "the test is expected to fail (xfail with strict=True) and has passed"


class OwnError(Struct, frozen=True):
    """An error of this package that the test's own code has raised: its reason, or the limits of which it speaks."""

    why: decoding.AnyReason | None = None
    not_held: tuple[Verdict, ...] = ()
    announced: bool = False
    """Whether it says in front of the reason that something is not measured."""

    def __str__(self) -> str:
        """Return the failure in a line, as the short summary has it."""
        if self.why is None:
            return in_one_line(self.not_held, ())
        line = first_line(str(self.why))
        return unmeasured_text(line) if self.announced else line


class _OfOwnErrors:
    """Errors of this package that the test's own code has raised."""

    __slots__ = ()
    errors: tuple[OwnError, ...]

    @property
    def sentence(self) -> str:
        return "; also: ".join(map(str, self.errors))


class BodyRaisedOurs(_OfOwnErrors, Account, frozen=True):
    """The test's own code raised an error of this package, such as that of a wrong argument."""

    errors: tuple[OwnError, ...]


class ExpectFailed(_OfOwnErrors, Account, frozen=True):
    """Limits that the test's own code gave to ``expect()`` do not hold."""

    errors: tuple[OwnError, ...]


class BodySkipped(Account, frozen=True):
    """The test's own code skipped it."""

    SENTENCE = "the test skipped itself: {explanation}"

    explanation: str


class TimesFail(Account, frozen=True):
    """Its times, compared with a commit's, fail it."""

    commit: str

    def text_of(self, about: AccountSubject, screen: Screen) -> str:  # noqa: ARG002 - its lines are as long as they are
        return "" if about.time is None else about.time.failure(self.commit)


class EndedOnRank(Account, frozen=True, kw_only=True):
    """The test ended worse on another rank of the job."""

    outcome: str
    """As pytest calls it, or "xfailed"."""
    rank: int
    in_teardown: bool = False
    explanation: decoding.AnyReason | str = ""
    """Why it was not measured there, or what pytest reports."""

    @property
    def sentence(self) -> str:
        where = f"rank {self.rank}, in its teardown" if self.in_teardown else f"rank {self.rank}"
        text = f"{self.outcome} on {where}{f': {explained(self.explanation)}' if self.explanation else ''}"
        return coded(text, Code.OTHER_RANK) if self.outcome == "failed" else text


class ReportedByPytest(Account, frozen=True):
    """A rank of the job failed, as the line of pytest's report says."""

    SENTENCE = "{error}"

    error: str


class RankLost(Account, frozen=True):
    """A rank of the job came to no end, or ended in the middle."""

    why: decoding.AnyReason
    """Why it is lost, or why none of them goes on."""
    process: CacheProcess | None = None
    """The purpose of the process, where it is no rank of several."""
    rank: int | None = None
    """Which it is; None where all of them stand still."""
    ranks: int | None = None

    @property
    def sentence(self) -> str:
        line = first_line(str(self.why))
        if self.rank is None:
            return unmeasured_text(line)
        return unmeasured_text(f"{self.process or f'rank {self.rank} of {self.ranks}'}: {line}")


class FromReport(Account, frozen=True):
    """The text that stands in a report of results."""

    SENTENCE = "{explanation}"

    explanation: str


KINDS: Final[tuple[type[Account], ...]] = tuple(Account.__subclasses__())

if TYPE_CHECKING:
    AnyAccount = Account
else:
    # A field of this type is decoded to the kind whose tag it has.
    AnyAccount = Union[KINDS]  # noqa: UP007 - of as many as there are


def text_of(account: tuple[AnyAccount, ...], about: AccountSubject, screen: Screen = DEFAULT) -> str:
    """Return an account in words; without a screen its lines are as long as they are."""
    return "\n".join(part.text_of(about, screen) for part in account)
