"""Before the tests run: reads what they ask for, refuses what cannot be, arms the profiler, starts each test's run."""

from __future__ import annotations

import inspect
import itertools
from collections import defaultdict
from contextlib import contextmanager
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_torchprof import capture
from pytest_torchprof.baseline.path import FOLDER
from pytest_torchprof.capture.lockstep import OtherRanks
from pytest_torchprof.capture.rank import this_rank
from pytest_torchprof.devices.kinds import kind_of
from pytest_torchprof.findings import RULES, with_thresholds
from pytest_torchprof.kernels.own_kernels import NOTHING_DECLARED, OwnKernels, read_own_kernels
from pytest_torchprof.limits import catalogue
from pytest_torchprof.reasons.codes import Code, coded
from pytest_torchprof.reasons.errors import NotMeasured, TorchprofError, UnknownLimit, not_measured, reason_of
from pytest_torchprof.reasons.errors import hide_our_frames as __tracebackhide__  # noqa: F401  (read by pytest)
from pytest_torchprof.reasons.testing import MarkedTooLate
from pytest_torchprof.report import reporters
from pytest_torchprof.report.ci import PREFIX
from pytest_torchprof.report.result import Outcome
from pytest_torchprof.testing import RUN, STATE, is_ours
from pytest_torchprof.testing.baseline_check import BaselineCheck
from pytest_torchprof.testing.baseline_files import BaselineFiles
from pytest_torchprof.testing.markers import merged_marker
from pytest_torchprof.testing.measurement import MeasuredTest
from pytest_torchprof.testing.options import BaselineMode, RunOptions, TestOptions, read_test_options, run_options
from pytest_torchprof.testing.progress import progress_of, waits_of
from pytest_torchprof.testing.ranks.job import Jobs
from pytest_torchprof.testing.ranks.placing import lacks_gpus, placed
from pytest_torchprof.testing.recordings import Recordings
from pytest_torchprof.testing.renames import GoneEntries
from pytest_torchprof.testing.session import RunState, screen_of
from pytest_torchprof.testing.test_run import TestRun
from pytest_torchprof.testing.workers import CACHES, PROGRESS, SCRATCH, is_of_xdist, is_worker, nodeid_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence


OPTIONS = pytest.StashKey[TestOptions]()
REFUSED = pytest.StashKey[str]()
"""Why a test cannot run as it asks to."""


def state_of(config: pytest.Config) -> RunState:
    """Return the run's state, made at the first call."""
    state = config.stash.get(STATE, None)
    if state is None:
        state = config.stash[STATE] = _new_state(config)
    return state


def _new_state(config: pytest.Config) -> RunState:
    rules = (*RULES, *itertools.chain(*_answers(config.hook.pytest_torchprof_findings())))
    try:
        rules = with_thresholds(rules, config.getini("torchprof_thresholds"))
    except UnknownLimit as problem:
        raise pytest.UsageError(coded(f"torchprof_thresholds: {problem.text}", Code.BAD_OPTION)) from None
    own_kernels = _own_kernels(config)
    known = reporters()
    for more in _answers(config.hook.pytest_torchprof_reporters()):
        known.update(more)
    options, baselines, caches = run_options(config), BaselineFiles(), config.stash.get(CACHES, None)
    if fills := caches is not None and caches.fills:
        options = replace(options, baseline=BaselineMode.OFF, save=None)
    state = RunState(
        options=options,
        limits=catalogue(rules, itertools.chain(*_answers(config.hook.pytest_torchprof_limits()))),
        rules=rules,
        own_kernels=own_kernels,
        reporters=known,
        recordings=Recordings(options, config.stash.get(SCRATCH, None), keeps=not fills),
        caches=caches,
        baselines=baselines,
        gone_entries=GoneEntries(options, baselines),
    )
    for path in options.reports:
        if state.reporter_of(path) is None:
            said = f"--torchprof-report={path}: no report has the suffix {path.suffix!r}"
            raise pytest.UsageError(coded(f"{said}; known are: {', '.join(sorted(known))}", Code.BAD_OPTION))
    return state


