"""The parts of a limit: a keyword, the reading of its value, the check, and the verdict with its rows of work."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from enum import StrEnum
from math import isfinite
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from pytest_torchprof.kernels.kernels import by_name
from pytest_torchprof.kernels.names.kernelname import FAMILIES
from pytest_torchprof.limits.evidence import AnyEvidence, FindingLine, WorkRow
from pytest_torchprof.limits.seen import AnySeen, outcome_text
from pytest_torchprof.reasons import decoding  # noqa: TC001 - as above
from pytest_torchprof.reasons.errors import UnknownLimit
from pytest_torchprof.reasons.step_title import StepTitle  # noqa: TC001 - as above
from pytest_torchprof.reasons.wrong_values import ValueForm, WrongValue
from pytest_torchprof.text import counted, printable, printable_line
from pytest_torchprof.text.reprs import bracketed

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Sequence

    from pytest_torchprof.analysis.analysis import Analysis
    from pytest_torchprof.analysis.origin import Origin, Places
    from pytest_torchprof.analysis.steps import StepProfile
    from pytest_torchprof.kernels.kernel import Kernel
    from pytest_torchprof.reasons.reason import Reason

    Compiled = TypeVar("Compiled")


GPU = "gpu"
"""Needs kernels of the device; cannot be answered by a CPU that stands in for a missing GPU."""
COMPILE = "compile"
"""Needs compile evidence only; a CPU can answer it."""


class Status(StrEnum):
    """The outcome of a limit."""

    HOLDS = "holds"
    MISSED = "missed"
    NOT_MEASURED = "not measured"


HOLDS, MISSED, NOT_MEASURED = Status


Unit = Literal["count", "us", "s", "bytes", "share", "ratio"]


class OnRanks(Struct, frozen=True, kw_only=True):
    """The ranks of a job on which a limit had this outcome."""

    first: int
    others: int
    """On how many other ranks it had this outcome."""
    of: int
    """How many ranks were judged."""
    job: int | None = None
    """How many the job has, where recordings of others are missing."""


class Verdict(Struct, frozen=True, kw_only=True):
    """The verdict on one limit: what it asked for, what was seen, and whether it holds."""

    limit: str = ""
    """The keyword, e.g. ``max_kernels``; ``check_limits`` fills it in."""
    range: str | None = None
    """The user's range within which it is asked for."""
    expected: str = ""
    """The value as the user wrote it; ``check_limits`` fills it in."""
    bound: float | None = None
    """The value where it is a number, in the unit below; ``check_limits`` fills it in."""
    status: Status
    seen: tuple[AnySeen, ...] = ()
    """The value that was seen, as facts."""
    number: float | None = None
    """The measured value where it is a number."""
    unit: Unit | None = None
    """The unit of the number and the bound."""
    reason: decoding.AnyReason | None = None
    """Why it is not measured, where it is not."""
    step: str | None = None
    """The step shown, where one step decided."""
    in_step: StepTitle | str | None = None
    """The name of that step for people; None where there is only one. Reports of earlier versions have it in words."""
    not_counted: tuple[tuple[str, int], ...] = ()
    """How many there were in other code, by its place."""
    rank: int | None = None
    """The rank that decided it, if that is another one."""
    on_ranks: OnRanks | None = None
    """The ranks with the same outcome, where several were judged."""
    evidence: tuple[AnyEvidence, ...] = ()
    """Facts to act on: rows of work with the operators that launched it, or lines with file and line."""
    line: tuple[str, int] | None = None
    """The file and line by which it was missed, if no row shows it."""
    wants_lines: bool = False
    """Whether lines of the user's code, which a repeat with stacks may find, would show more."""
    of_rule: bool | None = None
    """Whether a rule of the suite asked for it, and not the test itself; None outside of tests, and in reports of
    earlier versions, which do not say."""

    def __repr__(self) -> str:
        return bracketed(self, f"{self.written} {self.status}: {self.text}" if self.limit else str(self.status))

    @property
    def name(self) -> str:
        """The keyword, and the range where there is one: 'max_syncs in "decode"'."""
        return self.limit + self._within

    def on(self, limit: str, expected: str, *, within: str | None = None) -> Self:
        """Return it as the verdict on this limit, with its value as the user wrote it."""
        return replace(self, limit=limit, expected=expected, range=within)

    @property
    def text(self) -> str:
        """The measured value, or the reason why that is not known, in words."""
        rank = "" if self.rank is None else f"rank {self.rank}: "
        outcome = outcome_text(self.seen, self.in_step, self.reason)
        return f"{rank}{outcome}{self._not_counted}{self._on_ranks}"

    @property
    def _not_counted(self) -> str:
        places = ", ".join(f"{count} in {place}" for place, count in self.not_counted)
        return f"; not counted: {places}" if places else ""

    @property
    def _on_ranks(self) -> str:
        if self.on_ranks is None:
            return ""
        others = f", and {counted(self.on_ranks.others, 'other rank')} too" if self.on_ranks.others else ""
        job = self.on_ranks.job
        of = f"{self.on_ranks.of}" if job is None else f"{job}, of which {self.on_ranks.of} are recorded"
        return f" (rank {self.on_ranks.first} of {of}{others})"

    @property
    def written(self) -> str:
        """The limit as it was asked for: 'max_syncs=0 in "decode"'."""
        return f"{self.limit}={printable_line(self.expected)}{self._within}"

    @property
    def _within(self) -> str:
        return "" if self.range is None else f' in "{printable_line(self.range)}"'

    @property
    def rows(self) -> tuple[WorkRow, ...]:
        """The rows of work."""
        return tuple(fact for fact in self.evidence if isinstance(fact, WorkRow))

    @property
    def culprit(self) -> WorkRow | None:
        """The row of work that stands for all by which the limit was missed, the same in each run of the same code.

        It is the first one for a limit on time or bytes, else the one with most calls, and of those the earliest.
        """
        rows = [row for row in self.rows if not row.also_ran]
        if self.unit in ("us", "bytes"):
            return next(iter(rows), None)
        return min(rows, key=lambda row: (-row.count, row.order), default=None)

    @property
    def distance(self) -> float:
        """How far the number is from the bound, on either side of it; 0 where one of them is not known."""
        return 0.0 if self.number is None or self.bound is None else abs(self.number - self.bound)

    @property
    def is_of_several(self) -> bool:
        """Whether some of what it counts is allowed and there are several rows: which one is too many is not known."""
        return self.unit == "count" and bool(self.bound) and sum(not row.also_ran for row in self.rows) > 1

    @property
    def missed_at(self) -> tuple[str, int] | None:
        """The file and line by which it was missed; None where that of other work may be the one that is too much."""
        row = self.culprit
        if row is None or (self.is_of_several and len({row.line for row in self.rows}) > 1):
            return self.line
        return row.line or self.line

    @property
    def has_known_cause(self) -> bool:
        """Whether it was missed, and the code by which it was is known."""
        findings = [fact.finding for fact in self.evidence if isinstance(fact, FindingLine)]
        located = self.missed_at is not None or any(finding.source is not None for finding in findings)
        return self.status == MISSED and located


