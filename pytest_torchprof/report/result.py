"""One measurement with its outcome: the form in which it travels between processes and is kept in reports."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec import UNSET, Struct, UnsetType, convert, to_builtins
from msgspec.structs import asdict, replace

from pytest_torchprof.analysis.numbers import Numbers
from pytest_torchprof.baseline.entry import Times, times_of
from pytest_torchprof.baseline.form import EntryFields  # noqa: TC001 - msgspec reads the annotations
from pytest_torchprof.compare import Comparison  # noqa: TC001 - msgspec reads the annotations
from pytest_torchprof.compare.comparison_json import comparison_json
from pytest_torchprof.compare.time_comparison import TimeComparison  # noqa: TC001 - msgspec reads the annotations
from pytest_torchprof.findings.catalogue import AnyFinding, from_words
from pytest_torchprof.kernels.kernels import by_name
from pytest_torchprof.limits import DEFAULT, Verdict
from pytest_torchprof.reasons import decoding  # noqa: TC001 - msgspec reads the annotations
from pytest_torchprof.reasons.decoding import from_plain
from pytest_torchprof.reasons.reason import Verbatim
from pytest_torchprof.report.account import AccountSubject, AnyAccount, FromReport, text_of
from pytest_torchprof.report.outcome import BaselineState, Outcome
from pytest_torchprof.report.verdicts import verdict_json, verdict_values
from pytest_torchprof.trace.caches import CompileCaches  # noqa: TC001 - msgspec reads the annotations
from pytest_torchprof.trace.metadata import Environment  # noqa: TC001 - msgspec reads the annotations

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pytest_torchprof.analysis.analysis import Analysis
    from pytest_torchprof.analysis.numbers import Number
    from pytest_torchprof.findings import Finding
    from pytest_torchprof.kernels.kernel import LaunchedKernel
    from pytest_torchprof.limits import Screen


NOTHING_COMPARED: Final = (None, BaselineState.NEW, BaselineState.UNKNOWN)
"""The states of measurements without anything to compare them with."""
_OF_WORST: Final = ("count", "bytes")
_WRITING: Final = (BaselineState.WRITTEN, BaselineState.LEFT_TO_RANK_0, BaselineState.NOT_WRITTEN)


class Summary(Numbers, frozen=True, kw_only=True):
    """The numbers of a measurement: medians over the steps."""

    worst: Numbers = Numbers()
    """The same numbers, each of its worst step; empty in reports of earlier versions."""

    def decisive(self, number: Number) -> float | None:
        """Return a number as verdicts name it: counts and sizes of the worst step, others as the median."""
        median: float | None = getattr(self, number.name)
        worst: float | None = getattr(self.worst, number.name)
        return median if worst is None or number.unit not in _OF_WORST else worst


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


def calls_of(kernels: Iterable[LaunchedKernel]) -> tuple[KernelCalls, ...]:
    """Return the calls of kernels by name, those that take most time first."""
    rows = []
    for name, members in by_name(kernels).items():
        times_us = [kernel.dur_ns / 1000 for kernel in members]
        rows.append(
            KernelCalls(
                name=members[0].decoded.short or name,
                count=len(members),
                time_us=sum(times_us),
                min_us=min(times_us),
                max_us=max(times_us),
                ops=tuple(dict.fromkeys(kernel.op for kernel in members if kernel.op)),
            )
        )
    return tuple(sorted(rows, key=lambda row: -row.time_us))


class Result(Struct, frozen=True, kw_only=True):
    """One measurement, its outcome, and what is known of it."""

    nodeid: str
    label: str | None = None
    rank: int | None = None
    """Which rank of a job it is of; None of a process alone."""
    ranks: int | None = None
    """How many ranks the job has; None of a process alone."""
    device: str = "auto"
    """As it was asked for."""
    source: str | None = None
    """A hash of the test's source; as ``structure``, only for later readers."""
    outcome: Outcome
    account: tuple[AnyAccount, ...] = ()
    """The account of its failure, or why it was skipped or not measured; empty when it passed."""
    for_ranks: bool = False
    """Whether it stands for all ranks of its job: it came out worst on this one."""
    reason: decoding.AnyReason | None = None
    """Why it is not measured, as a reason, if there is one."""
    baseline_state: BaselineState | None = None
    """None if no comparison with a baseline was asked for."""
    comparison: Comparison | None = None
    """How it compares with its baseline; None if there is none."""
    baseline_fails: bool = False
    """Whether the comparison fails the test, whose message then says what differs."""
    limits: tuple[Verdict, ...] = ()
    summary: Summary | None = None
    """None if nothing was measured."""
    environment: Environment | None = None
    findings: tuple[AnyFinding, ...] = ()
    telling: dict[str, AnyFinding] = {}
    """By the names of limits that were missed, the findings that tell better than these what to do."""
    kernels: tuple[KernelCalls, ...] = ()
    """The kernels of the step that is shown, if it failed or reports are written."""
    recording: str | None = None
    structure: str | None = None
    """A hash of the kernels in launch order: while it stays, a baseline sees the same. Only for later readers."""
    entry: EntryFields | UnsetType = UNSET
    """The entry that a baseline would keep of it; only in the record of a run."""
    time: Times | None = None
    """Untraced times if the test asks for them: median, quantiles, conditions."""
    time_share: float | None = None
    """By how much it may become slower; None if times are not compared."""
    compile_caches: CompileCaches | None = None
    """The use of torch.compile's caches; None if it was not in use."""
    compile_us: dict[str, int] = {}
    """How long torch.compile took in each phase, without the phases inside it; only those that torch has measured."""
    against_time: TimeComparison | None = None
    """How its time compares with another commit's; None if that was not asked for."""
    of_rule: bool = False
    """Whether nothing but a rule of the suite asked for it."""
    location: tuple[str, int] | None = None
    """The test's file, relative to the root directory, and line."""
    culprit: tuple[str, int] | None = None
    """The line that made it fail, if it is known and lies in the root directory."""

    @property
    def name(self) -> str:
        """The test and, where there is one, the label."""
        return self.nodeid + (f" ({self.label})" if self.label else "")

    @property
    def message(self) -> str:
        """The text of its failure, or why it was skipped or not measured; empty when it passed."""
        return self.message_on(DEFAULT)

    def message_on(self, screen: Screen) -> str:
        """Return the message in the room of a screen."""
        text = text_of(self.account, AccountSubject(self.label, self.limits, self.against_time), screen)
        return f"rank {self.rank} of {self.ranks}: {text}" if text and self.for_ranks else text

    @property
    def baseline(self) -> str | None:
        """How it compares with its baseline, in a table's cell: "worse (+1 kernel)", "written"."""
        state = self.baseline_state
        if state is None or self.comparison is None or state is BaselineState.NOT_WRITTEN:
            return state
        return f"{state} ({self.comparison.summary})" if state in _WRITING else self.comparison.summary

    @property
    def change_lines(self) -> tuple[str, ...]:
        """The differences that no failure shows, a line each."""
        return (*self.decided_lines(), *self.varied_lines)

    def decided_lines(self, *, every: bool = True) -> tuple[str, ...]:
        """Return the differences that the code decides and no failure shows, a line each.

        ``every``: all kernels, not only the first ones.
        """
        lines = self._shown.decided(every=every) if self._shown is not None else ()
        time = self.against_time
        return lines if time is None or time.verdict == "same" else (*lines, *_time_lines(time))

    @property
    def varied_lines(self) -> tuple[str, ...]:
        """The figures that vary from run to run and gate nothing, a line each."""
        lines = self._shown.varied() if self._shown is not None else ()
        time = self.against_time
        return (*lines, *_time_lines(time)) if time is not None and time.verdict == "same" else lines

    @property
    def _shown(self) -> Comparison | None:
        """The comparison, unless a failure shows it or a new entry has replaced it."""
        return None if self.baseline_fails or self.baseline_state in _WRITING else self.comparison


