"""What ``mark("decode")`` costs where no profiler runs, beside a small operator and ``record_function``.

Prints nanoseconds, the best of several rounds turn by turn, and the ratios.

    python benchmarks/mark.py
"""

from __future__ import annotations

from timeit import timeit

import torch

from pytest_torchprof import mark

ROUNDS, CALLS = 20, 10_000
x = torch.ones(8)


def with_mark() -> None:
    """Enter and leave a mark."""
    with mark("decode"):
        pass


def with_record_function() -> None:
    """Enter and leave torch's own range."""
    with torch.profiler.record_function("decode"):
        pass


def add() -> None:
    """Call one of the smallest operators there are."""
    torch.add(x, x)


def main() -> None:
    """Measure and print."""
    measured = (with_mark, with_record_function, add)
    best_ns = {one.__name__: float("inf") for one in measured}
    for _ in range(ROUNDS):
        for one in measured:
            best_ns[one.__name__] = min(best_ns[one.__name__], timeit(one, number=CALLS) / CALLS * 1e9)
    for name, took_ns in best_ns.items():
        print(f"{name:22}{took_ns:8.0f} ns {took_ns / best_ns['with_mark']:6.1f} times a mark")


if __name__ == "__main__":
    main()
