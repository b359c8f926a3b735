"""The text of a failure: which limits, what was seen instead, where it comes from, why, and what to do."""

from __future__ import annotations

from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from pytest_torchprof.findings.catalogue.compiling import GraphBroke
from pytest_torchprof.limits.causes import causes_of
from pytest_torchprof.limits.drawn_rows import detail_blocks
from pytest_torchprof.limits.evidence import GraphBreakLine, WorkRow
from pytest_torchprof.limits.failure import Failure, failure_of
from pytest_torchprof.limits.failure_lines import (
    REMEDY,
    FailureLine,
    first_come,
    first_moved,
    moved_kinds,
    moved_lines,
    shown_lines,
    varied_lines,
    with_colon,
    with_room,
)
from pytest_torchprof.limits.limit import HOLDS, MISSED, NOT_MEASURED, Verdict
from pytest_torchprof.limits.limit_line import limit_line, says_more
from pytest_torchprof.limits.one_line import brief_text, in_one_line
from pytest_torchprof.limits.remedies import remedies_of
from pytest_torchprof.limits.screen import DEFAULT, INDENT, Screen, fitting
from pytest_torchprof.reasons.codes import Code
from pytest_torchprof.reasons.error_texts import ErrorTexts
from pytest_torchprof.reasons.errors import error_of_texts
from pytest_torchprof.reasons.reason import Verbatim
from pytest_torchprof.text import and_more, counted, first_of, number_alike, printable, reason_line

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from pytest_torchprof.analysis.analysis import Analysis
    from pytest_torchprof.findings import Finding
    from pytest_torchprof.limits.evidence import AnyEvidence
    from pytest_torchprof.limits.screen import Caps
    from pytest_torchprof.reasons import decoding
    from pytest_torchprof.reasons.errors import LimitsMissed, NotMeasured


