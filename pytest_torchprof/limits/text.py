"""The text of a failure: which limits, what was seen instead, from where, why, what to do; as long as a screen."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from pytest_torchprof.errors import ASK_THE_DOCTOR
from pytest_torchprof.limits.bearing import bearing_on
from pytest_torchprof.limits.screen import DEFAULT, INDENT, Layout, Screen, height
from pytest_torchprof.limits.verdict import MISSED, NOT_MEASURED, Row, Verdict
from pytest_torchprof.text.escape import printable, printable_line
from pytest_torchprof.text.plural import counted

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pytest_torchprof.findings import Finding
    from pytest_torchprof.profile import Profile

LONGEST_REASON = 600
COLUMN = 32
"""At which what was seen starts, where the limit leaves room for it."""


def failure_text(
    failed: Iterable[Verdict], profile: Profile | None, *, also: Iterable[str] = (), screen: Screen = DEFAULT
) -> str:
    """Return the text for limits that do not hold, and lines of other failures with them."""
    verdicts, others = tuple(failed), tuple(also)
    if screen.one_line:
        return _one_line(verdicts, others)
    most = len(others) if screen.everything else screen.lines // 2 if verdicts else screen.lines
    more = [*map(printable, others[:most]), *_left(len(others) - most, "line", 2)]
    if not verdicts:
        return "\n".join(more)
    findings = profile.findings if profile is not None else ()
    told = [_Told(verdict, _why(verdict, findings), screen) for verdict in _without_repetition(verdicts)]
    head = [_headline(verdicts, profile), ""]
    tail = [f"  lines: not known: {reason}" for reason in _unlocated(verdicts, profile)]
    tail += ["", *more] if more else []
    tail += ["", *(f"  do: {line}" for line in _what_to_do(verdicts, profile))]
    if not screen.everything:
        _share(told, screen.lines - height(head, screen) - height(tail, screen), screen)
    return "\n".join([*head, *(line for one in told for line in one.lines()), *tail])


@dataclass(slots=True)
class _Told:
    """One verdict on the screen: its line, and as many of its details and reasons as there is room for."""

    verdict: Verdict
    why: tuple[str, ...]
    screen: Screen
    blocks: list[list[str]] = field(init=False)
    """Details, then reasons, each a few lines."""
    details: int = field(init=False)
    """How many of the blocks are details."""
    shown: set[int] = field(init=False)

    def __post_init__(self) -> None:
        self.blocks = _detail_blocks(self.verdict.details, self.screen)
        self.details = len(self.blocks)
        self.blocks += [[f"{' ' * INDENT}why: {line}"] for line in self.why]
        self.shown = set(range(len(self.blocks)))

    def head(self) -> list[str]:
        return one_line(self.verdict).splitlines()

    def order(self) -> list[int]:
        """Return the blocks by how much they tell: a reason is worth more than the fourth kernel."""
        details, reasons = list(range(self.details)), list(range(self.details, len(self.blocks)))
        return [*details[:3], *reasons[:1], *details[3:], *reasons[1:]]

    def lines(self) -> list[str]:
        found = self.head()
        for i, block in enumerate(self.blocks):
            if i == self.details:
                found += self._more()
            if i in self.shown:
                found += block
        return found if self.details < len(self.blocks) else found + self._more()

    def _more(self) -> list[str]:
        return _left(sum(i not in self.shown for i in range(self.details)), "", INDENT + 3)


def _left(count: int, noun: str, indent: int) -> list[str]:
    if count <= 0:
        return []
    return [f"{' ' * indent}and {counted(count, f'more {noun}') if noun else f'{count} more'}: pytest -vv"]


def _share(told: Sequence[_Told], room: int, screen: Screen) -> None:
    """Leave out what there is no room for: each verdict says something before any says more."""
    room -= sum(height(one.head(), screen) for one in told)
    if sum(height(block, screen) for one in told for block in one.blocks) <= room:
        return
    room -= sum(one.details > 0 for one in told)
    waiting = [(one, one.order()) for one in told]
    for one in told:
        one.shown = set()
    while waiting:
        still = []
        for one, order in waiting:
            cost = height(one.blocks[order[0]], screen) if order else 0
            if order and cost <= room:
                room -= cost
                one.shown.add(order[0])
                still.append((one, order[1:]))
        waiting = still


def _without_repetition(verdicts: Iterable[Verdict]) -> list[Verdict]:
    """Return the verdicts with each set of rows once: several limits may be missed by the same kernels."""
    seen: set[frozenset[Row]] = set()
    found = []
    for verdict in verdicts:
        rows = frozenset(one for one in verdict.details if isinstance(one, Row))
        others = tuple(one for one in verdict.details if not isinstance(one, Row))
        found.append(replace(verdict, details=others) if rows in seen else verdict)
        seen.update([rows] if rows else [])
    return found


def _why(verdict: Verdict, findings: Iterable[Finding]) -> tuple[str, ...]:
    if verdict.status != MISSED:
        return ()
    return tuple(printable_line(line, LONGEST_REASON) for line in bearing_on(verdict.limit, findings))


def _unlocated(verdicts: Iterable[Verdict], profile: Profile | None) -> list[str]:
    """Return why rows name no lines though these were looked for."""
    if profile is None:
        return []
    steps = {step.name: step for step in profile.steps}
    shown = [
        steps[verdict.step]
        for verdict in verdicts
        if verdict.step in steps and any(isinstance(one, Row) for one in verdict.details)
    ]
    return [printable_line(reason) for reason in dict.fromkeys(step.places.why_not for step in shown) if reason]


def _headline(verdicts: tuple[Verdict, ...], profile: Profile | None) -> str:
    parts = []
    for status in (MISSED, NOT_MEASURED):
        names = [verdict.limit for verdict in verdicts if verdict.status == status]
        if names:
            parts.append(f"{counted(len(names), 'limit')} {status}: {', '.join(names)}")
    steps = len(profile.trace.steps) if profile is not None else 1
    return "; ".join(parts) + (f" (worst of {steps} steps)" if steps > 1 else "")


def one_line(verdict: Verdict) -> str:
    """Return the limit as it was written, and what was seen."""
    limit = f"  {verdict.limit}={printable_line(verdict.expected)}"
    if len(limit) >= COLUMN:
        return f"{limit}\n{' ' * INDENT}{_said(verdict)}"
    return f"{limit:<{COLUMN}}{_said(verdict)}"


def _said(verdict: Verdict) -> str:
    measured = printable_line(verdict.measured.removeprefix("not measured: "), LONGEST_REASON)
    return f"not measured: {measured}" if verdict.status == NOT_MEASURED else measured


def _one_line(verdicts: tuple[Verdict, ...], others: tuple[str, ...]) -> str:
    if not verdicts:
        # A headline and, behind its colon, what it is about: the first kernel that came, went or changed, else what is.
        head, rest = others[:1], [line.strip() for line in others[1:]]
        # What came is more likely to be what failed than what went.
        about = next((line for sign in "+~-" for line in rest if line.startswith(sign)), rest[0] if rest else "")
        return printable_line(" ".join([*head, *([about] if head and head[0].endswith(":") else [])]))
    first, more = verdicts[0], [verdict.limit for verdict in verdicts[1:]]
    row = next((one for one in first.details if isinstance(one, Row)), None)
    most = f"; most: {_briefly(row)}" if row else ""
    also = f"; also: {', '.join(more)}" if more else ""
    worse = "; worse than the baseline" if others else ""
    return f"{first.limit}={printable_line(first.expected)}: {_said(first)}{most}{also}{worse}"


def _briefly(row: Row) -> str:
    place = f" ({row.places[0][1]})" if row.places else ""
    return f"{row.count} x {row.name}{place}"


def _detail_blocks(details: Sequence[str | Row], screen: Screen) -> list[list[str]]:
    rows = [one for one in details if isinstance(one, Row)]
    layout = Layout.of(rows, screen)
    return [
        layout.lines(one) if isinstance(one, Row) else [f"{' ' * INDENT}{printable_line(one, LONGEST_REASON)}"]
        for one in details
    ]


def _what_to_do(verdicts: tuple[Verdict, ...], profile: Profile | None) -> list[str]:
    todo = []
    if any(verdict.status == MISSED for verdict in verdicts):
        todo.append("change the code, or the limit where the new number is meant")
    if any(verdict.status == NOT_MEASURED for verdict in verdicts):
        todo.append("see docs/messages.md#not-measured: never counts as kept")
        if profile is not None and not (profile.why_not or "another profiler").startswith("another profiler"):
            todo.append(ASK_THE_DOCTOR)
    return todo
