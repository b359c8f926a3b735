"""Failures that a test expects: unittest's and pytest's, measured, not measured, and with measuring switched off."""

from __future__ import annotations

import pytest

from pytest_torchprof.reasons.measuring import StepsLeft
from pytest_torchprof.reasons.skips import LimitsNotJudged
from pytest_torchprof.report.account import NotJudgedOnCpu

pytestmark = pytest.mark.any_torch

CASES = """
import unittest

class Test(unittest.TestCase):
    @unittest.expectedFailure
    @pytest.mark.torchprof(device="cpu", max_kernels=0)
    def test_missed(self):
        torch.add(x, x)

    @unittest.expectedFailure
    @pytest.mark.torchprof(device="cpu", max_kernels=1)
    def test_kept(self):
        torch.add(x, x)

    @unittest.expectedFailure
    @pytest.mark.torchprof(device="cpu", max_syncs=0)
    def test_unmeasured(self):
        torch.add(x, x)

    @unittest.expectedFailure
    @pytest.mark.torchprof(device="cpu", max_kernels=1)
    def test_own_failure(self):
        assert False
"""
PLAIN = """
import unittest

class Test(unittest.TestCase):
    @pytest.mark.torchprof(device="cpu", max_kernels=0)
    def test_missed(self):
        torch.add(x, x)

    @pytest.mark.torchprof(device="cpu", max_kernels=1)
    def test_kept(self):
        torch.add(x, x)

    @pytest.mark.torchprof(device="cpu", max_kernels=1)
    def test_skips(self):
        self.skipTest("for a reason")

    @pytest.mark.torchprof(device="cpu", max_kernels=1)
    def test_fails(self):
        assert 1 == 2, "mine"

class WithFixture(unittest.TestCase):
    @pytest.fixture(autouse=True)
    def take(self, torchprof):
        self.torchprof = torchprof

    @pytest.mark.torchprof(device="cpu", max_kernels=0)
    def test_fixture(self):
        self.torchprof(torch.add, x, x)
"""
XFAILED = """
@pytest.mark.xfail(strict=True)
@pytest.mark.torchprof(device="cpu", max_kernels=0)
def test_strict():
    torch.add(x, x)

@pytest.mark.xfail
@cpu
def test_block(torchprof):
    with torchprof.measure("part", max_kernels=0) as m:
        for _ in m.steps():
            torch.add(x, x)

@pytest.mark.xfail(strict=True)
@pytest.mark.torchprof(device="cpu", max_kernels=0)
def test_own_failure():
    assert False

@pytest.mark.xfail(strict=True)
@cpu
def test_without_limits():
    torch.add(x, x)

@pytest.mark.xfail(False, reason="holds here", strict=True)
@pytest.mark.torchprof(device="cpu", max_kernels=1)
def test_condition_does_not_hold():
    torch.add(x, x)
"""


def outcomes(result):
    """Return each test's outcome, out of what ``-rA`` prints."""
    words = [
        line.split() for line in result.stdout.lines if line.split(" ")[0] in ("PASSED", "FAILED", "XFAIL", "XPASS")
    ]
    return {name.rpartition("::")[2]: outcome for outcome, name, *_ in words}


def test_unittest_expects_a_missed_limit_as_it_does_an_assertion(run_tests):
    result = run_tests(CASES, "-rA")
    assert outcomes(result) == {
        "test_missed": "XFAIL",
        "test_kept": "FAILED",
        "test_unmeasured": "FAILED",
        "test_own_failure": "XFAIL",
    }
    result.stdout.fnmatch_lines(["Unexpected success", "1 limit not measured: max_syncs*"])


def test_tests_of_unittest_fail_skip_and_pass_as_others_do(run_tests):
    result = run_tests(PLAIN, "-rA")
    result.assert_outcomes(passed=1, failed=3, skipped=1)
    result.stdout.fnmatch_lines_random(
        ["1 limit missed: max_kernels*", "*AssertionError: mine*", "SKIPPED *for a reason"]
    )


