"""Two measurements compared as ``torchprof diff --json`` prints them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct, to_builtins
from msgspec.structs import asdict

from pytest_torchprof.compare.comparison_json import ComparisonJson, comparison_json
from pytest_torchprof.report.ranks_report import JobsDifference  # noqa: TC001 - msgspec reads the annotations
from pytest_torchprof.text import json_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_torchprof.compare import Comparison

SCHEMA: Final = 1
_FIRST: Final = ("schema", "files", "kernels_differ")
"""What every document begins with; a struct has the fields of the one that it extends before its own."""


class RecordingsDiff(ComparisonJson, frozen=True, kw_only=True):
    """Two recordings compared."""

    schema: int = SCHEMA
    files: tuple[str, str]


class SeveralDiff(Struct, frozen=True, kw_only=True):
    """Several pairs of measurements compared."""

    schema: int = SCHEMA
    files: tuple[str, str]
    kernels_differ: bool


class TestsDiff(SeveralDiff, frozen=True, kw_only=True):
    """The entries of each test in two baseline files, or in one and of a recording."""

    tests: dict[str, ComparisonJson]


class RanksDiff(SeveralDiff, frozen=True, kw_only=True):
    """The recordings of each rank of two jobs, and the ranks of each together."""

    ranks: dict[str, ComparisonJson]
    all_ranks: JobsDifference


class Alone(Struct, frozen=True, kw_only=True):
    """The tests that only one of two folders has."""

    first: tuple[str, ...]
    second: tuple[str, ...]


class FoldersDiff(SeveralDiff, frozen=True, kw_only=True):
    """The recordings of the same tests in two folders."""

    recordings: dict[str, ComparisonJson]
    """Those that are measured on both sides, the costliest difference first."""
    not_measured: dict[str, str]
    """Why, in words."""
    alone: Alone


Diff = RecordingsDiff | TestsDiff | RanksDiff | FoldersDiff
"""What the command prints."""


def recordings_diff(files: tuple[str, str], comparison: Comparison) -> RecordingsDiff:
    """Return the document on two recordings."""
    return RecordingsDiff(**asdict(comparison_json(comparison)), files=files)


def of_each(comparisons: Mapping[str, Comparison]) -> dict[str, ComparisonJson]:
    """Return comparisons with their words."""
    return {name: comparison_json(comparison) for name, comparison in comparisons.items()}


def diff_text(document: Diff) -> str:
    """Return a document as JSON."""
    plain = to_builtins(document)
    return json_text({**{name: plain[name] for name in _FIRST}, **plain})
