"""The report on all records of a run, as data."""

from __future__ import annotations

import shlex
from pathlib import PurePosixPath
from typing import Final

from msgspec import Struct

from pytest_torchprof.fleet.summary import FleetSummary  # noqa: TC001  (the type of a field, which msgspec looks up)
from pytest_torchprof.reasons import decoding  # noqa: TC001  (as above)
from pytest_torchprof.system.remote.addresses import is_remote

SCHEMA: Final = 1
_FETCH: Final = "import sys, fsspec; files, path = fsspec.url_to_fs(sys.argv[1]); files.get_file(path, sys.argv[2])"
"""A program that copies what is behind an address into a file."""


class Quantiles(Struct, frozen=True, kw_only=True):
    """How a number lies over files."""

    count: int
    """The number of files of which it is known."""
    p10: float
    median: float
    p90: float
    highest: float


class GroupRow(Struct, frozen=True, kw_only=True):
    """The files that have one thing in common."""

    value: str | None
    """The value that they have in common; None if it is not known, or if no rule fits them."""
    listed: int
    """How many of them have a record."""
    judged: int
    hold: int
    missed: int
    without_limits: int
    not_measured: int
    quarantined: int
    numbers: dict[str, Quantiles]
    findings: dict[str, int]
    """How many files have each finding, the most frequent first."""


class FindingRow(Struct, frozen=True, kw_only=True):
    """One finding over all files."""

    code: str
    title: str
    severity: str
    files: int
    saves_us: Quantiles
    """The most that could be saved in a file."""
    worst: str
    """The name of the file where that is most."""


class OtherStructure(Struct, frozen=True, kw_only=True):
    """A file that launches other kernels, or in another order, than most files of its group."""

    name: str
    url: str
    member: str | None
    model: str | None
    gpu: str | None
    torch: str | None
    structure: str
    of_majority: str
    """A file with the structure that most files of the group have."""
    majority: int
    """How many have it."""
    group: int
    """How many files the group has."""
    command: str
    """The command that shows how it differs."""


class DividedGroup(Struct, frozen=True, kw_only=True):
    """Files that should launch the same kernels, and of which no structure is that of more than half."""

    model: str | None
    gpu: str | None
    torch: str | None
    rule: str | None
    rank: int | None
    files: int
    structures: int
    """How many different ones they have."""


class WorstFile(Struct, frozen=True, kw_only=True):
    """A file to be looked at first."""

    name: str
    url: str
    member: str | None
    outcome: str
    limits_missed: tuple[str, ...]
    finding: str | None
    """The code of the finding by which most time could be saved; None where there is none."""
    saves_us: float
    command: str
    """The command that opens it."""


class NotJudged(Struct, frozen=True, kw_only=True):
    """A file that is not measured or quarantined."""

    name: str
    url: str
    member: str | None
    quarantined: bool
    code: str
    why: str
    """The reason in words."""
    reason: decoding.AnyReason | None = None
    """The same as data; None where it is not known, as in reports of earlier versions."""


class JobRow(Struct, frozen=True, kw_only=True):
    """A job whose ranks are among the files."""

    name: str
    ranks: int
    files: int
    """How many ranks have a recording."""
    missing: tuple[int, ...]
    """The ranks that have none."""
    outcome: str
    limits_missed: tuple[str, ...]
    findings: tuple[str, ...]
    skew_us: float | None
    """The median over its collectives from the first rank's start to the last one's."""
    late: int | None
    """The rank that keeps the others waiting."""
    why: str
    """Why it is not judged, in words; empty if it is."""
    reason: decoding.AnyReason | None = None
    """The same as data; None in reports of earlier versions, too."""


class FleetReport(Struct, frozen=True, kw_only=True):
    """The facts that all records of a run show together."""

    schema: int = SCHEMA
    left: int
    """How many of the files listed have no record yet."""
    summary: FleetSummary
    """The number of files listed, and what those came to that have a record."""
    groups: dict[str, tuple[GroupRow, ...]]
    """The groups by what their files have in common: model, gpu, torch, or a key of a manifest."""
    findings: tuple[FindingRow, ...]
    other_structures: tuple[OtherStructure, ...]
    without_majority: int
    """How many groups have several structures, none of which more than half of their files have."""
    divided: tuple[DividedGroup, ...] = ()
    """The groups without a majority, the largest first."""
    worst: tuple[WorstFile, ...]
    not_judged: tuple[NotJudged, ...]
    jobs: tuple[JobRow, ...]
    """The jobs whose ranks are among the files; none while files are left."""


def opening(command: str, *files: tuple[str, str | None]) -> str:
    """Return the line for a shell that opens files with a command, after fetching and unpacking what has to be."""
    names = [PurePosixPath(url.partition("?")[0] if member is None else member).name for url, member in files]
    if len({*names}) < len(names):
        names = [f"{number}-{name}" for number, name in enumerate(names, 1)]
    copied = [_copied(url, member, name) for (url, member), name in zip(files, names, strict=True)]
    paths = [url if copy is None else name for (url, _), name, copy in zip(files, names, copied, strict=True)]
    return " && ".join([*filter(None, copied), shlex.join(["torchprof", command, *paths])])


def _copied(url: str, member: str | None, name: str) -> str | None:
    """Return the line that copies a file into the current folder; None where it can be opened as it is."""
    if is_remote(url):
        source = url if member is None else f"zip://{member}::{url}"
        return shlex.join(["python", "-c", _FETCH, source, name])
    return None if member is None else f"unzip -p {shlex.quote(url)} {shlex.quote(member)} > {shlex.quote(name)}"
