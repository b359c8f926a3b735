"""The outcome of a measurement's baseline: how the measurement compares with it, and what the run notes."""

from __future__ import annotations

import warnings
from contextlib import suppress
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from pytest_torchprof import baseline, compare
from pytest_torchprof.capture.rank import this_rank
from pytest_torchprof.reasons.errors import TorchprofWarning
from pytest_torchprof.report.outcome import BaselineState
from pytest_torchprof.testing.options import BaselineMode
from pytest_torchprof.testing.renames import NewTest
from pytest_torchprof.testing.run_baselines import BaselineNote

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_torchprof.baseline import Entry, RankEntry
    from pytest_torchprof.compare import Comparison
    from pytest_torchprof.testing.baseline_check import BaselineCheck, BaselineJudgement
    from pytest_torchprof.testing.judgement import Judgement
    from pytest_torchprof.testing.measured_test import MeasuredTest


class BaselineOutcome(Struct, frozen=True, kw_only=True):
    """The outcome of the baseline of one measurement; empty where it is not compared."""

    state: BaselineState | None = None
    comparison: Comparison | None = None
    fails: bool = False
    """Whether it fails the test."""
    note: BaselineNote | None = None
    """The run's note of it."""


def baseline_outcome(test: MeasuredTest, judgement: Judgement, *, writable: bool) -> BaselineOutcome:
    """Return the outcome of a measurement's baseline; ``writable``: all that was asked holds, so it may be written."""
    compared, check = judgement.baseline, test.baseline
    if compared is None:
        return BaselineOutcome()
    # Whether the commit has the test, and did not measure it.
    unknown_there = compared.why_none is not None or any(verdict.limit == "against" for verdict in judgement.verdicts)
    writes = writable and not unknown_there and compared.writes
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
        entry = _entry_to_write(compared, judgement.entries_of_others, check)
    is_new = compared.comparison.verdict == "new"
    return BaselineNote(
        file=compared.file,
        key=compared.key,
        says_less=compared.says_less,
        test=NewTest(str(check.path), baseline.split_key(compared.key)[0]) if is_new else None,
        label=measurement.label,
        formers=compared.formers,
        entry=entry,
        # At a commit that is only compared with, how the rest of the test ends does not concern what was measured.
        at_once=not check.judges_limits,
    )


def _entry_to_write(compared: BaselineJudgement, others: Mapping[int, Entry], check: BaselineCheck) -> Entry:
    """Return the new entry, or the old one with its times where nothing that counts changed.

    ``others``: the entries that the other ranks would leave, by their number; empty where this process is alone.
    """
    old, new = compared.old, compared.new()
    ranks = _unlike(new, others, check) if others or old is None else old.ranks
    return replace(_renewed(compared, check), ranks=ranks)


def _unlike(first: Entry, others: Mapping[int, Entry], check: BaselineCheck) -> dict[str, RankEntry]:
    unlike_ranks = {}
    for number, other in others.items():
        comparison = compare.compare(first, other, names=check.options.names, tolerance={})
        unlike = other.unlike(first, steps=any(not change.is_number for change in comparison.changes))
        unlike_ranks.update({str(number): unlike} if unlike is not None else {})
    return unlike_ranks


def _renewed(compared: BaselineJudgement, check: BaselineCheck) -> Entry:
    old, new, comparison = compared.old, compared.new(), compared.comparison
    if old is None or comparison.verdict != "same" or comparison.environment is not None:
        return new
    # Steps that nothing runs any more would be allowed for ever, and what an entry lacks would never be compared.
    differs = len(old.steps) != len(new.steps) or bool(compared.lacking) or compared.says_less
    return new if differs or check.run.baseline is BaselineMode.UPDATE_TIMES else replace(old, source=new.source)
