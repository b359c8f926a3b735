"""The text of a failure: which limits, what was seen instead, where it comes from, why, and what to do."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from operator import add
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self

from msgspec import Struct
from msgspec.structs import replace

from pytest_torchprof.findings.catalogue import AnyFinding  # noqa: TC001 - msgspec reads the annotations
from pytest_torchprof.findings.catalogue.compiling import GraphBroke
from pytest_torchprof.limits.evidence import FindingLine, GraphBreakLine, WorkRow
from pytest_torchprof.limits.limit import HOLDS, MISSED, NOT_MEASURED, Verdict
from pytest_torchprof.limits.remedies import remedies_of
from pytest_torchprof.reasons.catalogue import AnyReason, portable
from pytest_torchprof.reasons.codes import Code
from pytest_torchprof.reasons.composed import Several
from pytest_torchprof.reasons.errors import LimitsMissed, NotMeasured
from pytest_torchprof.reasons.reason import Verbatim
from pytest_torchprof.text import (
    and_more,
    broken,
    counted,
    cut,
    cut_apart,
    first_line,
    first_of,
    number_alike,
    printable,
    printable_line,
    reason_line,
    show_us,
    width_of,
)
from pytest_torchprof.text.tables import lined_up

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from pytest_torchprof.analysis.analysis import Analysis
    from pytest_torchprof.findings import Finding
    from pytest_torchprof.limits.evidence import AnyEvidence
    from pytest_torchprof.reasons.reason import Reason

MOST_WITH_PLACES = 18
"""Up to this many lines of work have their places below each; with more, all kernels are named before any place."""
COLUMN = 32
"""The column at which the measured value starts, if the limit leaves room for it."""
INDENT = 6
MOST_PLACES = 3
"""The most places of one row on a screen of limited size."""
LONGEST_OPS = 28
_NARROWEST, _WIDEST = 40, 100
"""The columns that rows of work are drawn for, at least and at most."""
_LEAST_NAME = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Screen:
    """The room for a text: columns, lines, or no bound."""

    width: int = 100
    columns: int | None = None
    """The column at which prose is wrapped; None if the width is not known, as in a file: lines stay whole."""
    lines: int = 36
    """Lines for failures other than limits; with pytest's own lines and the recordings', they fill a screen of 40."""
    everything: bool = False
    """Whether nothing may be left out (``-vv``)."""
    rest: str = "pytest -vv"
    """The command that shows what is left out; empty where none does."""

    @classmethod
    def of_columns(cls, columns: int | None, **more: Any) -> Self:
        """Return the room of a terminal of so many columns; None where they are not known."""
        return cls(width=min(max(columns or 80, _NARROWEST), _WIDEST), columns=columns or None, **more)


DEFAULT = Screen()
REMEDY = "  do: "
"""The beginning of a line that says what to do."""
_MOVED = {"broke": "graph break", "came": "new", "changed": "changed", "went": "gone"}
"""The subjects of lines about a graph break or a kernel, and a word for each; the likeliest cause comes first."""


class FailureLine(NamedTuple):
    """A line about a failure other than a missed limit, and its subject."""

    text: str
    about: Literal["headline", "broke", "came", "changed", "went", "gated", "other", "remedy", "varies"] = "other"
    """The headline comes first; unless only remedies follow it, the lines below it say what it means."""
    command: str = ""
    """The command at the end of the text, to be copied as a whole."""
    subject: str = ""
    """The kernel that came, changed or went; for a headline, its gist."""
    file_line: str = ""
    """Where it was launched, as far as that is known for sure."""
    numbers: str = ""
    """For a headline, the numbers that decide it."""


class Failure(Struct, frozen=True, kw_only=True):
    """What a recording tells of limits that do not hold, beside the verdicts on them."""

    steps: int
    """How many steps it has."""
    causes: dict[str, tuple[AnyFinding, ...]] = {}
    """By the names of limits that were missed, the findings that may explain it."""
    unlocated: tuple[AnyReason, ...] = ()
    """Why rows name no lines, though lines were looked for."""

    def why(self, limit: str) -> tuple[AnyFinding, ...]:
        """Return the findings that may explain why the limit of a name was missed."""
        return self.causes.get(limit, ())


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A row of work as it is shown on a screen."""

    line: str
    places: tuple[str, ...]
    """The lines below it that say where its work comes from; empty if that is shown on the same line."""


