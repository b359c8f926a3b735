"""The answers of limits on the work of each step: what does not hold there, or is not known."""

from __future__ import annotations

from itertools import takewhile
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from pytest_torchprof.limits.evidence import WorkRow
from pytest_torchprof.limits.limit import (
    HOLDS,
    MISSED,
    NOT_MEASURED,
    Limit,
    Status,
    Verdict,
    in_order,
    title_among,
    unmeasured,
)
from pytest_torchprof.limits.seen import AsExpected
from pytest_torchprof.reasons.composed import InStep

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pytest_torchprof.analysis.analysis import Analysis
    from pytest_torchprof.analysis.steps import StepProfile
    from pytest_torchprof.limits.evidence import AnyEvidence
    from pytest_torchprof.limits.seen import AnySeen
    from pytest_torchprof.reasons.reason import Reason


class StepAnswer(Struct, frozen=True):
    """Why one entry of a limit does not hold in one step: it is missed, or it is not known whether it is."""

    status: Status
    seen: AnySeen | None = None
    evidence: tuple[AnyEvidence, ...] = ()
    reason: Reason | None = None
    """Why it is not known; None if the entry is missed."""
    of_all_steps: bool = False
    """Whether it concerns all steps and not this one alone."""


def _together(answers: Iterable[StepAnswer]) -> tuple[AnyEvidence, ...]:
    """Return the evidence of all answers, once each: first the rows that they are about, then what else ran."""
    facts = dict.fromkeys(fact for answer in answers for fact in answer.evidence)
    rows = [fact for fact in facts if isinstance(fact, WorkRow)]
    about = in_order(row for row in rows if not row.also_ran)
    known = {row.full for row in about}
    beside = in_order(row for row in rows if row.also_ran and row.full not in known)
    head = tuple(takewhile(lambda fact: not isinstance(fact, WorkRow), facts))
    tail = (fact for fact in facts if not isinstance(fact, WorkRow) and fact not in head)
    return (*head, *about, *beside, *tail)


def in_each_step(problems: Callable[[Analysis, StepProfile, Any], Iterable[StepAnswer]]) -> Callable[..., Verdict]:
    """Return a check of every step; a missed one wins over an unknown one, and the first of its kind is shown."""

    def check(analysis: Analysis, value: Any) -> Verdict:
        in_steps = [(step, answer) for step in analysis.steps for answer in problems(analysis, step, value)]
        if not in_steps:
            return Verdict(seen=(AsExpected(),), status=HOLDS)
        status = MISSED if any(answer.status == MISSED for _, answer in in_steps) else NOT_MEASURED
        shown = next(step for step, answer in in_steps if answer.status == status)
        answers = [answer for step, answer in in_steps if step is shown and answer.status == status]
        of_step = len(analysis.steps) > 1 and not all(answer.of_all_steps for answer in answers)
        evidence = _together(answers)
        if whys := tuple(answer.reason for answer in answers if answer.reason is not None):
            why = InStep(whys, analysis.title_of(shown) if of_step else None)
            return unmeasured(why, evidence, step=shown.name)
        return Verdict(
            seen=tuple(dict.fromkeys(answer.seen for answer in answers if answer.seen is not None)),
            status=status,
            evidence=evidence,
            step=shown.name,
            in_step=title_among(analysis, shown) if of_step else None,
        )

    return check


def limit_in_each_step(
    name: str,
    read: Callable[[object], object],
    problems: Callable[..., Iterator[StepAnswer]],
    *,
    of_events_alone: bool = False,
    missed_by_more: bool = True,
) -> Limit:
    """Return a limit that asks about each kernel of each step, and so takes no answer for another."""
    return Limit(
        name=name,
        read=read,
        check=in_each_step(problems),
        per_step=True,
        families=(),
        of_events_alone=of_events_alone,
        missed_by_more=missed_by_more,
    )
