"""Which files are meant: files, folders, patterns, ZIP archives and manifests, here or elsewhere, as a list."""

from __future__ import annotations

import os
import zipfile
from collections import Counter
from functools import lru_cache, partial
from glob import glob, has_magic, iglob
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, TypeAlias

import msgspec

from pytest_torchprof.fleet.listed import Listed, address_of, file_at_path, file_elsewhere, outermost
from pytest_torchprof.fleet.manifests import MANIFEST, files_of_lines, files_of_manifest
from pytest_torchprof.fleet.remote import asked, files_now, refuse_unreachable
from pytest_torchprof.fleet.run_files import is_of_run
from pytest_torchprof.profiles import ENDINGS, may_be_recording, traces_in
from pytest_torchprof.reasons.errors import TorchprofError
from pytest_torchprof.reasons.fleet_sources import (
    AllInOwnFolder,
    LinesDisagree,
    ManifestWithoutFiles,
    NamesakesInArchive,
    NoRecordingsInSource,
    NoSuchSource,
    NothingFits,
    NothingThere,
    SourceNotRead,
    TarArchive,
)
from pytest_torchprof.recording.files import is_stacks_name, stacks_name
from pytest_torchprof.system.archives import DAMAGED, is_archive, is_tar
from pytest_torchprof.system.remote.addresses import is_remote
from pytest_torchprof.system.remote.files import read_at, reading
from pytest_torchprof.text import without_passwords

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from pytest_torchprof.fleet.remote import Elsewhere
    from pytest_torchprof.reasons.reason import Reason
    from pytest_torchprof.system.remote.files import RemoteFile

_Key: TypeAlias = tuple[str, str, str]
"""A file's URL, its name in an archive, and the bytes of a path that is no UTF-8."""


def listed(sources: Iterable[str], apart_from: str | Path, elsewhere: Elsewhere) -> tuple[Listed, ...]:
    """Return the files of sources in the order of their names, each once, without those below a folder or an address.

    Raises TorchprofError for a source that has none or cannot be looked through, and for a file that is not a manifest.
    """
    files: dict[_Key, Listed] = {}
    stated: dict[_Key, Listed] = {}
    folder = address_of(str(apart_from)).rstrip(f"/{os.sep}")
    left_out = (f"{folder}{os.sep}", f"{folder}/")
    for source in sources:
        there = list(_files_of(source, elsewhere))
        own = [file for file in there if not file.url.startswith(left_out)]
        if there and not own:
            into = without_passwords(str(apart_from))
            raise TorchprofError.because(AllInOwnFolder(into, without_passwords(source)))
        if not own:
            raise TorchprofError.because(_why_empty(source, elsewhere))
        files |= {_key(file): file for file in own}
        if source.endswith(MANIFEST):
            for file in own:
                if stated.setdefault(_key(file), file) != file:
                    raise TorchprofError.because(LinesDisagree(without_passwords(source), file.name))
    # What a manifest says of a file counts, wherever the file is named besides.
    files |= stated
    return tuple(_looked_up(_by_one_way(files, stated.keys()), elsewhere.retries))


def _by_one_way(files: Mapping[_Key, Listed], stated: Collection[_Key]) -> list[Listed]:
    """Return files in the order of their names, without those that a link to a folder leads to once more.

    Left are what a manifest states, and otherwise the path without links, or the first.
    """
    true_path = lru_cache(maxsize=1024)(os.path.realpath)
    ways: dict[tuple[str, ...], list[_Key]] = {}
    for key in sorted(files):
        file = files[key]
        folder, name = os.path.split(file.path)
        itself = key if file.is_remote else (true_path(folder), name, file.member or "")
        ways.setdefault(itself, []).append(key)
    left = {key for itself, keys in ways.items() for key in _ways_left(itself, keys, stated)}
    return [files[key] for key in sorted(left)]


def _ways_left(itself: tuple[str, ...], keys: Sequence[_Key], stated: Collection[_Key]) -> Sequence[_Key]:
    if len(keys) == 1:
        return keys
    direct = [key for key in keys if key[0] == os.path.join(*itself[:2])]  # noqa: PTH118
    return [key for key in keys if key in stated] or (direct or keys)[:1]


def _why_empty(source: str, elsewhere: Elsewhere) -> Reason:
    shown = without_passwords(source)
    if source.endswith(MANIFEST) and (is_remote(source) or Path(address_of(source)).is_file()):
        return ManifestWithoutFiles(shown)
    if not _is_there(source, elsewhere):
        if has_magic(source):
            return NothingFits(shown)
        return NothingThere(shown) if is_remote(source) else NoSuchSource(shown)
    return NoRecordingsInSource(shown, ENDINGS, is_archive=is_archive(source))