def _time_lines(time: TimeComparison) -> tuple[str, ...]:
    return () if time.fails and not time.failed_before else time.lines_with_remedy


def with_numbers(result: Result, analysis: Analysis) -> Result:
    """Return a result with the numbers that every judged measurement has, whatever was asked of it."""
    return replace(result, summary=summary_of(analysis.median, analysis.worst), time=times_of(analysis))


def encode(results: Iterable[Result]) -> list[dict[str, Any]]:
    """Return results as JSON values."""
    return [to_builtins(result, enc_hook=str) for result in results]


def decode(plain: Iterable[Mapping[str, Any]]) -> tuple[Result, ...]:
    """Return the results that these JSON values represent; msgspec.ValidationError if they represent none."""
    return convert(plain, tuple[Result, ...])


IN_MESSAGE: Final = ("account", "for_ranks")
"""Fields that a report renders into its message, and does not list again."""


def as_reported(result: Result) -> dict[str, Any]:
    """Return a result as JSON values for the readers of a report, with the words for its facts."""
    (plain,), time = encode([replace(result, account=(), entry=UNSET, limits=())]), result.against_time

    def why(limit: str) -> tuple[Finding, ...]:
        return (result.telling[limit],) if limit in result.telling else ()

    facts = {name: fact for name, fact in plain.items() if name not in IN_MESSAGE}
    return {
        **facts,
        "message": result.message,
        "baseline": result.baseline,
        "changes": list(result.change_lines),
        "noise": list(result.varied_lines),
        "limits": [verdict_values(verdict_json(verdict, why)) for verdict in result.limits],
        "findings": [finding.in_words() for finding in result.findings],
        "telling": {limit: finding.in_words() for limit, finding in result.telling.items()},
        "summary": plain["summary"] or {},
        "environment": known_of(result.environment),
        "comparison": None if result.comparison is None else to_builtins(comparison_json(result.comparison)),
        "against_time": time and {**plain["against_time"], "words": time.words},
    }


