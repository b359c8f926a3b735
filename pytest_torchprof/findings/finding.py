"""The base of findings, and of the rules that make them, with thresholds and with what a recording must hold."""

from __future__ import annotations

import math
from collections import defaultdict
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, NamedTuple, TypeAlias

from msgspec import Struct, field, to_builtins
from msgspec.structs import replace

from pytest_torchprof.findings.events import Events  # noqa: TC001  (the type of a field, which msgspec looks up)
from pytest_torchprof.reasons.errors import UnknownLimit
from pytest_torchprof.reasons.findings import (
    BlocksNotRecorded,
    NoOperatorLaunched,
    NoOperatorRecorded,
    NothingLinked,
    OccupancyNotRecorded,
    ReadFromGpuWork,
    ShapesNotRecorded,
)
from pytest_torchprof.reasons.reason import Reason  # noqa: TC001  (the type of a field, which msgspec looks up)
from pytest_torchprof.reasons.wording import worded_of
from pytest_torchprof.text import is_huge
from pytest_torchprof.text.reprs import bracketed, short_name

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from pytest_torchprof.analysis.analysis import Analysis
    from pytest_torchprof.analysis.gpu_work import Group

Severity = Literal["recording", "warning", "information"]
"""About the recording itself; about time that could be saved; good to know."""
_NO_FACTS = ("finding", "saves_us", "events")
_PLACES: Final[Mapping[Severity, int]] = {"recording": 0, "warning": 1, "information": 2}
ACTION_WIDTH: Final = 67
"""Columns of what to do first, where it does not fit any other line."""
Fact: TypeAlias = bool | int | float | str | list[Any] | dict[str, Any] | None
"""A JSON value."""


# Limits that are missed for the same reasons.
HOW_MANY_KERNELS = ("max_kernels", "max_launches")
HOST_PACE = ("max_cpu_gpu_ratio", "min_gpu_utilization", "min_sm_efficiency", "min_mfu")
SLOW_KERNELS = ("min_mfu", "max_gpu_time")
WHICH_KERNELS = ("kernels", "only_kernels", "forbid_kernels")
WHICH_OPERATORS = ("ops", "forbid_ops", "fused")


class Finding(Struct, frozen=True, kw_only=True, tag_field="finding"):
    """Something a person reading the trace would point at: the facts of it as typed fields.

    Each finding is a class in `catalogue`, tagged with its code: a title, the sentence with the facts in braces
    (`wording.worded`), what to do, and the facts, which are plain data: counts, times over all steps in microseconds
    (``_us``), ``share`` of the window, kernel and operator names, steps. A sentence may name properties too.
    """

    if TYPE_CHECKING:  # As in `reasons.statement`.
        TITLE: ClassVar[str]
        SENTENCE: ClassVar[str]
    REMEDY = ""
    ACTION = ""
    """The remedy in the room of a line; empty where the remedy is as short."""
    SEVERITY: ClassVar[Severity] = "warning"

    saves_us: float = 0.0
    """The most that could be saved over all steps, in microseconds; findings are ranked by it."""
    source: str | None = None
    """File and line of the user's code, where stacks were recorded; the function, where its lines were not."""
    events: Events | None = None
    """The events of the recording that it is of; None where it is told without them, or is of none."""

    def __repr__(self) -> str:
        place = f" at {short_name(self.source)}" if self.source else ""
        return bracketed(self, f"{self.code}{place}: {self.message}", kind="Finding")

    @property
    def code(self) -> str:
        """The code by which users name it, such as `launch-gaps`."""
        return str(self.__struct_config__.tag)

    @property
    def title(self) -> str:
        """The name of its kind."""
        return self.TITLE

    @property
    def message(self) -> str:
        """The statement of the problem."""
        return self.words(self.SENTENCE)

    @property
    def remedy(self) -> str:
        """The advice on what to do about it."""
        return self.words(self.REMEDY)

    @property
    def action(self) -> str:
        """The first thing to do about it, in the room of a line."""
        return self.words(self.ACTION) or self.remedy

    @property
    def subjects(self) -> frozenset[str]:
        """The kernels and operators that it is about, as far as it names them."""
        return frozenset()

    @property
    def asks_for_stacks(self) -> bool:
        """Whether what to do about it first is to record Python functions."""
        return False

    @property
    def severity(self) -> Severity:
        """Whether the finding is about the recording, about lost time, or for information."""
        return self.SEVERITY

    @property
    def place(self) -> int:
        """Its rank in lists: about the recording 0, about lost time 1, for information 2, behind all others 3 and 4."""
        return _PLACES[self.severity]

    @property
    def evidence(self) -> dict[str, Fact]:
        """The facts as JSON values, without those that are not known."""
        facts = {name: fact for name, fact in to_builtins(self).items() if name not in _NO_FACTS}
        return {
            name: list(fact) if isinstance(fact, tuple) else fact for name, fact in facts.items() if fact is not None
        }

    @property
    def at(self) -> str:
        """Where it is, to be put behind its title: the line of the user's code; empty where none is known."""
        return "" if self.source is None else f" at {self.source}"

    @property
    def in_one_line(self) -> str:
        """Code and message, with the line of the user's code where it is known."""
        return f"{self.code}: {self.message_with_place}"

    @property
    def message_with_place(self) -> str:
        """The message, with the line of the user's code where it is known."""
        message = self.message
        if self.source is None or replace(self, source=None).message != message:
            return message
        # The line of a function stands in parentheses itself.
        return f"{message}; at {self.source}" if "(" in self.source else f"{message} ({self.source})"

    def words(self, sentence: str) -> str:
        """Return a sentence with the facts put in."""
        return worded_of(self, sentence)

    def in_words(self) -> dict[str, Fact]:
        """Return it as people read it in JSON."""
        names = ("code", "title", "message", "evidence", "remedy", "severity", "saves_us")
        return {name: getattr(self, name) for name in names}


