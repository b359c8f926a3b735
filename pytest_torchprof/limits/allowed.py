"""Limits on waits and copies, of which a test may allow some."""

from __future__ import annotations

from collections import defaultdict
from functools import cached_property, partial
from typing import TYPE_CHECKING

from msgspec import Struct, structs

from pytest_torchprof.analysis.waits import longest_poll, waiting_copies
from pytest_torchprof.kernels.reply import NOT_KNOWN, YES
from pytest_torchprof.limits.allowances import Allowance, read_allowances, read_allowed_copies
from pytest_torchprof.limits.evidence import AllowedNothing
from pytest_torchprof.limits.items import Item, moves_of, rows_of_moves, rows_of_waits, waits_of
from pytest_torchprof.limits.limit import (
    HOLDS,
    MISSED,
    Setting,
    Verdict,
    title_among,
    unmeasured,
)
from pytest_torchprof.limits.seen import CountSeen
from pytest_torchprof.reasons.composed import AllowanceUntold
from pytest_torchprof.reasons.errors import UnknownLimit
from pytest_torchprof.reasons.limits import Polled
from pytest_torchprof.reasons.lines import (
    CallerUnknown,
    DestinationUnknown,
    FileNotFound,
    FunctionsWithoutLines,
    LinesNotRecorded,
    RepeatWentElsewhere,
)
from pytest_torchprof.reasons.wrong_values import NoneOfThese
from pytest_torchprof.trace.columns import MEMCPY

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pytest_torchprof.analysis.analysis import Analysis
    from pytest_torchprof.analysis.steps import StepProfile
    from pytest_torchprof.limits.evidence import WorkRow
    from pytest_torchprof.reasons.reason import Reason

    Items = Callable[[Analysis, StepProfile], list[Item]]
    Rows = Callable[..., tuple[WorkRow, ...]]


class Tally(Struct, frozen=True, kw_only=True, dict=True):
    """The items of one step, each with the allowances that apply to it, and with those that may apply."""

    step: StepProfile
    items: Sequence[Item]
    allowing: Sequence[tuple[Allowance, ...]]
    doubtful: Sequence[tuple[Allowance, ...]]

    @classmethod
    def of(cls, analysis: Analysis, step: StepProfile, items: Sequence[Item], allow: Sequence[Allowance]) -> Tally:
        """Return the tally of a step."""
        if any(entry.needs_lines for entry in allow) and not step.places_in_order:
            items = [structs.replace(item, is_placed=False) for item in items]
        answers = [(entry, entry.answers(analysis, items)) for entry in allow]
        return cls(
            step=step,
            items=items,
            allowing=[tuple(entry for entry, replies in answers if replies[i] is YES) for i in range(len(items))],
            doubtful=[tuple(entry for entry, replies in answers if replies[i] is NOT_KNOWN) for i in range(len(items))],
        )

    @cached_property
    def allowed(self) -> dict[tuple[Allowance, ...], list[Item]]:
        """The items that are allowed, by their allowances."""
        items_of = defaultdict(list)
        for item, allowing in zip(self.items, self.allowing, strict=True):
            if allowing:
                items_of[allowing].append(item)
        return items_of

    @cached_property
    def undecided(self) -> list[Item]:
        """The items of which it is not known whether they are allowed."""
        return [
            item
            for item, allowing, doubtful in zip(self.items, self.allowing, self.doubtful, strict=True)
            if doubtful and not allowing
        ]

    @cached_property
    def counting(self) -> list[Item]:
        """The items that nothing allows."""
        return [
            item
            for item, allowing, doubtful in zip(self.items, self.allowing, self.doubtful, strict=True)
            if not doubtful and not allowing
        ]


