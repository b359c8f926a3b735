"""A prefix of an object store, by fsspec: an object for each record, written once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from fsspec import url_to_fs
from fsspec.config import conf

from pytest_torchprof.history.guarding import guarding, reason_without_secrets
from pytest_torchprof.history.record import SUFFIX, BadRecord, RunRecord, decode, encode
from pytest_torchprof.history.store import another_of_the_same_id

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

    from pytest_torchprof.history.where import Where

_AT_ONCE: Final = 16
"""How many objects are fetched together, and held in memory."""


_S3: Final = "s3"
# s3fs itself tries again whatever is worth it; botocore's tries in each of its own would make minutes of seconds.
_ONE_TRY: Final = {"retries": {"total_max_attempts": 1}}


class HistoryObjects:
    """The records below a prefix; any number of processes may write to it at once."""

    files: tuple[Path, ...] = ()

    def __init__(self, where: Where) -> None:
        """Name the store; it is reached when it is asked."""
        self.shown = where.shown
        self._where = where

    @property
    def is_there(self) -> bool:
        """Whether a record is below the prefix; StoreUnusable where that cannot be told."""
        with guarding(self._where, "cannot be read"):
            files, prefix = self._opened()
            return bool(_names(files, prefix))

    def add(self, record: RunRecord) -> bool:
        """Keep a record, and return whether it was new.

        Raises BadRecord where another one of the same id is there, StoreUnusable if it cannot be written.
        """
        with guarding(self._where, "cannot be written"):
            files, prefix = self._opened()
            name = f"{prefix}/{record.uuid}{SUFFIX}"
            try:
                files.pipe_file(name, encode(record), mode="create")
            except FileExistsError:
                known: bytes = files.cat_file(name)
            else:
                return True
        shown = f"{self.shown}/{record.uuid}{SUFFIX}"
        if decode(known, shown) == record:
            return False
        raise another_of_the_same_id(shown)

    def packed(self) -> Generator[tuple[str, bytes] | BadRecord]:
        """Yield name and content of each object by their names, and what is wrong with one that cannot be read."""
        with guarding(self._where, "cannot be read"):
            files, prefix = self._opened()
            names = _names(files, prefix)
        for at in range(0, len(names), _AT_ONCE):
            some = names[at : at + _AT_ONCE]
            with guarding(self._where, "cannot be read"):
                # The one way to fetch several that takes names as they are, and not as patterns.
                contents = files.cat_ranges(some, [None] * len(some), [None] * len(some), on_error="return")
                self._refuse_cut_connection(contents)
            for name, content in zip(some, contents, strict=True):
                shown = f"{self.shown}/{name.rpartition('/')[2]}"
                if isinstance(content, Exception):
                    yield BadRecord(f"{shown}: cannot be read: {reason_without_secrets(content, self._where)}")
                else:
                    yield shown, content

    def _refuse_cut_connection(self, contents: list[bytes | Exception]) -> None:
        """Raise what is wrong with the connection, and not with one object: the answer would be that of a part."""
        for content in contents:
            if isinstance(content, Exception) and not isinstance(content, FileNotFoundError | PermissionError):
                raise content

    def _opened(self) -> tuple[Any, str]:
        files, prefix = url_to_fs(self._where.address, **self._settings())
        # What others have written meanwhile counts.
        files.invalidate_cache()
        return files, prefix.rstrip("/")

    def _settings(self) -> dict[str, Any]:
        """Return what differs from the user's own settings of fsspec."""
        if not self._where.address.startswith(f"{_S3}://"):
            return {}
        return {"config_kwargs": {**_ONE_TRY, **conf.get(_S3, {}).get("config_kwargs", {})}}


def _names(files: Any, prefix: str) -> list[str]:
    try:
        listed = files.ls(prefix, detail=False)
    except FileNotFoundError:
        return []
    return sorted(name for name in listed if name.endswith(SUFFIX))