class NamesKernels:
    """The kernels that a finding is about, and the operators behind them."""

    __slots__ = ()
    kernels: tuple[str, ...]
    ops: tuple[str, ...]

    @property
    def subjects(self) -> frozenset[str]:
        """The names of what it is about."""
        return frozenset((*self.kernels, *self.ops))


class OfKernels(NamesKernels, Finding, frozen=True, kw_only=True, tag="of-kernels"):
    """A finding about kernels: which ones, how long they took, and who launched them."""

    time_us: float
    """The sum over all steps."""
    share: float
    """The share of the window in which one of them ran."""
    count: int
    kernels: tuple[str, ...]
    """The names of the kernels, the longest time first, at most five."""
    ops: tuple[str, ...]
    """The operators that launched them, in the same order, at most five."""

    @property
    def longest(self) -> str:
        """The name of what takes longest."""
        return self.kernels[0]


class InRange(Finding, frozen=True, kw_only=True):
    """A finding that is told with the program's range, where most of it lies in one."""

    _WITHIN: ClassVar[str] = " in the range {within:name}"

    within: str | None = None
    """The narrowest range of the program's with at least half of it."""

    @property
    def in_range(self) -> str:
        """The range that holds most of it, if there is one."""
        return "" if self.within is None else self.words(self._WITHIN)

    @property
    def at(self) -> str:
        return super().at or self.in_range


class Threshold(Struct, frozen=True, eq=False):
    """The value from which a rule has a finding; an integer is a count and stays an integer."""

    name: str
    value: float
    reason: str

    def __repr__(self) -> str:
        return bracketed(self, f"{self.name}={self.value}")


class Need(Struct, frozen=True, eq=False):
    """A fact that a recording must hold for a rule to decide."""

    missing: Reason
    """The reason that is given where the recording lacks it."""
    there: Callable[..., bool]
    """Takes the analysis and the values of the thresholds below."""
    by: tuple[Threshold, ...] = ()
    of_gpu: bool = False
    """Whether it is a GPU's, so that no recording of another device has it."""

    def __repr__(self) -> str:
        return bracketed(self, self.missing.code, *map(repr, self.by))

    def why_missing(self, analysis: Analysis, *values: float) -> Reason | None:
        """Return the reason if the recording lacks what is needed, else None; ``values`` belong to the thresholds."""
        if self.there(analysis, *values):
            return None
        return self.missing if analysis.trace.device_kind.has_launches or not self.of_gpu else ReadFromGpuWork()


class Rule(Struct, frozen=True, kw_only=True):
    """A rule: the function that looks for a finding, and the limits whose misses the finding explains.

    ``find`` takes the analysis and, where the rule has thresholds, their values by threshold.
    """

    code: str
    """The finding's, by which it is forbidden."""
    find: Callable[..., Iterable[Finding]]
    thresholds: tuple[Threshold, ...] = ()
    changed: Mapping[Threshold, float] = field(default_factory=dict)
    """The values that someone set; the others are as they come."""
    needs: tuple[Need, ...]
    """The facts that it reads; empty if every recording has them, of any device and recorded in any way."""
    explains: Collection[str] = ()
    """Limits that may be missed for this reason; what a limit lists itself does not explain it."""

    def __repr__(self) -> str:
        return f"<Rule {self.code}>"

    def blind(self, analysis: Analysis) -> Reason | None:
        """Return the reason why this recording does not let the rule decide, None if it does."""
        values = {need: [self.changed.get(threshold, threshold.value) for threshold in need.by] for need in self.needs}
        reasons = (need.why_missing(analysis, *at) for need, at in values.items())
        return next((reason for reason in reasons if reason is not None), None)

    def look(self, analysis: Analysis) -> Iterable[Finding]:
        """Return the rule's findings."""
        if not self.thresholds:
            return self.find(analysis)
        values = {threshold: self.changed.get(threshold, threshold.value) for threshold in self.thresholds}
        return self.find(analysis, values)


