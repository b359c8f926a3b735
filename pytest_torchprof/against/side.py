"""One side of a comparison with a commit, as the processes that run it know it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from msgspec import json

from pytest_torchprof.against import VARIABLE
from pytest_torchprof.report import Reference

BASE: Final = "base.json"
"""The name of the file in which the other commit's processes read what they are."""
RECORDINGS: Final = "recordings"
"""The folder in that of the results."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """Where the code of one side is, and where what the base measured is kept."""

    is_base: bool
    """Whether it is the other commit, and not the working tree."""
    reference: Reference
    tree: Path
    """The root of its files."""
    other: Path
    """The root of the other side's files."""
    caches: Path
    """The folder for what compilers keep."""
    roots: tuple[Path, ...]
    """The folders of its tree that modules are imported from, the first one first."""
    own_tests: bool
    """Whether each side runs its own tests."""
    keeps_recordings: bool
    """Whether what the base measures is kept as recordings too."""
    results: Path
    """The folder with what the base has measured."""
    starter: int
    """The process that started it."""
    time_share: float | None = None
    """By how much every test may become slower, where it does not say so itself; None: only such tests are timed."""
    budget_s: float | None = None
    """How long times may be taken; None where nobody says."""
    installed: Path | None = None
    """The environment of its own that its code was installed in; None where it runs in the user's."""
    differing: tuple[str, ...] = ()
    """The files of code that are not the same on both sides, by their path below the root."""
    doubtful: tuple[str, ...] = ()
    """The files among these that count as tests for their folder alone: both sides run the working tree's."""
    ignored: tuple[str, ...] = ()
    """What git ignores in the working tree, before the run; a folder with a slash at its end."""
    patterns: tuple[str, ...] = ()
    """By which pytest knows test files."""
    ambiguous_fails: bool = False
    """Whether a test fails whose times the pairs leave open."""
    timed: tuple[str, ...] | None = None
    """The tests whose times this process takes, beside nothing else; None where it takes none."""

    @property
    def is_judged(self) -> bool:
        """Whether it is compared with the base: by its kernels, and by limits."""
        return not self.is_base and self.timed is None

    @property
    def entries(self) -> Path:
        """The folder with the base's measurements, as baselines."""
        return self.results / "entries"

    @property
    def recordings(self) -> Path | None:
        """The folder with the base's recordings; None where they are not kept."""
        return self.results / RECORDINGS if self.keeps_recordings else None

    def announce(self, path: Path) -> dict[str, str]:
        """Write what ``this_side`` reads, and return the variable by which a process finds it."""
        path.write_bytes(json.encode(self, enc_hook=os.fspath))
        return {VARIABLE: str(path)}


def this_side() -> Side:
    """Return the side that this process runs, where it is one of two."""
    return read_side(Path(os.environ[VARIABLE]))


def base_side(results: Path) -> Side:
    """Return the other commit's side, as its own processes know it."""
    return read_side(results / BASE)


def read_side(path: Path) -> Side:
    """Return what ``Side.announce`` has written."""
    return json.decode(path.read_bytes(), type=Side, dec_hook=lambda _kind, value: Path(value))
