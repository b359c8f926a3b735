"""How often a history calls a step of the times that is none, and how many steps it finds, in series of known truth.

A series has a run a night: three months of them, and then a month of 30 nights, each of which ends with a look at all
series together, as ``torchprof history changes`` takes it. A step that is called at a place where none was planted is a
false alarm, however often it is called, in the months before too; one that was planted is found if it is called, at
most 3 runs beside its commits, before more than 30 runs have it. It is twice as large as the smallest step that its
series was said to be able to show.

    python benchmarks/time_steps.py [--series 1000] [--months 5] [--before 90]

What it found is in docs/history.md.
"""

from __future__ import annotations

import argparse
import math
import random
import statistics
import time
from collections.abc import Callable
from typing import NamedTuple

from pytest_torchprof.history.steps import Steps, largest_chance, next_chance, steps_of

NIGHTS = 30
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
Noise = Callable[[random.Random, int], list[float]]
"""Returns the logarithms of the times of a series of so many runs."""


def steady(chosen: random.Random, count: int) -> list[float]:
    """Return times that scatter by 1 %."""
    return [chosen.gauss(0, 0.01) for _ in range(count)]


def two_modes(chosen: random.Random, count: int) -> list[float]:
    """Return times of processes whose memory lies well or badly: 2 % apart."""
    return [value + 0.02 * (chosen.random() < 0.3) for value in steady(chosen, count)]


def outliers(chosen: random.Random, count: int) -> list[float]:
    """Return times of which one in twenty is slower by 5 to 50 %."""
    slow = (math.log1p(chosen.uniform(0.05, 0.5)) if chosen.random() < 0.05 else 0.0 for _ in range(count))
    return [value + late for value, late in zip(steady(chosen, count), slow, strict=True)]


def drift(chosen: random.Random, count: int) -> list[float]:
    """Return times that grow or shrink by 5 % in a year."""
    nightly = chosen.choice((-1, 1)) * math.log1p(0.05) / 365
    return [value + nightly * night for night, value in enumerate(steady(chosen, count))]


def one_of_two_machines(chosen: random.Random, count: int) -> list[float]:
    """Return the times of the runs that one of two machines gets by chance: 10 % slower than those of the other."""
    machines = [chosen.random() < 0.5 for _ in range(count)]
    return [value + math.log1p(0.1) for value, here in zip(steady(chosen, count), machines, strict=True) if here]


NOISES: dict[str, Noise] = {
    "steady, 1 %": steady,
    "two modes, 2 % apart": two_modes,
    "outliers, 1 run in 20": outliers,
    "drift, 5 % a year": drift,
    "two machines, 10 % apart": one_of_two_machines,
}


class Month(NamedTuple):
    """What came of a month of looks at series."""

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


def month(noise: Noise, series: int, before: int, share: float, seed: int) -> Month:
    """Plant a step in a share of series, look at all of them each night, and return what was called."""
    chosen = random.Random(seed)
    # A machine that gets only half of the runs is looked at after as many of its own.
    runs = (before + 2 * NIGHTS) * (2 if noise is one_of_two_machines else 1)
    all_values = [noise(chosen, runs)[: before + 2 * NIGHTS] for _ in range(series)]
    known, allowed = looked([values[:before] for values in all_values])
    smallest = [steps.smallest(allowed) for steps in known]
    planted: dict[int, int] = {}
    for number, values in enumerate(all_values):
        if chosen.random() < share and (step := smallest[number]) is not None:
            planted[number] = at = before + chosen.randrange(NIGHTS)
            shift = chosen.choice((-1, 1)) * 2 * step
            values[at:] = [value + shift for value in values[at:]]
    alarms: dict[int, list[Alarm]] = {}
    # After the month itself, so that each step gets its 30 runs; without steps the month is all.
    for night in range(before + 1, before + 1 + (2 if planted else 1) * NIGHTS):
        called, _ = looked([values[:night] for values in all_values])
        for number, steps in enumerate(called):
            own = alarms.setdefault(number, [])
            own += [
                Alarm(step.earliest, step.at, step.latest, night - step.at)
                for step in steps.steps
                if all(abs(step.at - alarm.at) > NEAR for alarm in own)
            ]
    false, hits, named, after, width = 0, 0, 0, [], []
    for number, own in alarms.items():
        true = planted.get(number)
        right = [alarm for alarm in own if true is not None and alarm.earliest - NEAR <= true <= alarm.latest + NEAR]
        false += len(own) - len(right)
        if right and right[0].runs <= NIGHTS:
            hits += 1
            after.append(right[0].runs)
            width.append(right[0].latest - right[0].earliest + 1)
            named += right[0].earliest <= (true or 0) <= right[0].latest
    return Month(false, len(planted), hits, named, after, width, statistics.median(step for step in smallest if step))


def main() -> None:
    """Print a row for each kind of series."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--series", type=int, default=1000)
    parser.add_argument("--months", type=int, default=5)
    parser.add_argument("--before", type=int, default=90)
    options = parser.parse_args()
    began = time.perf_counter()
    print(f"| {' | '.join(COLUMNS)} |")
    for name, noise in NOISES.items():
        for share in (0.0, 0.2):
            months = [month(noise, options.series, options.before, share, seed) for seed in range(options.months)]
            looked_at = options.series * options.months * (2 if share else 1)
            false = sum(own.false_alarms for own in months) / looked_at * 1000
            smallest = math.expm1(statistics.median(own.smallest for own in months))
            cells = [name, f"{share:.0%}", f"{false:.2f}", f"{smallest:.1%}"]
            if planted := sum(own.planted for own in months):
                after = statistics.median(runs for own in months for runs in own.after)
                width = statistics.median(commits for own in months for commits in own.width)
                hits, named = sum(own.hits for own in months), sum(own.named for own in months)
                cells += [f"{hits / planted:.1%} of {planted:,}", f"{after:g}", f"{width:g}", f"{named / hits:.1%}"]
            print(f"| {' | '.join(cells)} |", flush=True)
    print(f"{options.series:,} series, {options.months} months, {time.perf_counter() - began:.0f} s")


if __name__ == "__main__":
    main()