def from_report(plain: Mapping[str, Any]) -> dict[str, Any]:
    """Return a reported result in the form from which msgspec makes a `Result`."""
    shown, time = plain.get("findings", ()), plain.get("against_time")
    telling = plain.get("telling", {})
    limits = plain.get("limits", [])
    message = plain.get("message")
    return {
        **_with_reason(plain),
        **({"account": [FromReport(message).to_plain()]} if message and isinstance(message, str) else {}),
        "limits": list(map(_with_reason, limits)) if isinstance(limits, list) else limits,
        "findings": list(map(from_words, shown)) if isinstance(shown, list) else shown,
        "telling": {limit: from_words(of_limit) for limit, of_limit in telling.items()}
        if isinstance(telling, dict)
        else telling,
        "against_time": _time_from_report(time) if isinstance(time, dict) else time,
    }


def _with_reason(plain: Any) -> Any:
    """Return plain data with its reason as this version knows it; an unknown one keeps the words it came with."""
    if not isinstance(plain, dict) or not isinstance(reason := plain.get("reason"), dict):
        return plain
    return {**plain, "reason": from_plain(reason).to_plain()}


def _time_from_report(plain: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a time comparison in msgspec's form: earlier versions wrote only in words why there are no times."""
    if plain.get("step") is not None or "reason" in plain or not isinstance(plain.get("words"), str):
        return plain
    return {**plain, "reason": Verbatim(plain["words"]).to_plain()}


def known_of(environment: Environment | None) -> dict[str, Any]:
    """Return the known fields of an environment as JSON values."""
    return {name: value for name, value in to_builtins(environment).items() if value is not None} if environment else {}
