"""Which commit the tests belong to, for reports that are kept run after run."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from pytest_torchprof.against.git import Repository
from pytest_torchprof.reasons.errors import TorchprofError
from pytest_torchprof.report import Commit

if TYPE_CHECKING:
    from pathlib import Path

# CI services check out a commit without its branch, and say it here: GitHub of a pull request and else, GitLab.
_BRANCH_VARIABLES: Final = ("GITHUB_HEAD_REF", "GITHUB_REF_NAME", "CI_COMMIT_REF_NAME")


def commit_of(folder: Path) -> Commit | None:
    """Return the commit that is checked out around a folder; None where git does not tell it."""
    try:
        repository = Repository.around(folder)
        if (sha := repository.head) is None:
            return None
        told = (os.environ.get(variable) for variable in _BRANCH_VARIABLES)
        branch = repository.branch or next(filter(None, told), None)
        return Commit(sha=sha, branch=branch, dirty=repository.is_dirty)
    except TorchprofError:
        return None