class Setting(Struct, frozen=True, kw_only=True):
    """A keyword that is no limit itself and changes what others count; ``read`` is like that of a limit."""

    name: str
    read: Callable[[object], Any]


class Limit(Struct, frozen=True, kw_only=True):
    """One keyword of the marker: ``read`` turns its value into what ``check`` takes, or raises UnknownLimit."""

    name: str
    read: Callable[[object], Any]
    check: Callable[..., Verdict | tuple[Verdict, ...]]
    """Takes the analysis, the value, and by name each setting that was given; each of several verdicts names its
    subject."""
    settings: tuple[Setting, ...] = ()
    """The settings that change how it counts; several limits may share one."""
    needs: str = GPU
    on_gpu_work: bool = True
    """A step without GPU operations cannot satisfy it, unless the test says ``min_kernels=0``."""
    on_time: bool = False
    """Meaningless where launches block (``CUDA_LAUNCH_BLOCKING=1``)."""
    located: bool = True
    """It is missed by work that was launched from somewhere: a recording with stacks shows the lines."""
    unit: Unit | None = None
    """The unit of its value and of the number that is seen, if these are numbers."""
    per_step: bool = False
    """It is judged by each step alone, and so within ranges too."""
    families: Collection[str] = FAMILIES
    """The families to which it takes kernels of no known family not to belong; empty: it asks about each kernel itself,
    or about none. If it holds only on that assumption, it is not measured."""
    missed_by_more: bool = True
    """More work on the GPU than is recorded might miss it: it does not hold where a recording seems to lack some."""
    of_events_alone: bool = False
    """It asks neither what operators were given nor what the compiler did: names, numbers and times of events tell."""


