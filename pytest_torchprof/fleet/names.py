"""The names of the files of a list: their paths below the sources, which are the same in the next run."""

from __future__ import annotations

import os
from collections import Counter
from glob import has_magic
from itertools import takewhile
from pathlib import PurePath
from typing import TYPE_CHECKING

from pytest_torchprof.text import without_passwords

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pytest_torchprof.fleet.listed import Listed

TEST = "test"
"""The manifest's key for a file's name in histories."""
MODEL = "model"
"""The manifest's key for a file's model."""


def names_of(files: Sequence[Listed], sources: Iterable[str]) -> dict[tuple[str, str | None], str]:
    """Return the names of files by path and member: by their names in a manifest, or by their paths.

    A path is that below the source; where this is the same for two files, it is the whole path for both.
    """
    roots = _roots(sources)
    short = {(file.shown, file.member): file.metadata.get(TEST) or _below(file, roots) for file in files}
    several = {name for name, count in Counter(short.values()).items() if count > 1}
    whole = {(file.shown, file.member): file.name for file in files if short[file.shown, file.member] in several}
    return short | whole


def model_of(metadata: Mapping[str, str], name: str) -> str | None:
    """Return the model of a file: the manifest's entry, or the folder below the source; None where it lies in none."""
    return metadata.get(MODEL) or PurePath(name).parent.as_posix().removeprefix(".") or None


def fixed_part(source: str) -> str:
    """Return the path that all files of a source begin with: itself, or the folder before a pattern."""
    return "/".join(takewhile(lambda part: not has_magic(part), _with_slashes(without_passwords(source)).split("/")))


def _roots(sources: Iterable[str]) -> list[str]:
    """Return sources and the folders that names may begin below, the longest first."""
    # Below a source that is a file there is nothing, so that its folder is what fits.
    roots = {root for fixed in map(fixed_part, sources) for root in (fixed, fixed.rpartition("/")[0])}
    return sorted(roots, key=lambda root: (-len(root), root))


def _below(file: Listed, roots: Sequence[str]) -> str:
    path = _with_slashes(file.shown)
    if file.member is not None and path in roots:
        return file.member
    own = next((path[len(root) + 1 :] for root in roots if path.startswith(f"{root}/")), path)
    return own if file.member is None else f"{own}: {file.member}"


def _with_slashes(path: str) -> str:
    return path.replace(os.sep, "/")
