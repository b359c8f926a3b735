"""The rules and exceptions of a project, as its files have them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from pytest_torchprof.reasons.errors import TorchprofError
from pytest_torchprof.reasons.suite_files import NoRules
from pytest_torchprof.testing.allow_list import ALLOW_FILE, AllowEntry, read_allow_list
from pytest_torchprof.testing.suite_rules import SuiteRule, read_rules
from pytest_torchprof.text import counted

if TYPE_CHECKING:
    import pytest


class Suite(Struct, frozen=True, kw_only=True):
    """The rules by which a run measures more than the tests that ask for it themselves."""

    rules: tuple[SuiteRule, ...]
    allowed: tuple[AllowEntry, ...]
    share: float
    """Of the tests that a rule matches."""

    @property
    def shown(self) -> str:
        """It in the header of the run."""
        sampled = "" if self.share == 1 else f", {self.share:.0%} of the tests"
        return f"{counted(len(self.rules), 'rule')} for the suite ({self.rules[0].file}{sampled})"


def read_suite(config: pytest.Config, share: float) -> Suite:
    """Return the rules and exceptions of a project; TorchprofError where there are none, or one cannot be used."""
    root, settings = config.rootpath, config.inipath
    files = dict.fromkeys(file for file in (settings, root / "pyproject.toml") if file and file.suffix == ".toml")
    shown = {file: str(file.relative_to(root)) if file.is_relative_to(root) else str(file) for file in files}
    rules = read_rules(files, shown)
    if not rules:
        raise TorchprofError.because(NoRules(tuple(shown.values())))
    return Suite(rules=rules, allowed=read_allow_list(root / ALLOW_FILE, ALLOW_FILE), share=share)
