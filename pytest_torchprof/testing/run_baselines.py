"""A run's notes of its baselines: which entries it compared, and which it writes at its end."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct, field

from pytest_torchprof import baseline
from pytest_torchprof.reasons.errors import TorchprofError
from pytest_torchprof.testing.handed_over import HandedBaselines

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pytest_torchprof.baseline import Entry
    from pytest_torchprof.reasons.reason import Reason
    from pytest_torchprof.testing.baseline_files import BaselineFiles
    from pytest_torchprof.testing.options import RunOptions
    from pytest_torchprof.testing.renames import Formers, Gone, GoneEntries, NewTest


class BaselineNote(Struct, frozen=True, kw_only=True):
    """The run's note of a measurement that was compared with its baseline."""

    file: Path
    key: str
    says_less: bool = False
    """Whether the entry says less of its kernels than was measured."""
    test: NewTest | None = None
    """The test and its file, where there is no entry."""
    label: str | None = None
    formers: tuple[Gone, ...] = ()
    """The tests that it may have been."""
    entry: Entry | None = None
    """The entry to write."""
    at_once: bool = False
    """Whether it is written however the rest of the test ends."""


class RunBaselines(Struct, kw_only=True):
    """The baselines of a run: what its tests are compared with, and what they leave. Only its own methods change it."""

    options: RunOptions
    files: BaselineFiles
    gone: GoneEntries
    """The entries of tests that are gone, in which the former names of new tests are looked for."""
    updates: dict[Path, dict[str, Entry | None]] = field(default_factory=dict)
    """Baseline file -> key -> entry, of tests that passed in all phases; None removes one."""
    has_first: bool = False
    """Whether this run has put a baseline where there was none yet."""
    collected: dict[Path, list[str]] = field(default_factory=dict)
    """Test file -> its test ids, of files that were collected as a whole."""
    passed: dict[str, Path] = field(default_factory=dict)
    """Test id -> its test file, of tests that passed in all phases, measured or not."""
    compared_keys: dict[Path, set[str]] = field(default_factory=dict)
    """Baseline file -> the keys of the entries that measurements were compared with."""
    untold_keys: dict[Path, set[str]] = field(default_factory=dict)
    """Baseline file -> the keys of entries that say less of their kernels than was measured."""
    formers: Formers = field(default_factory=dict)
    """The former names that the new tests of this run may have had."""
    _notes: dict[str, list[BaselineNote]] = field(default_factory=dict)
    """Test id -> the notes whose entries are written if the test passes in all phases."""
    _has_files: dict[Path, bool] = field(default_factory=dict)

    def note_collected(self, files: Mapping[Path, list[str]], folders: Sequence[Path]) -> None:
        """Take the tests of files that were collected as a whole, and the folders in which baselines may be."""
        self.collected.update(files)
        self.gone.look_among(self.collected, folders)

    def note(self, nodeid: str, note: BaselineNote) -> None:
        """Take the note of a measurement that was compared with its baseline."""
        self.compared_keys.setdefault(note.file, set()).add(note.key)
        if note.says_less:
            self.untold_keys.setdefault(note.file, set()).add(note.key)
        if note.test is not None:
            self.formers.setdefault(note.test, {})[note.label] = note.formers
        if note.entry is not None and note.at_once:
            self.updates.setdefault(note.file, {})[note.key] = note.entry
        elif note.entry is not None:
            self._notes.setdefault(nodeid, []).append(note)

    def forget(self, nodeid: str) -> None:
        """Drop the notes of an earlier run of the same test."""
        self._notes.pop(nodeid, None)

    def end_test(self, nodeid: str, test_file: Path, *, passed: bool) -> bool:
        """Take note of how a test has ended in all phases; return whether entries that it would write are dropped."""
        notes = self._notes.pop(nodeid, [])
        if not passed:
            return bool(notes)
        self.passed[nodeid] = test_file
        for note in notes:
            self.updates.setdefault(note.file, {})[note.key] = note.entry
        return False

    def remove(self, file: Path, keys: Iterable[str]) -> None:
        """Remove entries of a baseline at the end of the run."""
        self.updates.setdefault(file, {}).update(dict.fromkeys(keys))

    def write(self) -> list[Reason]:
        """Write the entries of tests that passed, and return the problems."""
        problems: list[Reason] = []
        is_first = not any(any(folder.glob("*.json")) for folder in {file.parent for file in self.updates})
        for file, entries in sorted(self.updates.items()):
            try:
                self.files.update(file, entries)
            except TorchprofError as problem:
                from pytest_torchprof.reasons.whole_runs import reason_of  # noqa: PLC0415 - for what fails alone

                problems.append(reason_of(problem))
        self.has_first = bool(self.updates) and is_first and not problems and not self.options.against
        return problems

    def handed_over(self) -> HandedBaselines:
        """Return the notes that a process hands over to the one for which it runs tests."""
        return HandedBaselines(
            updates={
                str(file): {key: None if entry is None else baseline.fields_of(entry) for key, entry in entries.items()}
                for file, entries in self.updates.items()
            },
            collected={str(path): tuple(ids) for path, ids in self.collected.items() if self._has_file(path)},
            passed={nodeid: str(path) for nodeid, path in self.passed.items() if self._has_file(path)},
            compared={str(file): tuple(sorted(keys)) for file, keys in self.compared_keys.items()},
            untold={str(file): tuple(sorted(keys)) for file, keys in self.untold_keys.items()},
            formers=tuple((new, tuple(by_label.items())) for new, by_label in self.formers.items()),
        )

    def begin_anew(self) -> None:
        """Drop what was handed over, and keep what applies to later tests."""
        for collection in (self.updates, self.formers, self.compared_keys, self.untold_keys):
            collection.clear()

    def merge(self, other: HandedBaselines) -> None:
        """Take over the notes of a process that ran tests for this one."""
        for file, entries in other.updates.items():
            read = {key: None if fields is None else baseline.entry_from(fields) for key, fields in entries.items()}
            self.updates.setdefault(Path(file), {}).update(read)
        self.collected.update({Path(path): list(ids) for path, ids in other.collected.items()})
        self.passed.update({nodeid: Path(path) for nodeid, path in other.passed.items()})
        for new, by_label in other.formers:
            self.formers.setdefault(new, {}).update(by_label)
        for handed, keys_of in ((other.compared, self.compared_keys), (other.untold, self.untold_keys)):
            for file, keys in handed.items():
                keys_of.setdefault(Path(file), set()).update(keys)

    def _has_file(self, test_file: Path) -> bool:
        if test_file not in self._has_files:
            files = baseline.files_of(test_file, self.options.rootdir, self.options.baseline_dir)
            self._has_files[test_file] = bool(files)
        return self._has_files[test_file]
