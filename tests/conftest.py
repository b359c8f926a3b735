"""What the tests of the plugin share."""

from __future__ import annotations

import gc
import importlib
import os
import re
import signal
import sys
from multiprocessing.util import get_temp_dir
from pathlib import Path
from typing import TYPE_CHECKING

import fresh
import hypothesis
import installed
import kept
import made_once
import postgres
import pytest
import quick_runs
from simulated import gpu_is_simulated

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# Threads of torch that wait for each other sleep; where they spin, three processes on two cores take up to four times as long.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
# Inductor tries out in each process, by one that imports torch, whether the compiler knows the processor's vector instructions,
# and starts another one to compile in. Code without such instructions is launched alike, and compiled in two thirds of the time.
os.environ.setdefault("TORCHINDUCTOR_VEC_ISA_OK", "0")
os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
# torch asks by the network for the name of each address that it meets at, loopback's too, and waits for an answer: where one is
# lost, the default is five seconds, in which a rank keeps all others waiting.
os.environ.setdefault("RES_OPTIONS", "timeout:1")
# argparse looks for a translation of each of its texts in several folders, which takes most of the making of a parser.
os.environ.setdefault("LANGUAGE", "C")

# Each worker has a simulated GPU of its own: on one that all share, each would wait until no other one measures.
if gpu_is_simulated() and (worker := os.environ.get("PYTEST_XDIST_WORKER")):
    os.environ.setdefault("FAKEGPU_MACHINE", worker.removeprefix("gw"))