def _own_kernels(config: pytest.Config) -> OwnKernels:
    """Return what the ini file says of kernels, and after it what plugins say of theirs."""
    declared = run_options(config).own_kernels or NOTHING_DECLARED
    for told in _answers(config.hook.pytest_torchprof_kernels()):
        try:
            declared = declared.before(read_own_kernels(told))
        except UnknownLimit as problem:
            said = coded(f"pytest_torchprof_kernels: {problem.text}", Code.BAD_OPTION)
            raise pytest.UsageError(said) from None
    return declared


def prepare(config: pytest.Config, items: list[pytest.Item], collected: Sequence[pytest.Item]) -> None:
    """Read every torchprof test's options; one usage error names all that cannot be used.

    ``collected`` are all tests, ``items`` those of them that are left to run.
    """
    state = state_of(config)
    if collected:
        started_in = config.invocation_params.dir
        named = (Path(started_in, arg.partition("::")[0]) for arg in config.args)
        folders = [path if path.is_dir() else path.parent / FOLDER for path in named]
        state.note_collected(_whole_files(collected[0].session, collected), folders)
    ours = [item for item in items if is_ours(item)]
    with capture.looking_without_use():
        _read_all(ours, state)
    refused = [item.stash[REFUSED] for item in ours if REFUSED in item.stash]
    # A worker of xdist cannot end the run at collection; there each refused test is an error of its own.
    if refused and not is_worker(config):
        raise pytest.UsageError("\n".join(refused))
    jobs = Jobs()
    items[:] = [placed(item, item.stash[OPTIONS], state, jobs) if OPTIONS in item.stash else item for item in items]


def _read_all(items: Iterable[pytest.Item], state: RunState) -> None:
    for item in items:
        try:
            item.stash[OPTIONS] = read_test_options(item, state.options, state.limits)
        except UnknownLimit as problem:
            item.stash[REFUSED] = f"{item.nodeid}: torchprof marker: {problem}"
        else:
            _require_gpu(item, state)


def _require_gpu(item: pytest.Item, state: RunState) -> None:
    run = state.options
    if not run.require_gpu or run.replay is not None or not run.enabled:
        return
    if lack := _lacks_gpu(item.stash[OPTIONS], run):
        item.stash[REFUSED] = f"--torchprof-require-gpu: {item.nodeid} {lack}"
        state.note_lack_of_gpu()


def _lacks_gpu(options: TestOptions, run: RunOptions) -> str | None:
    device = options.device
    if lack := lacks_gpus(options, run):
        return coded(f"cannot be measured: {lack}", Code.NO_GPU)
    try:
        picked = capture.pick_device(device)
    except TorchprofError as problem:
        return f"cannot be measured: {problem}"
    if kind_of(picked).has_launches:
        return None
    lack = f"torch sees no GPU: {capture.no_gpu().reason}" if device == "auto" else f"its device is {device!r}"
    return coded(f"would be measured on the cpu ({lack})", Code.NO_GPU)


@contextmanager
def armed(state: RunState, session: pytest.Session) -> Iterator[None]:
    """Open the process's first profiler session before a test would have need of it, if one will be measured.

    Not earlier: it begins CUDA, and tests that fork and use CUDA in the child can run until then.
    """
    if not state.options.enabled or state.options.replay is not None:
        yield
        return
    if not is_worker(session.config):
        state.recordings.clear_failures()
    if session.config.getoption("forked", default=False):
        # Each test runs in a fork of this process (pytest-forked), and CUDA must not have begun before it.
        yield
        return
    if not is_of_xdist(session.config):
        collected, tell = map(nodeid_of, session.items), session.config.stash.get(PROGRESS, None)
        state.run_beside(OtherRanks(state.options.rank_timeout_s, collected, tell))
    devices = sorted({item.stash[OPTIONS].device for item in session.items if OPTIONS in item.stash})
    state.arm_by(cache(partial(_arm, state, devices, session.config)))
    if not this_rank().alone:
        # torch's launcher gives each rank a device of its own.
        state.arm()
    if all(device == "cpu" for device in devices):
        yield
        return
    with capture.before_others_record(state.arm):
        yield


