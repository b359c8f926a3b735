"""Beside other plugins, and in pytest's own modes, verdicts stay what they are.

Each test runs pytest in a process of its own, with no plugins but those that it names. Most are forks which have torch and
pytest at hand (`fresh`); where a neighbour watches a process from its start on, or its children, Python is started.
"""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import fresh
import pytest

from pytest_torchprof.limits.seen import NumberSeen
from pytest_torchprof.reasons.step_title import StepTitle

if TYPE_CHECKING:
    from collections.abc import Callable

# Three outcomes that no neighbour may change: a limit that holds, one that is missed, one that cannot be told here.
THREE = """
import pytest, torch

x = torch.ones(8, 8)

@pytest.mark.torchprof(device="cpu", max_kernels=1, warmup=1, steps=2)
def test_holds():
    torch.mm(x, x)

@pytest.mark.torchprof(device="cpu", max_kernels=1, warmup=1, steps=2)
def test_misses():
    torch.mm(x, x) + x

@pytest.mark.torchprof(device="cpu", max_launches=1, warmup=1, steps=2)
def test_cannot_be_told():
    torch.mm(x, x)

def test_with_the_fixture(torchprof):
    assert torchprof(torch.mm, x, x).kernels.matching("aten::mm").count == 1
"""
INI = """
[pytest]
torchprof_device = cpu
torchprof_warmup = 1
torchprof_steps = 2
"""


def needs(module: str) -> pytest.MarkDecorator:
    """Skip where a neighbour is not installed."""
    return pytest.mark.skipif(importlib.util.find_spec(module) is None, reason=f"{module} is not installed")


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run a test module under torchprof and other plugins; return the process with its output, colourless."""

    def run(
        source: str, *arguments: str, plugins: tuple[str, ...] = (), ini: str = "", by_fork: bool = True
    ) -> subprocess.CompletedProcess:
        (tmp_path / "pytest.ini").write_text(INI + ini)
        (tmp_path / "test_it.py").write_text(source)
        # CI's own variables make pytest and the plugin say more than a developer sees.
        kept = {name: text for name, text in os.environ.items() if name not in ("CI", "GITHUB_ACTIONS")}
        for name in [name for name in kept if name.startswith(("COV", "PYTEST_"))]:
            del kept[name]
        environment = {**kept, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
        options = [word for plugin in ("torchprof", *plugins) for word in ("-p", plugin)]
        words = ["-m", "pytest", *options, *arguments]
        if by_fork:
            return fresh.start_python(*words, folder=tmp_path, environment=environment).done()
        command = [sys.executable, *words]
        return subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300, check=False
        )

    return run


MODES = {
    "without cache": (("-p", "no:cacheprovider"), ()),
    "importlib": (("--import-mode=importlib",), ()),
    "no capture": (("-s",), ()),
    "capture by sys": (("--capture=sys",), ()),
    "logging live": (("--log-cli-level=DEBUG",), ()),
    "strict": (("--strict-markers", "--strict-config"), ()),
    "each warning an error": (("-W", "error", "-W", "ignore:Failed to initialize NumPy:UserWarning"), ()),
    "assertions plain": (("--assert=plain",), ()),
    "xdist, one worker": (("-n", "1"), ("xdist",)),
    "xdist, load": (("-n", "2", "--dist=load"), ("xdist",)),
    "xdist, loadscope": (("-n", "2", "--dist=loadscope"), ("xdist",)),
    "xdist, loadfile": (("-n", "2", "--dist=loadfile"), ("xdist",)),
    "xdist, loadgroup": (("-n", "2", "--dist=loadgroup"), ("xdist",)),
    "xdist, worksteal": (("-n", "2", "--dist=worksteal"), ("xdist",)),
    "xdist, no": (("-n", "0"), ("xdist",)),
    "timeout by signal": (("--timeout=120", "--timeout-method=signal"), ("pytest_timeout",)),
    "timeout by thread": (("--timeout=120", "--timeout-method=thread"), ("pytest_timeout",)),
    "randomly": (("-p", "randomly", "-p", "no:cacheprovider"), ("pytest_randomly",)),
    "cov": (("--cov=.", "--cov-branch"), ("pytest_cov",)),
    "asyncio": ((), ("pytest_asyncio",)),
    "asyncio, auto": (("--asyncio-mode=auto",), ("pytest_asyncio",)),
    "anyio": ((), ("anyio",)),
    "benchmark": ((), ("pytest_benchmark",)),
}
# What the import of torch warns of, is traced of, or does in a worker that no fork stands for, is seen from its start alone.
FROM_START = ("each warning an error", "xdist, load", "randomly", "cov")
ENTRY_POINTS = {
    "pytest_timeout": "timeout",
    "pytest_randomly": "randomly",
    "pytest_cov": "pytest_cov",
    "pytest_asyncio": "asyncio",
    "pytest_benchmark": "benchmark",
}


def outcomes(done) -> dict[str, int]:
    """Return what pytest's last line counts."""
    counts = re.findall(r"(\d+) (passed|failed|errors?|skipped|xfailed|xpassed|rerun)", done.stdout.splitlines()[-1])
    return {word: int(number) for number, word in counts}