_MOST_CODES = 3
"""The most findings that are named by their codes alone."""


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

    ``why`` returns the findings that may explain why the limit of a name was missed.
    """
    failed, others = [verdict for verdict in verdicts if verdict.status != HOLDS], tuple(also)
    if not failed and not others:
        return None
    failure = failure_of(failed, analysis, why)
    texts = ErrorTexts(
        failure_text(failed, failure, others, screen),
        brief_text(failed, others, screen),
        in_one_line(failed, others),
        partial(_in_columns, failed, failure, others, screen),
    )
    unmeasured = [verdict.reason or Verbatim(verdict.text) for verdict in failed if verdict.status == NOT_MEASURED]
    facts = () if others else failed
    return error_of_texts(texts, unmeasured, also_missed=bool(others) or len(unmeasured) < len(failed), facts=facts)


def _in_columns(
    failed: Sequence[Verdict], failure: Failure, others: tuple[FailureLine, ...], screen: Screen, most: int
) -> str:
    return failure_text(failed, failure, others, screen.of_width(most))


def failure_text(verdicts: Sequence[Verdict], failure: Failure, others: tuple[FailureLine, ...], screen: Screen) -> str:
    """Return the text of a failure: of limits that do not hold, and of lines of other failures.

    On a terminal each section has so few lines that what to do is seen on the first screen, too.
    """
    numbered = _with_numbers(_with_new_first(verdicts, others))
    details = _details(numbered, failure, others)
    caps = screen.caps(len(numbered), others=bool(details))
    sections: list[_Section] = []
    for verdict in _without_repetition(numbered, caps):
        named = {code for section in sections for code in section.causes}
        sections.append(_section(verdict, failure.why, named, caps, screen))
    about_others = _about_others(details, caps, screen)
    left = about_others.left + (sum(section.left for section in sections) if caps.sums_up else 0)
    named = {code for section in sections for code in section.causes}
    unnamed = [code for section in sections for code in section.left_causes if code not in named]
    # The longer the text, the more the remedy is needed at its end; what varies anyway decides nothing.
    remedies, varied = ([line for line in others if line.about == about] for about in ("remedy", "varies"))
    lines = [
        *_headline(numbered, failure, others, screen),
        *chain.from_iterable(section.lines for section in sections),
        *chain.from_iterable(
            screen.broken(f"  lines: not known: {reason_line(str(reason))}") for reason in failure.unlocated
        ),
        *([""] if numbered else []),
        *about_others.lines,
        *screen.left_out(left, "line", indent=2, which=about_others.left_kinds),
        *_other_causes([*dict.fromkeys(unnamed)], screen),
        *_remedy_lines(numbered, failure, others, caps, screen),
        *shown_lines(remedies, screen),
        *varied_lines(varied, screen),
    ]
    return "\n".join(lines)


def _details(verdicts: tuple[Verdict, ...], failure: Failure, others: tuple[FailureLine, ...]) -> list[FailureLine]:
    """Return the lines of other failures that stand above what to do, without what is named below a limit already."""
    named = set(chain.from_iterable(_named_breaks(verdict, failure.why) for verdict in verdicts))
    return [
        line
        for line in with_colon(others)
        if line.about not in ("remedy", "varies") and not (line.about == "broke" and line.subject in named)
    ]


class _Section(NamedTuple):
    """A section of a failure, as far as it is shown."""

    lines: list[str]
    left: int
    """How many rows, notes or lines are left out."""
    left_kinds: str = ""
    """The kinds among them: how many kernels that came and went."""
    causes: tuple[str, ...] = ()
    """The codes of the findings that may be the cause and are named."""
    left_causes: tuple[str, ...] = ()
    """The codes of findings that are left out."""


def _about_others(details: Sequence[FailureLine], caps: Caps, screen: Screen) -> _Section:
    """Return the headline and as many of the lines below it as the caps allow, what matters most among them."""
    first, *more = [shown_lines([line], screen) for line in details] or [[]]
    room = None if caps.lines is None else max(caps.lines - len(first), 0)
    below = fitting(more, room, counts_one=caps.sums_up)
    left_out: list[FailureLine] = []
    if len(below) < len(more):
        shown = with_room(details[1:], more, room)
        below = [more[at] for at in shown]
        left_out = [line for at, line in enumerate(details[1:]) if at not in shown]
    return _Section([*first, *chain.from_iterable(below)], len(more) - len(below), moved_kinds(left_out))


def _named_breaks(verdict: Verdict, why: Callable[[str], Sequence[Finding]]) -> list[str | None]:
    """Return the places of the graph breaks that are named below a limit."""
    breaks = [fact.file_line for fact in verdict.evidence if isinstance(fact, GraphBreakLine)]
    return breaks + [finding.source for finding in causes_of(verdict, why) if isinstance(finding, GraphBroke)]


def _section(
    verdict: Verdict, why: Callable[[str], Sequence[Finding]], named: Collection[str], caps: Caps, screen: Screen
) -> _Section:
    """Return the lines about a verdict, as far as the caps allow; ``why`` returns causes of a missed limit.

    ``named`` are the codes of causes that stand above, and are not said again.
    """
    evidence = [fact for fact in verdict.evidence if says_more(fact, verdict)]
    below = detail_blocks(evidence, caps, screen)
    rows = _fitting_rows(below.blocks, caps, screen)
    if len(rows) < sum(is_row for is_row, _ in below.blocks):
        below = detail_blocks(evidence, caps, screen, len(rows))
        rows = _fitting_rows(below.blocks, caps, screen)
    blocks = below.blocks
    noted = [lines for is_row, lines in blocks if not is_row]
    notes = fitting(noted, caps.notes, counts_one=caps.sums_up, whole=not rows)
    whole = [lines for is_row, lines in blocks if is_row][: len(rows)]
    left = len(blocks) - len(rows) - len(notes) + sum(map(len, whole)) - sum(map(len, rows))
    of_rows, of_notes = iter(rows), iter(notes)
    details = [next(of_rows if is_row else of_notes, []) for is_row, _ in blocks]
    shown = fitting(below.places, caps.places, counts_one=True)
    without = "" if caps.sums_up else and_more(min(below.with_places, len(rows)) - len(shown), "place")
    findings = causes_of(verdict, why) if verdict.status == MISSED else ()
    whys = [
        f"{' ' * INDENT}why: {f'{own.code}, as above' if own.code in named else reason_line(own.in_one_line)}"
        for own in findings
    ]
    causes = fitting([screen.broken(line) for line in whys], caps.reasons, counts_one=True, whole=True)
    lines = [
        *screen.broken(limit_line(verdict, screen.columns), hanging=INDENT),
        *chain.from_iterable(details),
        *([] if caps.sums_up else screen.left_out(left, indent=INDENT + 3)),
        *chain.from_iterable(shown),
        *([f"{' ' * INDENT}{without.lstrip()}"] if without else []),
        *chain.from_iterable(causes),
    ]
    codes = tuple(finding.code for finding in findings)
    return _Section(lines, left, causes=codes[: len(causes)], left_causes=codes[len(causes) :])


def _other_causes(codes: Sequence[str], screen: Screen) -> list[str]:
    """Return the lines that name findings for which there is no room; no line without any."""
    title = "another possible cause" if len(codes) == 1 else "other possible causes"
    return screen.broken(f"  {title}: {first_of(codes, _MOST_CODES)}") if codes else []


def _fitting_rows(blocks: Sequence[tuple[bool, list[str]]], caps: Caps, screen: Screen) -> list[list[str]]:
    """Return as many rows as fit with their places, and one more if no other is left: without more than one line."""
    rows = [lines for is_row, lines in blocks if is_row]
    first = [lines[: caps.rows] if caps.rows else lines for lines in rows[:1]]
    shown = fitting([*first, *rows[1:]], caps.rows, counts_one=caps.sums_up)
    if len(rows) == len(shown) + 1 and not caps.sums_up:
        # A single line below it takes no more room than its number would.
        shown = [*shown, rows[-1] if len(rows[-1]) == 2 else rows[-1][:1]]
    return shown[: screen.top]


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


def _with_new_first(verdicts: Sequence[Verdict], others: Sequence[FailureLine]) -> list[Verdict]:
    """Return the verdicts with the rows of kernels that came against a baseline before all others that miss a limit.

    They stand in the order in which they are named elsewhere.
    """
    came: dict[str, int] = {}
    for at, line in enumerate(line for line in others if line.about == "came"):
        for name in (line.subject, printable(line.full)):
            came.setdefault(name, at)

    def reordered(verdict: Verdict) -> Verdict:
        rows = [row for row in verdict.rows if not row.also_ran]
        in_order = iter(sorted(rows, key=lambda row: came.get(row.name, came.get(row.full, len(came)))))
        evidence = tuple(next(in_order) if fact in rows else fact for fact in verdict.evidence)
        return replace(verdict, evidence=evidence)

    return [reordered(verdict) for verdict in verdicts] if came else list(verdicts)


def _with_numbers(verdicts: Sequence[Verdict]) -> tuple[Verdict, ...]:
    """Return the verdicts with numbers after short names that stand for several full names."""
    rows = [row for verdict in verdicts for row in verdict.rows]
    kinds = [*dict.fromkeys((row.name, row.full) for row in rows)]
    names = dict(zip(kinds, number_alike([name for name, _ in kinds]), strict=True))

    def numbered(fact: AnyEvidence) -> AnyEvidence:
        return replace(fact, name=names[fact.name, fact.full]) if isinstance(fact, WorkRow) else fact

    return tuple(replace(verdict, evidence=tuple(map(numbered, verdict.evidence))) for verdict in verdicts)


def _headline(
    verdicts: tuple[Verdict, ...], failure: Failure, others: tuple[FailureLine, ...], screen: Screen
) -> list[str]:
    """Return the names of the limits by their status, with what changed against a baseline, and a blank line."""
    if not verdicts:
        return []
    parts = []
    for status in (MISSED, NOT_MEASURED):
        names = [verdict.name for verdict in verdicts if verdict.status == status]
        if names:
            parts.append(f"{counted(len(names), 'limit')} {status}: {', '.join(names)}")
    # What the compiler did, or what was not measured, does not belong to a step.
    of_step = any(verdict.status == MISSED and verdict.in_step for verdict in verdicts)
    steps = f" (worst of {failure.steps} steps)" if failure.steps > 1 and of_step else ""
    moved = moved_lines(others)
    cause = f"; {first_moved(moved)}" if moved else ""
    return [*screen.broken(f"{'; '.join(parts)}{steps}{cause}"), ""]


def _code_of(verdict: Verdict) -> str:
    """Return the code under which it is explained why a limit is not measured."""
    return (verdict.reason.code if verdict.reason is not None else None) or Code.NOT_MEASURED


def _actions(reasons: Iterable[decoding.AnyReason]) -> list[str]:
    """Return the actions that the reasons themselves ask for."""
    return [action for action in dict.fromkeys(reason.action for reason in reasons) if action]


def _about_not_measured(verdicts: Sequence[Verdict]) -> list[str]:
    """Return the actions for limits that are not measured: first those that a reason itself asks for."""
    unmeasured = [verdict for verdict in verdicts if verdict.status == NOT_MEASURED]
    asked: dict[str, list[str]] = {}
    for verdict in unmeasured:
        for action in _actions([verdict.reason] if verdict.reason is not None else []):
            asked.setdefault(action, []).append(verdict.name)
    what = "more" if asked else "what to do"
    codes = dict.fromkeys(map(_code_of, unmeasured))
    # Where others are missed, it is no remedy for those.
    is_for_all = len(unmeasured) == len(verdicts)
    return [
        *(action if is_for_all else f"for {', '.join(names)}: {action}" for action, names in asked.items()),
        *(f"`torchprof explain {code}` says {what}; a limit that was not measured never passes" for code in codes),
    ]


def _remedy_lines(
    verdicts: tuple[Verdict, ...], failure: Failure, others: Sequence[FailureLine], caps: Caps, screen: Screen
) -> list[str]:
    """Return the lines of the remedies for limits."""
    came = first_come([line for line in moved_lines(others) if line.about == "came"])
    remedies = remedies_of(verdicts, failure.why, came=came)
    left = 0 if caps.remedies is None or len(remedies) <= caps.remedies + 1 else len(remedies) - caps.remedies
    if left:
        known_first = sorted(verdicts, key=lambda verdict: not verdict.has_known_cause)
        remedies = remedies_of(known_first, failure.why, came=came)
    # A line would only say that there is one more.
    shown = remedies[: len(remedies) - left]
    more = [*_actions(failure.unlocated), *_about_not_measured(verdicts)]
    return [
        *chain.from_iterable(screen.broken(f"{REMEDY}{line}") for line in shown),
        *screen.left_out(left, indent=len(REMEDY)),
        *chain.from_iterable(screen.broken(f"{REMEDY}{line}") for line in dict.fromkeys(more)),
    ]
