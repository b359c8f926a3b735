"""The facts of a recording on limits that do not hold, besides the verdicts on them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from pytest_torchprof.findings.catalogue import AnyFinding  # noqa: TC001 - msgspec reads the annotations
from pytest_torchprof.limits.limit import MISSED
from pytest_torchprof.reasons import decoding  # noqa: TC001 - msgspec reads the annotations
from pytest_torchprof.reasons.decoding import portable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from pytest_torchprof.analysis.analysis import Analysis
    from pytest_torchprof.findings import Finding
    from pytest_torchprof.limits.limit import Verdict
    from pytest_torchprof.reasons.reason import Reason


class Failure(Struct, frozen=True, kw_only=True):
    """The facts of a recording on limits that do not hold, besides the verdicts on them."""

    steps: int
    """How many steps it has."""
    causes: dict[str, tuple[AnyFinding, ...]] = {}
    """By the names of limits that were missed, the findings that may explain it."""
    unlocated: tuple[decoding.AnyReason, ...] = ()
    """Why rows name no lines, though lines were looked for."""

    def why(self, limit: str) -> tuple[AnyFinding, ...]:
        """Return the findings that may explain why the limit of a name was missed."""
        return self.causes.get(limit, ())


def failure_of(
    verdicts: Sequence[Verdict], analysis: Analysis, why: Callable[[str], Sequence[Finding]] = lambda _: ()
) -> Failure:
    """Return the analysis's facts on limits that do not hold; ``why`` is as in ``error_for``."""
    missed = dict.fromkeys(verdict.limit for verdict in verdicts if verdict.status == MISSED)
    causes = {limit: tuple(why(limit)) for limit in missed}
    return Failure(
        steps=len(analysis.trace.steps),
        causes={limit: findings for limit, findings in causes.items() if findings},
        unlocated=_unlocated(verdicts, analysis),
    )


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