@pytest.mark.parametrize("mode", MODES)
def test_three_verdicts_are_what_they_are(run, mode):
    arguments, modules = MODES[mode]
    for module in modules:
        pytest.importorskip(module)
    plugins = tuple(ENTRY_POINTS.get(module, module) for module in modules)
    done = run(THREE, *arguments, plugins=plugins, by_fork=mode not in FROM_START)
    assert outcomes(done) == {"passed": 2, "failed": 2}, done.stdout + done.stderr
    assert "2 passed, 1 failed, 1 not measured" in done.stdout
    assert f"{NumberSeen('kernels', 2)} in {StepTitle(step=1, steps=2)}" in done.stdout


HANGS = THREE.replace("    torch.mm(x, x) + x", "    import time\n    torch.mm(x, x)\n    time.sleep(60)").replace(
    "def test_misses", "@pytest.mark.timeout(4)\ndef test_misses"
)


@needs("pytest_timeout")
def test_code_that_hangs_is_a_timeout_and_the_next_test_measures_right(run):
    done = run(HANGS, "--timeout-method=signal", plugins=("timeout",))
    assert outcomes(done) == {"passed": 2, "failed": 2}
    assert "Timeout (>4.0s)" in done.stdout
    assert "max_launches=1" in done.stdout


@needs("pytest_timeout")
def test_a_timeout_by_thread_ends_the_process_and_no_test_has_passed(run):
    done = run(HANGS, "--timeout-method=thread", plugins=("timeout",))
    assert done.returncode == 1
    assert "Timeout" in done.stdout + done.stderr
    assert "passed" not in done.stdout


RANKS = """
import pytest, torch
from torch import distributed

@pytest.mark.torchprof(device="cpu", ranks=2, warmup=1, steps=2)
@pytest.mark.parametrize("size", [8])
def test_ranks(torchprof, size):
    x = torch.ones(size) * torchprof.ranks.rank
    torchprof(distributed.all_reduce, x).expect(collectives="all_reduce")
    if {hangs}:
        import time
        time.sleep(60)
"""
RANKS_BESIDE = (
    *("importlib", "no capture", "capture by sys", "logging live", "strict", "each warning an error"),
    *("xdist, loadgroup", "timeout by thread", "randomly", "cov", "asyncio, auto"),
)


@pytest.mark.parametrize("mode", RANKS_BESIDE)
def test_a_test_of_two_ranks_is_one_test(run, mode):
    arguments, modules = MODES[mode]
    for module in modules:
        pytest.importorskip(module)
    plugins = tuple(ENTRY_POINTS.get(module, module) for module in modules)
    done = run(RANKS.format(hangs=False), *arguments, plugins=plugins, by_fork=mode != "each warning an error")
    assert outcomes(done) == {"passed": 1}, done.stdout + done.stderr


IN_RANKS = """
import pytest, torch

def only_in_ranks(x):
    return torch.sin(x)

@pytest.mark.torchprof(device="cpu", ranks=2, warmup=1, steps=2)
def test_ranks(torchprof):
    torchprof(only_in_ranks, torch.ones(4))
"""


