"""Judging a function for a program that acts on the verdicts, such as one that writes kernels."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from pytest_torchprof.limits import HOLDS, MISSED, NOT_MEASURED, Verdict
from pytest_torchprof.limits.limit import Status  # noqa: TC001  (as above)
from pytest_torchprof.measuring.block import why_nothing_runs, why_work_not_done
from pytest_torchprof.measuring.keyword_values import DEVICE, STEPS, WARMUP
from pytest_torchprof.measuring.script import ScriptBlock
from pytest_torchprof.profiles import Profile  # noqa: TC001  (as above)
from pytest_torchprof.reasons.asked_wrongly import NothingToJudge
from pytest_torchprof.reasons.errors import NotMeasured, UnknownLimit, not_measured
from pytest_torchprof.reasons.errors import hide_our_frames as __tracebackhide__  # noqa: F401  (read by pytest)
from pytest_torchprof.reasons.reason import Reason  # noqa: TC001  (as above)
from pytest_torchprof.report.verdicts import no_finding, verdict_values, verdicts_json
from pytest_torchprof.text.reprs import bracketed

if TYPE_CHECKING:
    import torch

    from pytest_torchprof.reasons.errors import LimitsMissed


@dataclass(frozen=True, kw_only=True)
class Verdicts:
    """The verdicts on limits; true only if every limit was measured and holds."""

    limits: tuple[Verdict, ...] = ()
    """A verdict for each limit, in the order in which they were given; empty if nothing was measured."""
    reason: Reason | None = None
    """Why nothing was measured; None if something was."""
    profile: Profile | None = None
    """The profile that was recorded; None if nothing was measured."""
    message: str = "nothing was judged"
    """The message with which a test would fail, or that all limits hold."""

    def __bool__(self) -> bool:
        return self.status == HOLDS

    def __repr__(self) -> str:
        why = None if self.reason is None else str(self.reason)
        return bracketed(self, self.status, why, *(f"{verdict.written} {verdict.status}" for verdict in self.limits))

    def __iter__(self) -> Iterator[Verdict]:
        return iter(self.limits)

    def __str__(self) -> str:
        return self.message

    @property
    def status(self) -> Status:
        """Whether all limits hold, one was missed, or, if none was, one is not measured."""
        of_limits = {verdict.status for verdict in self.limits}
        if MISSED in of_limits:
            return MISSED
        return NOT_MEASURED if self.reason is not None or NOT_MEASURED in of_limits or not of_limits else HOLDS

    def as_json(self) -> dict[str, Any]:
        """Return JSON values with facts, texts and remedies, as ``torchprof check --json`` prints them."""
        why = no_finding if self.profile is None else self.profile.why_missed
        return verdict_values(verdicts_json(self.limits, self.reason, why))


def judge(
    function: Callable[..., Any],
    /,
    *args: Any,
    limits: Mapping[str, object],
    steps: int = STEPS,
    warmup: int = WARMUP,
    device: str | torch.device = DEVICE,
) -> Verdicts:
    """Call ``function(*args)`` ``warmup + steps`` times and return the verdicts on the limits of the steps.

    A limit that is missed, or that cannot be measured, is a verdict and raises nothing. ``limits`` has the keywords of
    the marker, e.g. ``{"max_kernels": 1, "only_kernels": "my_kernel*"}``.

    Raises UnknownLimit for limits that cannot be meant, or if there is none, and any exception of ``function``.
    """
    if not limits or not isinstance(limits, Mapping):
        raise UnknownLimit.because(NothingToJudge())
    block = _JudgedBlock(None, limits, steps=steps, warmup=warmup, device=device)
    if (reason := why_nothing_runs(function)) is not None:
        return _unmeasured(not_measured(reason))
    returned = None
    try:
        with block:
            for _ in block.steps():
                returned = None  # A result that lived through the next call would count as memory of that call.
                returned = function(*args)
        if (reason := why_work_not_done(block.profile, returned)) is not None:
            return _unmeasured(not_measured(reason))
        return block.verdicts()
    except NotMeasured as problem:
        return _unmeasured(problem)


def _unmeasured(problem: NotMeasured) -> Verdicts:
    return Verdicts(reason=problem.reason, message=str(problem))


class _JudgedBlock(ScriptBlock):
    """A measured block whose limits raise nothing."""

    _KEYWORDS_OF_CODE: ClassVar[bool] = False

    def _problem(self) -> LimitsMissed | NotMeasured | None:  # An error here would be raised at the end of the block.
        return None

    def verdicts(self) -> Verdicts:
        """Return the verdicts; NotMeasured without a recording."""
        profile, problem = self.profile, super()._problem()
        measured = self._with_lines()
        verdicts = () if measured is None else self._judge(measured)
        return Verdicts(limits=verdicts, profile=profile, message=str(problem or "all limits hold"))
