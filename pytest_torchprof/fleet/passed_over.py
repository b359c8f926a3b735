"""The parts of source folders that a run does not look into, so that it can name them."""

from __future__ import annotations

import os
from glob import glob, has_magic
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from pytest_torchprof.fleet.listed import address_of, outermost
from pytest_torchprof.fleet.manifests import MANIFEST
from pytest_torchprof.fleet.run_files import LIST, is_of_run
from pytest_torchprof.system.archives import is_archive, is_tar
from pytest_torchprof.system.remote.addresses import is_remote

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pytest_torchprof.fleet.remote import Elsewhere


class PassedOver(Struct, frozen=True):
    """How many of what lies in folders that are sources is not looked into, also where another source lists it."""

    archives: int
    tars: int
    """Which are not read in any place."""
    links: int
    """To folders."""
    runs: int
    """Folders of fleets, whose own files are no recordings."""


def passed_over(sources: Sequence[str], apart_from: str | Path, elsewhere: Elsewhere) -> PassedOver:
    """Return what is passed over in the folders that are sources, apart from the folder of the run itself."""
    stores = (source for source in sources if is_remote(source) and not source.endswith(MANIFEST))
    addresses = {file.address for source in stores for file in elsewhere.in_folders(source)}
    archives, tars = sum(map(is_archive, addresses)), sum(map(is_tar, addresses))
    links = runs = 0
    itself = os.path.realpath(address_of(str(apart_from)))
    # Links to folders may lead to one of them in several ways.
    for folder in outermost(set(map(os.path.realpath, _folders_of(sources)))):
        for place, folders, files in os.walk(folder):
            archives += sum(is_archive(name) for name in files)
            tars += sum(is_tar(name) for name in files)
            links += sum(Path(place, name).is_symlink() for name in folders)
            runs += place != itself and is_of_run(Path(place, LIST))
    return PassedOver(archives, tars, links, runs)


def _folders_of(sources: Iterable[str]) -> list[str]:
    """Return the folders of this machine that sources are, or that patterns match, none of them below another."""
    folders: set[str] = set()
    for source in sources:
        path = address_of(source)
        if not is_remote(source):
            matches = [path] if Path(path).exists() or not has_magic(source) else glob(path, recursive=True)  # noqa: PTH207
            folders.update(match.rstrip(os.sep) or os.sep for match in matches if Path(match).is_dir())
    return outermost(folders)