@needs("pytest_cov")
def test_lines_that_run_in_ranks_are_covered_where_coverage_looks_into_processes(run, tmp_path):
    (tmp_path / ".coveragerc").write_text("[run]\npatch = subprocess\n")
    done = run(IN_RANKS, "--cov=.", "--cov-report=term", plugins=("pytest_cov",), by_fork=False)
    assert outcomes(done) == {"passed": 1}, done.stdout + done.stderr
    assert re.search(r"test_it\.py +\d+ +0 +100%", done.stdout), done.stdout


GROUPED = """
import pytest, torch

x = torch.ones(8, 8)

@pytest.mark.xdist_group("a")
@pytest.mark.torchprof
def test_plain():
    torch.mm(x, x)

@pytest.mark.xdist_group("a")
@pytest.mark.torchprof(device="cpu", ranks=2, warmup=1, steps=2)
def test_ranks():
    torch.mm(x, x)
"""


@needs("xdist")
def test_groups_of_workers_change_no_name_of_a_baseline_or_recording(run, tmp_path):
    first = run(GROUPED, "--torchprof-baseline=update", "--torchprof-save=kept")
    names = sorted(path.name for path in (tmp_path / "kept").iterdir())
    then = run(
        GROUPED, "-n1", "--dist=loadgroup", "--torchprof-baseline=strict", "--torchprof-save=kept", plugins=("xdist",)
    )
    assert outcomes(first) == outcomes(then) == {"passed": 2}, first.stdout + then.stdout
    assert sorted(path.name for path in (tmp_path / "kept").iterdir()) == names


@needs("pytest_timeout")
@pytest.mark.parametrize("method", ["signal", "thread"])
def test_ranks_that_hang_end_with_the_timeout(run, method, tmp_path):
    done = run(RANKS.format(hangs=True), "--timeout=12", f"--timeout-method={method}", plugins=("timeout",))
    assert done.returncode == 1
    assert "Timeout" in done.stdout + done.stderr
    until = time.monotonic() + 120
    while left := [place for place in Path("/proc").glob("[0-9]*/cwd") if place.resolve() == tmp_path.resolve()]:
        assert time.monotonic() < until, left
        time.sleep(0.1)


FLAKY = """
import pytest, torch
x, calls = torch.ones(8, 8), []

@pytest.mark.torchprof(max_kernels=1)
def test_flaky(request):
    calls.append(None)
    torch.mm(x, x)
    if {condition}:
        x + x
"""


@needs("pytest_rerunfailures")
@pytest.mark.parametrize(
    ("condition", "expected"), [("len(calls) <= 3", {"passed": 1, "rerun": 1}), ("True", {"failed": 1, "rerun": 2})]
)
def test_a_rerun_is_measured_anew(run, condition, expected):
    done = run(FLAKY.format(condition=condition), "--reruns=2", plugins=("rerunfailures",))
    assert outcomes(done) == expected, done.stdout
    assert ("1 passed" in done.stdout) == ("passed" in expected)


@needs("pytest_randomly")
def test_any_order_gives_the_same_verdicts(run):
    for seed in range(3):
        done = run(THREE, "-p", "no:cacheprovider", "-prandomly", f"--randomly-seed={seed}", "-v", plugins=())
        assert outcomes(done) == {"passed": 2, "failed": 2}, done.stdout


ASYNC = """
import pytest, torch
x = torch.ones(8, 8)

{mark}
@pytest.mark.torchprof(max_kernels=1)
async def test_holds():
    torch.mm(x, x)

{mark}
@pytest.mark.torchprof(max_kernels=1)
async def test_misses_too():
    torch.mm(x, x) + x

{mark}
async def test_with_the_fixture(torchprof):
    assert torchprof(torch.mm, x, x).kernels.count == 1
"""


@needs("pytest_asyncio")
def test_the_projects_own_tests_are_collected_beside_asyncio():
    """It warns of a setting that the project does not make, and there every warning is an error."""
    root = Path(__file__).parents[2]
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", "tests/test_words.py"]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@needs("pytest_asyncio")
def test_async_tests_of_asyncio_measure_a_part(run):
    done = run(ASYNC.format(mark="@pytest.mark.asyncio"), "-rN", plugins=("asyncio",))
    assert outcomes(done) == {"passed": 1, "failed": 2}, done.stdout
    assert done.stdout.count("[unrepeatable-body]") == 2


