"""What a suite costs under a rule, beside the same suite without: CPU seconds of both, and their ratio.

The tests of each row multiply matrices so many times, 0.3 ms each or so. The sides take turns, and what pytest and
torch take to start is in both; both have run once before, so that Python has compiled what they import. With words for
pytest behind ``--`` the suite is the one that these name.

    python benchmarks/suite_rule.py [--tests 100] [--rounds 3]
    python benchmarks/suite_rule.py --rounds 1 -- -c rules.toml --rootdir . tests
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

PRODUCTS = (1, 30, 100, 300)
PROJECT = """
[tool.pytest.ini_options]
minversion = "8.0"
[tool.torchprof.limits."*"]
device = "cpu"
forbid_ops = ["aten::_local_scalar_dense"]
"""
TESTS = """
import pytest, torch

torch.set_num_threads(1)
x = torch.ones(192, 192)

@pytest.mark.parametrize("number", range({tests}))
def test_body(number):
    for _ in range({products}):
        torch.mm(x, x)
"""


def cpu_seconds(words: list[str], folder: Path) -> float:
    """Return the CPU seconds of a pytest run; tests may fail in it."""
    settings = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    before = os.times()
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *words],
        cwd=folder,
        env=settings,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in (0, 1), done.stdout + done.stderr
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system


def show(name: str, words: list[str], folder: Path, rounds: int) -> None:
    """Print the medians of the runs without and with the rules."""
    _, *runs = [
        (cpu_seconds(words, folder), cpu_seconds([*words, "--torchprof-suite"], folder)) for _ in range(rounds + 1)
    ]
    plain, ruled = map(median, zip(*runs, strict=True))
    print(f"{name:32}{plain:10.1f} s{ruled:10.1f} s{ruled / plain:8.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tests", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("words", nargs="*")
    asked = parser.parse_args()
    print(f"{'':32}{'plain':>12}{'rule':>12}{'ratio':>8}")
    if asked.words:
        show("the suite", asked.words, Path.cwd(), asked.rounds)
        return
    for products in PRODUCTS:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            (folder / "pyproject.toml").write_text(PROJECT, encoding="utf-8")
            source = TESTS.format(tests=asked.tests, products=products)
            (folder / "test_bodies.py").write_text(source, encoding="utf-8")
            show(f"{asked.tests} tests of {products} products", [], folder, asked.rounds)


if __name__ == "__main__":
    main()