def test_unittest_takes_no_failure_for_a_limit_that_cannot_be_judged_here(run_tests, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    result = run_tests(CASES.replace('device="cpu", ', ""), "-rs")
    result.stdout.fnmatch_lines_random([f"SKIPPED *body passed; {NotJudgedOnCpu(('max_kernels',))}"])


def test_switched_off_no_expected_failure_turns_red_for_a_limit_that_nobody_judged(run_tests):
    result = run_tests(XFAILED, "--torchprof=off", "-rA")
    assert outcomes(result) == {
        "test_own_failure": "XFAIL",
        "test_without_limits": "FAILED",
        "test_condition_does_not_hold": "PASSED",
    }
    result.stdout.fnmatch_lines([f"SKIPPED*test_it.py:*: {LimitsNotJudged(('max_kernels',))}"])
    result.assert_outcomes(passed=1, failed=1, skipped=2, xfailed=1)
    result.stdout.no_fnmatch_line("*not measured*")


def test_switched_off_unittest_does_not_either(run_tests):
    result = run_tests(CASES, "--torchprof=off", "-rA")
    result.assert_outcomes(skipped=3, xfailed=1)
    result.stdout.fnmatch_lines([f"SKIPPED *{LimitsNotJudged(('max_syncs',))}"])


USED_WRONGLY = {
    "a limit that is none": """
        with torchprof.measure("a", maxkernels=5) as m:
            for _ in m.steps(): torch.add(x, x)
""",
    "one measurement in another": """
        torchprof(lambda: torchprof(torch.add, x, x))
""",
    "two loops in a block": """
        with torchprof.measure("a") as m:
            for _ in m.steps(): torch.add(x, x)
            for _ in m.steps(): torch.add(x, x)
""",
    "a block that is entered twice": """
        m = torchprof.measure("a")
        for _ in range(2):
            with m:
                for _ in m.steps(): torch.add(x, x)
""",
}


@pytest.mark.parametrize("body", USED_WRONGLY.values(), ids=USED_WRONGLY)
def test_xfail_hides_no_measurement_that_is_asked_for_in_a_way_that_cannot_be(run_tests, body):
    result = run_tests(f"""
class TestIt:
    @pytest.mark.xfail
    @pytest.mark.torchprof(device="cpu", max_kernels=5)
    def test_it(self, torchprof):{body}
""")
    result.assert_outcomes(failed=1)
    result.stdout.no_fnmatch_line("*ValueError*")


NOT_MEASURED = """
import asyncio, unittest

def leave(torchprof):
    with torchprof.measure("a") as m:
        for _ in m.steps():
            break

class Plain(unittest.TestCase):
    @pytest.fixture(autouse=True)
    def take(self, torchprof):
        self.torchprof = torchprof

    @unittest.expectedFailure
    @cpu
    def test_left(self):
        leave(self.torchprof)

class Asynchronous(unittest.IsolatedAsyncioTestCase):
    @pytest.fixture(autouse=True)
    def take(self, torchprof):
        self.torchprof = torchprof

    @unittest.expectedFailure
    @cpu
    async def test_left_too(self):
        leave(self.torchprof)

@pytest.mark.xfail
@cpu
def test_in_a_group(torchprof):
    async def part():
        leave(torchprof)
    async def whole():
        async with asyncio.TaskGroup() as group:
            group.create_task(part())
    asyncio.run(whole())

@pytest.mark.xfail
@cpu
def test_under_another_name(torchprof):
    try:
        leave(torchprof)
    except pytest_torchprof.NotMeasured:
        raise RuntimeError("mine")
"""


def test_no_way_to_expect_a_failure_hides_what_was_not_measured(run_tests):
    result = run_tests(NOT_MEASURED)
    result.assert_outcomes(failed=4)
    assert StepsLeft("'a'", calls=1).sentence in result.stdout.str()


ASYNCHRONOUS = """
import unittest

class Asynchronous(unittest.IsolatedAsyncioTestCase):
    @pytest.fixture(autouse=True)
    def take(self, torchprof):
        self.torchprof = torchprof

    @unittest.expectedFailure
    @pytest.mark.torchprof(device="cpu", max_kernels=0)
    async def test_expected(self):
        self.torchprof(torch.add, x, x)

    @pytest.mark.torchprof(device="cpu", max_kernels=0)
    async def test_missed(self):
        self.torchprof(torch.add, x, x)

    @pytest.mark.torchprof(device="cpu", max_kernels=1)
    async def test_kept(self):
        self.torchprof(torch.add, x, x)

    @pytest.mark.torchprof(device="cpu", max_kernels=1)
    async def test_skips_itself(self):
        self.skipTest("for a reason")
"""


def test_asynchronous_tests_of_unittest_are_judged_as_others_are(run_tests):
    result = run_tests(ASYNCHRONOUS, "-rA")
    result.assert_outcomes(xfailed=1, failed=1, passed=1, skipped=1)
    result.stdout.fnmatch_lines(["*1 passed, 1 failed, 1 failed as expected", "FAILED *::test_missed - max_*=*: *"])
    result.stdout.no_fnmatch_line("*contextlib*")


def test_xfail_hides_no_recording_that_is_missing(run_tests, pytester):
    (pytester.path / "kept").mkdir()
    source = """
@pytest.mark.xfail
@pytest.mark.torchprof(device="cpu", max_kernels=5)
def test_it():
    torch.add(x, x)
"""
    result = run_tests(source, "--torchprof-replay=kept")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*test_it.py::test_it*[[]replay-missing[]]*"])
