"""Entries of baselines that nothing measures any more, as far as this run can tell."""

from __future__ import annotations

from collections import defaultdict
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_torchprof.errors import TorchprofError
from pytest_torchprof.report.results import GONE, REMOVED, UNMEASURED, Leftover

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pytest

    from pytest_torchprof.testing.session import RunState


def whole_files(session: pytest.Session, collected: Iterable[pytest.Item]) -> dict[Path, list[str]]:
    """Return the test ids of each test file that was collected as a whole, before anything was deselected."""
    # --last-failed leaves tests out while it collects, and where collecting failed nobody knows what there was.
    if session.testsfailed or session.config.getoption("lf", False):
        return {}
    files: defaultdict[Path, list[str]] = defaultdict(list)
    for item in collected:
        files[item.path].append(item.nodeid)
    parts = [
        Path(session.config.invocation_params.dir, arg.partition("::")[0]) for arg in session.config.args if "::" in arg
    ]
    return {path: ids for path, ids in files.items() if path not in parts}


def leftovers(state: RunState) -> list[Leftover]:
    """Return what is left over in the baselines of the devices that this run measured on.

    An entry whose test, or whose test file, is no more; and one that its test, which ran and passed, measured no more.
    With ``--torchprof-baseline=update`` the latter is noted to be removed: what a test that passed measures is kept.
    """
    from pytest_torchprof import baseline  # noqa: PLC0415  (only runs that compare pay for it)

    found = list(_of_no_test_file(state))
    update = state.settings.baseline == "update"
    passed: defaultdict[Path, set[str]] = defaultdict(set)
    for nodeid, test_file in state.passed.items():
        passed[test_file].add(_test(nodeid))
    for file, test_file in sorted(_files(state)):
        collected = state.collected.get(test_file)
        known = None if collected is None else {_test(nodeid) for nodeid in collected}
        try:
            keys = sorted(baseline.read_or_empty(file).entries.keys() - state.compared.get(str(file), set()))
        except TorchprofError:  # its tests have said so
            continue
        tests = {key: baseline.split_key(key)[0] for key in keys}
        gone = [key for key in keys if known is not None and tests[key] not in known]
        unmeasured = [key for key in keys if tests[key] in passed[test_file] and key not in gone]
        if unmeasured and update:
            state.baseline_updates.setdefault(str(file), {}).update(dict.fromkeys(unmeasured))
        for why, left in ((GONE, gone), (REMOVED if update else UNMEASURED, unmeasured)):
            if left:
                found.append(Leftover(file=state.shown(file), why=why, keys=tuple(left)))
    return found


def _of_no_test_file(state: RunState) -> Iterator[Leftover]:
    """Yield the baseline files beside those of this run whose test file was removed or has another name now."""
    from pytest_torchprof import baseline  # noqa: PLC0415

    settings = state.settings
    slugs = _devices(state)
    for folder in sorted({Path(file).parent for file in state.compared}):
        for file in sorted(folder.glob("*.json")):
            name = baseline.split_name(file)
            if name is None or name[1] not in slugs:
                continue
            if baseline.test_file_of(file, settings.baseline_dir or folder, settings.rootdir) is None:
                with suppress(TorchprofError):  # Whatever it is, no test is compared with it.
                    keys = tuple(sorted(baseline.read_or_empty(file).entries))
                    yield Leftover(file=state.shown(file), why=GONE, keys=keys)


def _files(state: RunState) -> Iterator[tuple[Path, Path]]:
    """Yield (baseline file, test file) of all that this run knows about, on devices that it measured on."""
    from pytest_torchprof import baseline  # noqa: PLC0415

    slugs = _devices(state)
    for test_file in {*state.collected, *state.passed.values()} if slugs else ():
        for slug, file in baseline.files_of(test_file, state.settings.rootdir, state.settings.baseline_dir).items():
            if slug in slugs:
                yield file, test_file


def _devices(state: RunState) -> set[str]:
    """Return the devices that this run measured on, as baseline files name them."""
    from pytest_torchprof import baseline  # noqa: PLC0415

    return {name[1] for file in state.compared if (name := baseline.split_name(Path(file)))}


def _test(nodeid: str) -> str:
    from pytest_torchprof import baseline  # noqa: PLC0415

    return baseline.split_key(baseline.key_of(nodeid, None))[0]
