"""Recordings that lie elsewhere: in object stores and on web servers, by whatever fsspec reaches."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from glob import has_magic
from itertools import chain
from typing import TYPE_CHECKING, Final, TypeVar

from pytest_torchprof.fleet.listed import outermost
from pytest_torchprof.reasons.errors import TorchprofError
from pytest_torchprof.reasons.fleet_sources import NothingThere
from pytest_torchprof.reasons.fleet_stores import AddressNotRead, AddressUnusable, LibraryMissing, ServerWithoutRanges
from pytest_torchprof.system.remote.addresses import MODULES, install_command, not_installed, protocol_of
from pytest_torchprof.system.remote.files import file_at, files_at, matches_at
from pytest_torchprof.system.remote.guarding import guarded
from pytest_torchprof.system.remote.patience import is_missing, patiently
from pytest_torchprof.text import without_passwords

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pytest_torchprof.system.remote.files import RemoteFile

_Answer = TypeVar("_Answer")
_AT_ONCE: Final = 16
"""How many files are asked for together."""

_OF_NO_PARTS: Final = ("support range requests", "Cannot seek streaming HTTP file")
"""What fsspec says of web servers that send files only as a whole, in its own advice."""


def refuse_unreachable(address: str) -> None:
    """Raise TorchprofError if the library that reads an address is not installed."""
    if missing := not_installed(dict.fromkeys(["fsspec", MODULES.get(protocol_of(address), "fsspec")])):
        lacking = LibraryMissing(without_passwords(address), missing, install_command(missing, "fleet"))
        raise TorchprofError.because(lacking)


def asked(address: str, ask: Callable[[], _Answer], retries: int) -> _Answer:
    """Return the answer of a store, which is asked again where it gives none; TorchprofError if it never does."""

    def refusal(why: str, problem: Exception) -> TorchprofError:
        shown = without_passwords(address)
        if is_missing(problem):
            return TorchprofError.because(NothingThere(shown))
        if any(text in why for text in _OF_NO_PARTS):
            return TorchprofError.because(ServerWithoutRanges(shown))
        kind = AddressUnusable if isinstance(problem, ImportError | ValueError) else AddressNotRead
        return TorchprofError.because(kind(shown, why))

    with guarded(address, refusal):
        return patiently(ask, retries)


def files_now(addresses: Sequence[str], retries: int) -> dict[str, RemoteFile]:
    """Return files as they are now, by their addresses; those that are gone are left out."""

    def now(address: str) -> RemoteFile | None:
        try:
            return file_at(address)
        except FileNotFoundError as problem:
            if is_missing(problem):
                return None
            raise

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        files = pool.map(lambda address: asked(address, lambda: now(address), retries), addresses)
        return {address: file for address, file in zip(addresses, files, strict=True) if file is not None}


class Elsewhere:
    """The files behind addresses; each address is listed once, since a store may take minutes to list a folder."""

    def __init__(self, retries: int) -> None:
        """``retries``: how often a store is asked again."""
        self.retries = retries
        self._known: dict[str, list[Sequence[RemoteFile]]] = {}

    def at(self, source: str) -> list[Sequence[RemoteFile]]:
        """Return the files that an address or a pattern of addresses names, and those of each folder that it names."""
        if source not in self._known:
            self._known[source] = self._listed(source)
        return self._known[source]

    def named(self, source: str) -> Sequence[RemoteFile]:
        """Return the files that an address or a pattern of addresses names itself."""
        return self.at(source)[0]

    def in_folders(self, source: str) -> Iterator[RemoteFile]:
        """Yield the files of the folders behind an address."""
        return chain.from_iterable(self.at(source)[1:])

    def _listed(self, source: str) -> list[Sequence[RemoteFile]]:
        # In the addresses of web servers a question mark begins what is asked for.
        is_pattern = "*" in source if protocol_of(source) in ("http", "https") else has_magic(source)
        if is_pattern:
            matches, folders = asked(source, lambda: matches_at(source, retries=self.retries), retries=0)
            return [matches, *(self._below(folder) for folder in outermost(folders))]
        files = self._below(source)
        return [files] if [file.address for file in files] == [source] else [(), files]

    def _below(self, address: str) -> Sequence[RemoteFile]:
        return asked(address, lambda: files_at(address, retries=self.retries), retries=0)
