"""The recordings of one run: where each is written, which are kept, and where a replay reads them."""

from __future__ import annotations

import glob
import gzip
import hashlib
import re
import shutil
import tempfile
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_torchprof.capture.rank import Rank, rank_in, this_rank
from pytest_torchprof.reasons.errors import TorchprofError
from pytest_torchprof.reasons.errors import hide_our_frames as __tracebackhide__  # noqa: F401  (read by pytest)
from pytest_torchprof.recording.files import HIDDEN, hide, stacks_name
from pytest_torchprof.recording.reader import read
from pytest_torchprof.report.outcome import Outcome
from pytest_torchprof.system.replacing import replacing
from pytest_torchprof.testing.options import Keep

if TYPE_CHECKING:
    from collections.abc import Iterable
    from collections.abc import Set as AbstractSet

    from pytest_torchprof.report.result import Result
    from pytest_torchprof.testing.options import RunOptions

SUFFIX = ".json.gz"
STEM_LENGTH = 80
"""Characters to which the test id in a file name is cut: with a hash behind it, it fits every file system."""


class Recordings:
    """The files of one pytest process, one for each measurement."""

    def __init__(self, options: RunOptions, within: Path | None = None, *, keeps: bool = True) -> None:
        self._options = options
        self._keeps = keeps
        self._within = within
        self._scratch: tempfile.TemporaryDirectory[str] | None = None
        self._scratch_path = Path()

    def new_file(self, nodeid: str, label: str | None) -> Path:
        """Return where to write the recording of a measurement, before it is decided whether to keep it."""
        return self._scratch_folder / recording_name(nodeid, label, this_rank()).removesuffix(".gz")

    def new_stacks_file(self, nodeid: str, label: str | None) -> Path:
        """Return where to write the recording with stacks of a measurement."""
        name = stacks_name(recording_name(nodeid, label, this_rank()))
        return self._scratch_folder / name.removesuffix(".gz")

    def new_folder(self) -> Path:
        """Return an empty folder that is gone after the run."""
        return Path(tempfile.mkdtemp(prefix="adopted-", dir=self._scratch_folder))

    @property
    def _scratch_folder(self) -> Path:
        if self._scratch is None:
            # Files of a killed run are removed with the folder of the run that compares with a commit, if there is one.
            side = self._options.against
            folder = self._within or (None if side is None else side.results)
            self._scratch = tempfile.TemporaryDirectory(prefix="torchprof-", dir=folder, ignore_cleanup_errors=True)
            self._scratch_path = Path(self._scratch.name)
        return self._scratch_path

    def keep(self, recording: Path, result: Result, *, stacks: Path | None = None) -> Path | None:
        """Move the recording of a result to its final place: the folder of ``--torchprof-save``, or of failures.

        Else remove it: also where ``--torchprof-keep`` asks for less than all.

        ``stacks`` is the repeat's, which goes beside it. TorchprofError where the folder cannot be written.
        """
        failed, nodeid = result.outcome.is_failure, result.nodeid
        saved = self._options.save if self._is_saved(result) else None
        folder = saved or (self._options.rootdir / HIDDEN if failed else None) if self._keeps else None
        if folder is not None and saved is None and folder.is_symlink():
            from pytest_torchprof.reasons.not_written import RecordingBehindLink  # noqa: PLC0415 - for what fails alone

            raise TorchprofError.because(RecordingBehindLink(nodeid, str(folder)))
        target = folder / recording_name(nodeid, result.label, this_rank()) if folder is not None else None
        try:
            if target is not None:
                _move(recording, stacks, target)
        except OSError as error:
            from pytest_torchprof.reasons.not_written import RecordingNotKept  # noqa: PLC0415 - for what fails alone

            raise TorchprofError.because(RecordingNotKept(str(target), str(error.strerror or error))) from None
        finally:
            for file in (recording, stacks):
                if file is not None:
                    file.unlink(missing_ok=True)
        return target

    def _is_saved(self, result: Result) -> bool:
        """Whether the whole recording of a result is to stay: as everything does, or because it failed or changed."""
        keep = self._options.keep
        if keep is not Keep.CHANGED:
            return keep is not Keep.FIGURES
        if result.outcome.is_failure or result.outcome in (Outcome.WARNED, Outcome.XFAILED):
            return True
        if result.comparison is not None:
            return result.comparison.verdict != "same"
        former = self._former_structures.get((result.nodeid, result.label, result.rank))
        return former is None or former != result.structure

    @cached_property
    def _former_structures(self) -> dict[tuple[str, str | None, int | None], str | None]:
        """The structures that the measurements of the last run in the folder launched; nothing where there was none."""
        if self._options.save is None:
            return {}
        from pytest_torchprof.testing.figures import former_structures  # noqa: PLC0415 - for these runs alone

        return former_structures(self._options.save)

    def clear_failures(self) -> None:
        """Remove the recordings that the previous run kept, and only those.

        Other ranks of this run may have kept some already: each removes its own, and the first one those of no rank.
        """
        folder, rank = self._options.rootdir / HIDDEN, this_rank()
        if folder.is_symlink():
            return  # Whatever a checkout links to is not ours to remove.
        for old in folder.glob(f"*{SUFFIX}"):
            whose = rank_in(old.name)
            if whose == rank or (rank.writes and whose.world != rank.world):
                old.unlink(missing_ok=True)

    def drop_stale(self, nodeid: str, fresh: AbstractSet[str]) -> None:
        """Remove from the folder of ``--torchprof-save`` earlier runs' recordings of a test that failed in this one.

        A replay would judge it as if this run had measured it. ``fresh`` are the names of what this run has kept.
        """
        if self._options.save is None:
            return
        fresh = {*fresh, *map(stacks_name, fresh)}
        for path in self._options.save.glob(f"{glob.escape(_stem(nodeid))}*.json*"):
            if path.name not in fresh and rank_in(path.name) == this_rank() and _test_of(path) == nodeid:
                path.unlink(missing_ok=True)

    def find(self, nodeid: str, label: str | None) -> Path:
        """Return the kept recording of a measurement; TorchprofError where there is none."""
        folder, rank = self._replay_folder, this_rank()
        path = self._kept(nodeid, label)
        if path is None:
            from pytest_torchprof.reasons.adopting import NothingToReplay  # noqa: PLC0415 - only where one is missing

            name, others = recording_name(nodeid, label, rank), _other_ranks(folder, nodeid, label)
            raise TorchprofError.because(NothingToReplay(nodeid, label, str(folder), name, others))
        return path

    def numbered(self, nodeid: str, labels: Iterable[str]) -> str | None:
        """Return the first of the labels under which there is a kept recording of the test; None if there is none."""
        return next((label for label in labels if self._kept(nodeid, label) is not None), None)

    def of_all_ranks(self, nodeid: str, label: str | None) -> list[Path]:
        """Return the kept recordings of a measurement by each rank of this job, in order; empty if one is missing."""
        world = this_rank().world
        paths = [self._kept(nodeid, label, Rank(number, world)) for number in range(world)]
        return [path for path in paths if path is not None] if None not in paths else []

    def _kept(self, nodeid: str, label: str | None, rank: Rank | None = None) -> Path | None:
        paths = (self._replay_folder / name for name in _names(nodeid, label, rank or this_rank()))
        return next((path for path in paths if path.is_file()), None)

    @property
    def _replay_folder(self) -> Path:
        return self._options.replay or self._options.rootdir

    def unjudged(self, judged: set[str]) -> list[str]:
        """Return the names of recordings in the replay folder that no test judged, without those of other ranks."""
        folder, rank = self._options.replay, this_rank()
        if folder is None:
            return []
        names = {path.name for pattern in ("*.json", "*.json.gz") for path in folder.glob(pattern)}
        others = {name for name in names if rank_in(name).world == rank.world and rank_in(name) != rank}
        return sorted(names - others - judged - {stacks_name(name) for name in names})

    def close(self) -> None:
        """Remove the recordings that were written and not kept."""
        if self._scratch is not None:
            self._scratch.cleanup()
            self._scratch = None


