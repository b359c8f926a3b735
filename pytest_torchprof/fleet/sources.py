"""Which files are meant: files, folders, patterns, ZIP archives and manifests, here or elsewhere, as a list."""

from __future__ import annotations

import codecs
import os
import zipfile
from collections import Counter
from functools import lru_cache, partial
from glob import glob, has_magic
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final, TypeAlias

import msgspec
from msgspec import Struct

from pytest_torchprof.fleet.remote import asked, files_now, refuse_unreachable
from pytest_torchprof.profiles import may_be_recording, traces_in
from pytest_torchprof.reasons.codes import Code
from pytest_torchprof.reasons.errors import TorchprofError
from pytest_torchprof.recording.files import is_stacks_name, stacks_name
from pytest_torchprof.system.archives import DAMAGED
from pytest_torchprof.system.remote.addresses import is_remote, protocol_of, without_local_protocol
from pytest_torchprof.system.remote.files import bare_version, file_at, files_at, matches_at, read_at, reading
from pytest_torchprof.text import without_passwords

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from pytest_torchprof.system.remote.files import RemoteFile

_ARCHIVE: Final = ".zip"
_TAR: Final = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz", ".tar.zst")
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


_Key: TypeAlias = tuple[str, str, str]
"""A file's URL, its name in an archive, and the bytes of a path that is no UTF-8."""


class _ManifestLine(Struct, frozen=True):
    url: str
    size: int | None = None
    etag: str | None = None


def listed(sources: Iterable[str], apart_from: str | Path, retries: int = 0) -> tuple[Listed, ...]:
    """Return the files of sources in the order of their names, each once, without those below a folder or an address.

    ``retries``: how often a store is asked again. Raises TorchprofError for a source that has none or cannot be looked
    through, and for a manifest that is none.
    """
    files: dict[_Key, Listed] = {}
    stated: dict[_Key, Listed] = {}
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
            raise TorchprofError(f"{without_passwords(source)}: {_why_empty(source)}", Code.RECORDING_MISSING)
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
    return tuple(_looked_up(_by_one_way(files, stated.keys()), retries))


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


def _why_empty(source: str) -> str:
    if source.endswith(MANIFEST) and (is_remote(source) or Path(address_of(source)).is_file()):
        return 'the manifest names no file: expected an object with "url" in each line.'
    kinds = "expected files that end in .json or .json.gz (what Perfetto writes, .pftrace, is not read)"
    if _is_archive(source):
        return f"there are no recordings in the archive: {kinds}."
    return f"there are no recordings: {kinds}. Check the path."


class PassedOver(Struct, frozen=True):
    """How many of what lies in folders that are sources is not looked into, also where another source lists it."""

    archives: int
    tars: int
    """Which are not read in any place."""
    links: int
    """To folders."""
    runs: int
    """Folders of fleets, whose own files are no recordings."""


def passed_over(sources: Sequence[str], apart_from: str | Path, retries: int = 0) -> PassedOver:
    """Return what is passed over in the folders that are sources, apart from the folder of the run itself."""
    elsewhere = {file.address for source in sources if is_remote(source) for file in _in_folders(source, retries)}
    archives, tars = sum(map(_is_archive, elsewhere)), sum(map(_is_tar, elsewhere))
    links = runs = 0
    itself = os.path.realpath(address_of(str(apart_from)))
    # Links to folders may lead to one of them in several ways.
    for folder in _outermost(set(map(os.path.realpath, _folders_of(sources)))):
        for place, folders, files in os.walk(folder):
            archives += sum(_is_archive(name) for name in files)
            tars += sum(_is_tar(name) for name in files)
            links += sum(Path(place, name).is_symlink() for name in folders)
            runs += place != itself and _is_of_run(Path(place, LIST))
    return PassedOver(archives, tars, links, runs)


def _folders_of(sources: Iterable[str]) -> list[str]:
    """Return the folders of this machine that sources are, or that patterns match, none of them below another."""
    folders: set[str] = set()
    for source in sources:
        path = address_of(source)
        if not is_remote(source):
            matches = [path] if Path(path).exists() or not has_magic(source) else glob(path, recursive=True)  # noqa: PTH207
            folders.update(match.rstrip(os.sep) or os.sep for match in matches if Path(match).is_dir())
    return _outermost(folders)


def _outermost(folders: Iterable[str]) -> list[str]:
    """Return folders without those that lie below another of them."""
    outer: list[str] = []
    for folder in sorted(folders, key=lambda folder: folder.replace(os.sep, "/").split("/")):
        if not outer or not folder.startswith((f"{outer[-1]}/", f"{outer[-1]}{os.sep}")):
            outer.append(folder)
    return outer


def _is_archive(name: str) -> bool:
    return name.lower().endswith(_ARCHIVE)


def _is_tar(name: str) -> bool:
    return name.lower().endswith(_TAR)


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


