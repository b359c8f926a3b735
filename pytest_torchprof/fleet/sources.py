"""Which files are meant: files, folders, patterns, ZIP archives and manifests, here or elsewhere, as a list."""

from __future__ import annotations

import codecs
import os
import zipfile
from collections import Counter
from functools import partial
from glob import glob, has_magic
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final

import msgspec
from msgspec import Struct

from pytest_torchprof.fleet.remote import asked, files_now, refuse_unreachable
from pytest_torchprof.profiles import ENDINGS, traces_in
from pytest_torchprof.reasons.codes import Code
from pytest_torchprof.reasons.errors import TorchprofError
from pytest_torchprof.recording.files import is_stacks_name, stacks_name
from pytest_torchprof.system.archives import DAMAGED
from pytest_torchprof.system.remote.addresses import is_remote, protocol_of, without_local_protocol
from pytest_torchprof.system.remote.files import bare_version, file_at, files_at, read_at, reading
from pytest_torchprof.text import without_passwords

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pytest_torchprof.system.remote.files import RemoteFile

ARCHIVE: Final = ".zip"
MANIFEST: Final = ".jsonl"
LIST: Final = "list.json"
SUMMARY: Final = "summary.json"
PARTS: Final = "parts"
"""What a run writes into its folder, which may lie among recordings."""
_LIST_BEGINS: Final = b'{"schema":'
"""How the list of a run begins, and no recording: recordings may have these names too."""


