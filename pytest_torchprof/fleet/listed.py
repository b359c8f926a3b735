"""One file of a run's list: here, in an archive, or elsewhere."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from pytest_torchprof.system.remote.addresses import is_remote, without_local_protocol
from pytest_torchprof.system.remote.files import file_at
from pytest_torchprof.text import without_passwords

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pytest_torchprof.system.remote.files import RemoteFile


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
    """The further entries of a manifest about it."""

    @property
    def name(self) -> str:
        """The name for people: never with a password."""
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


def file_at_path(path: str, more: Mapping[str, Any] | None = None) -> Listed:
    """Return a file as it is now; one that is not there is listed all the same."""
    url = written(path)
    name = {"url": url, "path_hex": None if url == path else os.fsencode(path).hex()}
    try:
        stat = Path(path).stat()
    except OSError:
        return Listed(**{**name, **(more or {})})
    return Listed(**{**name, "size": stat.st_size, "changed": stat.st_mtime_ns, **(more or {})})


def file_elsewhere(file: RemoteFile) -> Listed:
    return Listed(url=file.address, size=file.size, etag=file.version)


def is_as_listed(file: Listed) -> bool:
    """Whether a file that is there is the one that was listed; FileNotFoundError where it is not there.

    Raises what the store's library raises of an address.
    """
    if file.is_remote:
        now = file_at(file.url)
        same_size = file.member is not None or None in (file.size, now.size) or file.size == now.size
        return same_size and file.etag in (None, now.version)
    stat = os.stat(file.path)  # noqa: PTH116 - a Path takes as long again, and each file is asked twice
    return (stat.st_size == file.size or file.member is not None) and stat.st_mtime_ns == file.changed


def written(path: str) -> str:
    """Return a path as JSON can hold it: bytes that are no UTF-8 are written out."""
    return os.fsencode(path).decode(errors="backslashreplace")


def from_root(path: str | Path) -> Path:
    """Return a path from the root, through the same links."""
    return Path(os.path.abspath(path))  # noqa: PTH100 - resolve() would follow links


def address_of(source: str) -> str:
    """Return a source in a form that means the same from any folder."""
    return source if is_remote(source) else str(from_root(without_local_protocol(source)))


def outermost(folders: Iterable[str]) -> list[str]:
    """Return folders without those that lie below another of them."""
    outer: list[str] = []
    for folder in sorted(folders, key=lambda folder: folder.replace(os.sep, "/").split("/")):
        if not outer or not folder.startswith((f"{outer[-1]}/", f"{outer[-1]}{os.sep}")):
            outer.append(folder)
    return outer
