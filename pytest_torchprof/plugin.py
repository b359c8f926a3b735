"""The pytest plugin: options, marker, fixture, and hooks that hand over to the run's state.

It is loaded in every pytest run of every user: neither torch nor msgspec is imported here, nor anything that imports
them. Hooks import what only a run with a torchprof test needs.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

import pytest

from pytest_torchprof import against
from pytest_torchprof.system.own_modules import load_past_pytest
from pytest_torchprof.testing import JOB, PASSED, REFUSAL, RUN, STATE, is_ours, ranks
from pytest_torchprof.testing.declared import add_options, is_anything_given
from pytest_torchprof.testing.workers import (
    BRIEF,
    ONE_LINE,
    RESULTS,
    is_of_xdist,
    is_worker,
    nodeid_of,
    note_columns,
)

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

    from pytest_torchprof.testing.fixture import Torchprof

load_past_pytest()

# This comes before any code of a side is imported, or reads a file.
if os.path.isfile(os.environ.get(against.VARIABLE, "")):  # noqa: PTH113  (pathlib is not needed here)
    from pytest_torchprof.against.import_path import add_roots
    from pytest_torchprof.against.orphans import end_with_parent
    from pytest_torchprof.against.reads import watch
    from pytest_torchprof.against.side import this_side

    end_with_parent()
    add_roots(this_side())
    watch(this_side())


class _SameByAnotherName:
    """The stand-in for this plugin under its other name: the entry point's or the module's.

    Who names it twice, by ``-p`` or in a conftest.py, means it once; pytest would end in a traceback of its own.
    """


def pytest_addoption(parser: pytest.Parser) -> None:
    add_options(parser)
    against.add_options(parser)


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> int | None:
    if ranks.VARIABLE in os.environ:
        from pytest_torchprof.testing.ranks.inside import settle as settle_rank

        settle_rank(config)
    if against.is_side(config):
        from pytest_torchprof.against.inside import settle

        settle(config)
    if config.option.torchprof_against is None or against.is_side(config):
        return None
    if config.option.torchprof_suite is not None:
        from pytest_torchprof.reasons.run_options import SuiteAgainstCommit

        raise pytest.UsageError(str(SuiteAgainstCommit()))
    from pytest_torchprof.against.request import read_times
    from pytest_torchprof.reasons.errors import TorchprofError

    try:
        read_times(config.option)
        if against.looks_only(config):
            return None
        from pytest_torchprof.against.run import run_both

        return run_both(config)
    except TorchprofError as problem:
        raise pytest.UsageError(str(problem)) from None


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    from pytest_torchprof.testing import hookspecs

    pluginmanager.add_hookspecs(hookspecs)
    for name in {"torchprof", __name__} - {pluginmanager.get_name(sys.modules[__name__])}:
        pluginmanager.register(_SameByAnotherName(), name)


def pytest_configure(config: pytest.Config) -> None:
    if (lone := against.lone_option(config)) is not None:
        from pytest_torchprof.reasons.run_options import OptionWithoutCommit

        raise pytest.UsageError(str(OptionWithoutCommit(lone)))
    keywords = ""
    if config.option.markers:
        from pytest_torchprof.text.documentation import marker_help

        keywords = f":\n{marker_help()}"
    config.addinivalue_line(
        "markers",
        "torchprof(max_kernels=..., kernels=[...], max_graph_breaks=..., ...): profile the test and check what the GPU "
        f"did; `torchprof explain KEYWORD` says more of each{keywords}",
    )
    if config.getoption("xmlpath", None) and not is_worker(config):
        from pytest_torchprof.testing.junit import WholeTexts

        config.pluginmanager.register(WholeTexts(), "torchprof_whole_texts")


@pytest.hookimpl(tryfirst=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    """Refuse options that cannot be used, before any worker of pytest-xdist starts."""
    config = session.config
    note_columns(config)
    if is_worker(config):
        return
    asked = False
    if is_anything_given(config):
        from pytest_torchprof.testing.options import run_options

        # The outcome of a comparison is reported even if no test is measured.
        options = run_options(config)
        asked = bool(options.against is not None or options.reports or config.getini("torchprof_thresholds"))
    if asked or config.hook.pytest_torchprof_kernels.get_hookimpls():
        from pytest_torchprof.testing.collection import state_of

        state_of(config)


def pytest_report_header(config: pytest.Config) -> list[str]:
    from pytest_torchprof.testing.header import header_lines

    return header_lines(config)


@pytest.fixture
def torchprof(request: pytest.FixtureRequest) -> Torchprof:
    """Measure calls on the device: a function, a block under a label, or what another process recorded.

    ::

        profile = torchprof(model, x)  # calls it several times; returns what ran
        profile.expect(max_kernels=40)

        with torchprof.measure("decode", max_syncs=0) as m:
            for _ in m.steps():
                step()
        print(m.profile.table())

        torchprof.limits(max_kernels=n)  # for all that is measured from here on
        torchprof.adopt(start_engine, "serve", step="forward", max_syncs=0)
    """
    from pytest_torchprof.testing.fixture import Torchprof
    from pytest_torchprof.testing.testcases import hand_over

    run = request.node.stash.get(RUN, None)
    if run is None:
        from pytest_torchprof.reasons.misuse import FixtureTooLate

        pytest.fail(str(FixtureTooLate(request.node.nodeid)), pytrace=False)
    run.use_fixture()
    return hand_over(Torchprof(run), request.instance)


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Note that a file is skipped, or cannot be collected: tests of it are not gone."""
    report = yield
    if not report.passed and isinstance(collector, pytest.File):
        from pytest_torchprof.testing.left_out import NOT_COLLECTED

        collector.config.stash[NOT_COLLECTED] = True
    return report


