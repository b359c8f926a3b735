"""A folder of records: each lies in a file of its own, which is written once and never changed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct

from pytest_torchprof.history.record import SUFFIX, BadRecord, RunRecord, encode, read
from pytest_torchprof.history.sources import record_in
from pytest_torchprof.system.replacing import replacing

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

OUTBOX: Final = ".torchprof/outbox"
"""Where records wait that a history could not take, below pytest's root directory."""


class HistoryFolder(Struct, frozen=True):
    """Where the records of a project's runs lie; any number of processes may write to it at once."""

    path: Path

    @property
    def files(self) -> list[Path]:
        """Its files by their names."""
        return sorted(self.path.glob(f"*{SUFFIX}"))

    def add(self, record: RunRecord) -> bool:
        """Keep a record, and return whether it was new.

        Raises BadRecord where the folder has another one of the same id, OSError if it cannot be written.
        """
        file = self.path / f"{record.uuid}{SUFFIX}"
        self.path.mkdir(parents=True, exist_ok=True)
        if file.exists():
            if read(file) == record:
                return False
            raise BadRecord(f"{file} is another record of the same id, and stays as it is")
        with replacing(file, lasting=True) as unfinished:
            unfinished.write_bytes(encode(record))
        return True

    def remove(self, record: RunRecord) -> None:
        """Remove a record that lies elsewhere by now."""
        (self.path / f"{record.uuid}{SUFFIX}").unlink(missing_ok=True)

    def records(self) -> Iterator[RunRecord | BadRecord]:
        """Yield its records, and for each file that cannot be believed what is wrong with it, by their names."""
        yield from map(record_in, self.files)