def recording_name(nodeid: str, label: str | None, rank: Rank) -> str:
    """Return the file name of a measurement: readable, safe on every file system, one per test, label and rank."""
    return _names(nodeid, label, rank)[0]


def _names(nodeid: str, label: str | None, rank: Rank) -> tuple[str, str]:
    test = f"{nodeid}::{label}" if label else nodeid
    digest = hashlib.sha256(test.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    name = f"{_stem(test)}.{digest}{rank.suffix}"
    return f"{name}.json.gz", f"{name}.json"


def _stem(test: str) -> str:
    module, _, rest = test.partition("::")
    stem = f"{Path(module).stem}.{rest}" if rest else Path(module).stem
    # A leading dot or dash would hide the file, or make it look like an option.
    return re.sub(r"[^A-Za-z0-9._-]+", "-", stem).strip("-.")[:STEM_LENGTH].rstrip("-.")


def _other_ranks(folder: Path, nodeid: str, label: str | None) -> tuple[tuple[int, int], ...]:
    """Return the ranks that have a recording of this measurement in a folder: number, and of how many."""
    stem = _names(nodeid, label, Rank())[1].removesuffix(".json")
    ranks = {rank_in(path.name) for path in folder.glob(f"{glob.escape(stem)}.rank*")} - {Rank()}
    return tuple((rank.number, rank.world) for rank in sorted(ranks, key=lambda rank: (rank.world, rank.number)))


def _move(recording: Path, stacks: Path | None, target: Path) -> None:
    folder = target.parent
    folder.mkdir(parents=True, exist_ok=True)
    if folder.name == HIDDEN:
        hide(folder)
    beside = target.with_name(stacks_name(target.name))
    beside.unlink(missing_ok=True)  # An earlier run's, of other code.
    if stacks is not None:
        _pack(stacks, beside)
    _pack(recording, target)


def _pack(recording: Path, target: Path) -> None:
    # mtime=0 and no file name inside: the same measurement packs to the same bytes.
    with (
        recording.open("rb") as source,
        replacing(target) as unfinished,  # Two runs may save to one folder at once.
        unfinished.open("wb") as raw,
        gzip.GzipFile(filename="", mode="wb", fileobj=raw, compresslevel=6, mtime=0) as packed,
    ):
        shutil.copyfileobj(source, packed)


def _test_of(path: Path) -> str | None:
    try:
        metadata = read(path).metadata
    except TorchprofError:
        return None
    return None if metadata is None else metadata.nodeid