@pytest.hookimpl(wrapper=True)
def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> Generator[None, bool | None, bool | None]:
    """Note that tests are left out before they are collected, as by a conftest's ``collect_ignore`` or a plugin."""
    ignored = yield
    if ignored:
        from pytest_torchprof.testing.left_out import note_ignored

        note_ignored(collection_path, config)
    return ignored


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> Generator[None, object, object]:
    collected = list(items)
    result = yield
    if is_anything_given(config):
        from pytest_torchprof.testing.options import run_options

        if (suite := run_options(config).suite) is not None:
            from pytest_torchprof.testing.collection import state_of
            from pytest_torchprof.testing.suite import apply_rules

            apply_rules(suite, state_of(config), items, collected)
    if (
        any(is_ours(item) for item in items)
        or config.getoption("torchprof_replay")
        or config.getini("torchprof_replay")
    ):
        from pytest_torchprof.testing.collection import prepare

        prepare(config, items, collected)
    return result


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> Generator[None, object, object]:
    state = session.config.stash.get(STATE, None)
    if state is None or session.config.option.collectonly:
        return (yield)
    from pytest_torchprof.testing.arming import armed
    from pytest_torchprof.testing.rank_ends import announcing_the_end

    times_wanted = state.options.against is not None and not is_worker(session.config)
    with armed(state, session), announcing_the_end(state.other_ranks):
        if not times_wanted:
            return (yield)
        from pytest_torchprof.testing.time_pairs import compare_times, miss_times

        try:
            result = yield
            compare_times(state, session.config)
        except BaseException:
            miss_times(state)
            raise
        return result


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None, object, object]:
    if (job := item.stash.get(JOB, None)) is not None:
        job.precede(nextitem)
    try:
        return (yield)
    finally:
        # pytest keeps its items to the end: what thousands of them hold would be looked through for garbage again.
        if RUN in item.stash:
            del item.stash[RUN]


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, object, object]:
    state = item.config.stash.get(STATE, None)
    if state is None or not is_ours(item):
        result = yield
    else:
        from pytest_torchprof.testing.phases import without_trace_records
        from pytest_torchprof.testing.planning import start_run

        item.stash[RUN] = start_run(state, item)
        state.arm()
        with without_trace_records():
            result = yield
    if is_ours(item):
        from pytest_torchprof.testing.planning import settle

        settle(item)
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    run = item.stash.get(RUN, None)
    if (refusal := item.stash.get(REFUSAL, None)) is not None:
        # Its report gives it a row; nothing of it was measured that could be judged.
        raise refusal
    if run is not None:
        from pytest_torchprof.testing.phases import around_call, without_trace_records

        with without_trace_records(), run.called(), around_call(run, item):
            result = yield
    else:
        result = yield
    if is_ours(item):
        from pytest_torchprof.testing.markers import marked_since
        from pytest_torchprof.testing.options import run_options
        from pytest_torchprof.testing.planning import late_marker

        if not run_options(item.config).enabled:
            return result
        if run is None or marked_since(item, run.test.options.marker):
            item.stash[REFUSAL] = problem = late_marker(item)
            raise problem
    return result


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, object, object]:
    if (run := item.stash.get(RUN, None)) is None:
        return (yield)
    from pytest_torchprof.testing.phases import around_teardown

    with around_teardown(run):
        return (yield)


@pytest.hookimpl(wrapper=True, trylast=True, specname="pytest_runtest_teardown")
def pytest_finalizers_are_quiet(item: pytest.Item) -> Generator[None, object, object]:
    if item.stash.get(RUN, None) is None:
        return (yield)
    from pytest_torchprof.testing.phases import without_trace_records

    with without_trace_records():
        return (yield)


