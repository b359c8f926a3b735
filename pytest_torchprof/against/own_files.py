"""Files that are put into a folder of ours: never through a link, which may lead to the user's own.

A commit's files may hold links of any kind, also in the place of a folder on the way to a file that is put there.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path, PurePath
from typing import TYPE_CHECKING

from pytest_torchprof.reasons.codes import Code
from pytest_torchprof.reasons.errors import TorchprofError

if TYPE_CHECKING:
    from os import PathLike


def own_folder(root: Path, name: str | PathLike[str]) -> Path:
    """Return a folder below ``root``, made where there is none, to which no link leads.

    A link on the way is replaced by a folder with a copy of what it leads to below ``root``, by an empty one if it
    leads elsewhere; a file on the way is removed.
    """
    place = root
    for part in PurePath(name).parts:
        place /= part
        if place.is_symlink():
            _replace_link(place, root)
        elif not place.is_dir():
            place.unlink(missing_ok=True)
            place.mkdir()
    return place


def own_place(root: Path, name: str | PathLike[str]) -> Path:
    """Return where a file is to be put below ``root``: nothing is there, and no link leads there."""
    path = PurePath(name)
    place = own_folder(root, path.parent) / path.name
    remove(place)
    return place


def is_behind_link(root: Path, name: str | PathLike[str]) -> bool:
    """Whether a folder on the way from ``root`` to a file is a link."""
    return any((root / folder).is_symlink() for folder in PurePath(name).parents[:-1])


def remove(place: Path) -> None:
    """Remove a file, a link or a folder with all that is in it; TorchprofError where it cannot be removed."""
    if place.is_dir() and not place.is_symlink():
        shutil.rmtree(place, ignore_errors=True)
    else:
        place.unlink(missing_ok=True)
    if os.path.lexists(place):
        said = f"{place} is left over from an earlier run and cannot be removed: remove it"
        raise TorchprofError(said, Code.OBJECT_MISSING)


def _replace_link(link: Path, root: Path) -> None:
    """Put a folder in the place of a link: what a commit has behind one to its own files stays there."""
    behind, real = Path(os.path.realpath(link)), Path(os.path.realpath(root))
    link.unlink()
    is_own = behind.is_dir() and behind.is_relative_to(real)
    # A folder cannot hold a copy of one that it lies in.
    if is_own and not Path(os.path.realpath(link.parent)).is_relative_to(behind):
        shutil.copytree(behind, link, symlinks=True)
    else:
        link.mkdir()
