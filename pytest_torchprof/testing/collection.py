"""Before the tests run: what the run measures with, what its tests ask for, and which tests cannot have it."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
from msgspec.structs import replace

from pytest_torchprof import capture
from pytest_torchprof.baseline.path import FOLDER
from pytest_torchprof.devices.kinds import kind_of
from pytest_torchprof.findings import RULES, with_thresholds
from pytest_torchprof.findings.checked import checked_rules
from pytest_torchprof.kernels.own_kernels import NOTHING_DECLARED, OwnKernels, read_own_kernels
from pytest_torchprof.limits import catalogue
from pytest_torchprof.limits.checked import checked_limits
from pytest_torchprof.reasons.errors import TorchprofError, UnknownLimit
from pytest_torchprof.reasons.errors import hide_our_frames as __tracebackhide__  # noqa: F401  (read by pytest)
from pytest_torchprof.report import reporters
from pytest_torchprof.testing import STATE, is_ours
from pytest_torchprof.testing.baseline_files import BaselineFiles
from pytest_torchprof.testing.brought import brought, checked_reporters
from pytest_torchprof.testing.handed_over import Selection
from pytest_torchprof.testing.left_out import NOT_COLLECTED
from pytest_torchprof.testing.marker_options import MARKER_OPTIONS, TestOptions, read_test_options
from pytest_torchprof.testing.options import BaselineMode, RunOptions, run_options
from pytest_torchprof.testing.recordings import Recordings
from pytest_torchprof.testing.renames import GoneEntries
from pytest_torchprof.testing.run_baselines import RunBaselines
from pytest_torchprof.testing.session import RunState
from pytest_torchprof.testing.workers import CACHES, COLUMNS, SCRATCH, is_worker, nodeid_of
from pytest_torchprof.text.wrapping import broken

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pytest_torchprof.findings.finding import Rule
    from pytest_torchprof.limits.limit import Limit
    from pytest_torchprof.reasons.reason import Reason

OPTIONS = pytest.StashKey[TestOptions]()
REFUSED: pytest.StashKey[Reason] = pytest.StashKey()
"""Why a test cannot run as it asks to."""


def state_of(config: pytest.Config) -> RunState:
    """Return the run's state, which is made at the first call."""
    state = config.stash.get(STATE, None)
    if state is None:
        state = config.stash[STATE] = _new_state(config)
    return state


def _new_state(config: pytest.Config) -> RunState:
    rules = _known_rules(config)
    try:
        rules = with_thresholds(rules, config.getini("torchprof_thresholds"))
    except UnknownLimit as problem:
        from pytest_torchprof.reasons.run_options import OfSetting  # noqa: PLC0415  (for what is refused alone)

        raise pytest.UsageError(str(OfSetting("torchprof_thresholds", problem.reason))) from None
    own_kernels = _own_kernels(config)
    known = reporters()
    for given in brought(config, "pytest_torchprof_reporters"):
        with given.read():
            known.update(checked_reporters(given))
    options, files, caches = run_options(config), BaselineFiles(), config.stash.get(CACHES, None)
    if options.history_branch is not None:
        from pytest_torchprof.testing.history_baseline import history_baseline  # noqa: PLC0415 - for these runs alone

        if (read := history_baseline(config, options)) is not None:
            options = replace(options, history_baseline=read, baseline_dir=Path(read.folder))
    if fills := caches is not None and caches.fills:
        options = replace(options, baseline=BaselineMode.OFF, save=None)
    state = RunState(
        options=options,
        limits=_known_limits(config, rules),
        rules=rules,
        own_kernels=own_kernels,
        reporters=known,
        recordings=Recordings(options, config.stash.get(SCRATCH, None), keeps=not fills),
        caches=caches,
        baselines=RunBaselines(options=options, files=files, gone=GoneEntries(options, files)),
    )
    for path in options.reports:
        if state.reporter_of(path) is None:
            from pytest_torchprof.reasons.run_options import ReportOfNoFormat  # noqa: PLC0415  (for what is refused alone)

            raise pytest.UsageError(str(ReportOfNoFormat(str(path), path.suffix, tuple(sorted(known)))))
    return state


def _known_rules(config: pytest.Config) -> tuple[Rule, ...]:
    """Return all rules for findings, those of other plugins too."""
    rules = RULES
    for given in brought(config, "pytest_torchprof_findings"):
        with given.read() as answer:
            rules += checked_rules(answer, rules)
    return rules


def _known_limits(config: pytest.Config, rules: Iterable[Rule]) -> tuple[Limit, ...]:
    """Return all limits that a marker may have, those of other plugins too."""
    limits: list[Limit] = []
    for given in brought(config, "pytest_torchprof_limits"):
        with given.read() as answer:
            limits += checked_limits(answer, catalogue(rules, limits), MARKER_OPTIONS)
    return catalogue(rules, limits)


def _own_kernels(config: pytest.Config) -> OwnKernels:
    """Return the kernels that the ini file declares, followed by those that plugins declare."""
    declared = run_options(config).own_kernels or NOTHING_DECLARED
    for given in brought(config, "pytest_torchprof_kernels"):
        with given.read() as answer:
            declared = declared.before(read_own_kernels(answer))
    return declared