class _Count(Struct, frozen=True, kw_only=True):
    """The kind of item that a limit counts, and how it is shown."""

    noun: str
    items: Items
    rows: Rows

    def judge(self, analysis: Analysis, most: int, allow: Sequence[Allowance]) -> Verdict:
        """Return the verdict that no step has more than ``most`` items that are not allowed."""
        tallies = [Tally.of(analysis, step, self.items(analysis, step), allow) for step in analysis.steps]
        unused = _unused(tallies, allow)
        worst = max(tallies, key=lambda tally: len(tally.counting))
        if len(worst.counting) > most:
            return Verdict(
                seen=(self._seen(worst),),
                number=len(worst.counting),
                status=MISSED,
                evidence=(*self.rows(worst.counting), *self._allowed_rows(worst), *unused),
                step=worst.step.name,
                in_step=title_among(analysis, worst.step),
            )
        worst = max(tallies, key=lambda tally: len(tally.counting) + len(tally.undecided))
        if len(worst.counting) + len(worst.undecided) > most:
            return self._not_known(analysis, worst)
        worst = max(tallies, key=lambda tally: len(tally.items))
        return Verdict(
            seen=(self._seen(worst),),
            number=len(worst.counting),
            status=HOLDS,
            evidence=(*self._allowed_rows(worst), *unused),
        )

    def _seen(self, tally: Tally) -> CountSeen:
        return CountSeen(len(tally.items), self.noun, allowed=sum(map(len, tally.allowed.values())))

    def _allowed_rows(self, tally: Tally) -> tuple[WorkRow, ...]:
        return tuple(
            structs.replace(row, also_ran=True)
            for allowing, items in tally.allowed.items()
            for row in self.rows(items, tuple(map(str, allowing)))
        )

    def _not_known(self, analysis: Analysis, tally: Tally) -> Verdict:
        asked = dict.fromkeys(entry for some in tally.doubtful for entry in some)
        lines = any(entry.needs_lines for entry in asked)
        no_lines = not analysis.launching.origins.recorded and analysis.repeat is None
        if all(entry.names_direction for entry in asked):
            reason: Reason = DestinationUnknown()
        elif not lines:
            reason = CallerUnknown()
        elif no_lines:
            reason = LinesNotRecorded()
        elif any(item.origin is not None and not item.origin.exact for item in tally.undecided):
            reason = FunctionsWithoutLines()
        elif file := next((item.origin.file for item in tally.undecided if item.is_placed and item.origin), None):
            reason = FileNotFound(file)
        else:
            reason = tally.step.places.why_not or RepeatWentElsewhere()
        why = AllowanceUntold(tuple(map(str, asked)), len(tally.undecided), self.noun, reason)
        unknown = unmeasured(why, self.rows(tally.undecided), step=tally.step.name)
        return structs.replace(unknown, wants_lines=lines and no_lines)


def _unused(tallies: Sequence[Tally], allow: Sequence[Allowance]) -> tuple[AllowedNothing, ...]:
    """Return a line that names the allowances that matched nothing in any step; empty if all matched."""
    used = {entry for tally in tallies for some in (*tally.allowing, *tally.doubtful) for entry in some}
    names = tuple(str(entry) for entry in allow if entry not in used)
    return (AllowedNothing(names),) if names else ()


def _every_wait(analysis: Analysis, step: StepProfile) -> list[Item]:
    """Return the blocking calls, and the copies that returned only when done, unless a call waits for them."""
    waits, trace = waits_of(analysis, step), analysis.trace
    known = {item.op for item in waits if item.op >= 0}
    # ROCm says "Host" for both kinds of memory.
    late = set(waiting_copies(trace, step.part.gpu_ops, memories=("Pageable", "Host")))
    copies = [move for move in moves_of(analysis, step, MEMCPY) if move.gpu_op in late and move.op not in known]
    return sorted([*waits, *copies], key=lambda item: trace.calls.start[item.call])


_WAITS = {
    "calls": _Count(noun="blocking call", items=waits_of, rows=rows_of_waits),
    "all": _Count(noun="wait", items=_every_wait, rows=rows_of_waits),
}
_COPIES = _Count(noun="copy", items=partial(moves_of, kind=MEMCPY), rows=rows_of_moves)


def judge_syncs(
    analysis: Analysis, most: int, *, allow_syncs: Sequence[Allowance] = (), waits: str = "calls"
) -> Verdict:
    """Return the verdict that no step waits more than ``most`` times, beside the waits that are allowed."""
    verdict = _WAITS[waits].judge(analysis, most, allow_syncs)
    return (verdict.status == HOLDS and _polled(analysis)) or verdict


_POLLS = 10
"""This many queries in a row are a loop that waits for the answer; code that queries several events makes fewer."""


def _polled(analysis: Analysis) -> Verdict | None:
    """Return *not measured* if a step may have waited without a blocking call; None if none did."""
    for step in analysis.steps:
        times = longest_poll(analysis.trace, step.part.calls)
        if times >= _POLLS:
            return unmeasured(Polled(times, title_among(analysis, step)), step=step.name)
    return None


def judge_memcpys(analysis: Analysis, most: int, *, allow_memcpys: Sequence[Allowance]) -> Verdict:
    """Return the verdict that no step copies more than ``most`` times, beside the copies that are allowed."""
    return _COPIES.judge(analysis, most, allow_memcpys)


def _read_waits(value: object) -> str:
    if isinstance(value, str) and value in _WAITS:
        return value
    raise UnknownLimit.because(NoneOfThese(tuple(map(repr, _WAITS)), repr(value)))


OF_SYNCS = (Setting(name="allow_syncs", read=read_allowances), Setting(name="waits", read=_read_waits))
OF_MEMCPYS = (Setting(name="allow_memcpys", read=read_allowed_copies),)
