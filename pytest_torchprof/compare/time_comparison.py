"""The comparison of a measurement's time with another commit's, and its lines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from pytest_torchprof.compare.pace import PaceVerdict  # noqa: TC001 - msgspec reads the annotations
from pytest_torchprof.reasons import decoding  # noqa: TC001 - msgspec reads the annotations
from pytest_torchprof.reasons.disturbances import AnyDisturbance  # noqa: TC001 - msgspec reads the annotations
from pytest_torchprof.reasons.error_texts import unmeasured_text
from pytest_torchprof.text import counted
from pytest_torchprof.text.units import show_share, show_us

if TYPE_CHECKING:
    from collections.abc import Iterator


class TimeChange(Struct, frozen=True, kw_only=True):
    """The difference from the other commit's time: medians in microseconds, and shares of the other time."""

    base_us: float
    here_us: float
    share: float
    low: float
    high: float
    """The ends of the interval of 95 %."""
    floor: float
    """By how much processes of the same code differ."""
    chance: float
    """How often chance would produce as large a difference."""

    @property
    def words(self) -> str:
        """Both medians and their difference: "1.0 ms -> 1.2 ms, +20.0% (95 % interval +18.0% to +23.0%)"."""
        interval = f"95 % interval {self.low:+.1%} to {self.high:+.1%}"
        return f"{show_us(self.base_us)} -> {show_us(self.here_us)}, {self.share:+.1%} ({interval})"


class TimeComparison(Struct, frozen=True, kw_only=True):
    """How the time of a measurement compares with another commit's."""

    verdict: PaceVerdict | Literal["new", "not judged", "not measured"]
    tolerance: float | None = None
    """The share by which it may be slower."""
    reason: decoding.AnyReason | None = None
    """Why there are no times, or why the times leave it open."""
    seed: int | None = None
    """The seed of the order in which processes ran."""
    pairs: int = 0
    confirming_pairs: int = 0
    step: TimeChange | None = None
    kernels: TimeChange | None = None
    disturbed: tuple[AnyDisturbance | str, ...] = ()
    fails: bool = False
    """Whether it fails the test."""
    failed_before: bool = False
    """Whether the test had already failed when its times were taken, and was reported without them."""

    @property
    def words(self) -> str:
        """The result of the comparison, in a line."""
        if self.step is None:
            return self.verdict if self.reason is None else self.reason.text
        fresh = f", {self.confirming_pairs} of them to confirm" if self.confirming_pairs else ""
        pairs = f"{counted(self.pairs, 'pair')} of processes{fresh}"
        return f"time {self.step.words}; {pairs}; processes of the same code differ by {show_share(self.step.floor)}"

    @property
    def lines(self) -> tuple[str, ...]:
        """The lines about the time; if there are no times, only if that fails the test."""
        if self.step is None:
            return (unmeasured_text(f"its time against the other commit: {self.reason}"),) if self.fails else ()
        return tuple(f"    {line}" for line in self._figures(self.words))

    def _figures(self, step: str) -> Iterator[str]:
        yield step
        if self.kernels is not None:
            yield f"kernel time {self.kernels.words}, as recorded in the same processes"
        yield from (f"meanwhile {disturbance}" for disturbance in self.disturbed)
        if self.reason is not None:
            yield f"undecided: {self.reason.text}"

    @property
    def remedy(self) -> str | None:
        """The remedy if its times fail the test; None if there is nothing to do, or if the reason says it."""
        if not self.fails or self.step is None:
            return None
        if self.verdict == "ambiguous":
            return "run it again on a machine with less other work, with a larger --torchprof-against-budget"
        return f'make it faster, or allow so much in the marker: tolerance={{"time": {self.step.share:.2f}}}'

    @property
    def lines_with_remedy(self) -> tuple[str, ...]:
        """The lines about the times, with the remedy."""
        return self.lines if self.remedy is None else (*self.lines, f"  do: {self.remedy}")

    def failure(self, reference: str) -> str:
        """Return the text of the failure; ``reference`` names the commit."""
        headline = {
            "worse": f"slower than at {reference}:",
            "ambiguous": f"times against {reference} are ambiguous (--torchprof-against-ambiguous=fail):",
        }
        return "\n".join([*filter(None, [headline.get(self.verdict)]), *self.lines_with_remedy])
