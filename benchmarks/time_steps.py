"""How often a history calls a step of the times that is none, and how many steps it finds, in series of known truth.

A series has some runs a day: three months of them, and then months of 30 days, each day of which ends with a look at
all series together, as ``torchprof history changes`` takes it. A step that is called at a place where none was planted
is a false alarm, however often it is called, in the months before too; one that was planted is found if it is called,
at most 3 runs beside its commits, before more than 30 runs have it. It is twice as large as the smallest step that its
series was said to be able to show, and lies anywhere in these months.

    python benchmarks/time_steps.py [--series 500] [--months 6] [--runs-a-day 3]

What it found is in docs/history.md.
"""

from __future__ import annotations

import argparse
import math
import random
import statistics
import time
from typing import NamedTuple

from pytest_torchprof.history.steps import Steps, largest_chance, next_chance, steps_of

DAYS = 30
"""Those of a month."""
MONTHS_BEFORE = 3
SOON = 30
"""After how many runs at most a step is found in time."""
NEAR = 3
"""How many runs beside its commits a step may be called, and be the one that was planted."""
COLUMNS = (
    "series",
    "of which have a step",
    "false alarms per 1,000 series and month",
    "smallest step",
    "twice that is found",
    "after runs",
    "as one of commits",
    "its own among them",
)


class Kind(NamedTuple):
    """What the times of a series are like, besides scattering by 1 %."""

    modes: bool = False
    """In three of ten processes memory lies badly, and they are slower by 2 %."""
    outliers: bool = False
    """One process in twenty is slower by 5 to 50 %."""
    drift: bool = False
    """They grow or shrink by 5 % in a year."""
    machines: bool = False
    """Each run gets one of two machines by chance, which are 10 % apart; the series is that of one of them."""
    ticks: int | None = None
    """Times are whole numbers, of which this many is a usual one."""


KINDS = {
    "steady, 1 %": Kind(),
    "two modes, 2 % apart": Kind(modes=True),
    "outliers, 1 run in 20": Kind(outliers=True),
    "drift, 5 % a year": Kind(drift=True),
    "two machines, 10 % apart": Kind(machines=True),
    "in steps of 2 %": Kind(ticks=50),
    "all of these": Kind(modes=True, outliers=True, drift=True, machines=True, ticks=50),
}


def times_of(kind: Kind, chosen: random.Random, runs: int, runs_a_day: int) -> list[float]:
    """Return the logarithms of the times of a series that has so many runs, each in its order."""
    daily = chosen.choice((-1, 1)) * math.log1p(0.05) / 365 if kind.drift else 0.0
    values: list[float] = []
    run = 0
    while len(values) < runs:
        value = chosen.gauss(0, 0.01) + daily * run / runs_a_day
        if kind.modes:
            value += 0.02 * (chosen.random() < 0.3)
        if kind.outliers and chosen.random() < 0.05:
            value += math.log1p(chosen.uniform(0.05, 0.5))
        if not kind.machines or chosen.random() < 0.5:
            values.append(value)
        run += 1
    return values


def as_measured(kind: Kind, value: float) -> float:
    """Return the logarithm of a time as a clock tells it."""
    return value if kind.ticks is None else math.log(round(math.exp(value) * kind.ticks) / kind.ticks)


class Watched(NamedTuple):
    """What came of months of looks at series."""

    false_alarms: int
    planted: int
    hits: int
    named: int
    """How many have their commit among those that are named."""
    after: list[int]
    """After how many runs each was found."""
    width: list[int]
    """How many commits it was said to be one of."""
    smallest: float
    """The median of the smallest steps."""


class Alarm(NamedTuple):
    """Where a step was called, and how many runs had it."""

    earliest: int
    at: int
    latest: int
    runs: int


def looked(all_values: list[list[float]]) -> tuple[list[Steps], float]:
    """Return the steps that are called in series, and how probable one more may be."""
    stepped = [steps_of(values) for values in all_values]
    chances = [steps.chance for steps in stepped]
    allowed = largest_chance(chances)
    return [steps.within(allowed) for steps in stepped], next_chance(chances)


def watched(kind: Kind, options: argparse.Namespace, share: float) -> Watched:
    """Plant a step in a share of series, look at all of them each day, and return what was called."""
    chosen = random.Random(0)
    before = MONTHS_BEFORE * DAYS * options.runs_a_day
    runs = options.months * DAYS * options.runs_a_day
    # Beyond the months themselves, so that each step gets its runs; without steps the months are all.
    beyond = SOON if share else 0
    exact = [times_of(kind, chosen, before + runs + beyond, options.runs_a_day) for _ in range(options.series)]
    known, allowed = looked([[as_measured(kind, value) for value in values[:before]] for values in exact])
    smallest = [steps.smallest(allowed) for steps in known]
    planted: dict[int, int] = {}
    for number, values in enumerate(exact):
        if chosen.random() < share and (step := smallest[number]) is not None:
            planted[number] = at = before + chosen.randrange(runs)
            shift = chosen.choice((-1, 1)) * 2 * step
            values[at:] = [value + shift for value in values[at:]]
    measured = [[as_measured(kind, value) for value in values] for values in exact]
    alarms: dict[int, list[Alarm]] = {}
    for end in range(before + options.runs_a_day, before + runs + beyond + 1, options.runs_a_day):
        called, _ = looked([values[:end] for values in measured])
        for number, steps in enumerate(called):
            own = alarms.setdefault(number, [])
            own += [
                Alarm(step.earliest, step.at, step.latest, end - step.at)
                for step in steps.steps
                if all(abs(step.at - alarm.at) > NEAR for alarm in own)
            ]
    false, hits, named, after, width = 0, 0, 0, [], []
    for number, own in alarms.items():
        true = planted.get(number)
        right = [alarm for alarm in own if true is not None and alarm.earliest - NEAR <= true <= alarm.latest + NEAR]
        false += len(own) - len(right)
        if right and right[0].runs <= SOON:
            hits += 1
            after.append(right[0].runs)
            width.append(right[0].latest - right[0].earliest + 1)
            named += right[0].earliest <= (true or 0) <= right[0].latest
    return Watched(false, len(planted), hits, named, after, width, statistics.median(step for step in smallest if step))


def main() -> None:
    """Print a row for each kind of series."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--series", type=int, default=500)
    parser.add_argument("--months", type=int, default=6)
    parser.add_argument("--runs-a-day", type=int, default=3)
    options = parser.parse_args()
    began = time.perf_counter()
    print(f"| {' | '.join(COLUMNS)} |")
    for name, kind in KINDS.items():
        for share in (0.0, 0.2):
            came = watched(kind, options, share)
            false = came.false_alarms / (options.series * options.months) * 1000
            cells = [name, f"{share:.0%}", f"{false:.2f}", f"{math.expm1(came.smallest):.1%}"]
            if came.planted:
                cells += [f"{came.hits / came.planted:.1%} of {came.planted:,}", f"{statistics.median(came.after):g}"]
                cells += [f"{statistics.median(came.width):g}", f"{came.named / came.hits:.1%}"]
            else:
                cells += ["-"] * 4
            print(f"| {' | '.join(cells)} |", flush=True)
    print(f"{options.series:,} series, {options.months} months, {time.perf_counter() - began:.0f} s")


if __name__ == "__main__":
    main()