def _arm(state: RunState, devices: list[str], config: pytest.Config) -> None:
    for device in devices:
        try:
            picked = capture.pick_device(device)
            if not this_rank().alone:
                capture.live_device(picked).make_current()
            capture.arm(picked, partial(waits_of, config, "the run"))
        except TorchprofError as problem:
            # The tests that ask for it say so themselves; one that is skipped anyway must not stop the others.
            state.refuse_device(device, reason_of(problem))


def run_of(item: pytest.Item) -> TestRun:
    """Return the run of a test that is about to be called; markers may have been added while it was set up."""
    run = item.stash.get(RUN, None)
    if run is None or merged_marker(item) != run.test.options.marker:
        state = state_of(item.config)
        if run is not None and run.measurements:
            raise _not_judged(
                item, "it got a torchprof marker after a fixture had measured, too late to be judged by it"
            )
        item.stash[OPTIONS] = read_test_options(item, state.options, state.limits)
        if run is None:
            run = item.stash[RUN] = start_run(state, item)
        run.ask_as(_measured_test(state, item))
    return run


def refuse_late_marker(item: pytest.Item) -> None:
    """Raise where a test got a marker while its body ran: nobody has judged that."""
    state, run = state_of(item.config), item.stash.get(RUN, None)
    if not state.options.enabled or (run is not None and merged_marker(item) == run.test.options.marker):
        return
    item.stash[RUN] = run or start_run(state, item)
    raise _not_judged(item, "it got a torchprof marker while it ran, too late to be judged by it")


def _not_judged(item: pytest.Item, reason: str) -> NotMeasured:
    said = coded(f"not measured: {reason}", Code.LATE_MARKER)
    state_of(item.config).overrule(nodeid_of(item), Outcome.NOT_MEASURED, said)
    return not_measured(MarkedTooLate(item.nodeid, reason))


def start_run(state: RunState, item: pytest.Item) -> TestRun:
    """Return a fresh run of a test; what an earlier run of it left is dropped."""
    if OPTIONS in item.stash:
        # What was seen at collection may not be usable: nobody had asked CUDA itself.
        _require_gpu(item, state)
    if REFUSED in item.stash:
        pytest.fail(item.stash[REFUSED], pytrace=False)
    if OPTIONS not in item.stash:
        # The marker came after collection.
        item.stash[OPTIONS] = read_test_options(item, state.options, state.limits)
    state.forget(nodeid_of(item))
    if state.other_ranks is not None:
        state.other_ranks.begin_test(nodeid_of(item))
    item.user_properties[:] = [entry for entry in item.user_properties if not entry[0].startswith(PREFIX)]
    return TestRun(
        test=_measured_test(state, item),
        uses_fixture="torchprof" in getattr(item, "fixturenames", ()),
        properties=item.user_properties,
    )


def _measured_test(state: RunState, item: pytest.Item) -> MeasuredTest:
    options, nodeid = item.stash[OPTIONS], nodeid_of(item)
    return MeasuredTest(
        nodeid=nodeid,
        location=(item.location[0], (item.location[1] or 0) + 1),
        options=options,
        state=state,
        baseline=BaselineCheck(
            run=state.options,
            options=options,
            nodeid=nodeid,
            path=item.path,
            source=_source(item),
            files=state.baselines,
            gone=state.gone_entries,
        ),
        screen=screen_of(item.config),
        progress=progress_of(item.config),
    )


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


def _answers(hook_results: list[Any]) -> list[Any]:
    return [result for result in hook_results if result is not None]


def _source(item: pytest.Item) -> str:
    """Return the text of the test function; its hash tells whether a baseline's test was edited since."""
    try:
        return inspect.getsource(getattr(item, "function", None) or item.obj)  # type: ignore[attr-defined]
    except (OSError, TypeError, AttributeError):
        return ""
