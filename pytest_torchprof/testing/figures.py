"""The records of runs beside the recordings that they keep: the figures of all that was measured."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pytest_torchprof.history.folder import HistoryFolder
from pytest_torchprof.history.record import BadRecord, RunRecord
from pytest_torchprof.history.store import StoreUnusable, records_of

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_torchprof.testing.options import RunOptions

FIGURES: Final = "figures"
"""The folder within that of ``--torchprof-save``."""


def figures_folder(options: RunOptions) -> HistoryFolder | None:
    """Return where the record of a run goes; None where nothing is to be kept."""
    if options.keep is None or options.save is None:
        return None
    return HistoryFolder(options.save / FIGURES)


def former_structures(saved: Path) -> dict[tuple[str, str | None, int | None], str | None]:
    """Return the structure that each measurement launched when a run last had it; unreadable records tell nothing."""
    try:
        records = [record for record in records_of(HistoryFolder(saved / FIGURES)) if not isinstance(record, BadRecord)]
    except StoreUnusable:
        return {}
    return {
        (measured.test, measured.label, measured.rank): measured.structure
        for record in sorted(records, key=_began)
        for measured in record.measurements
    }


def _began(record: RunRecord) -> float:
    return record.began.timestamp()
