"""Tests of unittest with the fixture, and limits that a test's body sets: where a parameter decides what is allowed."""

from __future__ import annotations

import re
from importlib.metadata import version
from pathlib import Path

import pytest

from pytest_torchprof.reasons.misuse import LimitsSetInside
from pytest_torchprof.reasons.testing import LimitsUnused
from pytest_torchprof.reasons.unittests import NoFixtureInTestCase, NoFixtureOfClass
from pytest_torchprof.report.account import NotJudgedOnCpu

pytestmark = pytest.mark.any_torch

LIMITS_PAGE = (Path(__file__).parents[1] / "docs" / "limits.md").read_text()

COMMON = """
import unittest

def adds(count):
    for _ in range(count):
        torch.add(x, x)

uses = pytest.mark.usefixtures("torchprof")
"""
has_subtests = pytest.mark.skipif(
    int(version("pytest").partition(".")[0]) < 9, reason="pytest before 9 stops at a subtest that fails"
)


@pytest.fixture
def run_cases(run_tests):
    return lambda source, *words, **how: run_tests(COMMON + source, *words, **how)


def test_a_class_that_uses_the_fixture_finds_it_from_setup_on(run_cases):
    result = run_cases("""
@uses
class TestIt(unittest.TestCase):
    def setUp(self):
        assert self.torchprof.device.type in ("cpu", "cuda")

    @pytest.mark.torchprof(device="cpu", max_kernels=1)
    def test_call(self):
        assert self.torchprof(torch.add, x, x).kernels.count == 1

    @pytest.mark.torchprof(device="cpu", max_kernels=1)
    def test_block(self):
        with self.torchprof.measure("adds") as m:
            for _ in m.steps():
                adds(2)

    @cpu
    def test_expects(self):
        self.torchprof(adds, 2).expect(max_kernels=1)
""")
    result.assert_outcomes(passed=1, failed=2)
    result.stdout.fnmatch_lines(["*adds: 1 limit missed: max_kernels*"])


def test_asynchronous_methods_find_it_too(run_cases):
    result = run_cases("""
@uses
@pytest.mark.torchprof(device="cpu", max_kernels=1)
class TestIt(unittest.IsolatedAsyncioTestCase):
    async def asyncSetUp(self):
        assert self.torchprof.device.type == "cpu"

    async def test_holds(self):
        self.torchprof(adds, 1)

    async def test_misses(self):
        self.torchprof(adds, 2)
""")
    result.assert_outcomes(passed=1, failed=1)


def test_a_marked_class_asks_each_of_its_methods_to_measure(run_cases):
    result = run_cases("""
@uses
@pytest.mark.torchprof(device="cpu", max_kernels=1)
class TestIt(unittest.TestCase):
    def test_measures(self):
        self.torchprof(adds, 1)

    def test_measures_nothing(self):
        adds(1)

    def test_skips_itself(self):
        self.skipTest("for a reason")

    @unittest.skip("for another")
    def test_is_skipped(self):
        assert False
""")
    result.assert_outcomes(passed=1, failed=1, skipped=2)
    result.stdout.fnmatch_lines(["*[[]nothing-measured]*"])


def test_expected_failures_expect_what_is_missed_and_never_what_is_not_measured(run_cases):
    result = run_cases("""
@uses
@cpu
class TestIt(unittest.TestCase):
    @unittest.expectedFailure
    def test_missed(self):
        self.torchprof.limits(max_kernels=1)
        self.torchprof(adds, 2)

    @unittest.expectedFailure
    def test_unmeasured(self):
        self.torchprof.limits(max_syncs=0)
        self.torchprof(adds, 2)

    @unittest.expectedFailure
    def test_used_wrongly(self):
        self.torchprof.limits(max_kernel=1)
""")
    result.assert_outcomes(xfailed=1, failed=2)
    result.stdout.fnmatch_lines_random(["*not measured: max_syncs*", "*did you mean 'max_kernels'*"])


SUBTESTS = """
@uses
@cpu
class TestIt(unittest.TestCase):
    def test_parts(self):
        for allowed in (1, 2, 3):
            with self.subTest(allowed=allowed):
                self.torchprof(adds, 2).expect(max_kernels=allowed)

    def test_limits(self):
        for allowed in (1, 2, 3):
            with self.subTest(allowed=allowed):
                self.torchprof.limits(max_kernels=allowed)
                self.torchprof(adds, 2)

    def test_left(self):
        for allowed in (1, 2):
            with self.subTest(allowed=allowed), self.torchprof.measure(f"part {allowed}") as m:
                for _ in m.steps():
                    if allowed == 1:
                        break
                    adds(1)
"""