def _drawn(rows: Sequence[WorkRow], screen: Screen) -> dict[WorkRow, Row]:
    """Return the rows in aligned columns, each with its place on the same line if all of them fit."""
    columns = [
        [show_us(row.time_us) if row.time_us is not None else "" for row in rows],
        [row.note for row in rows],
        [_ops(row, screen) for row in rows],
    ]
    used = [texts for texts in columns if any(texts)]

    def room_beside() -> int:
        # The indent, "9999 x " and the blanks before each column take room too.
        return screen.width - INDENT - len("9999 x ") - sum(2 + max(map(width_of, texts)) for texts in used)

    if room_beside() < _LEAST_NAME and columns[-1] in used and len(used) > 1:
        used.remove(columns[-1])
    room = room_beside()
    names = [_name(row, screen) for row in rows]
    names = names if screen.everything else cut_apart(names, max(room, _LEAST_NAME))
    aligns = ["left", *("left" if texts is columns[-1] else "right" for texts in used)]
    counts = [f"{' ' * INDENT}{row.count:>4} x " for row in rows]
    lines = map(add, counts, lined_up(list(zip(names, *used, strict=True)), aligns))
    beside = [row.places[0][1] if row.places else "" for row in rows]
    if all(len(row.places) <= 1 for row in rows):
        longer = [*map(add, counts, lined_up(list(zip(names, *used, beside, strict=True)), [*aligns, "left"]))]
        if max(map(width_of, longer), default=0) <= screen.width:
            return {row: Row(line=line, places=()) for row, line in zip(rows, longer, strict=True)}
    return {
        row: Row(line=line, places=tuple(_places_below(row, screen))) for row, line in zip(rows, lines, strict=True)
    }


def _places_below(row: WorkRow, screen: Screen) -> list[str]:
    everything = screen.everything or len(row.places) == MOST_PLACES + 1
    most = len(row.places) if everything else MOST_PLACES
    several = len(row.places) > 1
    indent = " " * (INDENT + 7)
    places = [f"{indent}{f'{count} x ' if several else ''}{place}" for count, place in row.places[:most]]
    left = len(row.places) - most
    return [*places, *([f"{indent}{and_more(left, 'place').lstrip()}"] if left > 0 else [])]


def _name(row: WorkRow, screen: Screen) -> str:
    return row.full if screen.everything else row.name


def _ops(row: WorkRow, screen: Screen) -> str:
    operators = row.launched_by(_name(row, screen))
    ops = ", ".join(operators if screen.everything else operators[:3])
    return ops if screen.everything else cut(ops, LONGEST_OPS)


def error_for(
    verdicts: Iterable[Verdict],
    analysis: Analysis,
    why: Callable[[str], Sequence[Finding]],
    *,
    also: Iterable[FailureLine] = (),
    screen: Screen = DEFAULT,
) -> LimitsMissed | NotMeasured | None:
    """Return the error for verdicts that do not hold and lines of other failures; None if there are none.

    It has the whole text, for JUnit, annotations and code that catches it, and the brief text that ``-q`` shows.

    ``why`` returns the findings that may explain why the limit of a name was missed. *Not measured* wins, since an
    expected failure must not hide it.
    """
    failed, others = [verdict for verdict in verdicts if verdict.status != HOLDS], tuple(also)
    if not failed and not others:
        return None
    text = failure_text(failed, failure_of(failed, analysis, why), others, screen)
    error: LimitsMissed | NotMeasured = LimitsMissed(text)
    if unmeasured := [verdict for verdict in failed if verdict.status == NOT_MEASURED]:
        reasons = [verdict.reason or Verbatim(verdict.text) for verdict in unmeasured]
        error = NotMeasured(Several.of(reasons), screen=text)
    error.brief = _brief_text(failed, others, screen)
    error.in_one_line = in_one_line(failed, others)
    return error


