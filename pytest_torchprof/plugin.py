"""The pytest plugin: options, marker, fixture, and hooks that hand over to the run's state.

Loaded in every pytest run of every user: neither torch nor msgspec is imported here, nor anything that imports them.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_torchprof.errors import TorchprofError
from pytest_torchprof.testing.stash import PASSED, RUN, STATE, WORKER_KEY, is_ours, is_worker

if TYPE_CHECKING:
    from collections.abc import Generator

    from pytest_torchprof.testing.fixture import Torchprof
    from pytest_torchprof.testing.measure import TestRun

_MACHINERY = frozenset({"pytest_torchprof", "_pytest", "pluggy", "unittest", "asyncio", "contextlib.py", "torch"})

_OPTIONS: tuple[tuple[str, dict[str, Any], str], ...] = (
    ("", {"metavar": "on|off"}, "off: run marked tests plainly, measure and check nothing"),
    ("baseline", {"metavar": "MODE"}, "compare (default), update, add, strict or off"),
    ("baseline-dir", {"metavar": "DIR"}, "folder of the baselines (default: __torchprof__ beside each test file)"),
    (
        "device",
        {"metavar": "DEVICE"},
        "auto (default), cpu, cuda or cuda:N; on the command line it wins over the marker",
    ),
    ("warmup", {"metavar": "N"}, "calls before the measured ones (default 3)"),
    ("steps", {"metavar": "N"}, "measured calls (default 5)"),
    ("save", {"metavar": "DIR"}, "keep every recording in DIR"),
    ("replay", {"metavar": "DIR"}, "judge the recordings in DIR without running the measured code"),
)


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("torchprof", "GPU kernels (torchprof)")
    for name, kwargs, text in _OPTIONS:
        option = "--torchprof" + (f"-{name}" if name else "")
        key = option.removeprefix("--").replace("-", "_")
        group.addoption(option, dest=key, default=None, help=text, **kwargs)
        parser.addini(key, text, default="")
    group.addoption(
        "--torchprof-require-gpu", dest="torchprof_require_gpu", action="store_true", default=None,
        help="stop with exit code 4 if a selected torchprof test cannot be measured on a GPU",
    )  # fmt: skip
    parser.addini("torchprof_require_gpu", "as --torchprof-require-gpu", default="")
    group.addoption(
        "--torchprof-report", dest="torchprof_report", action="append", metavar="FILE", default=None,
        help="write the results to FILE, by its suffix: .json, .md, .benchmark.json or .bmf.json (repeatable)",
    )  # fmt: skip
    parser.addini(
        "torchprof_tolerance", "tolerance of tests that have none of their own, e.g. time=0.10 memory=0.05", default=""
    )
    parser.addini("torchprof_report", "as --torchprof-report", type="linelist", default=[])
    parser.addini(
        "torchprof_thresholds", "when findings are told, a line each: hotspot.share = 0.6", type="linelist", default=[]
    )


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    from pytest_torchprof.testing import hookspecs  # noqa: PLC0415  (needed once per run, not to import this module)

    pluginmanager.add_hookspecs(hookspecs)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        "torchprof(max_kernels=..., kernels=[...], max_graph_breaks=..., ...): profile the test and check what the GPU "
        "did; keywords: https://pypi.org/project/pytest-torchprof",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    """Refuse options that cannot be used, before any worker of pytest-xdist could stumble over them."""
    if not is_worker(session.config):
        from pytest_torchprof.testing.settings import Settings  # noqa: PLC0415

        Settings.from_pytest(session.config)


def pytest_report_header(config: pytest.Config) -> list[str]:
    from pytest_torchprof.testing.headline import lines  # noqa: PLC0415

    return lines(config)


@pytest.fixture
def torchprof(request: pytest.FixtureRequest) -> Torchprof:
    """Measure calls on the device: a function with its arguments, or a block under a label."""
    from pytest_torchprof.testing.fixture import Torchprof  # noqa: PLC0415

    run = request.node.stash.get(RUN, None)
    if run is None:
        pytest.fail(
            f"{request.node.nodeid}: the torchprof fixture was asked for while the test runs; what is measured must be "
            'known before: name it in the test\'s arguments, or with @pytest.mark.usefixtures("torchprof")',
            pytrace=False,
        )
    run.uses_fixture = True
    return Torchprof(run)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> Generator[None, object, object]:
    collected = list(items)
    result = yield
    if (
        any(is_ours(item) for item in items)
        or config.getoption("torchprof_replay")
        or config.getini("torchprof_replay")
    ):
        from pytest_torchprof.testing.collecting import prepare  # noqa: PLC0415

        prepare(config, items, collected)
    return result


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> None:
    state = session.config.stash.get(STATE, None)
    if state is not None and not session.config.option.collectonly:
        from pytest_torchprof.testing.collecting import arm  # noqa: PLC0415

        arm(state, session)


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, object, object]:
    state = item.config.stash.get(STATE, None)
    if state is None or not is_ours(item):
        return (yield)
    from pytest_torchprof.testing.collecting import start_run  # noqa: PLC0415
    from pytest_torchprof.testing.quiet import without_trace_records  # noqa: PLC0415

    item.stash[RUN] = start_run(state, item)
    with without_trace_records():
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    if is_ours(item):
        from pytest_torchprof.testing.collecting import run_of  # noqa: PLC0415
        from pytest_torchprof.testing.expecting import called  # noqa: PLC0415
        from pytest_torchprof.testing.quiet import without_trace_records  # noqa: PLC0415

        with without_trace_records(), called(run_of(item), item):
            result = yield
    else:
        result = yield
    if is_ours(item):
        from pytest_torchprof.testing.collecting import refuse_late_marker  # noqa: PLC0415

        refuse_late_marker(item)
    return result


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, object, object]:
    if (run := item.stash.get(RUN, None)) is None:
        return (yield)
    from pytest_torchprof.testing.judging import judged_late  # noqa: PLC0415

    with judged_late(run):
        return (yield)


@pytest.hookimpl(wrapper=True, trylast=True, specname="pytest_runtest_teardown")
def finalizers_are_quiet(item: pytest.Item) -> Generator[None, object, object]:
    if item.stash.get(RUN, None) is None:
        return (yield)
    from pytest_torchprof.testing.quiet import without_trace_records  # noqa: PLC0415

    with without_trace_records():
        return (yield)


@pytest.hookimpl(trylast=True, specname="pytest_runtest_teardown")
def dynamo_is_read(item: pytest.Item) -> None:
    if item.config.stash.get(STATE, None) is not None and "torch._dynamo" in sys.modules:
        from pytest_torchprof.capture.compile_watch import compile_history  # noqa: PLC0415

        # Dynamo keeps its last 64 compilations: a test that compiles more would push out what a later one needs.
        compile_history().catch_up()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    told = call.excinfo.value if call.excinfo else None
    if isinstance(told, TorchprofError) and told.brief is not None and item.config.get_verbosity() < 0:
        told.args = (told.brief,)
    report = yield
    run = item.stash.get(RUN, None)
    if run is not None:
        _correct(report, call, run, item)
    passed = report.passed and not hasattr(report, "wasxfail")
    item.stash[PASSED] = passed and (report.when == "setup" or item.stash.get(PASSED, False))
    state = item.config.stash.get(STATE, None)
    if report.when == "teardown" and item.stash[PASSED] and state is not None:
        state.passed[item.nodeid] = item.path
        if run is not None:
            run.commit_baselines()
    return report


def _correct(report: pytest.TestReport, call: pytest.CallInfo[None], run: TestRun, item: pytest.Item) -> None:
    from pytest_torchprof.testing.expecting import corrected  # noqa: PLC0415

    corrected(report, call.excinfo.value if call.excinfo else None, run, item)
    ours = call.excinfo is not None and isinstance(call.excinfo.value, TorchprofError)
    if call.excinfo is not None and ours and report.outcome == "failed" and not _shows_user_code(call.excinfo):
        report.longrepr = call.excinfo.getrepr(style="value")
    if report.when == "call" and report.skipped and hasattr(report, "wasxfail"):
        run.state.expect_failure(item.nodeid)
    if report.failed:
        run.state.drop_stale(item.nodeid)


def _shows_user_code(excinfo: pytest.ExceptionInfo[BaseException]) -> bool:
    """Whether the traceback has a line of the user's; a limit judged after the test has none worth showing."""
    return any(not _MACHINERY.intersection(Path(entry.path).parts) for entry in excinfo.traceback)


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    state = config.stash.get(STATE, None)
    if state is not None and not is_worker(config):
        from pytest_torchprof.testing.closing import summary  # noqa: PLC0415

        summary(state, terminalreporter)


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    state = session.config.stash.get(STATE, None)
    if state is not None:
        from pytest_torchprof.testing.closing import finish  # noqa: PLC0415

        finish(state, session)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """xdist: a worker is done; the controller takes over what it found out."""
    plain = getattr(node, "workeroutput", {}).get(WORKER_KEY)
    if plain is not None:
        from pytest_torchprof.testing.collecting import state_of  # noqa: PLC0415

        state_of(node.config).merge(plain)