@needs("anyio")
def test_async_tests_of_anyio_measure_a_part(run):
    fixture = "\n\n@pytest.fixture\ndef anyio_backend(): return 'asyncio'\n"
    done = run(ASYNC.format(mark="@pytest.mark.anyio") + fixture, "-rN", plugins=("anyio",))
    assert outcomes(done) == {"passed": 1, "failed": 2}, done.stdout
    assert done.stdout.count("[unrepeatable-body]") == 2


def test_an_async_test_that_nobody_runs_does_not_pass(run):
    done = run(ASYNC.format(mark=""))
    assert "passed" not in outcomes(done), done.stdout


@needs("pytest_benchmark")
def test_the_benchmark_fixture_works_beside_a_measurement_and_in_none(run):
    source = """
import pytest, torch
x = torch.ones(8, 8)

def test_timed(benchmark):
    benchmark(torch.mm, x, x)

def test_timed_and_measured(benchmark, torchprof):
    benchmark(torch.mm, x, x)
    assert torchprof(torch.mm, x, x).kernels.count == 1
"""
    done = run(source, plugins=("benchmark",))
    assert outcomes(done) == {"passed": 2}, done.stdout


UNITTEST = """
import unittest, pytest, torch
x = torch.ones(8, 8)

class TestModel(unittest.TestCase):
    def setUp(self):
        self.y = x * 2

    @pytest.mark.torchprof(max_kernels=1)
    def test_holds(self):
        torch.mm(x, self.y)

    @pytest.mark.torchprof(max_kernels=1)
    def test_misses(self):
        torch.mm(x, self.y) + x
"""


def test_methods_of_unittest_are_measured(run):
    done = run(UNITTEST)
    assert outcomes(done) == {"passed": 1, "failed": 1}, done.stdout
    assert f"{NumberSeen('kernels', 2)} in {StepTitle(step=1, steps=2)}" in done.stdout


TORCHS = """
import functools, unittest
import pytest, torch
from torch.testing._internal.common_device_type import dtypes, instantiate_device_type_tests
from torch.testing._internal.common_utils import TestCase, instantiate_parametrized_tests, parametrize, subtest

x = torch.ones(8, 8)
uses = pytest.mark.usefixtures("torchprof")

def adds(count):
    for _ in range(count):
        torch.add(x, x)

def wrapped(function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        return function(*args, **kwargs)
    return wrapper

@uses
class TestParameters(TestCase):
    @pytest.mark.torchprof
    @parametrize("count", [1, 2])
    def test_sets(self, count):
        self.torchprof.limits(max_kernels=1)
        self.torchprof(adds, count)

    @parametrize(
        "count",
        [
            subtest(1, decorators=[pytest.mark.torchprof(max_kernels=1)]),
            subtest(2, decorators=[pytest.mark.torchprof(max_kernels=1)]),
            subtest(3, decorators=[unittest.expectedFailure]),
        ],
    )
    @pytest.mark.torchprof(max_kernels=2)
    def test_marked(self, count):
        self.torchprof(adds, count)

    @parametrize("count", [2])
    @pytest.mark.torchprof(max_kernels=1)
    @wrapped
    @pytest.mark.torchprof(max_kernels=2)
    def test_lower(self, count):
        self.torchprof(adds, count)

    @parametrize("count", [subtest(2, decorators=[pytest.mark.torchprof(max_kernels=1)])])
    @pytest.mark.torchprof(max_kernels=1)
    @wrapped
    @pytest.mark.torchprof(max_kernels=2)
    def test_nearer(self, count):
        self.torchprof(adds, count)

@uses
class TestDevices(TestCase):
    @dtypes(torch.float32, torch.float16)
    @parametrize("allowed", [1, 2])
    @pytest.mark.torchprof
    def test_types(self, device, dtype, allowed):
        y = torch.ones(8, dtype=dtype, device=device)
        self.torchprof(lambda: y + y + y).expect(max_kernels=allowed)

class TestBodies(TestCase):
    @parametrize("count", [1, 2])
    @pytest.mark.torchprof(max_kernels=1)
    def test_whole(self, count):
        adds(count)

instantiate_parametrized_tests(TestParameters)
instantiate_parametrized_tests(TestBodies)
instantiate_device_type_tests(TestDevices, globals(), only_for="cpu")
"""


