"""The groups of files: of one key, of one finding, and of those that should launch the same kernels."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Final

from msgspec import Struct, field

from pytest_torchprof.fleet.report import DividedGroup, FindingRow, GroupRow, OtherStructure, Quantiles, opening
from pytest_torchprof.fleet.rows import NUMBERS, USUAL
from pytest_torchprof.fleet.summary import FleetTally
from pytest_torchprof.report.outcome import Outcome

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pytest_torchprof.findings import Finding
    from pytest_torchprof.fleet.judging import FileRecord


class FileGroup:
    """The files of one group."""

    def __init__(self, version: str) -> None:
        self._tally = FleetTally(version)
        self._numbers = {number: array("d") for number in NUMBERS}

    def see(self, record: FileRecord) -> None:
        """Count a file of it."""
        self._tally.see(record)
        result = record.result
        if result is None or result.outcome is Outcome.NOT_MEASURED or result.summary is None:
            return
        for number, values in self._numbers.items():
            if (value := getattr(result.summary, number)) is not None:
                values.append(value)

    def row(self, value: str | None) -> GroupRow:
        """Return it as a row; ``value``: the value that its files share."""
        summary = self._tally.summary()
        return GroupRow(
            value=value,
            **{name: getattr(summary, name) for name in _COUNTS},
            numbers={number: quantiles(values) for number, values in self._numbers.items() if values},
            findings=dict(sorted(summary.findings.items(), key=lambda row: (-row[1], row[0]))),
        )


_COUNTS: Final = ("listed", "judged", "hold", "missed", "without_limits", "not_measured", "quarantined")


class FindingOfFiles:
    """One finding over the files."""

    def __init__(self, finding: Finding) -> None:
        self._kind = type(finding)
        self._code = finding.code
        self._saves_us = array("d")
        self._worst = (-1.0, "")

    def see(self, finding: Finding, name: str) -> None:
        """Count a file that has it, by the file's name."""
        self._saves_us.append(finding.saves_us)
        if finding.saves_us > self._worst[0]:
            self._worst = finding.saves_us, name

    def row(self) -> FindingRow:
        """Return it as a row."""
        return FindingRow(
            code=self._code,
            title=self._kind.TITLE,
            severity=self._kind.SEVERITY,
            files=len(self._saves_us),
            saves_us=quantiles(self._saves_us),
            worst=self._worst[1],
        )


class Alike(Struct):
    """Files that should launch the same kernels: of one model, GPU and torch, of which the same is asked."""

    values: tuple[str | None, ...]
    rule: str | None
    rank: int | None
    members: dict[str, list[tuple[str, str, str | None]]] = field(default_factory=dict)
    """Name, path and member by structure."""

    def see(self, structure: str, name: str, url: str, member: str | None) -> None:
        """Add a file by its launches."""
        self.members.setdefault(structure, []).append((name, url, member))

    @property
    def majority(self) -> str | None:
        """The structure of more than half of the files; None where there is none."""
        structure = max(self.members, key=lambda structure: len(self.members[structure]))
        return structure if 2 * len(self.members[structure]) > self.count else None

    @property
    def count(self) -> int:
        """How many files there are."""
        return sum(map(len, self.members.values()))

    @property
    def is_divided(self) -> bool:
        """Whether there are several structures, and no majority."""
        return len(self.members) > 1 and self.majority is None

    def divided(self) -> DividedGroup:
        """Return the group as a row, given that it is divided."""
        return DividedGroup(
            **dict(zip(USUAL, self.values, strict=True)),
            rule=self.rule,
            rank=self.rank,
            files=self.count,
            structures=len(self.members),
        )

    def others(self) -> Iterable[OtherStructure]:
        """Yield the files that are not of the majority."""
        if len(self.members) == 1 or (majority := self.majority) is None:
            return
        usual, usual_url, usual_member = self.members[majority][0]
        for structure, files in self.members.items():
            for name, url, member in files if structure != majority else ():
                yield OtherStructure(
                    name=name,
                    url=url,
                    member=member,
                    **dict(zip(USUAL, self.values, strict=True)),
                    structure=structure,
                    of_majority=usual,
                    majority=len(self.members[majority]),
                    group=self.count,
                    command=opening("diff", (usual_url, usual_member), (url, member)),
                )


def quantiles(values: Sequence[float]) -> Quantiles:
    """Return the quantiles of at least one value: each a value that is there, or midway between two."""
    ordered = sorted(values)

    def at(share: float) -> float:
        position = share * (len(ordered) - 1)
        below = int(position)
        above = min(below + 1, len(ordered) - 1)
        return ordered[below] + (position - below) * (ordered[above] - ordered[below])

    return Quantiles(count=len(ordered), p10=at(0.1), median=at(0.5), p90=at(0.9), highest=ordered[-1])


def group_rows(groups: Mapping[str | None, FileGroup]) -> tuple[GroupRow, ...]:
    """Return the groups, those that missed most limits first."""
    rows = [group.row(value) for value, group in groups.items()]
    return tuple(sorted(rows, key=lambda row: (-row.missed, -row.listed, row.value is None, row.value or "")))
