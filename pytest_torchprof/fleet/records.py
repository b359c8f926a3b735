"""The records of a run: in which part each lies, and how they are read."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, BinaryIO, Final, TypeVar

import msgspec
from msgspec import Struct

from pytest_torchprof.analysis.ranks import RankPart  # noqa: TC001 - msgspec reads the annotations
from pytest_torchprof.fleet.judging import FileRecord, SomeReason
from pytest_torchprof.reasons.errors import TorchprofError
from pytest_torchprof.reasons.fleet_folders import FleetRecordDamaged

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path


_Kind = TypeVar("_Kind")


class RecordSpan(Struct, frozen=True, array_like=True):
    """Where a record lies."""

    is_quarantined: bool
    part: str
    at: int
    length: int


class _KeyInLine(Struct, frozen=True):
    key: str
    quarantined: SomeReason | None = None


class _PartInLine(Struct, frozen=True):
    part: RankPart | None = None


class Records(Struct, frozen=True, kw_only=True):
    """Where the records of a run lie."""

    path: Path
    spans: dict[str, RecordSpan]

    def each(
        self, keys: Iterable[str], see: Callable[[FileRecord], None], copied: BinaryIO | None = None
    ) -> Iterator[FileRecord]:
        """Yield the records of these keys, after ``see`` was called with each; their lines are ``copied`` to a file."""
        for line in self.lines(keys):
            if copied is not None:
                copied.write(line + b"\n")
            record = self.decoded(line, FileRecord)
            see(record)
            yield record

    def parts(self, keys: Iterable[str]) -> Iterator[RankPart]:
        """Yield the rank's part of each file of these keys that has one."""
        for line in self.lines(keys):
            part = self.decoded(line, _PartInLine).part
            if part is not None:
                yield part

    def decoded(self, line: bytes, kind: type[_Kind]) -> _Kind:
        """Return a record; TorchprofError for one that was damaged, although it still is JSON."""
        try:
            return msgspec.json.decode(line, type=kind)
        except msgspec.DecodeError as problem:
            part = self.path / self.spans[msgspec.json.decode(line, type=_KeyInLine).key].part
            raise TorchprofError.because(FleetRecordDamaged(str(part), str(problem))) from None

    def lines(self, keys: Iterable[str]) -> Iterator[bytes]:
        """Yield the records of these keys, encoded."""
        opened: dict[str, BinaryIO] = {}
        with ExitStack() as stack:
            for key in keys:
                span = self.spans[key]
                if span.part not in opened:
                    if len(opened) >= _MOST_OPEN:
                        stack.close()
                        opened.clear()
                    opened[span.part] = stack.enter_context((self.path / span.part).open("rb"))
                yield read_line(opened[span.part], span)


_MOST_OPEN: Final = 200


def spans_in(part: str, file: BinaryIO) -> Iterator[tuple[str, RecordSpan]]:
    """Yield the key of each record in a part and where its line lies."""
    at = 0
    for line in file:
        own = msgspec.json.decode(line, type=_KeyInLine)
        yield own.key, RecordSpan(own.quarantined is not None, part, at, len(line))
        at += len(line)


def read_line(file: BinaryIO, span: RecordSpan) -> bytes:
    """Return the record that lies there in a part, encoded."""
    file.seek(span.at)
    return file.read(span.length).rstrip(b"\n")
