"""One measurement and what it came to: the form in which it travels between processes and lies in reports."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct, convert, to_builtins
from msgspec.structs import asdict

from pytest_torchprof.analysis.numbers import Numbers
from pytest_torchprof.baseline.entry import Times  # noqa: TC001 - msgspec reads the annotations
from pytest_torchprof.compare import Comparison  # noqa: TC001 - msgspec reads the annotations
from pytest_torchprof.compare.pace import PaceVerdict  # noqa: TC001 - msgspec reads the annotations
from pytest_torchprof.findings.catalogue import AnyFinding, from_words
from pytest_torchprof.limits import NOT_MEASURED, Verdict
from pytest_torchprof.trace.caches import CompileCaches  # noqa: TC001 - msgspec reads the annotations
from pytest_torchprof.trace.metadata import Environment  # noqa: TC001 - msgspec reads the annotations

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


class Outcome(StrEnum):
    """How a measurement came out."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"
    NOT_MEASURED = "not measured"
    XFAILED = "xfailed"
    """Failed, and the test is marked as one that does."""
    RECORDED = "recorded"
    """A recording by itself, of which nothing was asked."""
    GONE = "gone"
    """Measured only on the side that is compared with."""

    @property
    def is_failure(self) -> bool:
        """Whether it is one of those that fail a test."""
        return self in (Outcome.FAILED, Outcome.NOT_MEASURED)


class BaselineState(StrEnum):
    """How a measurement compares with its baseline, or what became of the entry that it should have written."""

    SAME = "same"
    BETTER = "better"
    CHANGED = "changed"
    AMBIGUOUS = "ambiguous"
    WORSE = "worse"
    NEW = "new"
    WRITTEN = "written"
    LEFT_TO_RANK_0 = "left to rank 0"
    NOT_WRITTEN = "not written"


class Summary(Numbers, frozen=True, kw_only=True):
    """The numbers of a measurement: medians over the steps."""

    worst: Numbers = Numbers()
    """The same of the step where each is worst."""


def summary_of(median: Numbers, worst: Numbers) -> Summary:
    """Return the medians with the worst steps' numbers beside them."""
    return Summary(**asdict(median), worst=worst)


class KernelCalls(Struct, frozen=True, kw_only=True):
    """The calls of the kernels of one name; times in microseconds."""

    name: str
    """Its short form, where it has one."""
    count: int
    time_us: float
    min_us: float
    max_us: float
    ops: tuple[str, ...] = ()
    """The operators that launched it."""


class TimeChange(Struct, frozen=True, kw_only=True):
    """How a time differs from the other commit's: medians in microseconds, and shares of the time there."""

    base_us: float
    here_us: float
    share: float
    low: float
    high: float
    """The ends of the interval of 95 %."""
    floor: float
    """By how much processes of the same code differ."""
    chance: float
    """How often chance would bring about as much."""


class TimeComparison(Struct, frozen=True, kw_only=True):
    """How the time of a measurement compares with another commit's."""

    verdict: PaceVerdict | Literal["new", "not judged", "not measured"]
    tolerance: float | None = None
    """By how much it may be slower."""
    words: str = ""
    seed: int | None = None
    """That of the order in which processes ran."""
    pairs: int = 0
    confirming_pairs: int = 0
    step: TimeChange | None = None
    kernels: TimeChange | None = None
    disturbed: tuple[str, ...] = ()


class Result(Struct, frozen=True, kw_only=True):
    """One measurement, how it came out, and what is known of it."""

    nodeid: str
    label: str | None = None
    outcome: Outcome
    message: str = ""
    """Why it failed, was skipped or not measured; empty when it passed."""
    baseline: str | None = None
    """The comparison with the baseline in words, None where none was asked for."""
    baseline_state: BaselineState | None = None
    changes: tuple[str, ...] = ()
    """What differs from the baseline without failing the test, a line each."""
    comparison: Comparison | None = None
    """All that differs, whether it fails the test or not; None where nothing is compared."""
    noise: tuple[str, ...] = ()
    """Those of the changes that are of numbers which vary from run to run and gate nothing."""
    limits: tuple[Verdict, ...] = ()
    summary: Summary | None = None
    """None where nothing was measured."""
    environment: Environment | None = None
    findings: tuple[AnyFinding, ...] = ()
    kernels: tuple[KernelCalls, ...] = ()
    """The kernels of the step shown; where it failed, or reports are written."""
    recording: str | None = None
    structure: str | None = None
    """A hash of the kernels in launch order: while it stays, a baseline sees the same. Only for reports."""
    time: Times | None = None
    """Untraced times where the test asks for them: median, quantiles, conditions."""
    time_share: float | None = None
    """By how much it may become slower than it was; None where times are not compared."""
    compile_caches: CompileCaches | None = None
    """What was found in the caches of torch.compile; None where it was not in use."""
    against_time: TimeComparison | None = None
    """How its time compares with another commit's; None where that was not asked."""
    location: tuple[str, int] | None = None
    """The test's file, relative to the root directory, and line."""
    culprit: tuple[str, int] | None = None
    """The line by which it failed, where it is known and lies in the root directory."""

    @property
    def name(self) -> str:
        """The test and, where there is one, the label."""
        return self.nodeid + (f" ({self.label})" if self.label else "")


def encode(results: Iterable[Result]) -> list[dict[str, Any]]:
    """Return results as JSON values."""
    return [to_builtins(result, enc_hook=str) for result in results]


def decode(plain: Iterable[Mapping[str, Any]]) -> tuple[Result, ...]:
    """Return the results of which these are the JSON values; msgspec.ValidationError where they are of none."""
    return convert(plain, tuple[Result, ...])


def as_reported(result: Result) -> dict[str, Any]:
    """Return a result as JSON values for those who read a report: with the words for its facts beside them."""
    (plain,) = encode([result])
    return {
        **plain,
        "limits": [
            {**facts, **_words_for(verdict)} for facts, verdict in zip(plain["limits"], result.limits, strict=True)
        ],
        "findings": [one.in_words() for one in result.findings],
        "summary": plain["summary"] or {},
        "environment": known_of(result.environment),
        "comparison": None if result.comparison is None else result.comparison.to_dict(),
    }


def from_report(plain: Mapping[str, Any]) -> dict[str, Any]:
    """Return a result that a report shows as msgspec takes it for a `Result`."""
    shown = plain.get("findings", ())
    return {**plain, "findings": list(map(from_words, shown)) if isinstance(shown, list) else shown}


def known_of(environment: Environment | None) -> dict[str, Any]:
    """Return what is known of where something was measured, as JSON values."""
    return {name: value for name, value in to_builtins(environment).items() if value is not None} if environment else {}


def _words_for(verdict: Verdict) -> dict[str, Any]:
    measured = verdict.number if verdict.number is not None else verdict.text
    return {
        "name": verdict.limit,
        "measured": None if verdict.status == NOT_MEASURED else measured,
        "message": verdict.text,
        "details": [line.strip() for one in verdict.evidence for line in one.lines],
    }
