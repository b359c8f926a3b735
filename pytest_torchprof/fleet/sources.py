"""Which files are meant: files, folders, patterns, ZIP archives, and manifests, as a list that stays."""

from __future__ import annotations

import os
import zipfile
from glob import glob, has_magic
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct

from pytest_torchprof.profiles import ENDINGS, traces_in
from pytest_torchprof.reasons.codes import Code
from pytest_torchprof.reasons.errors import TorchprofError
from pytest_torchprof.recording.files import is_stacks_name
from pytest_torchprof.system.archives import DAMAGED

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

ARCHIVE: Final = ".zip"
MANIFEST: Final = ".jsonl"


class Listed(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One file of the list, as it was when the list was made."""

    url: str
    """Its path, from the root; of a file in an archive the archive's."""
    member: str | None = None
    """Its name in the archive."""
    size: int | None = None
    """In bytes; None where there was no file."""
    changed: int | None = None
    """When the file, or the archive, was changed last, in nanoseconds."""
    metadata: dict[str, str] = {}
    """What else a manifest says of it."""

    @property
    def name(self) -> str:
        """What people read."""
        return self.url if self.member is None else f"{self.url}: {self.member}"


class _ManifestLine(Struct, frozen=True):
    url: str
    size: int | None = None


def listed(sources: Iterable[str], apart_from: Path) -> tuple[Listed, ...]:
    """Return the files of sources in the order of their names, each once, without those below a folder.

    Raises TorchprofError for a source that has none or cannot be looked through, and for a manifest that is none.
    """
    files: dict[tuple[str, str], Listed] = {}
    left_out = f"{from_root(apart_from)}{os.sep}"
    for source in sources:
        own = [file for file in _files_of(source) if not file.url.startswith(left_out)]
        if not own:
            problem = (
                f"{source}: there are no recordings: expected files that end in .json or .json.gz. Check the path."
            )
            raise TorchprofError(problem, Code.RECORDING_MISSING)
        # What a manifest says of a file counts, wherever the file is named besides.
        files |= {_key(file): file for file in own if file.metadata or _key(file) not in files}
    return tuple(files[key] for key in sorted(files))


def from_root(path: str | Path) -> Path:
    """Return a path from the root, through the same links."""
    return Path(os.path.abspath(path))  # noqa: PTH100 - resolve() would follow links


def address_of(source: str) -> str:
    """Return a source in a form that means the same from any folder."""
    return source if "://" in source else str(from_root(source))


def is_as_listed(file: Listed) -> bool:
    """Whether a file that is there is the one that was listed; FileNotFoundError where it is not there."""
    stat = Path(file.url).stat()
    return (stat.st_size == file.size or file.member is not None) and stat.st_mtime_ns == file.changed


def _key(file: Listed) -> tuple[str, str]:
    return file.url, file.member or ""


def _files_of(source: str) -> Iterator[Listed]:
    if "://" in source:
        problem = f"{source}: expected a file, a folder, a pattern, a ZIP archive or a manifest on this machine"
        raise TorchprofError(problem, Code.BAD_USAGE)
    path = from_root(source)
    if path.is_dir():
        yield from map(_file, traces_in(str(path), onerror=_refuse))
    elif path.suffix == MANIFEST:
        yield from _files_of_manifest(path)
    elif path.suffix == ARCHIVE:
        yield from _members(path)
    elif path.exists():
        yield _file(str(path))
    elif has_magic(source):
        for match in map(Path, glob(str(path), recursive=True)):  # noqa: PTH207 - it may begin anywhere
            if not match.is_dir():
                yield from _members(match) if match.suffix == ARCHIVE else [_file(str(match))]


def _refuse(problem: OSError) -> None:
    text = f"{problem.filename}: the folder cannot be read: {problem.strerror}"
    raise TorchprofError(text, Code.RECORDING_UNREADABLE) from None


def _file(path: str, more: Mapping[str, Any] | None = None) -> Listed:
    """Return a file as it is now; one that is not there is listed all the same."""
    try:
        stat = Path(path).stat()
    except OSError:
        return Listed(url=path, **(more or {}))
    return Listed(url=path, **{"size": stat.st_size, "changed": stat.st_mtime_ns, **(more or {})})


def _members(path: Path) -> Iterator[Listed]:
    archive = _file(str(path))
    try:
        with zipfile.ZipFile(path) as content:
            for member in content.infolist():
                if member.filename.endswith(ENDINGS) and not is_stacks_name(member.filename):
                    yield msgspec.structs.replace(archive, member=member.filename, size=member.file_size)
    except DAMAGED as problem:
        text = f"{path}: the archive cannot be read: {problem}. Copy it again, or leave it out."
        raise TorchprofError(text, Code.RECORDING_UNREADABLE) from None


def _files_of_manifest(path: Path) -> Iterator[Listed]:
    try:
        lines = path.read_bytes().splitlines()
    except OSError as problem:
        text = f"{path}: the manifest cannot be read: {problem.strerror}"
        raise TorchprofError(text, Code.RECORDING_UNREADABLE) from None
    for number, line in enumerate(lines, 1):
        if line.strip():
            yield _file_of_line(path, number, line)


def _file_of_line(path: Path, number: int, line: bytes) -> Listed:
    try:
        own = msgspec.json.decode(line, type=_ManifestLine)
        metadata = msgspec.json.decode(line, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError) as problem:
        text = f'{path}:{number}: expected an object with "url", and perhaps "size": {problem}'
        raise TorchprofError(text, Code.BAD_USAGE) from None
    if "://" in own.url:
        text = f"{path}:{number}: {own.url}: expected the path of a file, from the manifest's folder or from the root"
        raise TorchprofError(text, Code.BAD_USAGE)
    known: dict[str, Any] = {} if own.size is None else {"size": own.size}
    others = {name: value for name, value in metadata.items() if name not in _ManifestLine.__struct_fields__}
    known["metadata"] = {name: value if isinstance(value, str) else str(value) for name, value in others.items()}
    return _file(str(from_root(path.parent / own.url)), known)