def ranked(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return findings about the recording first, then warnings by the time that could be saved, then the rest."""
    return tuple(sorted(findings, key=lambda finding: (finding.place, -finding.saves_us)))


WORTH_TELLING = 0.01
"""The share of the window below which nothing stands out."""


def _shapes(analysis: Analysis) -> bool:
    return any(analysis.launching.operands(inputs)[1] is not None for inputs in set(analysis.trace.ops.inputs))


GPU_WORK = Need(
    missing=ReadFromGpuWork(),
    there=lambda analysis: analysis.trace.device_kind.has_launches,
)
CPU_SIDE = Need(
    missing=NoOperatorRecorded(),
    there=lambda analysis: len(analysis.trace.ops) > 0,
)
LAUNCHES = Need(
    missing=NothingLinked(),
    there=lambda analysis: any(call >= 0 for call in analysis.trace.links.call_of),
    of_gpu=True,
)
OPERATORS = Need(
    missing=NoOperatorLaunched(),
    there=lambda analysis: any(analysis.launching.op_of[i] >= 0 for i in analysis.gpu_work.gpu_ops),
    of_gpu=True,
)
SHAPES = Need(missing=ShapesNotRecorded(), there=_shapes)
BLOCKS_PER_SM = Need(
    missing=BlocksNotRecorded(),
    there=lambda analysis: any(blocks >= 0 for blocks in analysis.trace.gpu.blocks_per_sm),
    of_gpu=True,
)
OCCUPANCY = Need(
    missing=OccupancyNotRecorded(),
    there=lambda analysis: any(percent >= 0 for percent in analysis.trace.gpu.occupancy),
    of_gpu=True,
)


def need_known_kernels(
    missing: Reason,
    open_of: Callable[[Analysis, Group], bool],
    least: Threshold,
    *,
    surely: Callable[[Analysis, Group], object] = lambda *_: False,
    families: Collection[str] = (),
) -> Need:
    """Return the need that kernels with unknown properties take too little time to make a finding.

    ``open_of`` says of which ones, ``surely`` which others are the finding's, ``least`` from which share on there is
    one: of the time of all kernels, or of those that are, or may be, of some families.
    """

    def there(analysis: Analysis, share: float) -> bool:
        work = analysis.gpu_work
        undecided = [group for group in work.groups if open_of(analysis, group)]
        if not undecided:
            return True
        undecided += [group for group in work.groups if surely(analysis, group)]
        among = [group for group in work.groups if not families or work.decoded(group).is_of(*families).may_be]
        return _time_ns(undecided) < share * _time_ns(among)

    return Need(missing=missing, there=there, by=(least,))


class Operations(NamedTuple):
    """The operations of which something is so, and those of which it is not known, each in their order."""

    yes: Sequence[int]
    not_known: Sequence[int]


def need_known_operations(missing: Reason, replies: Callable[..., Operations], *by: Threshold) -> Need:
    """Return the need that operations whose answer is unknown take too little time to make a finding.

    ``replies`` takes the values of all thresholds but the last one, the share of the time of all kernels from which on
    there is a finding.
    """

    def there(analysis: Analysis, *values: float) -> bool:
        *asked, share = values
        answers = replies(analysis, *asked)
        if not answers.not_known:
            return True
        undecided_us = analysis.gpu_work.time_us([*answers.yes, *answers.not_known])
        return not undecided_us or undecided_us < share * analysis.gpu_work.kernel_time_us

    return Need(missing=missing, there=there, by=by)


def _time_ns(groups: Iterable[Group]) -> int:
    return sum(group.time_ns for group in groups)


def with_thresholds(rules: Iterable[Rule], given: Iterable[str]) -> tuple[Rule, ...]:
    """Return the rules with thresholds set as ``code.name = value``; UnknownLimit with the names there are."""
    rules, given = tuple(rules), tuple(given)
    if not given:
        return rules
    from pytest_torchprof.reasons.thresholds import (  # noqa: PLC0415 - who sets none does without
        NoThresholdForm,
        ThresholdTwice,
        UnknownThreshold,
    )

    known = {f"{rule.code}.{each.name}": (rule.code, each) for rule in rules for each in rule.thresholds}
    changed: dict[str, dict[Threshold, float]] = defaultdict(dict)
    for text in given:
        name, equals, value = (part.strip() for part in text.partition("="))
        if not equals or not value:
            raise UnknownLimit.because(NoThresholdForm(repr(text)))
        if name not in known:
            raise UnknownLimit.because(UnknownThreshold(name, tuple(sorted(known))))
        code, threshold = known[name]
        if threshold in changed[code]:
            raise UnknownLimit.because(ThresholdTwice(name))
        changed[code][threshold] = _number(name, value, threshold)
    return tuple(replace(rule, changed=changed[rule.code]) if rule.code in changed else rule for rule in rules)


def _number(name: str, text: str, threshold: Threshold) -> float:
    whole = isinstance(threshold.value, int)
    try:
        value = int(text) if whole else float(text)
        value = math.inf if is_huge(value) or not text.isascii() else value
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value >= 0):
        from pytest_torchprof.reasons.thresholds import WrongThreshold  # noqa: PLC0415 - for what is refused alone

        raise UnknownLimit.because(WrongThreshold(name, text, whole, threshold.value))
    return value
