"""Rows of a database that do not say what its records say."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Mapping


class OtherRow(Struct, frozen=True, kw_only=True):
    """A row that is not the one that its record makes."""

    table: str
    row: str
    """Its key: the position of a measurement in its run, the id of another row."""
    columns: Mapping[str, tuple[object, object]] = {}
    """The differences, as the table and the record have them."""
    is_missing: bool = False
    """Whether the table does not have it."""
    of_no_record: bool = False
    """Whether no record makes such a row."""


class RowsDiffer(Struct, frozen=True, kw_only=True):
    """A record and its rows that say something else, one at least."""

    record: str
    """The run's id."""
    rows: tuple[OtherRow, ...]
