"""Entries of baselines that nothing measures any more, or that a new test measures under another name."""

from __future__ import annotations

from collections import defaultdict
from contextlib import suppress
from typing import TYPE_CHECKING

from pytest_torchprof import baseline
from pytest_torchprof.reasons.errors import TorchprofError
from pytest_torchprof.report import Disuse, UnusedEntries
from pytest_torchprof.testing.renames import Renames, test_key

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from pathlib import Path

    from pytest_torchprof.testing.run_baselines import RunBaselines


def unused_entries(run: RunBaselines, started_in: Path) -> list[UnusedEntries]:
    """Return the entries that nothing measures any more, in the baselines of the devices that this run measured on.

    These are entries whose test or test file no longer exists, and entries that their test, which ran and passed, no
    longer measured. With ``--torchprof-baseline=update`` the latter are noted for removal.
    ``started_in`` is the folder in which a user pastes a command.
    """
    renames = Renames(
        formers=run.formers,
        files=run.files,
        options=run.options,
        collected=run.collected,
        started_in=started_in,
    )
    renamed = [*renames.entries()]
    known_as = {(entries.file, key) for entries in renamed for key in entries.keys}
    unused = [*renamed, *_files_without_tests(run, known_as), *_untold_entries(run)]
    update = run.options.baseline.updates
    passed: defaultdict[Path, set[str]] = defaultdict(set)
    for nodeid, test_file in run.passed.items():
        passed[test_file].add(test_key(nodeid))
    for file, test_file in sorted(_baseline_files(run)):
        collected = run.collected.get(test_file)
        known = None if collected is None else {test_key(nodeid) for nodeid in collected}
        try:
            keys = sorted(run.files.entries(file).keys() - run.compared_keys.get(file, set()))
        except TorchprofError:  # its tests have reported it
            continue
        tests = {key: baseline.split_key(key)[0] for key in keys}
        gone = [key for key in keys if known is not None and tests[key] not in known]
        gone = [key for key in gone if (run.options.shown(file), key) not in known_as]
        unmeasured = [key for key in keys if tests[key] in passed[test_file] and key not in gone]
        if unmeasured and update:
            run.remove(file, unmeasured)
        for why, left in ((Disuse.GONE, gone), (Disuse.REMOVED if update else Disuse.UNMEASURED, unmeasured)):
            if left:
                unused.append(UnusedEntries(file=run.options.shown(file), why=why, keys=tuple(left)))
    return unused


def _untold_entries(run: RunBaselines) -> Iterator[UnusedEntries]:
    """Yield the entries that say less of their kernels than was measured, and that this run does not renew."""
    for file, keys in sorted(run.untold_keys.items()):
        if left := sorted(keys - run.updates.get(file, {}).keys()):
            yield UnusedEntries(file=run.options.shown(file), why=Disuse.UNTOLD, keys=tuple(left))


def _files_without_tests(run: RunBaselines, renamed: Collection[tuple[str, str]]) -> Iterator[UnusedEntries]:
    """Yield the baseline files beside those of this run whose test file was removed or has another name now."""
    options, slugs = run.options, _devices(run)
    for folder in sorted({file.parent for file in run.compared_keys}):
        for file in sorted(folder.glob("*.json")):
            name = baseline.split_name(file)
            if name is None or name[1] not in slugs:
                continue
            if baseline.test_file_of(file, options.baseline_dir or folder, options.rootdir) is None:
                with suppress(TorchprofError):  # No test is compared with a file that cannot be read.
                    shown = options.shown(file)
                    keys = [key for key in sorted(run.files.entries(file)) if (shown, key) not in renamed]
                    yield from [UnusedEntries(file=shown, why=Disuse.GONE, keys=tuple(keys))] if keys else []


def _baseline_files(run: RunBaselines) -> Iterator[tuple[Path, Path]]:
    """Yield (baseline file, test file) for all test files that this run knows, on devices that it measured on."""
    slugs = _devices(run)
    for test_file in {*run.collected, *run.passed.values()} if slugs else ():
        for slug, file in baseline.files_of(test_file, run.options.rootdir, run.options.baseline_dir).items():
            if slug in slugs:
                yield file, test_file


def _devices(run: RunBaselines) -> set[str]:
    """Return the devices that this run measured on, as baseline files name them."""
    return {name[1] for file in run.compared_keys if (name := baseline.split_name(file))}