@pytest.hookimpl(trylast=True, specname="pytest_runtest_teardown")
def pytest_dynamo_is_read(item: pytest.Item) -> None:
    if item.config.stash.get(STATE, None) is not None and "torch._dynamo" in sys.modules:
        from pytest_torchprof.capture.compile_history import compile_history

        # Dynamo keeps its last 64 compilations: a test that compiles more would push out what a later one needs.
        compile_history().catch_up()


def _is_error_of_ours(problem: BaseException) -> bool:
    """Return whether an error is one of this package, which is not imported for those of others."""
    errors = sys.modules.get("pytest_torchprof.reasons.errors")
    return errors is not None and isinstance(problem, errors.TorchprofError)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    run = item.stash.get(RUN, None)
    if (job := item.stash.get(JOB, None)) is not None:
        job.fill(report)
    if report.failed and call.excinfo is not None and isinstance(call.excinfo.value, AttributeError):
        from pytest_torchprof.testing.testcases import advise

        advise(report, call.excinfo, item)
    if run is not None or item.stash.get(REFUSAL, None) is not None:
        from pytest_torchprof.testing.pytest_report import mend_report

        mend_report(report, call, run, item)
    elif report.failed and call.excinfo is not None and _is_error_of_ours(call.excinfo.value):
        from pytest_torchprof.testing.pytest_report import mend_unmeasured

        mend_unmeasured(report, call.excinfo, item)
    state = item.config.stash.get(STATE, None)
    if state is not None and state.other_ranks is not None:
        from pytest_torchprof.testing.rank_ends import end_on_all_ranks

        end_on_all_ranks(state, report, item)
    passed = report.passed and not hasattr(report, "wasxfail")
    if state is not None and not passed and (results := state.results_of(nodeid_of(item))):
        from pytest_torchprof.testing.reported import renew_properties

        renew_properties(report, item, results)
    item.stash[PASSED] = passed and (report.when == "setup" or item.stash.get(PASSED, False))
    if report.when != "teardown" or state is None:
        return report
    nodeid = nodeid_of(item)
    state.end_test(nodeid, item.path, passed=item.stash[PASSED])
    if is_of_xdist(item.config) and (handed := state.hand_over_test(nodeid)) is not None:
        # A worker that crashes later hands nothing over at its end.
        setattr(report, RESULTS, handed.to_json())
    return report


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_logreport(report: pytest.TestReport) -> Generator[None, object, object]:
    if hasattr(report, ONE_LINE):
        from pytest_torchprof.testing.pytest_report import give_one_line

        give_one_line(report)
    if hasattr(report, RESULTS) and hasattr(report, "node"):
        from pytest_torchprof.testing.xdist import keep_results

        keep_results(report)
    result = yield
    if hasattr(report, BRIEF):
        from pytest_torchprof.testing.pytest_report import shorten

        shorten(report)
    return result


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    state = config.stash.get(STATE, None)
    if state is not None and not is_worker(config):
        from pytest_torchprof.testing.section import write_section

        write_section(state, terminalreporter)
    if _has_lines_of_ours(terminalreporter, config):
        from pytest_torchprof.testing.uncut import cut_in_colour

        cut_in_colour(terminalreporter)


def _has_lines_of_ours(reporter: Any, config: pytest.Config) -> bool:
    """Return whether pytest's short summary has lines about failures of ours."""
    failed = (report for status in ("failed", "error") for report in reporter.stats.get(status, ()))
    return not is_worker(config) and any(hasattr(report, ONE_LINE) for report in failed)


@pytest.hookimpl(wrapper=True, tryfirst=True, specname="pytest_terminal_summary")
def pytest_torchprof_short_summary(terminalreporter: Any, config: pytest.Config) -> Generator[None, object, object]:
    # The outermost wrapper ends after pytest has written its short summary.
    result = yield
    if _has_lines_of_ours(terminalreporter, config):
        from pytest_torchprof.testing.uncut import restore, write_uncut

        restore(terminalreporter)
        write_uncut(terminalreporter)
    return result


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    state = session.config.stash.get(STATE, None)
    if state is not None:
        from pytest_torchprof.testing.run_end import finish

        finish(state, session)


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config: pytest.Config) -> None:
    """Let no launcher end the other ranks before they have reported their results."""
    state = config.stash.get(STATE, None)
    if state is not None and state.other_ranks is not None:
        sys.stdout.flush()
        state.other_ranks.end_run()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes(config: pytest.Config, specs: list[Any]) -> None:
    if is_anything_given(config):
        from pytest_torchprof.testing.xdist import divide_gpus

        divide_gpus(config, specs)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    from pytest_torchprof.testing.xdist import prepare_worker

    prepare_worker(node)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    from pytest_torchprof.testing.xdist import take_over

    take_over(node)
