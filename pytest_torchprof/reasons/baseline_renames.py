"""Reasons why the entries of baselines are not renamed."""

from __future__ import annotations

from pytest_torchprof.reasons.codes import Code
from pytest_torchprof.reasons.reason import Reason
from pytest_torchprof.text import first_of


class NothingToRename(Reason, frozen=True):
    """No baseline has an entry of the test, or of any test in the file."""

    CODE = Code.BAD_USAGE
    FOR_THE_DOCTOR = False
    REMEDY = "where pytest has --torchprof-baseline-dir, name it with --baseline-dir"
    ADVICE = "check the name; where pytest has `--torchprof-baseline-dir`, give that folder with `--baseline-dir`"

    old: str
    """The test or the file."""
    file: str
    """The file's name."""
    tests: tuple[str, ...]
    """The tests of the file that have entries."""

    @property
    def sentence(self) -> str:
        hint = f"; {self.file} has those of {first_of(self.tests)}" if self.tests else ""
        return f"no baseline has an entry of {self.old}{hint}"


class NewNameTaken(Reason, frozen=True):
    """There are entries under the new name already."""

    CODE = Code.BAD_USAGE
    FOR_THE_DOCTOR = False
    REMEDY = "remove the one of them that is not meant: with `torchprof baseline prune`, or by deleting it in the file"

    new: str
    """The test or the file."""
    taken: tuple[tuple[str, str], ...]
    """The entries: the path of the baseline, and the key in it."""

    @property
    def sentence(self) -> str:
        named = first_of([f"{path}: {key}" for path, key in self.taken])
        return f"{self.new} has a baseline already, and nothing was renamed: {named}"