def _key(file: Listed) -> _Key:
    return file.url, file.member or "", file.path_hex or ""


def _files_of(source: str, retries: int) -> Iterator[Listed]:
    if is_remote(source):
        yield from _files_elsewhere(source, retries)
        return
    path = Path(address_of(source))
    if path.is_dir():
        yield from (_file(trace) for trace in traces_in(str(path), onerror=_refuse) if not _is_of_run(Path(trace)))
    elif path.suffix == MANIFEST and (path.is_file() or not path.exists()):
        yield from _files_of_manifest(path)
    elif path.exists() or not has_magic(source):
        yield from _file_or_members(path)
    else:
        matches = [Path(match) for match in glob(str(path), recursive=True)]  # noqa: PTH207 - it may begin anywhere
        for match in matches:
            if not match.is_dir():
                yield from _file_or_members(match)
        # As if a shell had written them out.
        for folder in _outermost(str(match) for match in matches if match.is_dir()):
            yield from _files_of(folder, retries)


def _file_or_members(path: Path) -> Iterator[Listed]:
    """Yield a file that was named, or the recordings in it."""
    if path.exists() and not path.is_file():
        # Reading a pipe may never end; judging it says what it is.
        yield _file(str(path))
    elif _is_archive(path.name):
        yield from _members(_file(str(path)), path)
    elif _is_tar(path.name):
        raise _no_tar(str(path))
    elif path.exists() or path.is_symlink():
        yield _file(str(path))


def _no_tar(shown: str) -> TorchprofError:
    text = f"{shown}: tar archives are not read: a recording in one is found only by unpacking all before it"
    return TorchprofError(f"{text}. Unpack it and name the folder, or pack a ZIP archive.", Code.RECORDING_UNREADABLE)


def _files_elsewhere(source: str, retries: int) -> Iterator[Listed]:
    refuse_unreachable(source)
    if source.endswith(MANIFEST):
        content = asked(source, lambda: read_at(source), retries)
        yield from _files_of_lines(content, source, source.rpartition("/")[0])
        return
    named, *folders = _named_and_in_folders(source, retries)
    for file in named:
        yield from _file_or_members_elsewhere(file, retries)
    for files in folders:
        yield from _files_in(files)


def _named_and_in_folders(source: str, retries: int) -> list[Sequence[RemoteFile]]:
    """Return the files that an address or a pattern of addresses names, and those of each folder that it names."""
    # In the addresses of web servers a question mark begins what is asked for.
    is_pattern = "*" in source if protocol_of(source) in ("http", "https") else has_magic(source)
    if is_pattern:
        matches, folders = asked(source, lambda: matches_at(source, retries=retries), retries=0)
        below = [asked(folder, partial(files_at, folder, retries=retries), retries=0) for folder in _outermost(folders)]
        return [matches, *below]
    files = asked(source, lambda: files_at(source, retries=retries), retries=0)
    return [files] if [file.address for file in files] == [source] else [(), files]


def _in_folders(source: str, retries: int) -> list[RemoteFile]:
    """Return the files of the folders behind an address."""
    return [] if source.endswith(MANIFEST) else [*chain.from_iterable(_named_and_in_folders(source, retries)[1:])]


def _files_in(files: Sequence[RemoteFile]) -> Iterator[Listed]:
    """Yield the files of a folder that may be recordings."""
    repeats = {stacks_name(file.address) for file in files}
    for file in files:
        if may_be_recording(file.address) and file.address not in repeats:
            yield _listed_elsewhere(file)


def _listed_elsewhere(file: RemoteFile) -> Listed:
    return Listed(url=file.address, size=file.size, etag=file.version)


def _file_or_members_elsewhere(file: RemoteFile, retries: int) -> Iterable[Listed]:
    own = _listed_elsewhere(file)
    if _is_tar(file.address):
        raise _no_tar(own.shown)
    return asked(file.address, partial(_members_elsewhere, own), retries) if _is_archive(file.address) else [own]


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
                if may_be_recording(member.filename) and not is_stacks_name(member.filename)
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


def _text_of(value: msgspec.Raw) -> str | None:
    """Return what a manifest says as text: numbers, lists and the like as JSON; None where it says nothing."""
    own = msgspec.json.decode(value)
    return own if own is None or isinstance(own, str) else bytes(value).decode()


def _file_of_line(where: str, folder: str, line: bytes) -> Listed:
    try:
        own = msgspec.json.decode(line, type=_ManifestLine)
        metadata = msgspec.json.decode(line, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, UnicodeDecodeError) as problem:
        text = f'{where}: expected an object with "url", and perhaps "size" and "etag": {problem}'
        raise TorchprofError(text, Code.BAD_USAGE) from None
    others = {name: value for name, value in metadata.items() if name not in _ManifestLine.__struct_fields__}
    texts = ((name, _text_of(value)) for name, value in others.items())
    known: dict[str, Any] = {"metadata": {name: text for name, text in texts if text is not None}}
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
