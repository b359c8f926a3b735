"""Another plugin adds a limit, a finding and a report format."""

from __future__ import annotations

import json

import pytest

pytestmark = pytest.mark.any_torch

OUTSIDE = """
from pytest_torchprof.findings import OtherFinding, Rule
from pytest_torchprof.limits import HOLDS, MISSED, InWords, Limit, Verdict
from pytest_torchprof.limits.limit import whole_number

def check_names(profile, most):
    names = profile.kernels.names
    status = HOLDS if len(names) <= most else MISSED
    return Verdict(limit="max_names", expected="", seen=(InWords(f"{len(names)} names"),), number=len(names), status=status)

def find_sines(profile):
    if profile.kernels.matching("aten::sin").count:
        yield OtherFinding(code="sines", title="Sines", message="a sine was computed", remedy="use a table")

def render(run):
    return "".join(f"{result.nodeid},{result.outcome}\\n" for result in run.results)

def pytest_torchprof_limits():
    return [Limit(name="max_names", read=whole_number, check=check_names)]

def pytest_torchprof_findings():
    return [Rule(code="sines", find=find_sines, needs=())]

def pytest_torchprof_reporters():
    return {".csv": render}
"""

TESTS = """
@pytest.mark.torchprof(device="cpu", max_names=1)
def test_names():
    torch.sin(torch.mm(x, x))

@pytest.mark.torchprof(device="cpu", forbid="sines")
def test_sines():
    torch.sin(x)

@pytest.mark.torchprof(device="cpu", max_names=1)
def test_kept():
    torch.sin(x)
"""


def test_what_another_plugin_adds_is_seen_in_failures_reports_and_exit_code(run_tests, pytester):
    pytester.makepyfile(outside=OUTSIDE)
    pytester.syspathinsert()
    result = run_tests(
        TESTS, "-p", "outside", "--torchprof-report=out.json", "--torchprof-report=out.csv", "--torchprof-report=out.md"
    )
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.assert_outcomes(failed=2, passed=1)
    result.stdout.fnmatch_lines(["*max_names=1*2 names*"])
    result.stdout.fnmatch_lines(["*forbid=sines*sines*", "*sines: a sine was computed*"])
    report = json.loads((pytester.path / "out.json").read_text())
    limits = {entry["nodeid"]: entry["limits"][0] for entry in report["results"]}
    assert (limits["test_it.py::test_names"]["measured"], limits["test_it.py::test_names"]["status"]) == (2, "missed")
    assert "sines" in [finding["code"] for entry in report["results"] for finding in entry["findings"]]
    assert (pytester.path / "out.csv").read_text().splitlines() == [
        "test_it.py::test_names,failed",
        "test_it.py::test_sines,failed",
        "test_it.py::test_kept,passed",
    ]
    assert "max_names" in (pytester.path / "out.md").read_text()


def test_a_limit_of_another_plugin_is_refused_without_it(run_tests):
    result = run_tests(TESTS)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "unknown keyword 'max_names'" in result.stderr.str() + result.stdout.str()


RAISING = """
import pytest
from pytest_torchprof.limits import Limit
from pytest_torchprof.limits.limit import whole_number

def check(profile, bound):
    RAISE

def pytest_torchprof_limits():
    return [Limit(name="max_heat", read=whole_number, check=check)]
"""


@pytest.mark.parametrize(
    "raised", ['pytest.fail("the table has no entry")', 'raise ValueError("the table has no entry")']
)
def test_what_a_check_of_another_plugin_raises_fails_the_test_when_its_body_is_over(run_tests, pytester, raised):
    pytester.makepyfile(outside=RAISING.replace("RAISE", raised))
    pytester.syspathinsert()
    source = (
        '@pytest.mark.torchprof(device="cpu", max_heat=1)\n'
        "def test_it(torchprof):\n    torchprof(torch.sin, x)\n    print('the body went on')\n"
    )
    result = run_tests(source, "-p", "outside")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*the table has no entry*", "*the body went on*"])


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("import pytest; pytest.skip('no')", "raised Skipped: no"),
        ("import unittest; raise unittest.SkipTest('no')", "raised SkipTest: no"),
        ("1 / 0", "raised ZeroDivisionError: division by zero"),
        ("return None", "raised TypeError: *"),
        ("yield 3", "returned 3 instead of a finding"),
    ],
)
def test_a_rule_that_fails_is_not_measured_and_takes_no_verdict_along(run_tests, pytester, body, reason):
    """Where it is forbidden, that is not measured; where a report alone asks for all findings, there is a warning."""
    source = OUTSIDE.replace(
        """    if profile.kernels.matching("aten::sin").count:
        yield OtherFinding(code="sines", title="Sines", message="a sine was computed", remedy="use a table")
""",
        f"    {body}\n",
    )
    assert source != OUTSIDE
    pytester.makepyfile(outside=source)
    pytester.syspathinsert()
    tests = """
@pytest.mark.torchprof(device="cpu", forbid="sines", max_kernels=0)
def test_forbidden():
    torch.sin(x)

@pytest.mark.torchprof(device="cpu", max_kernels=0)
def test_reported():
    torch.sin(x)
"""
    result = run_tests(
        tests, "-p", "outside", "--torchprof-report=out.json", "-W", "always::pytest_torchprof.TorchprofWarning"
    )
    assert (result.ret, result.parseoutcomes()["failed"]) == (pytest.ExitCode.TESTS_FAILED, 2)
    result.stdout.fnmatch_lines([f"*TorchprofWarning: the rule of sines {reason}*no-verdict*"])
    forbidden, reported = json.loads((pytester.path / "out.json").read_text())["results"]
    statuses = [{verdict["limit"]: verdict["status"] for verdict in each["limits"]} for each in (forbidden, reported)]
    assert statuses == [{"forbid": "not measured", "max_kernels": "missed"}, {"max_kernels": "missed"}]
