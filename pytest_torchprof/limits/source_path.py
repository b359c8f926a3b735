"""Whether a source file is meant by the end of its path: a recording names it from the folder in which it was made."""

from __future__ import annotations

import sys
from pathlib import Path, PurePosixPath, PureWindowsPath

from pytest_torchprof.kernels.reply import NO, NOT_KNOWN, YES, Reply, known


def is_file(asked: str, recorded: str) -> Reply:
    """Return whether what a test asks for, a whole path or its end, is the file that a recording names.

    Not known where the recording tells less of the path than is asked for, and no such file is here, or several are.
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
    """Return whether a path ends so, by whole names; a whole path ends with no other one."""
    parts, last = _parts(path), _parts(end)
    return parts == last if _is_absolute(end) else parts[-len(last) :] == last


def _parts(path: str) -> tuple[str, ...]:
    return PurePosixPath(path.replace("\\", "/")).parts


def _is_absolute(path: str) -> bool:
    return path.startswith("/") or PureWindowsPath(path).is_absolute()


def _places(recorded: str) -> list[Path]:
    """Return where the file lies here: in the working directory, or where modules are imported from."""
    folders = dict.fromkeys([Path.cwd(), *(Path(folder).absolute() for folder in sys.path)])
    return [path for folder in folders if (path := folder / recorded).is_file()]