@has_subtests
def test_each_part_of_a_test_has_its_own_limits(run_cases, pytester):
    result = run_cases(SUBTESTS, "--torchprof-baseline=update")
    result.stdout.fnmatch_lines_random(
        [
            "SUBFAILED(allowed=1) *::test_parts - *max_*=*",
            "FAILED *::test_limits - *max_*=*",
            "SUBFAILED(allowed=1) *::test_left - *not measured*",
            "FAILED *::test_left - *not measured*",
        ]
    )
    result.stdout.no_fnmatch_line("*allowed=2*")
    # Of a test that failed in a part, nothing is what it should be.
    assert not (pytester.path / "__torchprof__").exists()


@has_subtests
def test_a_part_that_looks_at_a_gpus_number_skips_where_there_is_none(run_cases, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    result = run_cases(
        """
@uses
class TestIt(unittest.TestCase):
    @pytest.mark.torchprof(max_kernels=1)
    def test_it(self):
        with self.subTest():
            assert self.torchprof(adds, 2).kernels.count == 1
""",
        "-rs",
    )
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines([f"*{NotJudgedOnCpu(('max_kernels',))}*"])


def test_what_teardown_measures_is_judged(run_cases):
    result = run_cases("""
@uses
class TestIt(unittest.TestCase):
    @cpu
    def test_it(self):
        self.torchprof(adds, 1)

    def tearDown(self):
        self.torchprof.limits(max_kernels=1)
        self.torchprof(adds, 2)
""")
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["*#2: 1 limit missed: max_kernels*"])


@pytest.mark.parametrize("phase", ["setUp", "asyncSetUp"])
def test_what_setup_measures_is_not_judged_where_the_test_does_not_run(run_cases, phase):
    is_async = phase == "asyncSetUp"
    result = run_cases(f"""
@uses
class TestIt(unittest.{"IsolatedAsyncioTestCase" if is_async else "TestCase"}):
    {"async " if is_async else ""}def {phase}(self):
        self.torchprof(adds, 1)
        self.skipTest("for a reason")

    @pytest.mark.torchprof(device="cpu", max_kernels=0)
    {"async " if is_async else ""}def test_it(self):
        assert False
""")
    result.assert_outcomes(skipped=1)


def test_where_there_is_no_fixture_it_says_why(run_cases):
    result = run_cases("""
class TestUnused(unittest.TestCase):
    def test_it(self):
        self.torchprof(adds, 1)

class TestMarkedAlone(unittest.TestCase):
    @cpu
    def test_it(self):
        self.torchprof(adds, 1)

@uses
class TestClass(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.torchprof(adds, 1)

    def test_one(self):
        pass

    def test_two(self):
        pass
""")
    result.assert_outcomes(failed=2, errors=2)
    text = result.stdout.str()
    assert text.count(str(NoFixtureInTestCase())) == 2
    assert text.count(str(NoFixtureOfClass())) == 2


def test_an_attribute_that_others_lack_is_not_explained(run_cases):
    result = run_cases("""
class TestIt(unittest.TestCase):
    def test_it(self):
        torch.torchprof

    def test_another(self):
        self.torchprofs
""")
    result.assert_outcomes(failed=2)
    result.stdout.no_fnmatch_line("*usefixtures*")


def test_switched_off_and_in_a_replay_it_is_there_as_ever(run_cases):
    source = """
@uses
@cpu
class TestIt(unittest.TestCase):
    def test_it(self):
        self.torchprof.limits(max_kernels=1)
        self.torchprof(adds, {count})
"""
    run_cases(source.format(count=1), "--torchprof-save=kept").assert_outcomes(passed=1)
    # What is judged is the recording.
    run_cases(source.format(count=2), "--torchprof-replay=kept").assert_outcomes(passed=1)
    missed = source.replace("max_kernels=1", "max_kernels=0").format(count=1)
    run_cases(missed, "--torchprof-replay=kept").assert_outcomes(failed=1)
    run_cases(missed, "--torchprof=off").assert_outcomes(passed=1)


LIMITS = {
    "beside the marker's": ("max_launches=3", "max_kernels=1", "", "max_launches=3 .*max_kernels=1 .*2 kernels"),
    "in place of the marker's": ("max_kernels=3", "max_kernels=1", "", "max_kernels=1 .*2 kernels"),
    "under those of a block": ("max_kernels=1", "max_kernels=1", ", max_kernels=2", None),
}


