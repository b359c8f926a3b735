"""The files of a repository that differ between both sides: the subject of a comparison."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_torchprof.against.git import Repository
    from pytest_torchprof.against.overlay import TestFiles


@dataclass(frozen=True, slots=True, kw_only=True)
class Differences:
    """The files that differ between a commit and the working tree, by their path below the root."""

    code: tuple[str, ...]
    """The files of which each side has its own version."""
    doubtful: tuple[str, ...]
    """Modules that both sides take from the working tree, since they are in a folder of tests, but without a test."""


@cache
def differences(repository: Repository, sha: str, rule: TestFiles, *, own_tests: bool) -> Differences:
    """Return the differences of the working tree from a commit; called once, before anything runs."""
    changed = sorted(dict.fromkeys(repository.changed(sha)))
    if own_tests:
        return Differences(code=tuple(changed), doubtful=())
    tests = frozenset(rule.of(repository.top, changed))
    in_doubt = [name for name in changed if name in tests and rule.is_doubtful(repository.top, name)]
    there = frozenset(repository.files_of(sha)) if in_doubt else frozenset()
    return Differences(
        code=tuple(name for name in changed if name not in tests),
        doubtful=tuple(name for name in in_doubt if name in there),
    )
