"""The prefix of an object store that a run writes to: parts appear whole, each by one request."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import Struct

from pytest_torchprof.fleet.remote import refuse_unreachable
from pytest_torchprof.history.where import OBJECT_STORES
from pytest_torchprof.reasons.errors import TorchprofError
from pytest_torchprof.reasons.fleet_folders import FleetNotRead, FleetNotWritten
from pytest_torchprof.reasons.fleet_stores import NoObjectStore
from pytest_torchprof.system.remote.addresses import protocol_of
from pytest_torchprof.system.remote.files import TRIES
from pytest_torchprof.system.remote.guarding import guarded
from pytest_torchprof.system.remote.patience import is_missing, patiently
from pytest_torchprof.text import without_passwords

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pytest_torchprof.reasons.reason import Reason

_Answer = TypeVar("_Answer")


class Bucket(Struct, frozen=True):
    """A prefix of an object store; every error of its library is a TorchprofError."""

    address: str
    retries: int
    """How often a request is made again."""

    @property
    def shown(self) -> str:
        """The prefix as messages show it: never with a password."""
        return without_passwords(self.address)

    def refuse_unusable(self) -> None:
        """Raise TorchprofError if objects of its store do not appear whole, or if its library is not installed."""
        if protocol_of(self.address) not in OBJECT_STORES:
            raise TorchprofError.because(NoObjectStore(self.shown, tuple(OBJECT_STORES)))
        refuse_unreachable(self.address)

    def names(self, folder: str) -> list[str]:
        """Return the names of the objects in a folder."""

        def listed() -> list[str]:
            files, path = self._opened(folder)
            try:
                return [name.rpartition("/")[2] for name in files.ls(path, detail=False)]
            except FileNotFoundError as problem:
                if is_missing(problem):
                    return []
                raise

        return self._asked(listed, self._not_read)

    def fetch(self, name: str, path: Path) -> bool:
        """Copy an object to this machine, and return whether there is one."""

        def fetched() -> bool:
            files, remote = self._opened(name)
            try:
                files.get_file(remote, str(path))
            except FileNotFoundError as problem:
                path.unlink(missing_ok=True)
                if is_missing(problem):
                    return False
                raise
            return True

        return self._asked(fetched, self._not_read)

    def put(self, name: str, path: Path) -> None:
        """Write an object, in the place of an earlier one of the same name."""

        def written() -> None:
            files, remote = self._opened(name)
            files.put_file(str(path), remote)

        self._asked(written, lambda why: FleetNotWritten(self.shown, why))

    def put_once(self, name: str, content: bytes) -> None:
        """Write an object that a run begins with, unless there is one of its name."""

        def written() -> None:
            files, remote = self._opened(name)
            try:
                files.pipe_file(remote, content, mode="create")
            except FileExistsError:
                return

        self._asked(written, lambda why: FleetNotWritten(self.shown, why, has_begun=False))

    def _opened(self, name: str) -> tuple[Any, str]:
        from pytest_torchprof.system.remote.opening import opened  # noqa: PLC0415 - fsspec is optional

        return opened(f"{self.address}/{name}", tries=TRIES)

    def _not_read(self, why: str) -> FleetNotRead:
        return FleetNotRead(self.shown, why)

    def _asked(self, ask: Callable[[], _Answer], failed: Callable[[str], Reason]) -> _Answer:
        def refusal(why: str, _: Exception) -> TorchprofError:
            return TorchprofError.because(failed(why))

        with guarded(self.address, refusal):
            return patiently(ask, self.retries)
