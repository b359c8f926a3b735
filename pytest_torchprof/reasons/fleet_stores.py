"""Reasons why a store does not serve a fleet: its library, its address, or what its server can do."""

from __future__ import annotations

from pytest_torchprof.reasons.codes import Code
from pytest_torchprof.reasons.reason import Reason
from pytest_torchprof.reasons.stores import LibrariesNotInstalled
from pytest_torchprof.text import enumerated


class LibraryMissing(Reason, frozen=True):
    """The library that an address or an option needs is not installed."""

    CODE = Code.BAD_USAGE
    FOR_THE_DOCTOR = False
    ADVICE = "install it with the command in the text"

    name: str
    """An address, or an option with its value."""
    modules: tuple[str, ...]
    """The missing modules."""
    command: str
    """The command that installs it."""

    @property
    def sentence(self) -> str:
        return f"{self.name}: {LibrariesNotInstalled(self.modules, self.command).sentence}"


class AddressNotRead(Reason, frozen=True):
    """A store does not give what is asked for."""

    CODE = Code.RECORDING_UNREADABLE
    FOR_THE_DOCTOR = False
    SENTENCE = "{address}: cannot be read: {error}"
    ADVICE = "look at what the store says; where it refuses only for now, ask more often with `--retries`"

    address: str
    error: str


class AddressUnusable(Reason, frozen=True):
    """The library of an address cannot be loaded, or takes it for no address of its own."""

    CODE = Code.BAD_USAGE
    FOR_THE_DOCTOR = False
    SENTENCE = AddressNotRead.SENTENCE
    MEANING = "no library reads such an address, or the one that should cannot be loaded"
    ADVICE = "correct the address, or install what the text names"

    address: str
    error: str


class ServerWithoutRanges(Reason, frozen=True):
    """A web server sends an archive only as a whole."""

    CODE = Code.RECORDING_UNREADABLE
    FOR_THE_DOCTOR = False
    SENTENCE = (
        "{address}: the archive cannot be read: its server sends files only as a whole, and an archive is read in "
        "parts. Copy it to this machine and name the copy."
    )
    ADVICE = "copy it to this machine and name the copy"

    address: str


class NoObjectStore(Reason, frozen=True):
    """A run is to write to an address at which objects do not appear whole."""

    CODE = Code.BAD_USAGE
    FOR_THE_DOCTOR = False
    ADVICE = "name one of those"

    into: str
    protocols: tuple[str, ...]
    """Of the stores that will do."""

    @property
    def sentence(self) -> str:
        forms = enumerated([f"{protocol}://..." for protocol in self.protocols])
        return f"--into {self.into}: expected a folder, or the prefix of an object store: {forms}"