def _on_terminal(refused: Sequence[str], config: pytest.Config) -> list[str]:
    """Return lines of a usage error, wrapped to the width of a terminal; in a log they stay whole."""
    reporter = config.pluginmanager.getplugin("terminalreporter")
    columns = config.stash.get(COLUMNS, None) if getattr(reporter, "isatty", False) else None
    # pytest writes "ERROR: " in front of it.
    first = broken(f"{'':7}{refused[0]}", columns, hanging=2).lstrip()
    return [first, *(broken(line, columns) for line in refused[1:])]


def prepare(config: pytest.Config, items: list[pytest.Item], collected: Sequence[pytest.Item]) -> None:
    """Read every torchprof test's options; one usage error names all that cannot be used.

    ``collected`` are all tests; ``items`` are those that are left to run.
    """
    state = state_of(config)
    if collected:
        started_in = config.invocation_params.dir
        named = (Path(started_in, arg.partition("::")[0]) for arg in config.args)
        folders = [path if path.is_dir() else path.parent / FOLDER for path in named]
        session = collected[0].session
        state.baselines.note_collected(_whole_files(session, collected), folders)
        if state.options.keeps_results and len(items) == len(collected) and (below := _whole_below(session)):
            tests = tuple(nodeid_of(item) for item in items if is_ours(item))
            state.note_selection(Selection(below=below, tests=tests))
    ours = [item for item in items if is_ours(item)]
    with capture.looking_without_use():
        _read_all(ours, state)
    refused = [str(item.stash[REFUSED]) for item in ours if REFUSED in item.stash]
    # A worker of xdist cannot end the run at collection; there each refused test is an error of its own.
    if refused and not is_worker(config):
        raise pytest.UsageError("\n".join(_on_terminal(refused, config)))
    if any(OPTIONS in item.stash and item.stash[OPTIONS].has_processes for item in items):
        # Few runs have such a test, and what starts and ends processes takes a tenth of all imports.
        from pytest_torchprof.testing.ranks.job import Jobs  # noqa: PLC0415
        from pytest_torchprof.testing.ranks.placing import placed  # noqa: PLC0415

        jobs = Jobs(config)
        items[:] = [placed(item, item.stash[OPTIONS], state, jobs) if OPTIONS in item.stash else item for item in items]


def _read_all(items: Iterable[pytest.Item], state: RunState) -> None:
    for item in items:
        try:
            item.stash[OPTIONS] = read_test_options(item, state.options, state.limits)
        except UnknownLimit as problem:
            from pytest_torchprof.reasons.refused_tests import OfMarker  # noqa: PLC0415  (for what is refused alone)

            item.stash[REFUSED] = OfMarker(item.nodeid, problem.reason)
        else:
            require_gpu(item, state)


def require_gpu(item: pytest.Item, state: RunState) -> None:
    run = state.options
    if not run.require_gpu or run.replay is not None or not run.enabled:
        return
    if lack := _why_no_gpu(item.nodeid, item.stash[OPTIONS], run):
        item.stash[REFUSED] = lack
        state.note_lack_of_gpu()


def _why_no_gpu(test: str, options: TestOptions, run: RunOptions) -> Reason | None:
    device = options.device
    if options.has_processes:
        from pytest_torchprof.testing.ranks.placing import why_too_few_gpus  # noqa: PLC0415 - as where tests are placed

        if lack := why_too_few_gpus(options, run):
            from pytest_torchprof.reasons.refused_tests import NotMeasurable  # noqa: PLC0415  (for what is refused alone)

            return NotMeasurable(test, lack)
    try:
        picked = capture.pick_device(device)
    except TorchprofError as problem:
        from pytest_torchprof.reasons.refused_tests import NotMeasurable  # noqa: PLC0415  (for what is refused alone)

        return NotMeasurable(test, problem.reason)
    if kind_of(picked).has_launches:
        return None
    from pytest_torchprof.reasons.refused_tests import CpuAsAsked, CpuForWantOfGpu  # noqa: PLC0415  (as above)

    return CpuForWantOfGpu(test, capture.no_gpu()) if device == "auto" else CpuAsAsked(test, device)


_LEAVING_OUT: Final = ("lf", "ignore", "ignore_glob", "stepwise")
"""The options of pytest by which files or tests are left out while it collects."""


def _whole_below(session: pytest.Session) -> tuple[str, ...]:
    """Return the folders and files of the project in which all tests were collected; none if it was given a part."""
    config = session.config
    if (
        session.testsfailed
        or NOT_COLLECTED in config.stash
        or any(config.getoption(name, None) for name in _LEAVING_OUT)
    ):
        return ()
    root = config.rootpath.resolve()
    given = {Path(config.invocation_params.dir, arg).resolve() for arg in config.args}
    if root in given:
        return ("",)
    usual = {Path(root, path).resolve() for path in config.getini("testpaths")}
    names = (path.relative_to(root).as_posix() for path in usual if path.is_relative_to(root))
    return tuple(sorted(names)) if usual <= given else ()


def _whole_files(session: pytest.Session, collected: Iterable[pytest.Item]) -> dict[Path, list[str]]:
    """Return the test ids of each test file that was collected as a whole, before anything was deselected."""
    # --last-failed leaves tests out while it collects, and where collecting failed nobody knows what there was.
    if session.testsfailed or session.config.getoption("lf", False):
        return {}
    files: defaultdict[Path, list[str]] = defaultdict(list)
    for item in collected:
        files[item.path].append(nodeid_of(item))
    parts = [
        Path(session.config.invocation_params.dir, arg.partition("::")[0]) for arg in session.config.args if "::" in arg
    ]
    return {path: ids for path, ids in files.items() if path not in parts}
