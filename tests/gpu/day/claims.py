"""What docs/gpu-checks.md says is settled, and what is open: which step settles which of its rows."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs/gpu-checks.md"


def rows_by_question() -> dict[str, list[str]]:
    """Return for each question the claims and questions of the page that name it."""
    found: dict[str, list[str]] = {}
    for claim, how, *_ in _rows():
        for name in re.findall(r"question `(\w+)`", how):
            found.setdefault(name, []).append(claim)
    return found


@cache
def open_steps() -> frozenset[str]:
    """Return the steps that rows name whose last word is "not yet", and what they begin with.

    What else was seen or keeps a row from being answered stands behind these words: "not yet: torch 2.11 does not have it".
    """
    found: set[str] = set()
    for _, how, seen, *_ in _rows():
        if seen.endswith("not yet") and "two GPUs" not in how:
            found |= {f"questions/{name}" for name in re.findall(r"question `(\w+)`", how)}
            found |= {f"benchmarks/{name}" for name in re.findall(r"`benchmarks/(\w+)\.py", how)}
            found |= {f"tests/{file}" for name in re.findall(r"`(test_\w+)", how) for file in _files_with(name)}
    return frozenset(found)


def _rows() -> list[list[str]]:
    lines = PAGE.read_text().splitlines() if PAGE.exists() else []
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")]


@cache
def _files_with(test: str) -> list[str]:
    """Return the files with a test whose name begins so."""
    paths = sorted((ROOT / "tests/gpu").glob("test_gpu_*.py"))
    return [path.stem.removeprefix("test_gpu_") for path in paths if f"def {test}" in path.read_text()]