def _is_there(source: str, elsewhere: Elsewhere) -> bool:
    """Whether a source is anything, or a pattern fits anything."""
    if is_remote(source):
        return any(elsewhere.at(source))
    path = address_of(source)
    return os.path.lexists(path) or (has_magic(source) and any(iglob(path, recursive=True)))  # noqa: PTH207


def _looked_up(files: Sequence[Listed], retries: int) -> list[Listed]:
    """Return files with what their stores say of them, where neither a manifest nor a listing does."""
    asked_for = [file.url for file in files if file.is_remote and None in (file.size, file.etag)]
    there = files_now(asked_for, retries)
    return [_with_version(file, there[file.url]) if file.url in there else file for file in files]


def _with_version(file: Listed, now: RemoteFile) -> Listed:
    size = now.size if file.size is None else file.size
    return msgspec.structs.replace(file, size=size, etag=now.version if file.etag is None else file.etag)


def _key(file: Listed) -> _Key:
    return file.url, file.member or "", file.path_hex or ""


def _files_of(source: str, elsewhere: Elsewhere) -> Iterator[Listed]:
    if is_remote(source):
        yield from _files_elsewhere(source, elsewhere)
        return
    path = Path(address_of(source))
    if path.is_dir():
        yield from (
            file_at_path(trace) for trace in traces_in(str(path), onerror=_refuse) if not is_of_run(Path(trace))
        )
    elif path.suffix == MANIFEST and (path.is_file() or not path.exists()):
        yield from files_of_manifest(path)
    elif os.path.lexists(path):
        yield from _file_or_members(path)
    elif has_magic(source):
        matches = [Path(match) for match in glob(str(path), recursive=True)]  # noqa: PTH207 - it may begin anywhere
        for match in matches:
            if not match.is_dir():
                yield from _file_or_members(match)
        # As if a shell had written them out.
        for folder in outermost(str(match) for match in matches if match.is_dir()):
            yield from _files_of(folder, elsewhere)


def _file_or_members(path: Path) -> Iterator[Listed]:
    """Yield a file that was named, or the recordings in it."""
    if path.exists() and not path.is_file():
        # Reading a pipe may never end; judging it says what it is.
        yield file_at_path(str(path))
    elif is_archive(path.name) and path.exists():
        yield from _members(file_at_path(str(path)), path)
    elif is_tar(path.name):
        raise _no_tar(str(path))
    elif path.exists() or path.is_symlink():
        yield file_at_path(str(path))


def _no_tar(shown: str) -> TorchprofError:
    return TorchprofError.because(TarArchive(shown))


def _files_elsewhere(source: str, elsewhere: Elsewhere) -> Iterator[Listed]:
    refuse_unreachable(source)
    if source.endswith(MANIFEST):
        content = asked(source, lambda: read_at(source), elsewhere.retries)
        yield from files_of_lines(content, source, source.rpartition("/")[0])
        return
    named, *folders = elsewhere.at(source)
    for file in named:
        yield from _file_or_members_elsewhere(file, elsewhere.retries)
    for files in folders:
        yield from _files_in(files)


def _files_in(files: Sequence[RemoteFile]) -> Iterator[Listed]:
    """Yield the files of a folder that may be recordings."""
    repeats = {stacks_name(file.address) for file in files}
    for file in files:
        if may_be_recording(file.address) and file.address not in repeats:
            yield file_elsewhere(file)


def _file_or_members_elsewhere(file: RemoteFile, retries: int) -> Iterable[Listed]:
    own = file_elsewhere(file)
    if is_tar(file.address):
        raise _no_tar(own.shown)
    return asked(file.address, partial(_members_elsewhere, own), retries) if is_archive(file.address) else [own]


def _members_elsewhere(archive: Listed) -> list[Listed]:
    with reading(archive.url) as content:
        return list(_members(archive, content))


def _refuse(problem: OSError) -> None:
    raise TorchprofError.because(SourceNotRead(str(problem.filename), str(problem.strerror))) from None


def _members(archive: Listed, content: Path | BinaryIO) -> Iterator[Listed]:
    try:
        with zipfile.ZipFile(content) as packed:
            members = [
                member
                for member in packed.infolist()
                if may_be_recording(member.filename) and not is_stacks_name(member.filename)
            ]
    except DAMAGED as problem:
        if archive.is_remote and not isinstance(problem, zipfile.BadZipFile):
            raise
        # Which recordings it should have nobody knows: it is quarantined as it is.
        yield archive
        return
    (name, count), *_ = Counter(member.filename for member in members).most_common(1) or [("", 0)]
    if count > 1:
        # By its name only the last of them can be read.
        raise TorchprofError.because(NamesakesInArchive(archive.shown, count, name))
    for member in members:
        yield msgspec.structs.replace(archive, member=member.filename, size=member.file_size)