def failure_of(
    verdicts: Sequence[Verdict], analysis: Analysis, why: Callable[[str], Sequence[Finding]] = lambda _: ()
) -> Failure:
    """Return what the analysis tells of limits that do not hold; ``why`` is as in ``error_for``."""
    missed = dict.fromkeys(verdict.limit for verdict in verdicts if verdict.status == MISSED)
    causes = {limit: tuple(why(limit)) for limit in missed}
    return Failure(
        steps=len(analysis.trace.steps),
        causes={limit: findings for limit, findings in causes.items() if findings},
        unlocated=_unlocated(verdicts, analysis),
    )


def failure_text(verdicts: Sequence[Verdict], failure: Failure, others: tuple[FailureLine, ...], screen: Screen) -> str:
    """Return what does not hold, in words: of limits that do not hold, and of lines of other failures.

    On a terminal lists are no longer than lets what to do be seen on the first screen, too.
    """
    numbered = _with_numbers(verdicts)
    *wider, narrowest = _caps(len(numbered), screen)
    for caps in wider:
        drawn = _draw(numbered, failure, others, caps, screen)
        if drawn.asks_on_first_screen:
            return drawn.text
    return _draw(numbered, failure, others, narrowest, screen).text


class _DrawnFailure(NamedTuple):
    """The lines of a failure on a screen."""

    what: list[str]
    """What does not hold."""
    to_do: list[list[str]]
    """What to do: the lines of each remedy."""
    besides: list[str]

    @property
    def text(self) -> str:
        return "\n".join([*self.what, *chain.from_iterable(self.to_do), *self.besides])

    @property
    def asks_on_first_screen(self) -> bool:
        """Whether all remedies begin on the first screen."""
        above = [*self.what, *chain.from_iterable(self.to_do[:-1])]
        return not self.to_do or len(above) < _FIRST_SCREEN


def _draw(
    verdicts: tuple[Verdict, ...], failure: Failure, others: tuple[FailureLine, ...], caps: Caps, screen: Screen
) -> _DrawnFailure:
    why = failure.why
    most = len(others) if caps.lines is None else min(caps.lines, screen.lines)
    # The longer the text, the more the remedy is needed at its end; what varies anyway decides nothing.
    remedies, varied = ([line for line in others if line.about == about] for about in ("remedy", "varies"))
    to_do, besides = [_shown([line], screen) for line in remedies], _shown(varied, screen)
    named = set(chain.from_iterable(_named_breaks(verdict, why) for verdict in verdicts))
    details = [
        line
        for line in _with_colon(others)
        if line.about not in ("remedy", "varies") and not (line.about == "broke" and line.subject in named)
    ]
    most = _all_but_many(len(details), most)
    left = _left(len(details) - most, "line", 2, screen)
    more = [*_shown(details[:most], screen), *left]
    if not verdicts:
        return _DrawnFailure(more, to_do, besides)
    moved = _moved(others)
    came = _first_come([line for line in moved if line.about == "came"])
    cause = f"; {_first_moved(moved)}" if moved else ""
    what = [
        *_broken([f"{_headline(verdicts, failure.steps)}{cause}", ""], screen),
        *chain.from_iterable(_section(own, why, caps, screen) for own in _without_repetition(verdicts, caps)),
        *_broken([f"  lines: not known: {reason_line(str(reason))}" for reason in failure.unlocated], screen),
        "",
        *more,
    ]
    return _DrawnFailure(what, [*_what_to_do(verdicts, why, came, caps, screen), *to_do], besides)


def _named_breaks(verdict: Verdict, why: Callable[[str], Sequence[Finding]]) -> list[str | None]:
    """Return the places of the graph breaks that are named below a limit."""
    breaks = [fact.file_line for fact in verdict.evidence if isinstance(fact, GraphBreakLine)]
    return breaks + [finding.source for finding in why(verdict.limit) if isinstance(finding, GraphBroke)]


def _with_colon(lines: Sequence[FailureLine]) -> list[FailureLine]:
    """Return the lines, with the numbers after the headline, or a colon if the others are its details."""
    if lines and lines[0].numbers:
        return [lines[0]._replace(text=_with_numbers_after(lines[0])), *lines[1:]]
    return [lines[0]._replace(text=f"{lines[0].text}:"), *lines[1:]] if _has_details(lines) else list(lines)


