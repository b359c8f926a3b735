"""Files behind addresses: which there are, what they are now, and copies of them on this machine."""

from __future__ import annotations

from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from pytest_torchprof.system.remote.addresses import protocol_of
from pytest_torchprof.system.remote.patience import is_missing, patiently

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

_WITHOUT_FOLDERS: Final = ("http", "https")
TRIES: Final = 3
"""How often each request of an object store is made at once, before anything else is done about it."""
_VERSIONS: Final = ("ETag", "etag", "blob_id", "md5Hash", "Content-MD5", "Digest")
"""What stores call a version of a file, the likeliest first."""
_TIMES: Final = ("LastModified", "last_modified", "updated", "mtime", "Last-Modified", "created")
"""What they call the time of its last change."""


class RemoteFile(Struct, frozen=True):
    """A file as its store has it now."""

    address: str
    size: int | None
    """In bytes; None where the store does not say."""
    version: str | None
    """Another one for another content: the ETag, or when it was changed; None where the store does not say."""


def matches_at(pattern: str, *, retries: int) -> tuple[list[RemoteFile], list[str]]:
    """Return the files that fit a pattern, and the addresses of the folders that do.

    There may be none. Each request is made up to ``retries`` times more. Raises what the store's library raises.
    """
    files, path = _opened(pattern)
    try:
        matches = patiently(lambda: files.glob(path, detail=True), retries).values()
    except FileNotFoundError as problem:
        if is_missing(problem):
            return [], []
        raise
    folders = [_address(pattern, info["name"]) for info in matches if info["type"] == "directory"]
    return _files(pattern, matches), folders


def files_at(address: str, *, retries: int) -> list[RemoteFile]:
    """Return the files that an address means: those below a folder, or the file itself; otherwise as ``matches_at``."""
    files, path = _opened(address)
    try:
        # A web server has no folders, and calls one so by its address alone.
        if not address.endswith("/") and (info := patiently(lambda: files.info(path), retries))["type"] != "directory":
            return [_file(info, address)]
        if protocol_of(address) in _WITHOUT_FOLDERS:
            return _files(address, _walked(files, path, retries))
        return _files(address, patiently(lambda: files.find(path, detail=True), retries).values())
    except FileNotFoundError as problem:
        if is_missing(problem):
            return []
        raise


def _walked(files: Any, path: str, retries: int) -> Iterator[Mapping[str, Any]]:
    """Yield the files that the pages of a web server lead to, below a page; each page is asked for until it comes.

    Asked for as a whole, a refusal of one page would ask for all of them again.
    """
    seen, to_do = {path}, [path]
    while to_do:
        page = to_do.pop()
        for info in patiently(partial(files.ls, page, detail=True), retries):
            name = info["name"]
            if info["type"] != "directory":
                yield info
            elif name.startswith(path) and name not in seen:
                seen.add(name)
                to_do.append(name)


def file_at(address: str) -> RemoteFile:
    """Return a file's present state; raises the store library's errors, FileNotFoundError where there is none."""
    files, path = _opened(address)
    return _file(files.info(path), address)


def read_at(address: str) -> bytes:
    """Return the content of a small file."""
    files, path = _opened(address)
    content: bytes = files.cat_file(path)
    return content


def fetch(address: str, path: Path) -> None:
    """Copy a file to this machine, in pieces."""
    files, remote = _opened(address)
    files.get_file(remote, str(path))


def reading(address: str) -> Any:
    """Return a file that is open for reading; only the parts that are read are fetched."""
    files, path = _opened(address)
    return files.open(path, "rb")


def bare_version(version: str) -> str:
    """Return an ETag as all stores mean it, however it is written: without its quotes."""
    return version.removeprefix("W/").strip('"')


def _opened(address: str) -> tuple[Any, str]:
    from pytest_torchprof.system.remote.opening import opened  # noqa: PLC0415 - fsspec is optional

    return opened(address, tries=TRIES)


def _files(source: str, infos: Iterable[Mapping[str, Any]]) -> list[RemoteFile]:
    return [_file(info, _address(source, info["name"])) for info in infos if info["type"] == "file"]


def _address(source: str, name: str) -> str:
    # Of web servers the name is the address.
    return name if "://" in name else f"{protocol_of(source)}://{name.lstrip('/')}"


def _file(info: Mapping[str, Any], address: str) -> RemoteFile:
    known = next((info[name] for name in (*_VERSIONS, *_TIMES) if info.get(name)), None)
    return RemoteFile(address, info.get("size"), None if known is None else bare_version(_text(known)))


def _text(version: object) -> str:
    """Return a version in one form: a listing and the file itself may write the same time differently."""
    instant = version.timestamp() if isinstance(version, datetime) else version
    return f"{instant:.6f}" if isinstance(instant, float) else str(instant)
