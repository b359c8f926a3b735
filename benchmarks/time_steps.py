"""How often a history calls a step of the times that is none, and how many steps it finds, in series of known truth.

A series has a run a night: three months of them, and then a month of 30 nights, each of which ends with a look at all
series together, as ``torchprof history changes`` takes it. A step that is called at a place where none was planted is a
false alarm, however often it is called; one that was planted is found if it is called, at its commits, when 30 runs
have it. It is twice as large as the smallest step that its series was said to be able to show.

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
    found: int
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


def looked(all_values: list[list[float]]) -> tuple[list[Steps], list[float | None]]:
    """Return the steps that are called in series, and the smallest ones that they could show."""
    stepped = [steps_of(values) for values in all_values]
    chances = [steps.chance for steps in stepped]
    allowed, allowed_next = largest_chance(chances), next_chance(chances)
    return [steps.within(allowed) for steps in stepped], [steps.smallest(allowed_next) for steps in stepped]


def month(noise: Noise, series: int, before: int, share: float, seed: int) -> Month:
    """Plant a step in a share of series, look at all of them each night, and return what was called."""
    chosen = random.Random(seed)
    # A machine that gets only half of the runs is looked at after as many of its own.
    runs = (before + 2 * NIGHTS) * (2 if noise is one_of_two_machines else 1)
    all_values = [noise(chosen, runs)[: before + 2 * NIGHTS] for _ in range(series)]
    _, smallest = looked([values[:before] for values in all_values])
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
                if all(abs(step.at - alarm.at) > 3 for alarm in own)
            ]
    false, found, after, width = 0, 0, [], []
    for number, own in alarms.items():
        place = planted.get(number)
        right = [alarm for alarm in own if place is not None and alarm.earliest - 3 <= place <= alarm.latest + 3]
        false += len(own) - len(right)
        if right:
            found += 1
            after.append(right[0].runs)
            width.append(right[0].latest - right[0].earliest + 1)
    known = [step for step in smallest if step is not None]
    return Month(false, len(planted), found, after, width, statistics.median(known))


def main() -> None:
    """Print a row for each kind of series."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--series", type=int, default=1000)
    parser.add_argument("--months", type=int, default=5)
    parser.add_argument("--before", type=int, default=90)
    options = parser.parse_args()
    began = time.perf_counter()
    print(
        "| series | steps in | false alarms per 1,000 series and month | smallest step | found of twice that | after runs | one of commits |"
    )
    for name, noise in NOISES.items():
        for share in (0.0, 0.01, 0.5):
            months = [month(noise, options.series, options.before, share, seed) for seed in range(options.months)]
            looked_at = options.series * options.months * (2 if share else 1)
            false = sum(own.false_alarms for own in months) / looked_at * 1000
            smallest = math.expm1(statistics.median(own.smallest for own in months))
            planted, found = sum(own.planted for own in months), sum(own.found for own in months)
            cells = [name, f"{share:.0%}", f"{false:.2f}", f"{smallest:.1%}"]
            if planted:
                after, width = (
                    [value for own in months for value in getattr(own, part)] for part in ("after", "width")
                )
                cells += [
                    f"{found / planted:.1%} of {planted}",
                    f"{statistics.median(after):g}",
                    f"{statistics.median(width):g}",
                ]
            print(f"| {' | '.join(cells)} |", flush=True)
    print(f"{options.series:,} series, {options.months} months, {time.perf_counter() - began:.0f} s")


if __name__ == "__main__":
    main()
