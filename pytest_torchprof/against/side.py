"""One side of a comparison with a commit, as the processes that run it know it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from msgspec import json

from pytest_torchprof.against import VARIABLE
from pytest_torchprof.reasons.comparing import SideName
from pytest_torchprof.report import Reference

BASE: Final = "base.json"
"""The name of the file from which the other commit's processes learn their role."""
RECORDINGS: Final = "recordings"
"""The folder inside the folder of results."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """The folders of one side's code, and of the base's results."""

    is_base: bool
    """Whether it is the other commit, and not the working tree."""
    reference: Reference
    tree: Path
    """The root of its files."""
    other: Path
    """The root of the other side's files."""
    caches: Path
    """The folder of compilers' caches."""
    roots: tuple[Path, ...]
    """The folders of its tree that modules are imported from, in order."""
    own_tests: bool
    """Whether each side runs its own tests."""
    keeps_recordings: bool
    """Whether the base's measurements are kept as recordings too."""
    results: Path
    """The folder with the base's results."""
    starter: int
    """The process that started it."""
    time_share: float | None = None
    """The share by which every test without its own may become slower; None: only tests with their own are timed."""
    budget_s: float | None = None
    """The seconds for which times may be taken; None without a bound."""
    installed: Path | None = None
    """The environment that its code was installed in; None if it runs in the user's."""
    differing: tuple[str, ...] = ()
    """The files of code that differ between the sides, by their path below the root."""
    doubtful: tuple[str, ...] = ()
    """The files among them that count as tests only for their folder: both sides run the working tree's."""
    ignored: tuple[str, ...] = ()
    """The paths that git ignores in the working tree, before the run; folders end in a slash."""
    patterns: tuple[str, ...] = ()
    """The patterns by which pytest knows test files."""
    ambiguous_fails: bool = False
    """Whether a test fails if the pairs leave its times open."""
    timed: tuple[str, ...] | None = None
    """The tests whose times this process takes, and nothing else; None if it takes none."""

    @property
    def is_judged(self) -> bool:
        """Whether it is judged: compared with the base by its kernels, and by limits."""
        return not self.is_base and self.timed is None

    @property
    def title(self) -> SideName:
        """The name of the side in messages."""
        return SideName(self.reference.shown if self.is_base else None)

    @property
    def entries(self) -> Path:
        """The folder with the base's measurements, as baselines."""
        return self.results / "entries"

    @property
    def recordings(self) -> Path | None:
        """The folder with the base's recordings; None if they are not kept."""
        return self.results / RECORDINGS if self.keeps_recordings else None

    def announce(self, path: Path) -> dict[str, str]:
        """Write the side that ``this_side`` reads, and return the variable by which a process finds it."""
        path.write_bytes(json.encode(self, enc_hook=os.fspath))
        return {VARIABLE: str(path)}


def this_side() -> Side:
    """Return the side that this process runs, if it is one of two."""
    return read_side(Path(os.environ[VARIABLE]))


def base_side(results: Path) -> Side:
    """Return the other commit's side, as its own processes know it."""
    return read_side(results / BASE)


def read_side(path: Path) -> Side:
    """Return the side that ``Side.announce`` has written."""
    return json.decode(path.read_bytes(), type=Side, dec_hook=lambda _kind, value: Path(value))
