"""What a run came to, as plain data, and the formats of its files; the terminal and CI have modules of their own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_torchprof.text import first_of

if TYPE_CHECKING:
    from pytest_torchprof.report.result import Result
    from pytest_torchprof.trace.metadata import Environment


class Disuse(StrEnum):
    """Why an entry of a baseline is of no use any more, or of less than it could be."""

    GONE = "gone"
    """The test file no longer has the test."""
    RENAMED = "renamed"
    """The test file no longer has the test, and a new test runs its kernels."""
    UNMEASURED = "unmeasured"
    """The test ran without measuring it."""
    REMOVED = "removed"
    """The test ran without measuring it, and the run removed the entry."""
    UNTOLD = "untold"
    """It does not say on what types kernels work that the run has measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnusedEntries:
    """Entries of a baseline file that nothing measures any more, or that say too little to compare all of it."""

    file: str
    why: Disuse
    keys: tuple[str, ...]
    became: tuple[str, ...] = ()
    """For each key the test that it seems to be now."""
    command: str | None = None
    """What renames them; None where it is not clear which test is which."""

    @property
    def words(self) -> str:
        """What is the matter with them, with the first of their keys: a file that was renamed leaves all."""
        names = (
            [f"{key} -> {now}" for key, now in zip(self.keys, self.became, strict=True)] if self.became else self.keys
        )
        unclear = ", and which is which is not clear" if self.became and self.command is None else ""
        return f"{_DISUSE[self.why][0]}{unclear}: {first_of(names)}"

    @property
    def remedy(self) -> str | None:
        """The command that renames them, removes them, or renews them."""
        return self.command or _DISUSE[self.why][1]


_DISUSE = {
    Disuse.GONE: ("entries of tests that are gone", "torchprof baseline prune"),
    Disuse.RENAMED: ("entries of tests that are gone, while new tests launch their kernels", None),
    Disuse.UNMEASURED: ("entries that their tests no longer measure", "pytest --torchprof-baseline=update"),
    Disuse.REMOVED: ("removed, since their tests no longer measure them", None),
    Disuse.UNTOLD: (
        "entries of an earlier version, in which another type of a kernel is not found until they are renewed",
        "pytest --torchprof-baseline=update",
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """The commit that a run compares the working tree with."""

    ref: str
    """As the user named it."""
    sha: str
    dirty: bool
    """Whether the working tree has changes that are not committed."""

    @property
    def shown(self) -> str:
        """The commit as texts name it: "main (abc1234)"."""
        short = self.sha[:7]
        return short if self.sha.startswith(self.ref) else f"{self.ref} ({short})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """The commit that was checked out while the tests ran."""

    sha: str
    branch: str | None
    """Its branch; None where none is checked out and no CI service has said which it is."""
    dirty: bool
    """Whether the working tree has changes that are not committed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResults:
    """All results of a run, in the order in which the tests ran."""

    results: tuple[Result, ...]
    unused: tuple[UnusedEntries, ...] = ()
    against: Reference | None = None
    """What the results are compared with, where that is no baseline."""
    gone: tuple[str, ...] = ()
    """What was measured there, and not in this run."""
    rootdir: Path = field(default_factory=Path)
    """Below which the paths of recordings are."""
    commit: Commit | None = None
    """Whose code was measured; None outside a working tree of git."""

    @property
    def environment(self) -> Environment | None:
        """Device and versions, from the first measurement that holds them; None without one."""
        return next((result.environment for result in self.results if result.environment is not None), None)

    @property
    def compared_with(self) -> str:
        """What the results are compared with, in words."""
        return "the baseline" if self.against is None else self.against.shown

    @property
    def gone_words(self) -> str | None:
        """What was measured at the other commit alone, in a line; None where nothing was."""
        return f"measured only at {self.compared_with}: {first_of(self.gone)}" if self.gone else None


Reporter = Callable[[RunResults], str]
"""Turns a run's results into the text of one file."""

_FILES = (
    "history",
    "html_report",
    "json_report",
    "markdown",
)


def reporters() -> dict[str, Reporter]:
    """Return the formats by the suffix of their files."""
    formats: dict[str, Reporter] = {}
    for file in _FILES:
        formats.update(import_module(f"{__name__}.{file}").FORMATS)
    return formats
