"""How measurements come out: the words that stand in reports and records."""

from __future__ import annotations

from enum import StrEnum


class Outcome(StrEnum):
    """How a measurement came out."""

    PASSED = "passed"
    FAILED = "failed"
    ERROR = "error"
    """The test's own code raised, by more than an assertion, or one of its fixtures did; or it asks wrongly."""
    SKIPPED = "skipped"
    NOT_MEASURED = "not measured"
    XFAILED = "xfailed"
    """It failed, and the test is marked as expected to fail."""
    WARNED = "warned"
    """It does not keep to a rule of the suite that only warns, or could not be judged by it."""
    RECORDED = "recorded"
    """A recording by itself, without any limit."""
    GONE = "gone"
    """It was measured only on the side that is compared with."""

    @property
    def is_failure(self) -> bool:
        """Whether it fails a test."""
        return self in (Outcome.FAILED, Outcome.ERROR, Outcome.NOT_MEASURED)


class BaselineState(StrEnum):
    """How a measurement compares with its baseline, or what became of the entry that it was to write."""

    SAME = "same"
    BETTER = "better"
    CHANGED = "changed"
    AMBIGUOUS = "ambiguous"
    WORSE = "worse"
    NEW = "new"
    UNKNOWN = "unknown"
    """The other commit has the test but did not measure it."""
    WRITTEN = "written"
    LEFT_TO_RANK_0 = "left to rank 0"
    NOT_WRITTEN = "not written"