def unmeasured(reason: Reason, evidence: tuple[AnyEvidence, ...] = (), *, step: str | None = None) -> Verdict:
    """Return the verdict on a limit that could not be measured."""
    return Verdict(reason=reason, status=NOT_MEASURED, evidence=evidence, step=step)


def title_among(analysis: Analysis, step: StepProfile) -> StepTitle | None:
    """Return the name of a step for people; None for the only one."""
    return analysis.title_of(step) if len(analysis.steps) > 1 else None


def whole_number(value: object) -> int:
    """Return a count, or raise UnknownLimit."""
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    raise UnknownLimit.because(WrongValue(ValueForm.WHOLE_NUMBER, repr(value), least=0))


def positive_number(value: object) -> float:
    """Return a finite number from 0, or raise UnknownLimit."""
    if isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value) and value >= 0:
        return float(value)
    raise UnknownLimit.because(WrongValue(ValueForm.NUMBER, repr(value), least=0))


def fraction(value: object) -> float:
    """Return a number from 0 to 1, or raise UnknownLimit."""
    number = positive_number(value)
    if number > 1:
        raise UnknownLimit.because(WrongValue(ValueForm.SHARE, repr(value)))
    return number


def as_list(value: object) -> list[object]:
    """Return a single value as a list of it; a tuple, set or list as a list; refuse an empty one."""
    items = as_groups(value)
    for item in items:
        if isinstance(item, list | dict | set | tuple):
            raise UnknownLimit.because(WrongValue(ValueForm.SINGLE_ENTRIES, repr(item)))
    return items


def as_groups(value: object) -> list[object]:
    """Return the value as `as_list` does, for entries that may be lists themselves."""
    items = list(value) if isinstance(value, list | tuple | set | frozenset) else [value]
    if not items:
        raise UnknownLimit.because(WrongValue(ValueForm.AN_ENTRY, repr(value)))
    return items


def bounds(value: object) -> tuple[int, int]:
    """Return ``(low, high)`` from an exact count or a pair of counts, or raise UnknownLimit."""
    if isinstance(value, tuple | list):
        if len(value) == 2:
            low, high = whole_number(value[0]), whole_number(value[1])
            if low <= high:
                return low, high
        raise UnknownLimit.because(WrongValue(ValueForm.COUNT, repr(value)))
    count = whole_number(value)
    return count, count


def as_counts(value: object) -> dict[object, tuple[int, int] | None]:
    """Return entry -> (low, high), None meaning "at least one", from a dict, a list or a single entry."""
    if isinstance(value, Mapping):
        if not value:
            raise UnknownLimit.because(WrongValue(ValueForm.AN_ENTRY, repr(value)))
        return {entry: bounds(count) for entry, count in value.items()}
    return dict.fromkeys(as_list(value))