@pytest.mark.parametrize(("marker", "body", "block", "missed"), LIMITS.values(), ids=LIMITS)
def test_limits_of_the_body_hold(run_cases, marker, body, block, missed):
    result = run_cases(f"""
@pytest.mark.torchprof(device="cpu", {marker})
def test_it(torchprof):
    torchprof.limits({body})
    with torchprof.measure("a"{block}) as m:
        for _ in m.steps():
            adds(2)
""")
    result.assert_outcomes(**{"failed" if missed else "passed": 1})
    assert missed is None or re.search(missed, " ".join(result.stdout.lines), re.DOTALL)


def test_limits_hold_for_what_comes_after_them_and_the_last_of_a_name_wins(run_cases):
    result = run_cases("""
@cpu
def test_it(torchprof):
    torchprof(adds, 9)
    torchprof.limits(max_kernels=2, only_kernels="add")
    torchprof(adds, 2)
    torchprof.limits(max_kernels=3)
    torchprof(adds, 3)
    torchprof(lambda: (adds(3), torch.mul(x, x)))
""")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["#4: 2 limits missed: max_kernels, only_kernels*", "3 passed, 1 failed"])


@pytest.mark.parametrize("marker", ["@cpu", ""])
@pytest.mark.parametrize("before", ["", "torchprof(adds, 2)"])
def test_limits_after_which_nothing_is_measured_are_not_kept(run_cases, before, marker):
    result = run_cases(
        f"""
{marker}
def test_it(torchprof):
    {before}
    torchprof.limits(max_kernels=1, min_kernels=0)
""",
        "--torchprof-device=cpu",
    )
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines([f"*{LimitsUnused(('max_kernels', 'min_kernels')).sentence}*"])


SET_INSIDE = LimitsSetInside("test_it.py::test_it").sentence
REFUSED = {
    "no limit": ("torchprof.limits(max_kernel=1)", "did you mean 'max_kernels'"),
    "no value": ("torchprof.limits(max_kernels='many')", "max_kernels='many'"),
    "how to measure": ("torchprof.limits(steps=2)", "'steps' is no limit"),
    "nothing": ("torchprof.limits()", "got none [fixture-misuse]"),
    "against the marker": ("torchprof.limits(max_kernels=1)", "max_kernels=1 and min_kernels=2 cannot both hold"),
    "against what was set": (
        "torchprof.limits(max_memcpys=1, forbid_kernels='add'); torchprof.limits(kernels='add')",
        "'add' stands in kernels and in forbid_kernels",
    ),
    "in a call": ("torchprof(lambda: torchprof.limits(max_kernels=2))", SET_INSIDE),
    "in a block": ("with torchprof.measure('a'): torchprof.limits(max_kernels=2)", SET_INSIDE),
}


@pytest.mark.parametrize(("statement", "words"), REFUSED.values(), ids=REFUSED)
def test_limits_that_cannot_be_are_refused(run_cases, statement, words):
    result = run_cases(f"""
@pytest.mark.xfail
@pytest.mark.torchprof(device="cpu", min_kernels=2)
def test_it(torchprof):
    {statement}
    torchprof(adds, 2)
""")
    result.assert_outcomes(failed=1)
    assert words in result.stdout.str()
    assert "pytest_torchprof/limits" not in result.stdout.str()


def test_the_example_of_the_documentation_runs(run_cases):
    example = re.search(r"<!-- example: unittest -->\n```python\n(.*?)```", LIMITS_PAGE, re.DOTALL)[1]
    result = run_cases(
        """
class Adds(torch.nn.Module):
    def forward(self, layers):
        adds(layers)

make_model = Adds
"""
        + example.replace(", max_graph_breaks=0", ""),
        "--torchprof-device=cpu",
    )
    result.assert_outcomes(passed=2)


NEAREST = """
@pytest.mark.torchprof(device="cpu", max_kernels=9)
class Base(unittest.TestCase):
    __test__ = False

    def test_it(self):
        adds(2)

@pytest.mark.torchprof(max_kernels={allowed})
class TestDerived(Base):
    __test__ = True

@pytest.mark.torchprof(device="cpu", max_kernels=9)
@pytest.mark.parametrize("count", [pytest.param(2, marks=pytest.mark.torchprof(max_kernels={allowed}))])
def test_parameter(count):
    adds(count)
"""


@pytest.mark.parametrize(("allowed", "outcomes"), [(2, {"passed": 2}), (1, {"failed": 2})])
def test_the_nearest_marker_is_that_of_the_parameter_or_of_the_derived_class(run_cases, allowed, outcomes):
    run_cases(NEAREST.format(allowed=allowed)).assert_outcomes(**outcomes)
