"""What one pytest run collects: results, baselines to write, recordings to keep."""

from __future__ import annotations

import glob
import gzip
import hashlib
import json
import os
import re
import shutil
import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_torchprof.capture.ranks import Rank, rank_in, this_rank
from pytest_torchprof.errors import TorchprofError
from pytest_torchprof.errors import hide_our_frames as __tracebackhide__  # noqa: F401  (read by pytest)
from pytest_torchprof.report.results import FAILED, NOT_MEASURED, XFAILED, Leftover, Result, RunResults

if TYPE_CHECKING:
    from pytest_torchprof.findings import Rule
    from pytest_torchprof.limits import Limit
    from pytest_torchprof.report import Reporter
    from pytest_torchprof.testing.settings import Settings

SUFFIX = ".json.gz"
STACKS = ".stacks"
FAILED_FOLDER = ".torchprof"
STEM_LENGTH = 80
"""A file name of a test id cut to this and made unique by a hash still fits every file system."""


@dataclass(slots=True, kw_only=True)
class RunState:
    """The state of one pytest process; handed to each test's run, merged from workers on the controller."""

    settings: Settings
    limits: tuple[Limit, ...]
    rules: tuple[Rule, ...]
    reporters: dict[str, Reporter]
    results: dict[tuple[str, str | None], Result] = field(default_factory=dict)
    baseline_updates: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Baseline file -> key -> entry as plain data, of tests that passed altogether."""
    collected: dict[Path, list[str]] = field(default_factory=dict)
    """Test file -> its test ids, of files that were collected as a whole."""
    passed: dict[str, Path] = field(default_factory=dict)
    """Test id -> its test file, of tests that passed altogether, measured or not."""
    compared: dict[str, set[str]] = field(default_factory=dict)
    """Baseline file -> the keys of what was measured and compared with it."""
    leftovers: list[Leftover] = field(default_factory=list)
    replayed: set[str] = field(default_factory=set)
    """Names of the recordings that a test judged."""
    problems: list[str] = field(default_factory=list)
    """What went wrong at the end of the run, for the terminal."""
    lacks_gpu: bool = False
    """A GPU was required, and a selected test could not be measured on one."""
    unarmed: dict[str, str] = field(default_factory=dict)
    """Device as it was asked for -> why nothing can be measured on it in this process."""
    _scratch: tempfile.TemporaryDirectory[str] | None = None
    _has_baselines: dict[Path, bool] = field(default_factory=dict)

    @property
    def scratch(self) -> Path:
        """A folder for recordings that nobody asked to keep."""
        if self._scratch is None:
            self._scratch = tempfile.TemporaryDirectory(prefix="torchprof-")
        return Path(self._scratch.name)

    @property
    def run_results(self) -> RunResults:
        """Return the results so far, in the order in which they came."""
        return RunResults(results=tuple(self.results.values()), leftovers=tuple(self.leftovers))

    def add(self, result: Result) -> None:
        """Record a result; a test that is run again replaces its former ones."""
        self.results[result.nodeid, result.label] = result

    def expect_failure(self, nodeid: str) -> None:
        """Take note that a test which failed is marked as one that does."""
        for key, result in self.results.items():
            if result.nodeid == nodeid and result.outcome == FAILED:
                self.results[key] = replace(result, outcome=XFAILED)

    def not_judged(self, nodeid: str, reason: str) -> None:
        """Take back what was said of a test's measurements: they were not judged as it asks."""
        for key, result in self.results.items():
            if result.nodeid == nodeid:
                self.results[key] = replace(result, outcome=NOT_MEASURED, message=reason)

    def not_written(self) -> None:
        """Take back that baselines were written."""
        for key, result in self.results.items():
            if (result.baseline or "").startswith("written"):
                self.results[key] = replace(result, baseline="not written")

    def shown(self, path: Path) -> str:
        """Return a path as messages name it: relative to the root directory where it lies below."""
        root = self.settings.rootdir
        return str(path.relative_to(root)) if path.is_relative_to(root) else str(path)

    def has_baselines(self, test_file: Path) -> bool:
        """Whether there is a baseline of a test file, for whatever device."""
        found = self._has_baselines.get(test_file)
        if found is None:
            from pytest_torchprof.baseline import files_of  # noqa: PLC0415

            found = any(files_of(test_file, self.settings.rootdir, self.settings.baseline_dir))
            self._has_baselines[test_file] = found
        return found

    def reporter_of(self, path: Path) -> Reporter | None:
        """Return what writes a report of this name: by its suffix, the longest that is known."""
        known = [suffix for suffix in self.reporters if path.name.endswith(suffix)]
        return self.reporters[max(known, key=len)] if known else None

    def forget(self, nodeid: str) -> None:
        """Drop what an earlier run of the same test left."""
        for key in [key for key in self.results if key[0] == nodeid]:
            del self.results[key]

    def keep(
        self, recording: Path, nodeid: str, label: str | None, *, failed: bool, stacks: Path | None = None
    ) -> Path | None:
        """Move a recording to where it stays: the folder of ``--torchprof-save``, or of failures; else remove it.

        ``stacks`` is the repeat's, which goes beside it.
        """
        folder = self.settings.save or (self.settings.rootdir / FAILED_FOLDER if failed else None)
        if folder is None:
            for one in (recording, stacks):
                if one is not None:
                    one.unlink(missing_ok=True)
            return None
        target = folder / recording_name(nodeid, label, this_rank())
        # Two runs may save to one folder at once.
        part = target.with_name(f"{target.name}.{os.getpid()}.part")
        try:
            folder.mkdir(parents=True, exist_ok=True)
            if folder.name == FAILED_FOLDER:
                (folder / ".gitignore").write_text("*\n", encoding="utf-8")
            beside = target.with_name(stacks_name(target.name))
            beside.unlink(missing_ok=True)  # An earlier run's, of other code.
            if stacks is not None:
                _pack(stacks, part)
                part.replace(beside)
            _pack(recording, part)
            part.replace(target)
        except OSError as error:
            # A full disk or a read-only checkout: what was measured counts all the same.
            self.problems.append(f"the recording {target} cannot be kept: {error.strerror or error}")
            return None
        finally:
            part.unlink(missing_ok=True) if folder.is_dir() else None
            recording.unlink(missing_ok=True)
            if stacks is not None:
                stacks.unlink(missing_ok=True)
        return target

    def clear_failures(self) -> None:
        """Remove the recordings that the previous run kept, and only those.

        Other ranks of this run may have kept some already: each removes its own, and the first one those of no rank.
        """
        folder, rank = self.settings.rootdir / FAILED_FOLDER, this_rank()
        for old in folder.glob(f"*{SUFFIX}"):
            whose = rank_in(old.name)
            if whose == rank or (rank.writes and whose.world != rank.world):
                old.unlink(missing_ok=True)

    def drop_stale(self, nodeid: str) -> None:
        """Remove from the folder of ``--torchprof-save`` what earlier runs left of a test that failed in this one.

        A replay would judge it as if this run had measured it.
        """
        if self.settings.save is None:
            return
        fresh = {Path(one.recording).name for key, one in self.results.items() if key[0] == nodeid and one.recording}
        fresh |= {stacks_name(name) for name in fresh}
        for path in self.settings.save.glob(f"{glob.escape(_stem(nodeid))}*.json*"):
            if path.name not in fresh and rank_in(path.name) == this_rank() and _test_of(path) == nodeid:
                path.unlink(missing_ok=True)

    def recording_of(self, nodeid: str, label: str | None) -> Path:
        """Return the kept recording of a measurement; TorchprofError where there is none."""
        folder, rank = self.settings.replay or self.settings.rootdir, this_rank()
        path = next((folder / name for name in _names(nodeid, label, rank) if (folder / name).is_file()), None)
        if path is None:
            raise TorchprofError(
                f"no recording of {nodeid}{f' ({label})' if label else ''} in {folder}: "
                f"expected {recording_name(nodeid, label, rank)}; {_others(folder, nodeid, label)}"
                f"record it with: pytest {nodeid!r} --torchprof-save={folder}"
            )
        return path

    def unjudged_recordings(self) -> list[str]:
        """Return the names of recordings in the replay folder that no test judged, without those of other ranks."""
        folder, rank = self.settings.replay, this_rank()
        if folder is None:
            return []
        names = {path.name for pattern in ("*.json", "*.json.gz") for path in folder.glob(pattern)}
        others = {name for name in names if rank_in(name).world == rank.world and rank_in(name) != rank}
        return sorted(names - others - self.replayed - {stacks_name(name) for name in names})

    def to_plain(self) -> str:
        """Return what a worker hands to the controller, as JSON."""
        return json.dumps(
            {
                "results": self.run_results.to_plain(),
                "baseline_updates": self.baseline_updates,
                "replayed": sorted(self.replayed),
                "problems": self.problems,
                "lacks_gpu": self.lacks_gpu,
                "collected": {str(path): ids for path, ids in self.collected.items() if self.has_baselines(path)},
                "passed": {nodeid: str(path) for nodeid, path in self.passed.items() if self.has_baselines(path)},
                "compared": {file: sorted(keys) for file, keys in self.compared.items()},
            }
        )

    def merge(self, plain: str) -> None:
        """Take over what a worker handed over."""
        other = json.loads(plain)
        for result in RunResults.from_plain(other["results"]).results:
            self.add(result)
        for path, entries in other["baseline_updates"].items():
            self.baseline_updates.setdefault(path, {}).update(entries)
        self.replayed.update(other["replayed"])
        self.problems.extend(other["problems"])
        self.lacks_gpu |= other["lacks_gpu"]
        self.collected.update({Path(path): ids for path, ids in other["collected"].items()})
        self.passed.update({nodeid: Path(path) for nodeid, path in other["passed"].items()})
        for file, keys in other["compared"].items():
            self.compared.setdefault(file, set()).update(keys)

    def close(self) -> None:
        """Remove the scratch folder."""
        if self._scratch is not None:
            self._scratch.cleanup()
            self._scratch = None