def counts_of(compiled: Callable[[Any], Compiled], value: object) -> dict[Compiled, tuple[int, int] | None]:
    """Return the counts of ``as_counts``, by the pattern that an entry is compiled to."""
    return {compiled(entry): count for entry, count in as_counts(value).items()}


def group_kernels(
    step: StepProfile, kernels: Iterable[Kernel] | None = None, *, raw: bool = False
) -> tuple[WorkRow, ...]:
    """Return one row per name of the step's kernels, or of these: most calls first, then most time.

    ``raw``: by the names that patterns match, instead of what they say.
    """
    named = by_name(step.kernels if kernels is None else kernels)
    # By their places in the step, for rows of several patterns stand below one limit.
    order = {_which(kernel): number for number, kernel in enumerate(step.kernels)}
    rows = (
        replace(_row(step.places, name, members, raw=raw), order=order[_which(members[0])])
        for name, members in named.items()
    )
    return in_order(rows)


def _which(kernel: Kernel) -> tuple[object, ...]:
    """Return the facts that tell a kernel from the others of its step; a range makes its kernels anew each time."""
    return kernel.start_ns, kernel.device, kernel.stream, kernel.name


def in_order(rows: Iterable[WorkRow]) -> tuple[WorkRow, ...]:
    """Return the rows in the order in which they are shown: most calls first, then most time."""
    return tuple(sorted(rows, key=lambda row: (-row.count, -(row.time_us or 0))))


def numbered_in_order(rows: Iterable[WorkRow]) -> tuple[WorkRow, ...]:
    """Return rows, which come in the order of the recording, in that in which they are shown; they know the former."""
    return in_order(replace(row, order=order) for order, row in enumerate(rows))


def longest_first(rows: Iterable[WorkRow]) -> tuple[WorkRow, ...]:
    """Return the rows in the order in which a limit on time shows them."""
    return tuple(sorted(rows, key=lambda row: -(row.time_us or 0)))


def _row(places: Places, name: str, kernels: list[Kernel], *, raw: bool) -> WorkRow:
    shown = name if raw else kernels[0].short or name
    ops = dict.fromkeys(kernel.launcher or "?" for kernel in kernels)
    return WorkRow(
        count=len(kernels),
        name=printable(shown),
        full=printable(name),
        time_us=sum(kernel.dur_ns for kernel in kernels) / 1000,
        ops=tuple(map(printable, ops)),
        # In the order of the kernels: of places that occur as often, the same one comes first in any process.
        **place_fields(places.of(dict.fromkeys((name, kernel.op) for kernel in kernels))),
    )


def group_others(step: StepProfile, hits: Sequence[Kernel]) -> tuple[WorkRow, ...]:
    """Return one row per name of the step's kernels that are not among ``hits``, for comparison."""
    known = set(map(_which, hits))
    others = group_kernels(step, [kernel for kernel in step.kernels if _which(kernel) not in known])
    return tuple(replace(row, also_ran=True) for row in others)


def list_operators(step: StepProfile, calls: Mapping[str, int], launching: Container[str]) -> tuple[WorkRow, ...]:
    """Return one row per operator with its number of calls, in the given order; it notes those not in ``launching``."""
    order = {name: number for number, name in enumerate(step.ops_that_ran)}
    return tuple(
        WorkRow(
            count=count,
            name=printable(name),
            full=printable(name),
            launched_nothing=name not in launching,
            order=order[name],
            **place_fields(step.places.of_operator(name)),
        )
        for name, count in calls.items()
    )


def place_fields(places: Sequence[tuple[int, Origin]]) -> dict[str, Any]:
    """Return the places with how often each occurs, most first, as the fields of a row."""
    first = places[0][1] if places else None
    return {
        "places": tuple((count, printable(str(origin))) for count, origin in places),
        "line": (first.file, first.line) if first is not None and first.file is not None else None,
    }
