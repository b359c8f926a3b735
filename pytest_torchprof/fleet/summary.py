"""The summary of a run: the joint outcome of its files, in numbers."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from pytest_torchprof.fleet.jobs import JobsSummary
from pytest_torchprof.limits import MISSED
from pytest_torchprof.reasons.codes import Code
from pytest_torchprof.report.outcome import Outcome

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pytest_torchprof.fleet.judging import FileRecord

SCHEMA: Final = 1


class FleetSummary(Struct, frozen=True, kw_only=True):
    """The results of all files in numbers: the same for the same list, however it was judged."""

    schema: int = SCHEMA
    version: str
    listed: int
    judged: int
    not_measured: int
    quarantined: int
    hold: int
    """Judged by limits, all of which hold."""
    missed: int
    without_limits: int
    """Judged, and nothing was asked of them: figures and findings."""
    limits_missed: dict[str, int]
    """In how many files each limit was missed."""
    findings: dict[str, int]
    """How many files have each finding."""
    not_measured_because: dict[str, int]
    """The number of files by the reason's code."""
    quarantined_because: dict[str, int]
    jobs: JobsSummary = JobsSummary()
    """The jobs whose ranks are among the files."""


class FleetTally:
    """Counts the outcomes of records, one after the other."""

    def __init__(self, version: str) -> None:
        self.version = version
        self._outcomes: Counter[str] = Counter()
        self._missed: Counter[str] = Counter()
        self._findings: Counter[str] = Counter()
        self._unmeasured: Counter[str] = Counter()
        self._apart: Counter[str] = Counter()

    def see(self, record: FileRecord) -> None:
        """Count a record."""
        result = record.result
        if result is None:
            self._apart[_code(record.quarantined.code if record.quarantined else None)] += 1
            return
        self._outcomes[result.outcome] += 1
        self._missed.update({verdict.limit for verdict in result.limits if verdict.status == MISSED})
        self._findings.update({finding.code for finding in result.findings})
        if result.outcome is Outcome.NOT_MEASURED:
            self._unmeasured[_code(result.reason.code if result.reason else None)] += 1

    def summary(self) -> FleetSummary:
        """Return the summary of the records that were counted."""
        judged = [self._outcomes[outcome] for outcome in (Outcome.PASSED, Outcome.FAILED, Outcome.RECORDED)]
        return FleetSummary(
            version=self.version,
            listed=self._outcomes.total() + self._apart.total(),
            judged=sum(judged),
            not_measured=self._outcomes[Outcome.NOT_MEASURED],
            quarantined=self._apart.total(),
            hold=judged[0],
            missed=judged[1],
            without_limits=judged[2],
            limits_missed=dict(sorted(self._missed.items())),
            findings=dict(sorted(self._findings.items())),
            not_measured_because=dict(sorted(self._unmeasured.items())),
            quarantined_because=dict(sorted(self._apart.items())),
        )


def summed(version: str, records: Iterable[FileRecord]) -> FleetSummary:
    """Return the summary of records, which are read once."""
    tally = FleetTally(version)
    for record in records:
        tally.see(record)
    return tally.summary()


def _code(code: str | None) -> str:
    return str(code or Code.NOT_MEASURED)
