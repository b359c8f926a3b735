"""The parts of sources that a run does not look into, so that it can name them."""

from __future__ import annotations

import os
import zipfile
from contextlib import suppress
from functools import partial
from glob import glob, has_magic
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final

from msgspec import Struct

from pytest_torchprof.fleet.listed import address_of, outermost
from pytest_torchprof.fleet.manifests import MANIFEST
from pytest_torchprof.fleet.remote import asked
from pytest_torchprof.fleet.run_files import LIST, is_of_run
from pytest_torchprof.profiles import may_be_recording
from pytest_torchprof.system.archives import DAMAGED, is_archive, is_tar
from pytest_torchprof.system.remote.addresses import is_remote
from pytest_torchprof.system.remote.files import reading

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pytest_torchprof.fleet.remote import Elsewhere

_OTHER_ENDINGS: Final = (".gz", ".zst", ".bz2", ".xz", ".lz4", ".trace", ".perfetto-trace")


class PassedOver(Struct, frozen=True):
    """How many of what lies in sources is not looked into, also where another source lists it."""

    archives: int
    """In folders, and in other archives."""
    tars: int
    """Which are not read in any place."""
    otherwise_named: int
    """Files that may be recordings, going by names that count only where somebody writes them out."""
    links: int
    """To folders."""
    runs: int
    """Folders of fleets, whose own files are no recordings."""


def passed_over(sources: Sequence[str], apart_from: str | Path, elsewhere: Elsewhere) -> PassedOver:
    """Return the entries passed over in folders and archives that are sources, apart from the run's own folder."""
    stores = [source for source in sources if is_remote(source) and not source.endswith(MANIFEST)]
    names = [*{file.address for source in stores for file in elsewhere.in_folders(source)}]
    names += _in_archives(sources)
    for address in {file.address for source in stores for file in elsewhere.named(source) if is_archive(file.address)}:
        names += asked(address, partial(_names_behind, address), elsewhere.retries)
    links = runs = 0
    itself = os.path.realpath(address_of(str(apart_from)))
    # Links to folders may lead to one of them in several ways.
    for folder in outermost(set(map(os.path.realpath, _folders_of(sources)))):
        for path, folders, files in os.walk(folder):
            names += files
            links += sum(Path(path, name).is_symlink() for name in folders)
            runs += path != itself and is_of_run(Path(path, LIST))
    archives, tars, others = (sum(map(of_kind, names)) for of_kind in (is_archive, is_tar, _is_otherwise_named))
    return PassedOver(archives, tars, others, links, runs)


def _is_otherwise_named(name: str) -> bool:
    return name.lower().endswith(_OTHER_ENDINGS) and not (may_be_recording(name) or is_tar(name))


def _in_archives(sources: Iterable[str]) -> Iterator[str]:
    """Yield the names in the archives of this machine that are sources, each of which counts once."""
    archives = {os.path.realpath(match) for match in _matches(sources) if is_archive(match)}
    # Opening a pipe may never end.
    for archive in filter(os.path.isfile, archives):
        yield from _names_in(archive)


def _names_behind(address: str) -> list[str]:
    with reading(address) as content:
        return _names_in(content)


def _names_in(archive: str | BinaryIO) -> list[str]:
    """Return the names in an archive; none in a damaged one, which is quarantined as it is."""
    with suppress(*DAMAGED), zipfile.ZipFile(archive) as packed:
        return packed.namelist()
    return []


def _folders_of(sources: Iterable[str]) -> list[str]:
    """Return the folders of this machine that sources are, or that patterns match, none of them below another."""
    return outermost({match.rstrip(os.sep) or os.sep for match in _matches(sources) if Path(match).is_dir()})


def _matches(sources: Iterable[str]) -> Iterator[str]:
    """Yield the paths of this machine that sources are, or that patterns match."""
    for source in sources:
        path = address_of(source)
        if not is_remote(source):
            yield from [path] if Path(path).exists() or not has_magic(source) else glob(path, recursive=True)  # noqa: PTH207
