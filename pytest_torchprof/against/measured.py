"""The measurements of the tests at one commit, as its side left them: by test, with reasons for missing ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_torchprof import baseline
from pytest_torchprof.against.outcomes import read_outcomes
from pytest_torchprof.against.side import RECORDINGS
from pytest_torchprof.profiles import load_file
from pytest_torchprof.reasons.commit_gaps import NoSuchMeasurement

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from pytest_torchprof.against.outcomes import BaseOutcomes
    from pytest_torchprof.baseline import Entry
    from pytest_torchprof.profiles import Profile
    from pytest_torchprof.reasons.commit_gaps import CommitGap


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitMeasurements:
    """The measurements of one commit."""

    entries: Mapping[str, Entry]
    """By test id and label, as a baseline keeps them."""
    outcomes: BaseOutcomes
    recordings: Path
    """The folder of its recordings, if they were kept."""

    def profiles(self) -> Iterator[tuple[str, Profile]]:
        """Yield the profiles of the recordings, by test id and label."""
        for path in sorted(self.recordings.glob("*.json.gz")):
            profile = load_file(str(path))
            metadata = profile.trace.metadata
            if metadata is not None and metadata.nodeid is not None:
                test_file = metadata.nodeid.partition("::")[0]
                yield f"{test_file}::{baseline.key_of(metadata.nodeid, metadata.label)}", profile

    def test_of(self, name: str) -> str:
        """Return the id of the test that a measurement is of."""
        test_file, _, key = name.partition("::")
        return f"{test_file}::{baseline.split_key(key)[0]}"

    def why_not(self, name: str) -> CommitGap:
        """Return why there is no measurement of this name."""
        return self.outcomes.broken or self.outcomes.trouble(self.test_of(name)) or NoSuchMeasurement()


def read_measured(results: Path) -> CommitMeasurements:
    """Return the measurements in the folder of results of a commit's side; TorchprofError if it cannot be read."""
    return CommitMeasurements(
        entries={
            f"{test_file}::{key}": entry
            for file, test_file in entry_files(results / "entries")
            for key, entry in baseline.read(file).entries.items()
        },
        outcomes=read_outcomes(results),
        recordings=results / RECORDINGS,
    )


def entry_files(folder: Path) -> Iterator[tuple[Path, str]]:
    """Yield the files of measurements that a commit's side has left, each with its test file."""
    for file in sorted(folder.rglob("*.json")):
        module = (baseline.split_name(file) or ("", ""))[0]
        yield file, (file.parent.relative_to(folder) / f"{module}.py").as_posix()