class Listed(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One file of the list, as it was when the list was made."""

    url: str
    """Its path, from the root, or its address; of a file in an archive the archive's."""
    path_hex: str | None = None
    """The bytes of a path that is no UTF-8, which JSON cannot hold; ``url`` has them written out."""
    member: str | None = None
    """Its name in the archive."""
    size: int | None = None
    """In bytes; None where there was no file."""
    changed: int | None = None
    """When the file, or the archive, was changed last, in nanoseconds; None of an address."""
    etag: str | None = None
    """The store's name for this version of it; None for a path, and if the store gives none."""
    metadata: dict[str, str] = {}
    """What else a manifest says about it."""

    @property
    def name(self) -> str:
        """What people read: never with a password."""
        return self.shown if self.member is None else f"{self.shown}: {self.member}"

    @property
    def shown(self) -> str:
        """Where it lies, without a password."""
        return without_passwords(self.url)

    @property
    def path(self) -> str:
        """The path by which this machine opens the file."""
        return self.url if self.path_hex is None else os.fsdecode(bytes.fromhex(self.path_hex))

    @property
    def is_remote(self) -> bool:
        """Whether it is behind an address."""
        return is_remote(self.url)


class _ManifestLine(Struct, frozen=True):
    url: str
    size: int | None = None
    etag: str | None = None


def listed(sources: Iterable[str], apart_from: str | Path, retries: int = 0) -> tuple[Listed, ...]:
    """Return the files of sources in the order of their names, each once, without those below a folder or an address.

    ``retries``: how often a store is asked again. Raises TorchprofError for a source that has none or cannot be looked
    through, and for a manifest that is none.
    """
    files: dict[tuple[str, str, str], Listed] = {}
    stated: dict[tuple[str, str, str], Listed] = {}
    folder = address_of(str(apart_from)).rstrip(f"/{os.sep}")
    left_out = (f"{folder}{os.sep}", f"{folder}/")
    for source in sources:
        there = list(_files_of(source, retries))
        own = [file for file in there if not file.url.startswith(left_out)]
        if there and not own:
            problem = (
                f"--into {without_passwords(str(apart_from))}: all that {without_passwords(source)} has lies in it"
            )
            raise TorchprofError(
                f"{problem}, and what a run writes is not judged. Name another folder.", Code.BAD_USAGE
            )
        if not own:
            problem = (
                f"{without_passwords(source)}: there are no recordings: expected files that end in .json or .json.gz. "
                "Check the path."
            )
            raise TorchprofError(problem, Code.RECORDING_MISSING)
        files |= {_key(file): file for file in own}
        if source.endswith(MANIFEST):
            for file in own:
                if stated.setdefault(_key(file), file) != file:
                    problem = (
                        f"{without_passwords(source)}: {file.name} is named twice, and not with the same: keep one"
                    )
                    raise TorchprofError(problem, Code.BAD_USAGE)
    # What a manifest says of a file counts, wherever the file is named besides.
    files |= stated
    return tuple(_looked_up([files[key] for key in sorted(files)], retries))


class PassedOver(Struct, frozen=True):
    """How many of what lies in folders that are sources is not looked into, also where another source lists it."""

    archives: int
    links: int
    """To folders."""
    runs: int
    """Folders of fleets, whose own files are no recordings."""


def passed_over(sources: Iterable[str], apart_from: str | Path) -> PassedOver:
    """Return what is passed over in the folders that are sources, apart from the folder of the run itself."""
    archives = links = runs = 0
    itself = address_of(str(apart_from))
    for source in sources:
        if is_remote(source) or not Path(address_of(source)).is_dir():
            continue
        for place, folders, files in os.walk(address_of(source)):
            archives += sum(name.endswith(ARCHIVE) for name in files)
            links += sum(Path(place, name).is_symlink() for name in folders)
            runs += place != itself and _is_of_run(Path(place, LIST))
    return PassedOver(archives, links, runs)


def _looked_up(files: Sequence[Listed], retries: int) -> list[Listed]:
    """Return files with what their stores say of them, where neither a manifest nor a listing does."""
    asked_for = [file.url for file in files if file.is_remote and None in (file.size, file.etag)]
    there = files_now(asked_for, retries)
    return [_with_version(file, there[file.url]) if file.url in there else file for file in files]


def _with_version(file: Listed, now: RemoteFile) -> Listed:
    size = now.size if file.size is None else file.size
    return msgspec.structs.replace(file, size=size, etag=now.version if file.etag is None else file.etag)


def from_root(path: str | Path) -> Path:
    """Return a path from the root, through the same links."""
    return Path(os.path.abspath(path))  # noqa: PTH100 - resolve() would follow links


def address_of(source: str) -> str:
    """Return a source in a form that means the same from any folder."""
    return source if is_remote(source) else str(from_root(without_local_protocol(source)))


def is_as_listed(file: Listed) -> bool:
    """Whether a file that is there is the one that was listed; FileNotFoundError where it is not there.

    Raises what the store's library raises of an address.
    """
    if file.is_remote:
        now = file_at(file.url)
        same_size = file.member is not None or None in (file.size, now.size) or file.size == now.size
        return same_size and file.etag in (None, now.version)
    stat = Path(file.path).stat()
    return (stat.st_size == file.size or file.member is not None) and stat.st_mtime_ns == file.changed


def written(path: str) -> str:
    """Return a path as JSON can hold it: bytes that are no UTF-8 are written out."""
    return os.fsencode(path).decode(errors="backslashreplace")


def _key(file: Listed) -> tuple[str, str, str]:
    return file.url, file.member or "", file.path_hex or ""


def _files_of(source: str, retries: int) -> Iterator[Listed]:
    if is_remote(source):
        yield from _files_elsewhere(source, retries)
        return
    path = Path(address_of(source))
    if path.is_dir():
        yield from (_file(trace) for trace in traces_in(str(path), onerror=_refuse) if not _is_of_run(Path(trace)))
    elif path.exists() and not path.is_file():
        # Reading a pipe may never end; judging it says what it is.
        yield _file(str(path))
    elif path.suffix == MANIFEST:
        yield from _files_of_manifest(path)
    elif path.suffix == ARCHIVE and (path.exists() or not has_magic(source)):
        yield from _members(_file(str(path)), path)
    elif path.exists():
        yield _file(str(path))
    elif has_magic(source):
        for match in map(Path, glob(str(path), recursive=True)):  # noqa: PTH207 - it may begin anywhere
            if not match.is_dir():
                archive = _file(str(match))
                yield from _members(archive, match) if match.suffix == ARCHIVE and match.is_file() else [archive]


def _files_elsewhere(source: str, retries: int) -> Iterator[Listed]:
    refuse_unreachable(source)
    if source.endswith(MANIFEST):
        content = asked(source, lambda: read_at(source), retries)
        yield from _files_of_lines(content, source, source.rpartition("/")[0])
        return
    # In the addresses of web servers a question mark begins what is asked for.
    is_pattern = "*" in source if protocol_of(source) in ("http", "https") else has_magic(source)
    files = asked(source, lambda: files_at(source, is_pattern=is_pattern, retries=retries), retries=0)
    is_itself = [file.address for file in files] == [source]
    repeats = {stacks_name(file.address) for file in files}
    for file in files:
        own = Listed(url=file.address, size=file.size, etag=file.version)
        if file.address.endswith(ARCHIVE) and (is_pattern or is_itself):
            yield from asked(source, partial(_members_elsewhere, own), retries)
        elif is_pattern or is_itself or (file.address.endswith(ENDINGS) and file.address not in repeats):
            yield own


def _members_elsewhere(archive: Listed) -> list[Listed]:
    with reading(archive.url) as content:
        return list(_members(archive, content))


def _refuse(problem: OSError) -> None:
    text = f"{problem.filename}: the folder cannot be read: {problem.strerror}"
    raise TorchprofError(text, Code.RECORDING_UNREADABLE) from None


def _is_of_run(path: Path) -> bool:
    """Whether a file is one that a run has written into its folder."""
    if path.name not in (LIST, SUMMARY) or not path.with_name(PARTS).is_dir():
        return False
    try:
        with path.with_name(LIST).open("rb") as file:
            return file.read(len(_LIST_BEGINS)) == _LIST_BEGINS
    except OSError:
        return False


def _file(path: str, more: Mapping[str, Any] | None = None) -> Listed:
    """Return a file as it is now; one that is not there is listed all the same."""
    url = written(path)
    name = {"url": url, "path_hex": None if url == path else os.fsencode(path).hex()}
    try:
        stat = Path(path).stat()
    except OSError:
        return Listed(**{**name, **(more or {})})
    return Listed(**{**name, "size": stat.st_size, "changed": stat.st_mtime_ns, **(more or {})})


def _members(archive: Listed, content: Path | BinaryIO) -> Iterator[Listed]:
    try:
        with zipfile.ZipFile(content) as packed:
            members = [
                member
                for member in packed.infolist()
                if member.filename.endswith(ENDINGS) and not is_stacks_name(member.filename)
            ]
    except DAMAGED as problem:
        if archive.is_remote and not isinstance(problem, zipfile.BadZipFile):
            raise
        text = f"{archive.shown}: the archive cannot be read: {problem}. Copy it again, or leave it out."
        raise TorchprofError(text, Code.RECORDING_UNREADABLE) from None
    (name, count), *_ = Counter(member.filename for member in members).most_common(1) or [("", 0)]
    if count > 1:
        # By its name only the last of them can be read.
        text = f"{archive.shown}: {count} recordings in the archive are called {name}. Pack each by a name of its own."
        raise TorchprofError(text, Code.RECORDING_UNREADABLE)
    for member in members:
        yield msgspec.structs.replace(archive, member=member.filename, size=member.file_size)


def _files_of_manifest(path: Path) -> Iterator[Listed]:
    try:
        content = path.read_bytes()
    except OSError as problem:
        text = f"{path}: the manifest cannot be read: {problem.strerror}"
        raise TorchprofError(text, Code.RECORDING_UNREADABLE) from None
    yield from _files_of_lines(content, str(path), str(path.parent))


def _files_of_lines(content: bytes, manifest: str, folder: str) -> Iterator[Listed]:
    # A spreadsheet, or PowerShell, begins a file of UTF-8 with a mark.
    for number, line in enumerate(content.removeprefix(codecs.BOM_UTF8).splitlines(), 1):
        if line.strip():
            yield _file_of_line(f"{without_passwords(manifest)}:{number}", folder, line)


def _file_of_line(where: str, folder: str, line: bytes) -> Listed:
    try:
        own = msgspec.json.decode(line, type=_ManifestLine)
        metadata = msgspec.json.decode(line, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError) as problem:
        text = f'{where}: expected an object with "url", and perhaps "size" and "etag": {problem}'
        raise TorchprofError(text, Code.BAD_USAGE) from None
    others = {name: value for name, value in metadata.items() if name not in _ManifestLine.__struct_fields__}
    known: dict[str, Any] = {
        "metadata": {name: value if isinstance(value, str) else str(value) for name, value in others.items()}
    }
    if own.size is not None:
        known["size"] = own.size
    if own.etag is not None:
        known["etag"] = bare_version(own.etag)
    url = without_local_protocol(own.url)
    if "\0" in url or not url:
        raise TorchprofError(f"{where}: expected a path or an address as url, got {own.url!r}", Code.BAD_USAGE)
    if is_remote(url):
        refuse_unreachable(url)
        return Listed(url=url, **known)
    if is_remote(folder) and not url.startswith("/"):
        return Listed(url=f"{folder}/{url}", **known)
    return _file(str(from_root(Path(folder, url))), known)
