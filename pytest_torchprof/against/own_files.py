"""Files that are put into a folder of ours: never through a link, which may lead to the user's files.

A commit's files may contain links of any kind, even in place of a folder on the path of a file that is put there.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path, PurePath
from typing import TYPE_CHECKING

from pytest_torchprof.reasons.errors import TorchprofError
from pytest_torchprof.reasons.starting import LeftOver

if TYPE_CHECKING:
    from os import PathLike


def own_folder(root: Path, name: str | PathLike[str]) -> Path:
    """Return a folder below ``root``, made if it is missing, to which no link leads.

    A link on the path is replaced by a folder with a copy of its target below ``root``, or by an empty one if it leads
    elsewhere; a file on the path is removed.
    """
    folder = root
    for part in PurePath(name).parts:
        folder /= part
        if folder.is_symlink():
            _replace_link(folder, root)
        elif not folder.is_dir():
            folder.unlink(missing_ok=True)
            folder.mkdir()
    return folder


def free_path(root: Path, name: str | PathLike[str]) -> Path:
    """Return the path of a file to be put below ``root``, where nothing is and no link leads."""
    path = PurePath(name)
    path_of_file = own_folder(root, path.parent) / path.name
    remove(path_of_file)
    return path_of_file


def is_behind_link(root: Path, name: str | PathLike[str]) -> bool:
    """Return whether a folder on the path from ``root`` to a file is a link."""
    return any((root / folder).is_symlink() for folder in PurePath(name).parents[:-1])


def remove(path: Path) -> None:
    """Remove a file, a link or a folder with all that is in it; TorchprofError if it cannot be removed."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
    if os.path.lexists(path):
        raise TorchprofError.because(LeftOver(str(path)))


def _replace_link(link: Path, root: Path) -> None:
    """Replace a link by a folder: files that a commit has behind a link to its own files stay there."""
    behind, real = Path(os.path.realpath(link)), Path(os.path.realpath(root))
    link.unlink()
    is_own = behind.is_dir() and behind.is_relative_to(real)
    # A folder cannot hold a copy of a folder that it lies in.
    if is_own and not Path(os.path.realpath(link.parent)).is_relative_to(behind):
        shutil.copytree(behind, link, symlinks=True)
    else:
        link.mkdir()