def _with_numbers_after(headline: FailureLine) -> str:
    return ": ".join(filter(None, [headline.text, headline.numbers]))


def _shown(lines: Iterable[FailureLine], screen: Screen) -> list[str]:
    """Return the lines as they are shown on a screen."""
    return [
        part
        for line in lines
        for part in broken(_prose(line), screen.columns, command=printable(line.command)).split("\n")
    ]


def _unbroken(line: FailureLine) -> str:
    return _prose(line) + printable(line.command)


def _prose(line: FailureLine) -> str:
    return printable(f"{REMEDY}{line.text}" if line.about == "remedy" else line.text)


def _has_details(lines: Sequence[FailureLine]) -> bool:
    """Return whether the headline is followed by its details."""
    return len(lines) > 1 and lines[0].about == "headline" and lines[1].about != "remedy"


def _broken(lines: Sequence[str], screen: Screen) -> list[str]:
    return [part for line in lines for part in broken(line, screen.columns).split("\n")]


class Caps(NamedTuple):
    """The most lines of each kind below a limit; None: all of them."""

    rows: int | None = None
    """Rows of kernels and other work."""
    notes: int | None = None
    """Further lines about it."""
    places: int | None = None
    """Places that the work comes from, if they are not shown with the rows."""
    reasons: int | None = None
    """Findings that may be the cause."""
    remedies: int | None = None
    """Remedies, for all limits together."""
    lines: int | None = None
    """Lines about failures other than limits."""


_CAPS = (
    Caps(20, 12, 4, 2, 3, 18),
    Caps(8, 6, 2, 1, 3, 18),
    Caps(5, 3, 1, 1, 3, 18),
    Caps(3, 2, 1, 1, 2, 18),
)
"""The caps for one limit that does not hold, for two, for three, and for more: they fit a screen."""
_NARROWEST_CAPS = (Caps(3, 2, 1, 1, 2, 3), Caps(2, 1, 0, 0, 2, 2), Caps(1, 1, 0, 0, 1, 2))
_WITHOUT_LIMITS = tuple(Caps(lines=lines) for lines in (36, 16, 12, 8))
_FIRST_SCREEN = 22
"""Lines of a terminal of 24, less the title of the failure and the line of the prompt."""


def _caps(limits: int, screen: Screen) -> Sequence[Caps]:
    """Return the caps to try, the widest first; off a terminal, where nothing has to be seen at once, these alone."""
    if screen.everything:
        return (Caps(),)
    every = _for_limits(_CAPS[min(limits, len(_CAPS)) - 1]) if limits else _WITHOUT_LIMITS
    return every[:1] if screen.columns is None else every


