"""Whether the end of a path names a source file: a recording names files from the folder in which it was made."""

from __future__ import annotations

import sys
from pathlib import Path, PurePosixPath, PureWindowsPath

from pytest_torchprof.kernels.reply import NO, NOT_KNOWN, YES, Reply, known


def is_file(asked: str, recorded: str) -> Reply:
    """Return whether the path in a test, a whole one or its end, is that of the file that a recording names.

    It is not known if the recording holds less of the path than the test, and no such file is here, or several are.
    """
    if _ends_with(recorded, asked):
        return YES
    if _is_absolute(recorded) or not _ends_with(asked, recorded):
        return NO
    answers: dict[Path, bool] = {}
    for path in _places(recorded):
        # Links may lead to one file by several paths.
        own = path.resolve()
        answers[own] = answers.get(own, False) or _ends_with(str(path), asked) or _ends_with(str(own), asked)
    replies = set(answers.values())
    return known(holds=replies.pop()) if len(replies) == 1 else NOT_KNOWN


def _ends_with(path: str, end: str) -> bool:
    """Return whether a path ends with another, by whole names; an absolute path is no end of another one."""
    parts, last = _parts(path), _parts(end)
    return parts == last if _is_absolute(end) else parts[-len(last) :] == last


def _parts(path: str) -> tuple[str, ...]:
    return PurePosixPath(path.replace("\\", "/")).parts


def _is_absolute(path: str) -> bool:
    return path.startswith("/") or PureWindowsPath(path).is_absolute()


def _places(recorded: str) -> list[Path]:
    """Return the paths of the file here: in the working directory, or where modules are imported from."""
    folders = dict.fromkeys([Path.cwd(), *(Path(folder).absolute() for folder in sys.path)])
    return [path for folder in folders if (path := folder / recorded).is_file()]