def _pack(recording: Path, target: Path) -> None:
    # mtime=0 and no file name inside: the same measurement packs to the same bytes.
    with (
        recording.open("rb") as source,
        target.open("wb") as raw,
        gzip.GzipFile(filename="", mode="wb", fileobj=raw, compresslevel=6, mtime=0) as packed,
    ):
        shutil.copyfileobj(source, packed)


def recording_name(nodeid: str, label: str | None, rank: Rank) -> str:
    """Return the file name of a measurement: readable, safe on every file system, one per test, label and rank."""
    return _names(nodeid, label, rank)[0]


def stacks_name(name: str) -> str:
    """Return the file name of the recording with stacks beside a recording of this name."""
    return f"{name.removesuffix('.gz').removesuffix('.json')}{STACKS}{SUFFIX}"


def _names(nodeid: str, label: str | None, rank: Rank) -> tuple[str, str]:
    said = f"{nodeid}::{label}" if label else nodeid
    digest = hashlib.sha256(said.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    name = f"{_stem(said)}.{digest}{rank.suffix}"
    return f"{name}.json.gz", f"{name}.json"


def _others(folder: Path, nodeid: str, label: str | None) -> str:
    """Say which ranks have a recording of this measurement in a folder, and how it is judged; empty if none has."""
    stem = _names(nodeid, label, Rank())[1].removesuffix(".json")
    ranks = {rank_in(path.name) for path in folder.glob(f"{glob.escape(stem)}.rank*")} - {Rank()}
    if not ranks:
        return ""
    first = min(ranks, key=lambda rank: (rank.world, rank.number))
    return (
        f"there are those of {', '.join(map(str, sorted(ranks, key=str)))}, which are judged by the same rank, also "
        f"alone: RANK={first.number} WORLD_SIZE={first.world} pytest {nodeid!r} --torchprof-replay={folder}; or "
    )


def _stem(said: str) -> str:
    module, _, rest = said.partition("::")
    stem = f"{Path(module).stem}.{rest}" if rest else Path(module).stem
    # A leading dot or dash would hide the file, or make it look like an option.
    return re.sub(r"[^A-Za-z0-9._-]+", "-", stem).strip("-.")[:STEM_LENGTH].rstrip("-.")


def _test_of(path: Path) -> str | None:
    from pytest_torchprof.recording.reader import read  # noqa: PLC0415 - of a failed test only

    try:
        metadata = read(path).metadata
    except TorchprofError:
        return None
    return None if metadata is None else metadata.nodeid