def _for_limits(widest: Caps) -> Sequence[Caps]:
    rows, lines = widest.rows or 0, widest.lines or 0
    narrower = [widest._replace(rows=each, lines=lines * each // rows) for each in range(rows - 2, 3, -2)]
    narrowest = [caps._replace(remedies=widest.remedies) for caps in _NARROWEST_CAPS[:-1]]
    return [widest, *narrower, *narrowest, _NARROWEST_CAPS[-1]]


def _section(verdict: Verdict, why: Callable[[str], Sequence[Finding]], caps: Caps, screen: Screen) -> list[str]:
    """Return the lines about a verdict, as far as the caps allow; ``why`` returns causes of a missed limit."""
    evidence = [fact for fact in verdict.evidence if _says_more(fact, verdict)]
    blocks, places = _detail_blocks(evidence, screen)
    used = {True: 0, False: 0}
    shown: list[int] = []
    left: list[int] = []
    for at, (is_row, block) in enumerate(blocks):
        most = caps.rows if is_row else caps.notes
        used[is_row] += len(block)
        fits = most is None or used[is_row] <= max(most, len(block))
        (shown if fits else left).append(at)
    if len(left) == 1 and (blocks[left[0]][0] or len(blocks[left[0]][1]) == 1):
        # Without its places it takes no more room than the number of those left.
        blocks[left[0]] = blocks[left[0]][0], blocks[left[0]][1][:1]
        shown, left = sorted([*shown, *left]), []
    findings = why(verdict.limit)[: caps.reasons] if verdict.status == MISSED else ()
    reasons = [f"{' ' * INDENT}why: {reason_line(finding.in_one_line)}" for finding in findings]
    return [
        *broken(limit_line(verdict), screen.columns, hanging=INDENT).splitlines(),
        *chain.from_iterable(blocks[at][1] for at in shown),
        *_left(len(left), "", INDENT + 3, screen),
        *chain.from_iterable(places[: caps.places]),
        *_broken(reasons, screen),
    ]


def _all_but_many(count: int, most: int | None) -> int:
    """Return how many to show of so many; one more than ``most`` where a line would only say that there is one more."""
    return count if most is None or count == most + 1 else min(count, most)


def _left(count: int, noun: str, indent: int, screen: Screen) -> list[str]:
    command = f": {screen.rest}" if screen.rest else ""
    return [f"{' ' * indent}{and_more(count, noun).lstrip()}{command}"] if count > 0 else []


def _without_repetition(verdicts: Iterable[Verdict], caps: Caps) -> list[Verdict]:
    """Return the verdicts with each set of rows once: several limits may be missed by the same kernels.

    Where another limit shows them in another order, and not all, the one that misses this limit most stays.
    """
    seen: dict[frozenset[WorkRow], Sequence[WorkRow]] = {}
    shown = []
    for verdict in verdicts:
        rows = verdict.rows
        others = tuple(fact for fact in verdict.evidence if not isinstance(fact, WorkRow))
        if (before := seen.get(frozenset(rows))) is None:
            shown.append(verdict)
        else:
            shown.append(replace(verdict, evidence=(*(row for row in rows[:1] if row not in before), *others)))
        if rows:
            seen.setdefault(frozenset(rows), rows[: caps.rows])
    return shown


def _with_numbers(verdicts: Sequence[Verdict]) -> tuple[Verdict, ...]:
    """Return the verdicts with numbers after short names that stand for several full names."""
    rows = [row for verdict in verdicts for row in verdict.rows]
    kinds = [*dict.fromkeys((row.name, row.full) for row in rows)]
    names = dict(zip(kinds, number_alike([name for name, _ in kinds]), strict=True))

    def numbered(fact: AnyEvidence) -> AnyEvidence:
        return replace(fact, name=names[fact.name, fact.full]) if isinstance(fact, WorkRow) else fact

    return tuple(replace(verdict, evidence=tuple(map(numbered, verdict.evidence))) for verdict in verdicts)


def _unlocated(verdicts: Iterable[Verdict], analysis: Analysis) -> tuple[Reason, ...]:
    """Return the reasons why rows name no lines, though lines were looked for."""
    steps = {step.name: (step,) for step in analysis.steps}
    shown = [
        step
        for verdict in verdicts
        if verdict.rows
        for step in (analysis.steps if verdict.range is not None else steps.get(verdict.step, ()))
    ]
    return tuple(portable(why) for why in dict.fromkeys(step.places.why_not for step in shown) if why)


def _headline(verdicts: tuple[Verdict, ...], steps: int) -> str:
    parts = []
    for status in (MISSED, NOT_MEASURED):
        names = [verdict.name for verdict in verdicts if verdict.status == status]
        if names:
            parts.append(f"{counted(len(names), 'limit')} {status}: {', '.join(names)}")
    # What the compiler did, or what was not measured, does not belong to a step.
    of_step = any(verdict.status == MISSED and verdict.in_step for verdict in verdicts)
    return "; ".join(parts) + (f" (worst of {steps} steps)" if steps > 1 and of_step else "")


def limit_line(verdict: Verdict) -> str:
    """Return a line with the limit as it was written, and what was seen."""
    limit = f"  {verdict.written}"
    if len(limit) >= COLUMN:
        return f"{limit}\n{' ' * INDENT}{_measured_text(verdict)}"
    return f"{limit:<{COLUMN}}{_measured_text(verdict)}"


def _measured_text(verdict: Verdict) -> str:
    measured = reason_line(verdict.text)
    return f"not measured: {measured}" if verdict.status == NOT_MEASURED else measured


def _brief_text(verdicts: Sequence[Verdict], others: tuple[FailureLine, ...], screen: Screen) -> str:
    """Return a line on what fails, and below it what came, went or changed against a baseline, and what to do."""
    moved = _moved(others)
    remedy = [line for line in others[1:] if line.about == "remedy"]
    if verdicts:
        first, more = verdicts[0], [verdict.name for verdict in verdicts[1:]]
        also = f"; also: {', '.join(more)}" if more else ""
        worse = f"; {_with_numbers_after(others[0])}" if others else ""
        head = f"{first.written}: {_measured_text(first)}{_brief_cause(first)}{also}{worse}"
    else:
        # The details after the headline's colon: a kernel that came is more likely to be the cause than one that went.
        first_detail = [*_causes_first(moved), *others[1:]][:1]
        about = first_detail if _has_details(others) else []
        moved = [line for line in moved if line not in about]
        headline = _unbroken(_with_colon(others)[0])
        between = "; " if others[0].numbers else " "
        head = printable_line(between.join([headline, *(line.text.strip() for line in about)]))
    most = _all_but_many(len(moved), screen.lines)
    left = _left(len(moved) - most, "line", 2, screen)
    shown = [*_shown(moved[:most], screen), *left, *_shown(remedy, screen)]
    return "\n".join([*_broken([head], screen), *shown])


def in_one_line(verdicts: Sequence[Verdict], others: tuple[FailureLine, ...]) -> str:
    """Return one line on what fails, for reports with room for no more: what is new, or what there is most of."""
    moved = _moved(others)
    cause = _first_moved(moved)
    if not verdicts:
        return ": ".join(filter(None, [_gist(others[0]), cause or others[0].numbers]))
    first, more = verdicts[0], [verdict.name for verdict in verdicts[1:]]
    is_missed = first.status == MISSED
    seen = reason_line(replace(first, in_step=None).text) if is_missed else _measured_text(first)
    is_of_break = isinstance(next(iter(first.evidence), None), GraphBreakLine)
    cause = (f"; {cause}" if cause and not is_of_break else _brief_cause(first)) if is_missed else ""
    also = f"; also: {', '.join(more)}" if more else ""
    worse = f"; {_gist(others[0])}" if others and not moved else ""
    return f"{first.written}: {seen}{cause}{also}{worse}"


def _gist(headline: FailureLine) -> str:
    return printable_line(headline.subject or headline.text)


def _moved(others: Sequence[FailureLine]) -> list[FailureLine]:
    return [line for line in others[1:] if line.about in _MOVED]


def _causes_first(moved: Iterable[FailureLine]) -> list[FailureLine]:
    return sorted(moved, key=lambda line: list(_MOVED).index(line.about))


def _first_moved(moved: Sequence[FailureLine]) -> str:
    """Return a text with the first graph break, or kernel that came, changed or went, its line, and how many more."""
    if not moved:
        return ""
    first = _causes_first(moved)[0]
    alike = [line for line in moved if line.about == first.about]
    others = len(moved) - len(alike)
    also = f"; {counted(others, 'other change')}" if others else ""
    return f"{_MOVED[first.about]}: {_first_two(alike, ', ', '')}{also}"


def _first_two(alike: Sequence[FailureLine], at: str, noun: str) -> str:
    """Return the first of the lines by its subject and place; the second too if it is the last one."""
    named = [(printable_line(line.subject or line.text), line.file_line) for line in alike]
    (first, place), *more = named
    if len(more) == 1 and more[0][1] == place:
        return at.join(filter(None, [f"{first} and {more[0][0]}", place]))
    if len(more) == 1:
        return " and ".join(at.join(filter(None, each)) for each in named)
    return f"{at.join(filter(None, named[0]))}{and_more(len(more), noun)}"


def _first_come(came: Sequence[FailureLine]) -> str:
    """Return the first kernel that came as the object of a sentence; empty if none did."""
    if not came:
        return ""
    return _first_two(came, " at ", "new kernel")


def _brief_cause(verdict: Verdict) -> str:
    """Return the cause of a missed limit: the largest row of work, else the first line about it."""
    row = verdict.culprit
    if row is not None and not _says_more(row, verdict):
        return ""
    if row is not None:
        return f"; {_rank_of(row, verdict)}{_brief_row(row)}"
    first = next(iter(verdict.evidence), None)
    if isinstance(first, FindingLine):  # Its code precedes it.
        return f"; {first_line(first.finding.message)}"
    return "" if first is None or isinstance(first, WorkRow) else f"; {first_line(first.text.strip())}"


def _rank_of(row: WorkRow, verdict: Verdict) -> str:
    """Return the rank of the row among those that missed the limit; empty if it is the only one."""
    if sum(not other.also_ran for other in verdict.rows) == 1:
        return ""
    if verdict.unit == "us":
        return "longest: "
    return "first: " if row.count == 1 else "most: "


def _brief_row(row: WorkRow) -> str:
    place = f" ({row.places[0][1]})" if row.places else ""
    return f"{f'{row.count} x ' if row.count > 1 else ''}{row.name}{place}"


def _says_more(fact: AnyEvidence, verdict: Verdict) -> bool:
    """Return whether a row says more than how often an operator ran that what was seen names already."""
    if not isinstance(fact, WorkRow) or verdict.evidence != (fact,):
        return True
    return bool(fact.places or fact.note or fact.time_us is not None or fact.name not in verdict.text.split())


def _detail_blocks(
    evidence: Sequence[AnyEvidence], screen: Screen
) -> tuple[list[tuple[bool, list[str]]], list[list[str]]]:
    """Return the lines of each row and note, and the places of rows that are too many to have them below each.

    Each group of lines has a flag that says whether it belongs to a row.
    """
    rows = [fact for fact in evidence if isinstance(fact, WorkRow)]
    drawn = _drawn(rows, screen)
    blocks: list[tuple[bool, list[str]]] = []
    for fact in evidence:
        if isinstance(fact, WorkRow):
            blocks.append((True, [drawn[fact].line, *drawn[fact].places]))
        else:
            blocks += [(False, _broken([f"{' ' * INDENT}{reason_line(line)}"], screen)) for line in fact.lines]
    below = any(row.places for row in drawn.values())
    if screen.everything or not below or sum(len(lines) for _, lines in blocks) <= MOST_WITH_PLACES:
        return blocks, []
    of_rows = [(is_row, lines[:1] if is_row else lines) for is_row, lines in blocks]
    return of_rows, [_broken([_places_of(row)], screen) for row in rows if row.places]


def _places_of(row: WorkRow) -> str:
    """Return one line on where the work of a row comes from."""
    places = [f"{count} x {place}" if len(row.places) > 1 else place for count, place in row.places]
    return f"{' ' * INDENT}{row.name}: {first_of(places, MOST_PLACES, between='; ')}"


def _code_of(verdict: Verdict) -> str:
    """Return the code under which it is explained why a limit is not measured."""
    return (verdict.reason.code if verdict.reason is not None else None) or Code.NOT_MEASURED


def _about_not_measured(verdicts: Sequence[Verdict]) -> list[str]:
    """Return what to do about limits that are not measured: first what a reason itself asks for."""
    unmeasured = [verdict for verdict in verdicts if verdict.status == NOT_MEASURED]
    actions = dict.fromkeys(verdict.reason.ACTION for verdict in unmeasured if verdict.reason is not None)
    asked = [action for action in actions if action]
    what = "more" if asked else "what to do"
    codes = dict.fromkeys(map(_code_of, unmeasured))
    return [
        *asked,
        *(f"`torchprof explain {code}` says {what}; a limit that was not measured never passes" for code in codes),
    ]


def _what_to_do(
    verdicts: tuple[Verdict, ...],
    why: Callable[[str], Sequence[Finding]],
    came: str,
    caps: Caps,
    screen: Screen,
) -> list[list[str]]:
    """Return the lines of each remedy."""
    remedies = remedies_of(verdicts, why, came=came)
    most = _all_but_many(len(remedies), caps.remedies)
    shown, of_unmeasured = (
        [_broken([f"{REMEDY}{line}"], screen) for line in lines]
        for lines in (remedies[:most], _about_not_measured(verdicts))
    )
    if shown:
        shown[-1] += _left(len(remedies) - most, "", len(REMEDY), screen)
    return [*shown, *of_unmeasured]