@needs("expecttest")
def test_torchs_own_parametrized_tests_are_measured(run):
    done = run(TORCHS, "-rA")
    told = {name: outcome for outcome, name in re.findall(r"^(\w+) test_it.py::(\S+)", done.stdout, re.MULTILINE)}
    assert told == {
        "TestParameters::test_sets_count_1": "PASSED",
        "TestParameters::test_sets_count_2": "FAILED",
        "TestParameters::test_marked_count_1": "PASSED",
        "TestParameters::test_marked_count_2": "FAILED",
        "TestParameters::test_marked_count_3": "XFAIL",
        "TestParameters::test_lower_count_2": "PASSED",
        "TestParameters::test_nearer_count_2": "FAILED",
        "TestDevicesCPU::test_types_allowed_1_cpu_float32": "FAILED",
        "TestDevicesCPU::test_types_allowed_1_cpu_float16": "FAILED",
        "TestDevicesCPU::test_types_allowed_2_cpu_float32": "PASSED",
        "TestDevicesCPU::test_types_allowed_2_cpu_float16": "PASSED",
        "TestBodies::test_whole_count_1": "PASSED",
        "TestBodies::test_whole_count_2": "FAILED",
    }


def test_doctests_of_a_marked_module_run_as_they_are(run, tmp_path):
    source = '"""\n>>> 1 + 1\n2\n"""\nimport pytest, torch\npytestmark = pytest.mark.torchprof(max_kernels=1)\n\ndef test_it():\n    torch.mm(torch.ones(2, 2), torch.ones(2, 2))\n'
    done = run(source, "--doctest-modules")
    assert outcomes(done) == {"passed": 1, "failed": 1}, done.stdout


SUBTESTS = """
import pytest, torch
x = torch.ones(8, 8)

@pytest.mark.torchprof(max_kernels=1)
def test_parts(subtests):
    torch.mm(x, x)
    for number in range(3):
        with subtests.test(number=number):
            assert number != {wrong}

@pytest.mark.torchprof(max_kernels=0, min_kernels=0)
def test_misses(subtests):
    with subtests.test("a product"):
        torch.mm(x, x)
"""


@pytest.mark.skipif(int(version("pytest").partition(".")[0]) < 9, reason="subtests are built into pytest 9")
@pytest.mark.parametrize(("wrong", "fails"), [(7, 1), (1, 2)])
def test_subtests_neither_hide_a_miss_nor_are_hidden(run, wrong, fails):
    done = run(SUBTESTS.format(wrong=wrong))
    assert done.returncode == 1
    assert "max_kernels=0" in done.stdout
    assert ("assert 1 != 1" in done.stdout) == (wrong == 1)


HYPOTHESIS = """
import pytest, torch
from hypothesis import HealthCheck, given, settings, strategies as st
x = torch.ones(8, 8)

@pytest.mark.torchprof(max_kernels=1)
@settings(max_examples=5, deadline=None)
@given(st.integers(1, 3))
def test_any(factor):
    torch.mm(x, x)

@settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(1, 3))
def test_within(torchprof, factor):
    assert torchprof(torch.mm, x, x).kernels.count == 1
"""


@needs("hypothesis")
def test_a_marked_test_of_hypothesis_is_told_what_to_do(run):
    done = run(HYPOTHESIS, plugins=("hypothesispytest",))
    assert outcomes(done) == {"failed": 1, "passed": 1}, done.stdout
    assert "@given" in done.stdout


def test_last_failed_stepwise_and_first_failure_see_a_missed_limit(run):
    assert outcomes(run(THREE)) == {"passed": 2, "failed": 2}
    assert outcomes(run(THREE, "--lf")) == {"failed": 2}
    assert outcomes(run(THREE, "--ff", "-x")) == {"failed": 1}
    assert outcomes(run(THREE, "--sw")) == {"passed": 1, "failed": 1}
    assert outcomes(run(THREE, "--maxfail=2")) == {"passed": 1, "failed": 2}