# A shell that runs the tests in the background has this signal ignored, and so would every process that they start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# How long it takes to draw an example says how busy the machine is.
hypothesis.settings.register_profile("any pace", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.load_profile("any pace")

# What a recording is read into are a million objects, which Python's own pace would look through for garbage again and again.
gc.set_threshold(200_000, 10, 10)

# The server of forks has its socket there: where the first test that starts one has temporary files in a folder of its own, the
# path would be too long for a socket, for that test and all after it.
get_temp_dir()

SHARED_TRACES = Path(__file__).parents[2] / "shared" / "traces"

PREAMBLE = """
import pytest, torch
import pytest_torchprof
cpu = pytest.mark.torchprof(device="cpu")
x = torch.ones(8, 8)
"""


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[object]:
    """Look for no garbage meanwhile: of fourteen thousand tests nearly all that is made stays, and each look goes through it."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


ALL_SAY_THE_SAME = re.compile(r"^pytestmark = (?:\[\s*)?pytest\.mark\.any_torch\b", re.MULTILINE)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Import no file for ``-m 'not any_torch'`` of which every test has this mark."""
    if config.getoption("markexpr") != "not any_torch" or collection_path.suffix != ".py":
        return None
    return ALL_SAY_THE_SAME.search(collection_path.read_text(encoding="utf-8")) is not None or None


@pytest.hookimpl(wrapper=True, optionalhook=True)
def pytest_xdist_auto_num_workers() -> Iterator[object]:
    """Let ``-n auto`` start one worker more than it would: many tests wait for a process of their own, which leaves a core idle."""
    return (yield) + 1


def recording_of(name: str) -> Path:
    """Return the path of a shared recording by name; skip where the folder is not there."""
    path = SHARED_TRACES / f"{name}.json.gz"
    if not path.is_file():
        pytest.skip(f"needs the shared recording {name}")
    return path


@pytest.fixture
def shared_trace() -> Callable[[str], Path]:
    """Return what finds the path of a shared recording by its name, or skips the test."""
    return recording_of


@pytest.fixture
def pytester(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """Pytester, but what was imported while it ran tests in this process stays imported.

    By itself it forgets every module that the tests brought in. torch cannot be imported twice, and what the
    profiler and Dynamo know is the process's; only the tests' own modules are forgotten.
    """
    pytester._sys_modules_snapshot = quick_runs.Modules()
    pytester._Pytester__take_sys_modules_snapshot = quick_runs.Modules
    quick_runs.ask_once(monkeypatch)
    # A module that is written twice in a second would be taken for the same.
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setattr("importlib.metadata.distributions", installed.distributions)
    return pytester


@pytest.fixture(scope="session", autouse=True)
def _what_stays_alike_is_made_once() -> Iterator[None]:
    """Read no recording of these folders twice, and leave undone what torch does for its log alone."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        quick_runs.leave_guards_unmeasured(monkeypatch)
        made_once.make_once(monkeypatch, [Path(__file__).parent / "recordings", SHARED_TRACES])
        yield


@pytest.fixture(scope="session", autouse=True)
def _nothing_waits_for_the_disk() -> Iterator[None]:
    """Leave what is written in the system's memory: processes are killed here, and machines are not."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(os, "fsync", lambda _file: None)
        yield


@pytest.fixture(scope="module", autouse=True)
def _what_is_imported_stays() -> None:
    """Let pytest, which looks for garbage after each run, look through what these tests have made alone."""
    kept.keep()


@pytest.fixture(autouse=True)
def _wide_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a sentence stand on one line; tests of the width say their own."""
    monkeypatch.setenv("COLUMNS", "160")


@pytest.fixture(autouse=True)
def _outside_of_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a run print what a person sees, where CI runs these tests too; tests of CI set the variables themselves."""
    for name in ("CI", "BUILD_NUMBER", "GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY", "GITHUB_WORKSPACE"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def run_tests(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Callable[..., pytest.RunResult]:
    """Run a test module of the given source under the plugin, with torch at hand, in this process or a fresh one."""

    def run(source: str, *args: str, in_process: bool = True) -> pytest.RunResult:
        pytester.makepyfile(test_it=PREAMBLE + source)
        monkeypatch.setattr("subprocess.Popen", importlib.import_module("forking").Popen)  # It imports torch.
        run = pytester.runpytest_inprocess if in_process else fresh.run_pytest
        return run("-p", "no:cacheprovider", *quick_runs.without_unasked(source, *args), *args)

    return run


@pytest.fixture
def forked_judges(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the processes that judge a fleet be forks, in tests of what is judged and not of those processes."""
    judges = importlib.import_module("judges")  # It imports what judges.
    monkeypatch.setattr("pytest_torchprof.system.spawned_pool.ProcessPoolExecutor", judges.forked)
    monkeypatch.setattr("pytest_torchprof.fleet.alone.run", judges.run_alone)


@pytest.fixture(scope="session")
def browser():
    """Chromium, which takes longer to start than most pages take to be looked at."""
    from browser import Browser

    with Browser() as window:
        yield window


@pytest.fixture
def quiet_browser(browser):
    """Hold a test to it: no request, no word on the console."""
    browser.requests.clear()
    browser.complaints.clear()
    yield
    assert browser.requests == []
    assert browser.complaints == []


@pytest.fixture(scope="session")
def postgresql() -> Iterator[postgres.Server]:
    """A PostgreSQL server; skip where none can be started."""
    if (why := postgres.why_not()) is not None:
        pytest.skip(why)
    with postgres.server() as server:
        yield server


@pytest.fixture
def store_of(tmp_path: Path, request: pytest.FixtureRequest) -> Callable[[str], str]:
    """Return where a new store of a kind is; skip for one that cannot be had here."""

    def make(kind: str) -> str:
        if kind == "folder":
            return str(tmp_path / f"records{len(made)}")
        if kind == "memory":
            pytest.importorskip("fsspec")
            return f"memory://{request.node.name}/{tmp_path.name}/{len(made)}"
        pytest.importorskip("sqlalchemy")
        pytest.importorskip("alembic")
        return f"sqlite:///{tmp_path}/runs{len(made)}.db" if kind == "sqlite" else database()

    def database() -> str:
        server: postgres.Server = request.getfixturevalue("postgresql")
        return server.database()

    def store(kind: str) -> str:
        made.append(make(kind))
        return made[-1]

    made: list[str] = []
    return store
