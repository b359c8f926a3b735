"""Times of the tests on both sides, by pairs of processes that do nothing else: one at the commit, one here."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, NamedTuple

from pytest_torchprof.against.outcomes import read_outcomes
from pytest_torchprof.compare.pace import TimedPairs, TimePair
from pytest_torchprof.reasons.composed import OfSide
from pytest_torchprof.reasons.reason import Reason
from pytest_torchprof.reasons.timing import (
    EndedBeforeTimes,
    NoTimesTaken,
    OtherConditions,
    ProcessWithoutTest,
    StepTooShort,
)
from pytest_torchprof.report.result import decode, encode

if TYPE_CHECKING:
    import random
    from pathlib import Path

    from pytest_torchprof.against.side import Side
    from pytest_torchprof.against.start import SideStart
    from pytest_torchprof.reasons.comparing import SideName
    from pytest_torchprof.reasons.disturbances import Disturbance
    from pytest_torchprof.report import RunResults
    from pytest_torchprof.report.result import Result

TIMED: Final = "timed"
"""The file that the base leaves if a test asks for times."""
MOST_LOST: Final = 2
"""The number of failed pairs after which a test is given up."""
_RESULTS: Final = "results.json"

Key = tuple[str, str | None]
"""Test id and label of a measurement."""


class Reading(NamedTuple):
    """The times of one measurement in one process."""

    step_us: float
    """The median of its untraced steps."""
    kernel_us: float | None
    """The recorded time of a step's kernels on the GPU; None without a GPU."""
    conditions: Mapping[str, str | int]
    """The conditions of the times: clock, cache, threads, machine."""
    disturbed: tuple[Disturbance | str, ...]


Readings = Mapping[Key, Reading | Reason]
"""By measurement: the reading, or the reason for which there is none."""


@dataclass(frozen=True, slots=True)
class TimedSide:
    """One side, which is started again and again."""

    side: Side
    start: SideStart

    def read(self, folder: Path, keys: Collection[Key]) -> Readings:
        """Start a process that takes the times of these measurements, and return its readings; the folder is new."""
        folder.mkdir()
        nodeids = tuple(dict.fromkeys(nodeid for nodeid, _ in keys))
        side = replace(self.side, results=folder, timed=nodeids, starter=os.getpid())
        variables = side.announce(folder / "side.json")
        status = self.start.with_variables(variables).run(folder / "log")
        results = {(result.nodeid, result.label): result for result in read_results(folder)}
        outcomes = read_outcomes(folder)

        def why_missing(key: Key) -> Reason:
            return ProcessWithoutTest(side.title, status, outcomes.troubles.get(key[0]) or outcomes.broken or None)

        def reading(key: Key) -> Reading | Reason:
            result = results.get(key)
            # What pytest says of a test that raised says more than that it did.
            has_raised = result is not None and result.time is None and result.reason is None
            if result is None or (has_raised and key[0] in outcomes.troubles):
                return why_missing(key)
            return _reading(result, side.title)

        return {key: reading(key) for key in keys}


def write_results(folder: Path, run: RunResults) -> None:
    """Write the results that ``read_results`` reads."""
    (folder / _RESULTS).write_text(json.dumps(encode(run.results)), encoding="utf-8")


def read_results(folder: Path) -> tuple[Result, ...]:
    """Return the results that a process has left; empty if it left none."""
    path = folder / _RESULTS
    return decode(json.loads(path.read_text(encoding="utf-8"))) if path.is_file() else ()


def _reading(result: Result, side: SideName) -> Reading | Reason:
    if result.time is None:
        ended = EndedBeforeTimes(result.message) if result.message else NoTimesTaken()
        return OfSide(side, result.reason or ended)
    return Reading(
        step_us=result.time.median_us,
        kernel_us=result.summary.kernel_time_us if result.summary and _on_gpu(result) else None,
        conditions=result.time.conditions,
        disturbed=result.time.disturbed,
    )


def _on_gpu(result: Result) -> bool:
    return result.environment is not None and result.environment.gpu is not None


Take = Callable[[Collection[Key]], tuple[Readings, Readings]]
"""Takes one pair: the readings at the commit, and those in the working tree."""


