"""The text of a failure: which limits, what was seen instead, from where, why, what to do; as long as a screen."""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

from msgspec.structs import replace

from pytest_torchprof.errors import ASK_THE_DOCTOR, LimitsMissed, NotMeasured
from pytest_torchprof.limits.evidence import WorkRow
from pytest_torchprof.limits.limit import HOLDS, MISSED, NOT_MEASURED, Verdict
from pytest_torchprof.reasons import Verbatim
from pytest_torchprof.reasons.composed import Several
from pytest_torchprof.text import counted, number_alike, printable, printable_line, reason_line, show_us

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from pytest_torchprof.analysis.analysis import Analysis
    from pytest_torchprof.limits.evidence import AnyEvidence

MOST_REASONS = 3
"""Of one limit: several missed limits still fit on a screen."""
COLUMN = 32
"""At which what was seen starts, where the limit leaves room for it."""
INDENT = 6
MOST_PLACES = 3
"""Of one row, where a screen is all there is."""
LONGEST_OPS = 28


@dataclass(frozen=True, slots=True, kw_only=True)
class Screen:
    """How much there is to be said: columns, lines, or everything."""

    width: int = 100
    columns: int | None = None
    """Where lines of prose are broken; None where nobody knows, as in a file: they stay whole."""
    lines: int = 36
    """With pytest's own lines around the text, and the recordings' below, a screen of 40."""
    everything: bool = False
    """Whether nothing is to be left out (``-vv``)."""
    rest: str = ": pytest -vv"
    """What is said behind the number of what is left out: how to see it."""


