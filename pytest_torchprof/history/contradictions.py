"""The contradictions that a record must not hold, since one part denies another: whoever wrote it, no run was so.

The records' own module asks for this, so that the parts of records have no types here.
"""

from __future__ import annotations

import json
from datetime import timedelta
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import msgspec

from pytest_torchprof.reasons.contradictions import (
    BeganTooEarly,
    CommitAfterRun,
    CommitFault,
    EndedBeforeBegin,
    EndsInFuture,
    ImpossibleCommit,
    ImpossibleMeasurement,
    ImpossibleTimes,
    KernelTwice,
    LocalWithJob,
    MeasurementFault,
    NoSuchRank,
    OtherKernelCount,
    OtherMachine,
    RecordKeyTwice,
    TimesFault,
)
from pytest_torchprof.report.outcome import Outcome

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence
    from datetime import datetime

    from pytest_torchprof.reasons.reason import Reason

_FIRST_YEAR: Final = 2015
"""Before it there was nothing to measure: a clock that is not set begins in 1970 or 2000."""
_CLOCKS_DIFFER: Final = timedelta(days=1)
_LOCAL: Final = "local"
_VALUES_DECODER: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])


class Contradiction(ValueError):
    """The fault of a record, without its name."""

    def __init__(self, why: Reason) -> None:
        """Make the error of a reason."""
        super().__init__(why.text)
        self.why = why


def refuse_keys_twice(content: bytes) -> None:
    """Raise Contradiction if the record has one of its keys twice, of which readers might believe one or the other."""
    values = _VALUES_DECODER.decode(content)
    as_written = sum(len(key) + memoryview(value).nbytes + len('"":,') for key, value in values.items()) + 1
    if len(content) == as_written:
        return
    # Another program's, with spaces, or with a key that the values above stand for only once.
    keys = [key for key, _ in json.loads(content, object_pairs_hook=list)]
    if twice := [key for key in values if keys.count(key) > 1]:
        raise Contradiction(RecordKeyTwice(twice[0]))


def refuse_measurements(record: Any) -> None:
    """Raise Contradiction if what a run has measured denies itself."""
    refuse_measured_twice(record.measurements)
    kernels = {structure.name: structure.kernels for structure in record.structures}
    for own, listed in kernels.items():
        refuse_structure(own, listed)
    for measured, varying in zip(record.measurements, record.varying, strict=True):
        refuse_measurement(measured)
        refuse_other_count(measured, kernels.get(measured.structure or "", ()))
        if varying.time is not None:
            refuse_times(varying.time.median_us, varying.time.quantiles_us)
    if record.all_tests is not None and record.all_tests.unmeasured:
        refuse_measured_and_not({measured.test for measured in record.measurements}, record.all_tests.unmeasured)


def refuse_run(run: Any) -> None:
    """Raise Contradiction if a run's dates, its event or its commit cannot be as they are."""
    if run.ended < run.began:
        raise Contradiction(EndedBeforeBegin(run.began.isoformat(), run.ended.isoformat()))
    if run.began.year < _FIRST_YEAR:
        raise Contradiction(BeganTooEarly(run.began.isoformat()))
    if run.event == _LOCAL and run.ci is not None:
        raise Contradiction(LocalWithJob())
    _refuse_machine(run)
    if run.commit is not None:
        _refuse_commit(run.commit)
        if run.commit.date > run.ended + _CLOCKS_DIFFER:
            raise Contradiction(CommitAfterRun(run.commit.date.isoformat(), run.ended.isoformat()))


def _refuse_machine(run: Any) -> None:
    for name in ("gpu", "cpu", "driver"):
        own = getattr(run.machine, name)
        # What has recorded nothing may know its machine all the same.
        if run.environments and own not in (None, *(getattr(environment, name) for environment in run.environments)):
            raise Contradiction(OtherMachine(name, own))


def _refuse_commit(commit: Any) -> None:
    if commit.sha in commit.parents or commit.sha in commit.ancestors:
        raise Contradiction(ImpossibleCommit(commit.sha, CommitFault.OWN_ANCESTOR))
    if commit.ancestors and commit.ancestors[:1] != commit.parents[:1]:
        raise Contradiction(ImpossibleCommit(commit.sha, CommitFault.OTHER_PARENT))
    if len(set(commit.ancestors)) < len(commit.ancestors):
        raise Contradiction(ImpossibleCommit(commit.sha, CommitFault.ANCESTOR_TWICE))


def refuse_future(run: Any, now: datetime) -> None:
    """Raise Contradiction if a run ended later than now, as far as clocks agree."""
    if run.ended > now + _CLOCKS_DIFFER:
        raise Contradiction(EndsInFuture(run.began.isoformat(), run.ended.isoformat()))


def refuse_measurement(measured: Any) -> None:
    """Raise Contradiction if a measurement denies itself."""
    rank, ranks = measured.rank, measured.ranks
    if (rank is None) != (ranks is None):
        raise Contradiction(ImpossibleMeasurement(measured.test, MeasurementFault.HALF_A_RANK))
    if rank is not None and ranks is not None and not 0 <= rank < ranks:
        raise Contradiction(NoSuchRank(measured.test, rank, ranks))
    if measured.outcome in (Outcome.NOT_MEASURED, Outcome.SKIPPED) and (measured.counts or measured.structure):
        raise Contradiction(ImpossibleMeasurement(measured.test, MeasurementFault.NOT_MEASURED))
    if measured.environment is None and (measured.counts or measured.structure):
        raise Contradiction(ImpossibleMeasurement(measured.test, MeasurementFault.NO_ENVIRONMENT))


def refuse_structure(name: str, kernels: Sequence[Any]) -> None:
    """Raise Contradiction if a structure lists a kernel twice."""
    if len({kernel.name for kernel in kernels}) < len(kernels):
        raise Contradiction(KernelTwice(name))


def refuse_other_count(measured: Any, kernels: Sequence[Any]) -> None:
    """Raise Contradiction if a measurement has more or fewer kernels than the structure that it names."""
    known = measured.counts.get("kernels")
    # A list that nobody kept is empty.
    if kernels and known is not None and (listed := sum(kernel.count for kernel in kernels)) != known:
        raise Contradiction(OtherKernelCount(measured.test, known, listed))


def refuse_times(median_us: float, quantiles_us: Sequence[float]) -> None:
    """Raise Contradiction if the middles of equal parts of a time's samples are not in order, or its median is outside.

    In microseconds.
    """
    if any(later < earlier for earlier, later in pairwise(quantiles_us)):
        raise Contradiction(ImpossibleTimes(TimesFault.OUT_OF_ORDER))
    if not quantiles_us[0] <= median_us <= quantiles_us[-1]:
        raise Contradiction(ImpossibleTimes(TimesFault.MEDIAN_OUTSIDE))


def refuse_measured_and_not(tests: Collection[str], unmeasured: Sequence[str]) -> None:
    """Raise Contradiction if a test was measured and is listed among those that were not."""
    if both := [test for test in unmeasured if test in tests]:
        raise Contradiction(ImpossibleMeasurement(both[0], MeasurementFault.LEFT_OUT_TOO))


def refuse_measured_twice(measurements: Iterable[Any]) -> None:
    """Raise Contradiction if a test was measured twice with the same label, rank and device."""
    seen: set[Any] = set()
    for own in measurements:
        if own.key in seen:
            raise Contradiction(ImpossibleMeasurement(own.test, MeasurementFault.MEASURED_TWICE))
        seen.add(own.key)
