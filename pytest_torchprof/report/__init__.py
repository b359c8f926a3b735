"""The results of a run as plain data, and the formats of its files; the terminal and CI have modules of their own."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from importlib import import_module
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from pytest_torchprof.reasons.statement import Statement
from pytest_torchprof.text import first_of

if TYPE_CHECKING:
    from datetime import datetime

    from pytest_torchprof.report.result import Result
    from pytest_torchprof.trace.metadata import Environment


class Disuse(StrEnum):
    """Why an entry of a baseline, or of an allow list, is no longer useful, or less useful than it could be."""

    GONE = "gone"
    """The test file no longer has the test."""
    RENAMED = "renamed"
    """The test file no longer has the test, and a new test runs its kernels."""
    UNMEASURED = "unmeasured"
    """The test ran without measuring it."""
    REMOVED = "removed"
    """The test ran without measuring it, and the run removed the entry."""
    UNNEEDED = "unneeded"
    """An exception from a rule of the suite that no test needs any more."""
    UNTOLD = "untold"
    """It lacks the types that kernels measured in the run work on."""


_DISUSE = {
    Disuse.GONE: ("entries of tests that are gone", "torchprof baseline prune"),
    Disuse.RENAMED: ("entries of tests that are gone, while new tests launch their kernels", None),
    Disuse.UNMEASURED: ("entries that their tests no longer measure", "pytest --torchprof-baseline=update"),
    Disuse.REMOVED: ("removed, since their tests no longer measure them", None),
    Disuse.UNNEEDED: ("exceptions that no test needs any more: remove them", None),
    Disuse.UNTOLD: (
        "entries of an earlier version, in which another type of a kernel is not found until they are renewed",
        "pytest --torchprof-baseline=update",
    ),
}


class EntriesDisused(Statement, frozen=True):
    """Entries of a file are of no use any more, or of less than they could be."""

    why: Disuse
    keys: tuple[str, ...]
    became: tuple[str, ...] = ()
    """For each key the test that seems to be its new name."""
    unclear: bool = False
    """Whether it is not clear which test is which."""

    @property
    def sentence(self) -> str:
        unclear = ", and which is which is not clear" if self.unclear else ""
        keys = self.keys
        if self.became:
            keys = tuple(f"{key} -> {now}" for key, now in zip(self.keys, self.became, strict=True))
        return f"{_DISUSE[self.why][0]}{unclear}: {first_of(keys)}"


class MeasuredOnlyThere(Statement, frozen=True):
    """The commit that the tests are compared with has measurements that the working tree lacks."""

    commit: str
    measurements: tuple[str, ...]

    @property
    def sentence(self) -> str:
        return f"measured only at {self.commit}: {first_of(self.measurements)}"


KINDS: Final = (EntriesDisused, MeasuredOnlyThere)


class UnusedEntries(Struct, frozen=True, kw_only=True):
    """Entries of a baseline file that nothing measures any more, or that lack a part of what is compared."""

    file: str
    why: Disuse
    keys: tuple[str, ...]
    became: tuple[str, ...] = ()
    """For each key the test that seems to be its new name."""
    command: str | None = None
    """The command that renames them; None if it is not clear which test is which."""

    @property
    def words(self) -> str:
        """The problem with the entries, and their first keys: if a file was renamed, all of its keys are left over."""
        return self.disused.sentence

    @property
    def disused(self) -> EntriesDisused:
        """The problem with the entries."""
        return EntriesDisused(self.why, self.keys, self.became, unclear=bool(self.became) and self.command is None)

    @property
    def remedy(self) -> str | None:
        """The command that renames them, removes them, or renews them."""
        return self.command or _DISUSE[self.why][1]


class Reference(Struct, frozen=True, kw_only=True):
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


class Commit(Struct, frozen=True, kw_only=True):
    """The commit that was checked out while the tests ran."""

    sha: str
    branch: str | None
    """Its branch; None if none is checked out and no CI service names it."""
    dirty: bool
    """Whether the working tree has changes that are not committed."""


class RunResults(Struct, frozen=True, kw_only=True):
    """All results of a run, in the order in which the tests ran."""

    results: tuple[Result, ...]
    unused: tuple[UnusedEntries, ...] = ()
    against: Reference | None = None
    """The commit that the results are compared with, if they are not compared with a baseline."""
    history: str | None = None
    """The history and the branch that are the baseline, if no files are."""
    gone: tuple[str, ...] = ()
    """The measurements that only the other commit has."""
    rootdir: str | None = ""
    """The folder to which the paths of recordings are relative; None where the recordings are not at hand."""
    commit: Commit | None = None
    """The commit whose code was measured; None outside a working tree of git."""
    run: str | None = None
    """The id of the run's record, and when it began."""
    began: datetime | None = None

    @property
    def environment(self) -> Environment | None:
        """Device and versions, from the first measurement that holds them; None if none does."""
        return next((result.environment for result in self.results if result.environment is not None), None)

    @property
    def compared_with(self) -> str:
        """The baseline that the results are compared with, in words."""
        if self.against is not None:
            return self.against.shown
        return "the baseline" if self.history is None else f"the baseline {self.history}"

    @property
    def gone_words(self) -> str | None:
        """The measurements that only the other commit has, in a line; None if there are none."""
        return str(MeasuredOnlyThere(self.compared_with, self.gone)) if self.gone else None


Reporter = Callable[[RunResults], str]
"""Turns the results of a run into the text of one file."""

_FILES = ("history", "json_report", "markdown")


def reporters() -> dict[str, Reporter]:
    """Return the formats by the suffix of their files."""
    formats: dict[str, Reporter] = {".html": _page}
    for file in _FILES:
        formats.update(import_module(f"{__name__}.{file}").FORMATS)
    return formats


def _page(run: RunResults) -> str:
    """Return the page of a run; what draws it is imported only where somebody asks for one."""
    return str(import_module(f"{__name__}.html_report").render(run))