DEFAULT = Screen()
REMEDY = "  do: "
"""How a line begins that says what to do."""
_COMMAND = re.compile(r": (?P<command>(?:pytest|torchprof) .*)")
_MOVED = ("+ ", "~ ", "- ")
"""How lines begin that say what became of a kernel."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """The columns of a block of rows; places stand behind where all of them fit there, else below."""

    screen: Screen
    name: int
    ops: int
    note: int
    beside: bool

    @classmethod
    def of(cls, rows: Sequence[WorkRow], screen: Screen) -> Layout:
        """Return the layout in which these rows stand below one another."""
        ops = max([len(_ops(row, screen)) for row in rows], default=0)
        note = max([len(row.note) + 2 for row in rows if row.note], default=0)
        fixed = INDENT + len("   9 x ") + len("   99.9 us  ") + note + ops
        longest = max([len(_name(row, screen)) for row in rows], default=0)
        name = longest if screen.everything else min(longest, max(screen.width - fixed, 16))
        place = max([len(place) for row in rows for _, place in row.places], default=0)
        alone = all(len(row.places) <= 1 for row in rows)
        return cls(
            screen=screen, name=name, ops=ops, note=note, beside=alone and fixed + name + 2 + place <= screen.width
        )

    def lines(self, row: WorkRow) -> list[str]:
        """Return a row: one line, and one more for each place that has no room beside it."""
        name = _name(row, self.screen)
        name = name if len(name) <= self.name else f"{name[: self.name - 3]}..."
        spent = show_us(row.time_us) if row.time_us is not None else ""
        note = f"{row.note:>{self.note}}" if self.note else ""
        said = (
            f"{' ' * INDENT}{row.count:>4} x {name:<{self.name}} {spent:>9}{note}  {_ops(row, self.screen):<{self.ops}}"
        )
        if self.beside:
            return [f"{said}  {row.places[0][1]}".rstrip() if row.places else said.rstrip()]
        return [said.rstrip(), *self._places(row)]

    def _places(self, row: WorkRow) -> list[str]:
        everything = self.screen.everything or len(row.places) == MOST_PLACES + 1
        most = len(row.places) if everything else MOST_PLACES
        several = len(row.places) > 1
        indent = " " * (INDENT + 7)
        found = [f"{indent}{f'{count} x ' if several else ''}{place}" for count, place in row.places[:most]]
        left = len(row.places) - most
        return [*found, *([f"{indent}and from {counted(left, 'more place')}"] if left > 0 else [])]


def _name(row: WorkRow, screen: Screen) -> str:
    return row.full if screen.everything else row.name


def _ops(row: WorkRow, screen: Screen) -> str:
    found = row.launched_by(_name(row, screen))
    ops = ", ".join(found if screen.everything else found[:3])
    return ops if screen.everything or len(ops) <= LONGEST_OPS else f"{ops[: LONGEST_OPS - 3]}..."


def fit(text: str, screen: Screen, hanging: int = 0) -> str:
    """Return prose with its lines broken where the screen ends; what is copied, a path or a command, stays whole.

    The rest of a line stands a little to the right of its beginning, or at the column ``hanging``.
    """
    if screen.columns is None:
        return text
    lines = []
    for line in text.split("\n"):
        if len(line) <= screen.columns:
            lines.append(line)
            continue
        indent = " " * (hanging or len(line) - len(line.lstrip()) + 2)
        command = _COMMAND.search(line)
        lines += textwrap.wrap(
            line[: command.start("command")] if command else line,
            screen.columns,
            subsequent_indent=indent,
            break_long_words=False,
            break_on_hyphens=False,
        )
        lines += [f"{indent}{command['command']}"] if command else []
    return "\n".join(lines)


def height(lines: Sequence[str], screen: Screen) -> int:
    """Return how many lines of the screen these take: it wraps what is too long, so that texts stay whole."""
    return sum(max(1, -(-len(line) // screen.width)) for line in lines)


def error_for(
    verdicts: Iterable[Verdict],
    analysis: Analysis,
    why: Callable[[str], Sequence[str]],
    *,
    also: Iterable[str] = (),
    screen: Screen = DEFAULT,
) -> LimitsMissed | NotMeasured | None:
    """Return the error for verdicts that do not hold and lines of other failures, None where there are none.

    It has the whole text, which whoever catches it, JUnit and annotations read, and the brief one that ``-q`` shows.

    ``why`` returns lines that may explain why the limit of a name was missed. What was not measured wins, since an
    expected failure may not hide it.
    """
    failed, others = [verdict for verdict in verdicts if verdict.status != HOLDS], tuple(also)
    if not failed and not others:
        return None
    text = _failure_text(_with_numbers(failed), analysis, why, others, screen)
    error: LimitsMissed | NotMeasured = LimitsMissed(text)
    if unmeasured := [one for one in failed if one.status == NOT_MEASURED]:
        reasons = [one.reason or Verbatim(one.text) for one in unmeasured]
        error = NotMeasured(Several.of(reasons), screen=text)
    error.brief = _brief_text(failed, others, screen)
    return error


def _failure_text(
    verdicts: tuple[Verdict, ...],
    analysis: Analysis,
    why: Callable[[str], Sequence[str]],
    others: tuple[str, ...],
    screen: Screen,
) -> str:
    most = len(others) if screen.everything else screen.lines // 2 if verdicts else screen.lines
    # What to do stands last, and is wanted the more the longer the rest is.
    remedy = others[-1:] if len(others) > most and others[-1].startswith(REMEDY) else ()
    told = others[: len(others) - len(remedy)]
    left = _left(len(told) - most, "line", 2, screen)
    more = _broken([*map(printable, told[:most]), *left, *map(printable, remedy)], screen)
    if not verdicts:
        return "\n".join(more)
    sections = [_Section.of(verdict, why, screen) for verdict in _without_repetition(verdicts)]
    head = _broken([_headline(verdicts, analysis), ""], screen)
    tail = [f"  lines: not known: {reason}" for reason in _unlocated(verdicts, analysis)]
    tail += ["", *more] if more else []
    tail += ["", *(f"{REMEDY}{line}" for line in _what_to_do(verdicts, analysis))]
    tail = _broken(tail, screen)
    shown = _fitting(sections, screen.lines - height(head, screen) - height(tail, screen), screen)
    lines = [line for one, blocks in zip(sections, shown, strict=True) for line in one.lines(blocks)]
    return "\n".join([*head, *lines, *tail])


def _broken(lines: Sequence[str], screen: Screen) -> list[str]:
    return fit("\n".join(lines), screen).split("\n") if lines else []


@dataclass(frozen=True, slots=True)
class _Section:
    """What there is to say of one verdict: its line, then details and reasons, each a block of a few lines."""

    screen: Screen
    head: list[str]
    details: list[list[str]]
    places: list[list[str]]
    """Of the details, where they do not stand with them: all kernels are named before any place is."""
    reasons: list[list[str]]

    @classmethod
    def of(cls, verdict: Verdict, why: Callable[[str], Sequence[str]], screen: Screen) -> _Section:
        """Return all that there is to say of a verdict; ``why`` has reasons for a missed limit."""
        reasons = why(verdict.limit)[:MOST_REASONS] if verdict.status == MISSED else ()
        details, places = _detail_blocks(verdict.evidence, screen)
        return cls(
            screen=screen,
            head=fit(limit_line(verdict), screen, hanging=INDENT).splitlines(),
            details=details,
            places=places,
            reasons=[_broken([f"{' ' * INDENT}why: {reason_line(line)}"], screen) for line in reasons],
        )

    @property
    def blocks(self) -> list[list[str]]:
        """The details, then their places, then the reasons."""
        return [*self.details, *self.places, *self.reasons]

    def order(self) -> list[int]:
        """Return the blocks by how much they tell: a reason is worth more than the fourth kernel."""
        of_all = range(len(self.blocks))
        details, others = of_all[: len(self.details)], of_all[len(self.details) :]
        places, reasons = others[: len(self.places)], others[len(self.places) :]
        return [*details[:3], *reasons[:1], *details[3:], *places, *reasons[1:]]

    def lines(self, shown: Collection[int]) -> list[str]:
        """Return the lines of these blocks, and how many details are left out."""
        details = [block for i, block in enumerate(self.details) if i in shown]
        others = [block for i, block in enumerate(self.blocks) if i in shown and i >= len(self.details)]
        left = _left(len(self.details) - len(details), "", INDENT + 3, self.screen)
        return [*self.head, *chain.from_iterable(details), *left, *chain.from_iterable(others)]


def _left(count: int, noun: str, indent: int, screen: Screen) -> list[str]:
    if count <= 0:
        return []
    return [f"{' ' * indent}and {counted(count, f'more {noun}') if noun else f'{count} more'}{screen.rest}"]


def _fitting(sections: Sequence[_Section], room: int, screen: Screen) -> list[Collection[int]]:
    """Return the blocks of each section that there is room for: each says something before any says more."""
    room -= sum(height(one.head, screen) for one in sections)
    if screen.everything or sum(height(block, screen) for one in sections for block in one.blocks) <= room:
        return [range(len(one.blocks)) for one in sections]
    room -= sum(bool(one.details) for one in sections)
    shown: list[Collection[int]] = [[] for _ in sections]
    waiting = [(place, one.order()) for place, one in enumerate(sections)]
    while waiting:
        still = []
        for place, order in waiting:
            cost = height(sections[place].blocks[order[0]], screen) if order else 0
            if order and cost <= room:
                room -= cost
                shown[place] = [*shown[place], order[0]]
                still.append((place, order[1:]))
        waiting = still
    return shown


def _without_repetition(verdicts: Iterable[Verdict]) -> list[Verdict]:
    """Return the verdicts with each set of rows once: several limits may be missed by the same kernels."""
    seen: set[frozenset[WorkRow]] = set()
    found = []
    for verdict in verdicts:
        rows = frozenset(verdict.rows)
        others = tuple(one for one in verdict.evidence if not isinstance(one, WorkRow))
        found.append(replace(verdict, evidence=others) if rows in seen else verdict)
        seen.update([rows] if rows else [])
    return found


def _with_numbers(verdicts: Sequence[Verdict]) -> tuple[Verdict, ...]:
    """Return the verdicts with numbers behind names that stand for kernels of different full names."""
    rows = [row for verdict in verdicts for row in verdict.rows]
    kinds = [*dict.fromkeys((row.name, row.full) for row in rows)]
    names = dict(zip(kinds, number_alike([name for name, _ in kinds]), strict=True))

    def numbered(one: AnyEvidence) -> AnyEvidence:
        return replace(one, name=names[one.name, one.full]) if isinstance(one, WorkRow) else one

    return tuple(replace(verdict, evidence=tuple(map(numbered, verdict.evidence))) for verdict in verdicts)


def _unlocated(verdicts: Iterable[Verdict], analysis: Analysis) -> list[str]:
    """Return why rows name no lines though these were looked for."""
    steps = {step.name: (step,) for step in analysis.steps}
    shown = [
        step
        for verdict in verdicts
        if verdict.rows
        for step in (analysis.steps if verdict.range is not None else steps.get(verdict.step, ()))
    ]
    return [printable_line(reason) for reason in dict.fromkeys(step.places.why_not for step in shown) if reason]


def _headline(verdicts: tuple[Verdict, ...], analysis: Analysis) -> str:
    parts = []
    for status in (MISSED, NOT_MEASURED):
        names = [verdict.name for verdict in verdicts if verdict.status == status]
        if names:
            parts.append(f"{counted(len(names), 'limit')} {status}: {', '.join(names)}")
    steps = len(analysis.trace.steps)
    return "; ".join(parts) + (f" (worst of {steps} steps)" if steps > 1 else "")


def limit_line(verdict: Verdict) -> str:
    """Return the limit as it was written, and what was seen."""
    limit = f"  {verdict.written}"
    if len(limit) >= COLUMN:
        return f"{limit}\n{' ' * INDENT}{_said(verdict)}"
    return f"{limit:<{COLUMN}}{_said(verdict)}"


def _said(verdict: Verdict) -> str:
    measured = reason_line(verdict.text)
    return f"not measured: {measured}" if verdict.status == NOT_MEASURED else measured


def _brief_text(verdicts: Sequence[Verdict], others: tuple[str, ...], screen: Screen) -> str:
    """Return a line of what fails, and below it what came, went or changed against a baseline, and what to do."""
    moved = [line for line in others[1:] if line.lstrip().startswith(_MOVED)]
    remedy = [line for line in others[1:] if line.startswith(REMEDY)]
    if verdicts:
        first, more = verdicts[0], [verdict.name for verdict in verdicts[1:]]
        also = f"; also: {', '.join(more)}" if more else ""
        worse = f"; {others[0].removesuffix(':')}" if others else ""
        head = f"{first.written}: {_said(first)}{_brief_cause(first)}{also}{worse}"
    else:
        # Behind the headline's colon, what it is about: what came is more likely to be what failed than what went.
        first_told = [*sorted(moved, key=lambda line: _MOVED.index(line.lstrip()[:2])), *others[1:]][:1]
        about = first_told if others[0].endswith(":") else []
        moved = [line for line in moved if line not in about]
        head = printable_line(" ".join([others[0], *(line.strip() for line in about)]))
    left = _left(len(moved) - screen.lines, "line", 2, screen)
    return "\n".join([head, *map(printable, moved[: screen.lines]), *left, *map(printable, remedy)])


def _brief_cause(verdict: Verdict) -> str:
    """Return what the limit was missed by: most of the work, else the first line about it."""
    row = verdict.culprit
    if row is not None:
        return f"; most: {_brief_row(row)}"
    first = next(iter(verdict.evidence), None)
    return "" if first is None or isinstance(first, WorkRow) else f"; {printable_line(first.text.strip())}"


def _brief_row(row: WorkRow) -> str:
    place = f" ({row.places[0][1]})" if row.places else ""
    return f"{row.count} x {row.name}{place}"


def _detail_blocks(evidence: Sequence[AnyEvidence], screen: Screen) -> tuple[list[list[str]], list[list[str]]]:
    """Return the details, a block each, and the places of rows that are too many to have them below each."""
    details = [
        one for evident in evidence for one in ([evident] if isinstance(evident, WorkRow) else evident.text.split("\n"))
    ]
    rows = [one for one in details if isinstance(one, WorkRow)]
    layout = Layout.of(rows, screen)
    blocks = [
        layout.lines(one) if isinstance(one, WorkRow) else _broken([f"{' ' * INDENT}{reason_line(one)}"], screen)
        for one in details
    ]
    if screen.everything or layout.beside or sum(map(len, blocks)) <= screen.lines // 2:
        return blocks, []
    of_rows = [block[:1] if isinstance(one, WorkRow) else block for one, block in zip(details, blocks, strict=True)]
    return of_rows, [_broken([_places_of(row)], screen) for row in rows if row.places]


def _places_of(row: WorkRow) -> str:
    """Return where the work of a row comes from, in one line."""
    places = [f"{count} x {place}" if len(row.places) > 1 else place for count, place in row.places[:MOST_PLACES]]
    left = len(row.places) - MOST_PLACES
    return f"{' ' * INDENT}{row.name}: " + "; ".join([*places, *([f"and {left} more"] if left > 0 else [])])


def _what_to_do(verdicts: tuple[Verdict, ...], analysis: Analysis) -> list[str]:
    todo = []
    if any(verdict.status == MISSED for verdict in verdicts):
        todo.append("change the code, or the limit where the new number is meant")
    if any(verdict.status == NOT_MEASURED for verdict in verdicts):
        todo.append("what was not measured never counts as a pass; `torchprof explain not-measured` says more")
        if analysis.doubt is not None and analysis.doubt.for_the_doctor:
            todo.append(ASK_THE_DOCTOR)
    return todo
