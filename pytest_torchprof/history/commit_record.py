"""The measured commit, from git."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Final

from pytest_torchprof.against.git import GitRefused, Repository, ask_git
from pytest_torchprof.history.ci_job import branch_in
from pytest_torchprof.history.project import project_at
from pytest_torchprof.history.record import CommitRecord
from pytest_torchprof.reasons.errors import TorchprofError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

MOST_ANCESTORS: Final = 200


def commit_record(folder: Path, variables: Mapping[str, str], *, apart: Iterable[Path] = ()) -> CommitRecord | None:
    """Return the commit that is checked out around pytest's root directory; None if git does not say.

    ``apart``: the folder or the files of the history, whose being new or changed is no change of the code.
    """
    try:
        repository = Repository.around(folder)
        return None if repository.head is None else _record(repository, folder, variables, apart)
    except (TorchprofError, GitRefused):
        return None


def _record(repository: Repository, folder: Path, variables: Mapping[str, str], apart: Iterable[Path]) -> CommitRecord:
    top = repository.top
    first = f"--max-count={MOST_ANCESTORS + 1}"
    sha, *ancestors = ask_git(top, "rev-list", "--first-parent", first, "HEAD").split()
    return CommitRecord(
        project=_project(repository),
        folder=folder_below(repository, folder),
        sha=sha,
        parents=tuple(ask_git(top, "rev-list", "--parents", "--max-count=1", sha).split()[1:]),
        date=datetime.fromisoformat(
            ask_git(top, "log", "--max-count=1", "--no-show-signature", "--format=%cI", sha).strip()
        ),
        ancestors=tuple(ancestors),
        shallow=repository.is_shallow,
        branch=repository.branch or branch_in(variables),
        dirty=_is_dirty(top, apart),
    )


def folder_below(repository: Repository, folder: Path) -> str:
    """Return where a folder lies below the repository's; empty where they are the same."""
    below = folder.resolve().relative_to(repository.top.resolve())
    return "" if below.name == "" else below.as_posix()


def _is_dirty(top: Path, apart: Iterable[Path]) -> bool:
    below = [path.resolve() for path in apart if path.resolve().is_relative_to(top.resolve())]
    left_out = [f":(exclude,literal){path.relative_to(top.resolve()).as_posix()}" for path in below]
    # A submodule that git is told to pass over is code all the same.
    seen = ("--untracked-files=normal", "--ignore-submodules=none", "--no-renames")
    return bool(ask_git(top, "status", "--porcelain", *seen, "--", ".", *left_out))


def _project(repository: Repository) -> str | None:
    """Return the address of the remote without secrets; None for a remote that is a folder."""
    try:
        address = ask_git(repository.top, "config", "--get", "remote.origin.url").strip()
    except GitRefused:
        return None
    return None if address.startswith((".", "/", "file:")) else project_at(address)
