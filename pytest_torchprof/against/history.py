"""``git bisect run`` over the user's commits, in a repository of its own that borrows them.

The user's own references, index, state of bisecting and files are never touched, not even by a run that is killed.
"""

from __future__ import annotations

import os
import subprocess
from contextlib import suppress
from typing import IO, TYPE_CHECKING, Final, cast

from pytest_torchprof.against.git import GitRefused, ask_git, borrow, git_command, git_environment
from pytest_torchprof.reasons.errors import TorchprofError
from pytest_torchprof.reasons.git_refusals import BisectStopped
from pytest_torchprof.system.processes import running

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pytest_torchprof.against.git import Repository

GOOD, BAD, SKIP = 0, 1, 125
"""The exit statuses that ``git bisect run`` takes for answers."""
# Each commit is measured in this process, which has read pytest's settings already: git's script asks, and we answer.
# A status from 128 on ends the search: whoever kills git's question must not have an answer about no commit.
_ASK: Final = (
    'sha=$(git rev-parse --verify BISECT_HEAD) || exit 255; echo "measure $sha"; read -r answer; exit "$answer"'
)
_MEASURE: Final = "measure "
# Git's output before it asks says nothing about why it ended.
_ASKING: Final = "running "
_CANDIDATE: Final = ("# first bad commit: [", "# possible first bad commit: [")


def first_bad(
    repository: Repository, *, good: str, bad: str, judge: Callable[[str], int], folder: Path
) -> tuple[str, ...]:
    """Return the first bad commit, or all candidates if only skipped commits are left between the ends.

    ``judge`` returns the answer for a commit: GOOD, BAD or SKIP. ``folder`` is an empty folder for git. Raises
    TorchprofError if git cannot go on.
    """
    try:
        borrow(repository.top, bad, folder)
        ask_git(folder, "bisect", "start", "--no-checkout", bad, good, GIT_DIR=str(folder))
        # The answer for two neighbours is known without measuring.
        if not _candidates(folder):
            _run(folder, judge)
    except GitRefused as refused:
        raise TorchprofError.because(BisectStopped(refused.error, refused.status)) from None
    return _candidates(folder)


def _candidates(folder: Path) -> tuple[str, ...]:
    lines = (folder / "BISECT_LOG").read_text(encoding="utf-8", errors="replace").splitlines()
    return tuple(line.partition("[")[2].partition("]")[0] for line in lines if line.startswith(_CANDIDATE))


def _run(folder: Path, judge: Callable[[str], int]) -> None:
    output: list[str] = []
    with running(
        git_command(folder, "bisect", "run", "sh", "-c", _ASK),
        patience_s=0,
        own_group=True,  # git starts processes of its own, which end with it.
        env=git_environment(GIT_DIR=str(folder)),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    ) as process:
        # Unbuffered: text that git no longer reads must not be written again when the pipe is closed.
        questions, answers = cast("IO[bytes]", process.stdout), cast("IO[bytes]", process.stdin).fileno()
        for line in map(os.fsdecode, questions):
            if line.startswith(_MEASURE):
                answer = judge(line.removeprefix(_MEASURE).strip())
                with suppress(BrokenPipeError):  # Git was ended from outside: then there are no candidates.
                    os.write(answers, f"{answer}\n".encode())
            elif not line.startswith(_ASKING):
                output.append(line)
    if not _candidates(folder):
        raise GitRefused("".join(output[-5:]).strip(), None)
