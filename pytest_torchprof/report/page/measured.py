"""A measurement as the page shows it: its result in the report, and its recording if that is at hand."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pytest_torchprof.analysis.analysis import Analysis, Repeat
from pytest_torchprof.analysis.numbers import BY_NAME
from pytest_torchprof.devices.kinds import kind_of
from pytest_torchprof.reasons.codes import Code
from pytest_torchprof.reasons.errors import TorchprofError
from pytest_torchprof.reasons.testing import EndedByError
from pytest_torchprof.recording.files import stacks_name
from pytest_torchprof.recording.reader import read
from pytest_torchprof.report.columns import TESTS
from pytest_torchprof.report.outcome import Outcome
from pytest_torchprof.report.recorded import recorded_result
from pytest_torchprof.text import is_huge
from pytest_torchprof.trace.metadata import Environment

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_torchprof.analysis.ranks import RankPart
    from pytest_torchprof.devices.kinds import DeviceKind
    from pytest_torchprof.report.result import Result

MOST_DRAWN: Final = 40
"""How many recordings a page draws the timeline of."""
VERDICTS: Final = (
    *(
        str(Outcome.FAILED),
        str(Outcome.ERROR),
        str(Outcome.NOT_MEASURED),
        str(Outcome.XFAILED),
        str(Outcome.WARNED),
        str(Outcome.SKIPPED),
    ),
    *(str(Outcome.PASSED), str(Outcome.RECORDED), str(Outcome.GONE)),
)
"""The outcomes in the order in which a reader wants to see them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One measurement."""

    result: Result
    analysis: Analysis | None = None
    missing: str = ""
    """Why there is no analysis."""
    before: Measured | None = None
    """The measurement that it is compared with."""
    other_ranks: tuple[RankPart, ...] = ()
    """The kept parts of the recordings of its job's other ranks, which have no place of their own on the page."""

    @property
    def name(self) -> str:
        """The test and, where there is one, the label."""
        return self.result.name

    @property
    def outcome(self) -> Outcome:
        """The outcome of the measurement."""
        return self.result.outcome

    @property
    def verdict(self) -> str:
        """The outcome as the page writes it: earlier versions wrote "not measured" where the code's error ended it."""
        ended_by_error = isinstance(self.result.reason, EndedByError) and self.outcome is Outcome.NOT_MEASURED
        return str(Outcome.ERROR if ended_by_error else self.outcome)

    @property
    def device(self) -> DeviceKind:
        """The kind of device; without the recording it is the CPU where the environment names it and no GPU."""
        if self.analysis is not None:
            return self.analysis.trace.device_kind
        environment = self.result.environment or Environment()
        return kind_of("cpu" if environment.cpu and not environment.gpu else None)

    def number(self, name: str) -> float | None:
        """Return the median over the steps of one of the numbers; None where it is not known."""
        return _known(getattr(self.result.summary, name, None)) if self._knows(name) else None

    def decisive(self, name: str) -> float | None:
        """Return one of the numbers as verdicts name it; None where it is not known."""
        summary = self.result.summary
        return _known(summary.decisive(BY_NAME[name])) if summary is not None and self._knows(name) else None

    def worst(self, name: str) -> float | None:
        """Return the worst step's value of one of the numbers; None where it is not known."""
        summary = self.result.summary
        return _known(getattr(summary.worst, name)) if summary is not None and self._knows(name) else None

    def _knows(self, name: str) -> bool:
        """Whether a number can be believed: a zero of something that was not measured would be read as a number.

        In a recording without the GPU's side, only numbers that need no GPU can.
        """
        doubt = self.result.reason if self.analysis is None else self.analysis.doubt
        if doubt is not None and doubt.code == Code.NO_GPU_SIDE:
            return BY_NAME[name].needs is None
        if self.analysis is not None:
            return self.analysis.measured
        return doubt is None or self.outcome is not Outcome.NOT_MEASURED or bool(self.result.limits)


def of_recording(analysis: Analysis, name: str) -> Measured:
    """Return a recording without limits as a measurement; ``name`` is its name if no test made it."""
    return Measured(result=recorded_result(analysis, name), analysis=analysis)


def with_lines(analysis: Analysis) -> Analysis:
    """Return the analysis with the lines and modules of a repeat that was recorded with stacks, if there is one."""
    path = Path(analysis.trace.path or "")
    beside = path.with_name(stacks_name(path.name)) if path.name else path
    if not path.name or analysis.repeat is not None or not beside.is_file():
        return analysis
    try:
        repeat = Repeat(Analysis(read(beside)))
    except TorchprofError:
        return analysis
    return Analysis(analysis.trace, repeat=repeat)


def in_page(results: Sequence[Result]) -> set[int]:
    """Return the ``id`` of each result whose recording fits on the page: failures come first."""
    kept = [result for result in results if result.recording]
    return {id(result) for result in sorted(kept, key=lambda result: not result.outcome.is_failure)[:MOST_DRAWN]}


def _known(value: object) -> float | None:
    """Return a number of a report as it is; a file may hold anything in its place."""
    if isinstance(value, bool) or not isinstance(value, int | float) or is_huge(value) or not math.isfinite(value):
        return None
    return value


SHOWN: Final = tuple(BY_NAME[column.key] for column in TESTS if column.key in BY_NAME)
"""The numbers that the list of verdicts has room for."""
