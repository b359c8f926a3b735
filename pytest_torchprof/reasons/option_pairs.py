"""Reasons that lie in options of pytest together: one that excludes another, or needs it."""

from __future__ import annotations

from pytest_torchprof.reasons.codes import Code
from pytest_torchprof.reasons.reason import Reason


class SuiteAgainstCommit(Reason, frozen=True):
    """A suite is to be measured under rules, and compared with a commit at once."""

    CODE = Code.BAD_OPTION
    FOR_THE_DOCTOR = False
    SENTENCE = "--torchprof-suite and --torchprof-against exclude each other: run pytest once for each"
    ADVICE = "run pytest once for each"


class OptionWithoutCommit(Reason, frozen=True):
    """An option says how to compare with a commit, and none is named."""

    CODE = Code.BAD_OPTION
    FOR_THE_DOCTOR = False
    SENTENCE = "{option} says how to compare with another commit: name it, with --torchprof-against=REF"
    ADVICE = "name the commit with `--torchprof-against`, or leave the option out"

    option: str