def taker(base: TimedSide, here: TimedSide, folder: Path, order: random.Random) -> Take:
    """Return a function that takes pairs, the sides of each in random order."""

    def take(keys: Collection[Key]) -> tuple[Readings, Readings]:
        pair = folder / "pair"
        pair.mkdir(parents=True)
        turns = [("base", base), ("here", here)]
        order.shuffle(turns)
        readings = {name: side.read(pair / name, keys) for name, side in turns}
        shutil.rmtree(pair)
        return readings["base"], readings["here"]

    return take


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedMeasurement:
    """One measurement with the times that are known so far."""

    pace: TimedPairs
    kernels: tuple[TimePair, ...] = ()
    """The times of its kernels, from the same processes."""
    lost: tuple[Reason, ...] = ()
    """Why pairs failed."""
    disturbed: tuple[Disturbance | str, ...] = ()
    """The disturbances of the machine during that time."""

    @property
    def wanting(self) -> int:
        """The least number of further pairs."""
        return 0 if len(self.lost) >= MOST_LOST else self.pace.wanting

    def with_readings(self, base: Reading | Reason, here: Reading | Reason) -> TimedMeasurement:
        """Return the measurement with one more pair, or one more failed pair."""
        if isinstance(base, Reason):
            return self._without(base)
        if isinstance(here, Reason):
            return self._without(here)
        if base.conditions != here.conditions:
            return self._without(OtherConditions(*(tuple(sorted(side.conditions.items())) for side in (base, here))))
        if not (base.step_us and here.step_us):
            return self._without(StepTooShort())
        kernels = self.kernels
        if base.kernel_us and here.kernel_us:
            kernels = (*kernels, TimePair(base.kernel_us, here.kernel_us))
        return replace(
            self,
            pace=self.pace.with_pair(TimePair(base.step_us, here.step_us)),
            kernels=kernels,
            disturbed=tuple(dict.fromkeys((*self.disturbed, *base.disturbed, *here.disturbed))),
        )

    def _without(self, reason: Reason) -> TimedMeasurement:
        return replace(self, lost=(*self.lost, reason))


@dataclass(frozen=True, slots=True, kw_only=True)
class PairCosts:
    """The expected durations of processes, in seconds."""

    start_s: float
    """The time until the first test runs."""
    test_s: Mapping[str, float]
    """The time of each test, by its id."""
    factor: float = 1.0
    """The factor by which processes really take longer."""

    def pair_s(self, keys: Collection[Key]) -> float:
        """Return the duration of a pair of processes."""
        tests = sum(self.test_s[nodeid] for nodeid in {nodeid for nodeid, _ in keys})
        return 2 * self.factor * (self.start_s + tests)

    def corrected(self, keys: Collection[Key], seconds: float) -> PairCosts:
        """Return the costs corrected so that a pair takes ``seconds``, as it did."""
        return replace(self, factor=self.factor * seconds / self.pair_s(keys))

    def total_s(self, wanting: Mapping[Key, int]) -> float:
        """Return the duration of ``wanting`` pairs of each measurement."""
        rounds = range(max(wanting.values(), default=0))
        return sum(self.pair_s([key for key, number in wanting.items() if number > at]) for at in rounds)

    def fitting(self, wanting: Mapping[Key, int], left_s: float) -> dict[Key, int]:
        """Return the first of the measurements whose pairs fit into the remaining time."""
        chosen: dict[Key, int] = {}
        for key, number in wanting.items():
            if number and self.total_s({**chosen, key: number}) <= left_s:
                chosen[key] = number
        return chosen


@dataclass(slots=True, kw_only=True)
class PairedTiming:
    """The taking of times, until all is decided or no time is left."""

    measurements: dict[Key, TimedMeasurement]
    costs: PairCosts
    budget_s: float
    clock: Callable[[], float]
    taken: int = 0
    """The number of pairs that were taken."""
    began_s: float = field(init=False)

    def __post_init__(self) -> None:
        """Begin."""
        self.began_s = self.clock()

    @property
    def spent_s(self) -> float:
        """The seconds that it has taken so far."""
        return self.clock() - self.began_s

    def give_up(self, reason: Reason) -> None:
        """Take no more pairs, for a reason that holds for all."""
        self.measurements = {
            key: replace(measurement, lost=(reason,) * MOST_LOST) for key, measurement in self.measurements.items()
        }

    def next_keys(self) -> dict[Key, int]:
        """Return the measurements of the next pair, with the number of pairs still wanted; empty at the end."""
        wanting = {key: measurement.wanting for key, measurement in self.measurements.items()}
        return self.costs.fitting(wanting, self.budget_s - self.spent_s)

    def take(self, take: Take, keys: Collection[Key]) -> None:
        """Take one pair."""
        before = self.clock()
        base, here = take(keys)
        self.costs = self.costs.corrected(keys, self.clock() - before)
        self.taken += 1
        for key in keys:
            self.measurements[key] = self.measurements[key].with_readings(base[key], here[key])
