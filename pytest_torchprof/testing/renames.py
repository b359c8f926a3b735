"""Tests that were renamed: new tests with the kernels of a test that is gone, and the command that renames them."""

from __future__ import annotations

import os
from collections import defaultdict
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct

from pytest_torchprof import baseline, compare
from pytest_torchprof.baseline.path import FOLDER
from pytest_torchprof.capture.rank import this_rank
from pytest_torchprof.reasons.errors import TorchprofError
from pytest_torchprof.report import Disuse, UnusedEntries
from pytest_torchprof.text import quoted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from pytest_torchprof.baseline import Entry
    from pytest_torchprof.testing.baseline_files import BaselineFiles
    from pytest_torchprof.testing.options import RunOptions

    TestName = tuple[str, str | None]
    """A test file, and the id of a test in it: None for the file."""


class Gone(NamedTuple):
    """A test that is gone and has entries in a baseline file."""

    baseline: str
    test_file: str
    test: str


class NewTest(NamedTuple):
    """A test without a baseline."""

    test_file: str
    test: str


Formers = dict[NewTest, dict[str | None, tuple[Gone, ...]]]
"""For new tests, by the label of each measurement: the tests that are gone and ran the same kernels."""


class GoneEntries:
    """The entries of tests that are gone; they are looked for when the first new test is compared."""

    def __init__(self, options: RunOptions, files: BaselineFiles) -> None:
        """Take what a run knows before it collects."""
        self._options, self._files = options, files
        self.collected: Mapping[Path, Sequence[str]] = {}
        """The tests of the files that were collected as a whole."""
        self.folders: Sequence[Path] = ()
        """The folders below which the run looks for tests."""

    def look_among(self, collected: Mapping[Path, Sequence[str]], folders: Sequence[Path]) -> None:
        """Take the tests of the files that were collected as a whole, and the folders in which baselines may be."""
        self.collected, self.folders = collected, folders

    def like(self, file: Path, label: str | None, new: Callable[[], Entry]) -> tuple[Gone, ...]:
        """Return the tests that are gone and had these kernels on the same device, under the same label."""
        slug = (baseline.split_name(file) or ("", ""))[1]
        rank = this_rank().number
        known = self._entries.get((slug, label), ())
        return tuple(gone for gone, old in known if _same_kernels(old.of_rank(rank), new()))

    @cached_property
    def _entries(self) -> Mapping[tuple[str, str | None], Sequence[tuple[Gone, Entry]]]:
        of_slug: defaultdict[tuple[str, str | None], list[tuple[Gone, Entry]]] = defaultdict(list)
        for file, test_file in self._baseline_files():
            name, tests = baseline.split_name(file), {test_key(nodeid) for nodeid in self.collected.get(test_file, ())}
            try:
                entries = self._files.entries(file)
            except TorchprofError:  # The tests of that file report it.
                continue
            for key, entry in entries.items():
                test, label = baseline.split_key(key)
                if name is not None and test not in tests:
                    of_slug[name[1], label].append((Gone(str(file), str(test_file), test), entry))
        return of_slug

    def _baseline_files(self) -> Iterator[tuple[Path, Path]]:
        """Yield the baseline files whose remaining tests are known, with their test files."""
        options = self._options
        for test_file in self.collected:
            for file in baseline.files_of(test_file, options.rootdir, options.baseline_dir).values():
                yield file, test_file
        folders = self.folders if options.baseline_dir is None else (options.baseline_dir,)
        for file in dict.fromkeys(file for folder in folders for file in baseline.find_files(folder)):
            if options.baseline_dir is None and file.parent.name != FOLDER:
                continue  # It is only named like one.
            kept_in = options.baseline_dir or file.parent
            if baseline.test_file_of(file, kept_in, options.rootdir) is None:
                was = baseline.lost_test_file(file, kept_in, options.rootdir)
                yield from [(file, was)] if was is not None else []


def _same_kernels(old: Entry, new: Entry) -> bool:
    if {len(step) for step in old.steps} != {len(step) for step in new.steps}:
        return False
    comparison = compare.compare(old, new)
    return comparison.verdict != "new" and all(change.is_number for change in comparison.changes)


