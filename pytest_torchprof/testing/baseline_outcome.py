"""What becomes of a measurement's baseline: how the measurement compares with it, and what the run notes."""

from __future__ import annotations

import warnings
from contextlib import suppress
from typing import TYPE_CHECKING

from msgspec import Struct

from pytest_torchprof import baseline
from pytest_torchprof.capture.rank import this_rank
from pytest_torchprof.reasons.errors import TorchprofWarning
from pytest_torchprof.report.outcome import BaselineState
from pytest_torchprof.testing.renames import NewTest
from pytest_torchprof.testing.run_baselines import BaselineNote

if TYPE_CHECKING:
    from pytest_torchprof.compare import Comparison
    from pytest_torchprof.testing.baseline_check import BaselineCheck, BaselineJudgement
    from pytest_torchprof.testing.judgement import Judgement
    from pytest_torchprof.testing.measured_test import MeasuredTest


class BaselineOutcome(Struct, frozen=True, kw_only=True):
    """What becomes of the baseline of one measurement; empty where it is not compared."""

    state: BaselineState | None = None
    comparison: Comparison | None = None
    fails: bool = False
    """Whether it fails the test."""
    note: BaselineNote | None = None
    """The run's note of it."""


def baseline_outcome(test: MeasuredTest, judgement: Judgement, *, writable: bool) -> BaselineOutcome:
    """Return what becomes of a measurement's baseline; ``writable``: all that was asked holds, so it may be written."""
    compared, check = judgement.baseline, test.baseline
    if compared is None:
        return BaselineOutcome()
    # Whether the commit has the test, and did not measure it.
    unknown_there = compared.why_none is not None or any(verdict.limit == "against" for verdict in judgement.verdicts)
    writes = writable and not unknown_there and check.writes(compared.old, compared.formers)
    note = _note(judgement, compared, check, writes=writes)
    if unknown_there:
        return BaselineOutcome(state=BaselineState.UNKNOWN, note=note)
    comparison = compared.comparison if compared.old is not None else None
    if writes:
        state = BaselineState.WRITTEN if this_rank().writes else BaselineState.LEFT_TO_RANK_0
        return BaselineOutcome(state=state, comparison=comparison, note=note)
    state, fails = BaselineState(compared.comparison.verdict), judgement.baseline_failure is not None
    if state is BaselineState.AMBIGUOUS and not fails:
        # This warning is never made an error: only strict fails a test that the samples do not decide.
        with suppress(TorchprofWarning):
            message = f"{test.nodeid}: {compared.comparison.summary} against the baseline"
            warnings.warn(message, TorchprofWarning, stacklevel=2)
    return BaselineOutcome(state=state, comparison=comparison, fails=fails, note=note)


def _note(judgement: Judgement, compared: BaselineJudgement, check: BaselineCheck, *, writes: bool) -> BaselineNote:
    measurement, entry = judgement.measurement, None
    if writes and this_rank().writes:
        entry = check.entry_to_write(compared, judgement.entries_of_others)
    is_new = compared.comparison.verdict == "new"
    return BaselineNote(
        file=compared.file,
        key=compared.key,
        says_less=check.says_less(compared),
        test=NewTest(str(check.path), baseline.split_key(compared.key)[0]) if is_new else None,
        label=measurement.label,
        formers=compared.formers,
        entry=entry,
        # At a commit that is only compared with, how the rest of the test ends does not concern what was measured.
        at_once=not check.judges_limits,
    )