class Renames(Struct, frozen=True, kw_only=True):
    """Which new test each test that is gone has become, as far as kernels and names show."""

    formers: Formers
    files: BaselineFiles
    options: RunOptions
    collected: Mapping[Path, Sequence[str]]
    started_in: Path
    """The folder in which the command of a user runs."""

    def entries(self) -> Iterator[UnusedEntries]:
        """Yield the entries concerned, with the command that renames them where it is clear which is which."""
        candidates = self._candidates()
        pairs: dict[Gone, NewTest] = {}
        # What is clear leaves fewer for what is not.
        while clear := dict(_pairs(_without(candidates, pairs))):
            pairs |= clear
        groups: defaultdict[tuple[TestName, TestName], list[Gone]] = defaultdict(list)
        for gone, new in pairs.items():
            groups[self._widest(gone, new, pairs)].append(gone)
        # The rename of a file comes last: the others would no longer find what it moves.
        for (old_name, new_name), members in sorted(groups.items(), key=lambda item: item[0][0][1] is None):
            command = self._command(old_name, new_name)
            for file in dict.fromkeys(gone.baseline for gone in members):
                own = [gone for gone in members if gone.baseline == file]
                yield self._unused(own, {gone: (pairs[gone],) for gone in own}, command)
        for gone, news in _without(candidates, pairs).items():
            yield self._unused([gone], {gone: tuple(news)}, None)

    def _unused(
        self, members: Sequence[Gone], became: Mapping[Gone, tuple[NewTest, ...]], command: str | None
    ) -> UnusedEntries:
        of_key = {key: gone for gone in members for key in self._keys(gone)}
        return UnusedEntries(
            file=self.options.shown(Path(members[0].baseline)),
            why=Disuse.RENAMED,
            keys=tuple(of_key),
            became=tuple(" or ".join(self._shown(new, gone) for new in became[gone]) for gone in of_key.values()),
            command=command,
        )

    def _candidates(self) -> dict[Gone, list[NewTest]]:
        """Return, for each test that is gone, the new tests with the same kernels in the same measurements."""
        candidates: defaultdict[Gone, list[NewTest]] = defaultdict(list)
        for new, formers in self.formers.items():
            for gone in dict.fromkeys(gone for likes in formers.values() for gone in likes):
                labels = {baseline.split_key(key)[1] for key in self._keys(gone)}
                if labels == formers.keys() and all(gone in likes for likes in formers.values()):
                    candidates[gone].append(new)
        return candidates

    def _keys(self, gone: Gone) -> list[str]:
        entries = self.files.entries(Path(gone.baseline))
        return sorted(key for key in entries if baseline.split_key(key)[0] == gone.test)

    def _widest(self, gone: Gone, new: NewTest, pairs: Mapping[Gone, NewTest]) -> tuple[TestName, TestName]:
        """Return the names for a command: of the file, class or function if everything below it was renamed alike."""
        for old_name, new_name in _wider(gone, new):
            live = map(test_key, self.collected.get(Path(gone.test_file), ()))
            others = (
                (old.test, now)
                for old, now in pairs.items()
                if old.test_file == gone.test_file and baseline.renamed_test(old.test, old_name[1], new_name[1])
            )
            if not any(baseline.renamed_test(test, old_name[1], new_name[1]) for test in live) and all(
                now.test_file == new_name[0]
                # In a file that was renamed, tests may have been renamed too.
                and (old_name[1] is None or now.test == baseline.renamed_test(test, old_name[1], new_name[1]))
                for test, now in others
            ):
                return old_name, new_name
        return (gone.test_file, gone.test), (new.test_file, new.test)

    def _command(self, old: TestName, new: TestName) -> str:
        command = ["torchprof baseline rename", *(quoted(self._word(name)) for name in (old, new))]
        if self.options.baseline_dir is not None:
            command.append(f"--baseline-dir {quoted(self._from_here(self.options.baseline_dir))}")
            if self.options.rootdir != self.started_in:
                command.append(f"--rootdir {quoted(self._from_here(self.options.rootdir))}")
        return " ".join(command)

    def _word(self, name: TestName) -> str:
        file, test = name
        return self._from_here(Path(file)) + (f"::{test}" if test else "")

    def _from_here(self, path: Path) -> str:
        """Return a path relative to the folder in which the run was started."""
        try:
            return os.path.relpath(path, self.started_in)
        except ValueError:  # another drive on Windows
            return str(path)

    def _shown(self, new: NewTest, gone: Gone) -> str:
        return new.test if new.test_file == gone.test_file else f"{self.options.shown(Path(new.test_file))}::{new.test}"


def _without(candidates: Mapping[Gone, Sequence[NewTest]], pairs: Mapping[Gone, NewTest]) -> dict[Gone, list[NewTest]]:
    """Return the candidates that are left once these pairs are settled."""
    taken = {*pairs.values()}
    left = {gone: [new for new in news if new not in taken] for gone, news in candidates.items() if gone not in pairs}
    return {gone: news for gone, news in left.items() if news}


def _pairs(candidates: Mapping[Gone, Sequence[NewTest]]) -> Iterator[tuple[Gone, NewTest]]:
    """Yield the pairs that are unique on both sides: by kernels, and among several by the parts of the name."""
    of_new: defaultdict[NewTest, list[Gone]] = defaultdict(list)
    for gone, news in candidates.items():
        for new in news:
            of_new[new].append(gone)
    for gone, news in candidates.items():
        best = [new for new in news if _likeness(gone, new) == max(_likeness(gone, other) for other in news)]
        olds = of_new[best[0]]
        likest = [old for old in olds if _likeness(old, best[0]) == max(_likeness(other, best[0]) for other in olds)]
        if len(best) == 1 and likest == [gone]:
            yield gone, best[0]


def _likeness(gone: Gone, new: NewTest) -> tuple[bool, bool, bool, bool]:
    """Return which parts of the names agree: all, the function, its parameters, its class."""
    (old_classes, old_function, old_parameters), (classes, function, parameters) = map(_parts, (gone.test, new.test))
    return (
        gone.test == new.test,
        old_function == function,
        bool(parameters) and old_parameters == parameters,
        bool(classes) and old_classes == classes,
    )


def _parts(test: str) -> tuple[str, str, str]:
    """Return the classes, the function and the parameters of a test's id."""
    name, bracket, parameters = test.partition("[")
    classes, _, function = name.rpartition("::")
    return classes, function, bracket + parameters


def _wider(gone: Gone, new: NewTest) -> Iterator[tuple[TestName, TestName]]:
    """Yield pairs of names that differ as these do, the widest first: files, classes, functions."""
    old_classes, old_function, old_parameters = _parts(gone.test)
    classes, function, parameters = _parts(new.test)
    if gone.test == new.test:
        yield (gone.test_file, None), (new.test_file, None)
    if old_parameters == parameters:
        if old_classes and classes and old_function == function:
            yield (gone.test_file, old_classes), (new.test_file, classes)
        named = ("::".join(filter(None, name)) for name in ((old_classes, old_function), (classes, function)))
        yield (gone.test_file, next(named)), (new.test_file, next(named))


def test_key(nodeid: str) -> str:
    """Return the id of a test without its file."""
    return baseline.split_key(baseline.key_of(nodeid, None))[0]
