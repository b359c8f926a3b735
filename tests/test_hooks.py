"""Another plugin adds a limit, a finding and a report format."""

from __future__ import annotations

import json

import pytest

from pytest_torchprof.reasons.plugins import Brings, BringsSomethingElse, FindingTaken, Lack, OfHook, UnusableRule

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
    result.stdout.fnmatch_lines(["*forbid=sines*sines*", "*Sines: a sine was computed*"])
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


def test_what_a_check_of_another_plugin_raises_fails_the_test_when_its_body_is_over(run_tests, pytester):
    pytester.makepyfile(outside=RAISING.replace("RAISE", 'raise ValueError("the table has no entry")'))
    pytester.syspathinsert()
    source = (
        '@pytest.mark.torchprof(device="cpu", max_heat=1)\n'
        "def test_it(torchprof):\n    torchprof(torch.sin, x)\n    print('the body went on')\n"
    )
    result = run_tests(source, "-p", "outside")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*the table has no entry*", "*the body went on*"])


FAILING = [
    ("import pytest; pytest.skip('no')", "raised Skipped: no"),
    ("import unittest; raise unittest.SkipTest('no')", "raised SkipTest: no"),
    ("1 / 0", "raised ZeroDivisionError: division by zero"),
    ("return None", "raised TypeError: *"),
    ("yield 3", "returned 3 *"),
    ("yield OtherFinding(code='cosines', title='x', message='x')", "returned <Finding *"),
    ("yield OtherFinding(code='sines', title='x', message='x', severity='critical')", "returned <Finding *"),
    ("yield OtherFinding(code='sines', title='x', message='x', saves_us=float('nan'))", "raised ValueError: *"),
]
TWO = """
@pytest.mark.torchprof(device="cpu", forbid="sines", max_kernels=0)
def test_forbidden():
    torch.sin(x)

@pytest.mark.torchprof(device="cpu", max_kernels=0)
def test_reported():
    torch.sin(x)
"""


@pytest.fixture
def failing(pytester):
    """Let the rule of the other plugin do this."""

    def failing(body, needs="()"):
        found = OUTSIDE[OUTSIDE.index('    if profile.kernels.matching("aten::sin")') : OUTSIDE.index("def render")]
        source = OUTSIDE.replace(found, f"    {body}\n\n").replace("needs=()", f"needs={needs}")
        assert source != OUTSIDE
        pytester.makepyfile(outside=source)
        pytester.syspathinsert()
        return "-p", "outside"

    return failing


@pytest.mark.parametrize("warnings", ["always", "error"])
@pytest.mark.parametrize(("body", "reason"), FAILING)
def test_a_rule_that_fails_takes_no_verdict_along(run_tests, pytester, failing, body, reason, warnings):
    """Where it is forbidden, that is not measured; where a report alone asks for all findings, there is a warning."""
    filters = "-W", f"{warnings}::pytest_torchprof.TorchprofWarning"
    result = run_tests(TWO, *failing(body), "--torchprof-report=out.json", *filters)
    assert (result.ret, result.parseoutcomes()["failed"]) == (pytest.ExitCode.TESTS_FAILED, 2)
    if warnings == "always":
        result.stdout.fnmatch_lines([f"*TorchprofWarning: *test_reported: the rule of sines {reason}*no-verdict*"])
    forbidden, reported = json.loads((pytester.path / "out.json").read_text())["results"]
    statuses = [{verdict["limit"]: verdict["status"] for verdict in each["limits"]} for each in (forbidden, reported)]
    assert statuses == [{"forbid": "not measured", "max_kernels": "missed"}, {"max_kernels": "missed"}]


def test_whoever_asks_for_findings_of_a_rule_that_fails_does_not_pass(run_tests, failing):
    source = """
@cpu
def test_that_asks(torchprof):
    profile = torchprof(torch.sin, x)
    assert not [finding for finding in profile.findings if finding.code == "sines"]
"""
    result = run_tests(source, *failing("1 / 0"))
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*the rule of sines raised ZeroDivisionError*no-verdict*"])


def test_what_a_rule_needs_may_fail_too(run_tests, pytester, failing):
    need = "(Need(missing=ReadFromGpuWork(), there=lambda analysis: 1 / 0),)"
    arguments = failing("return ()", needs=need)
    file = pytester.path / "outside.py"
    imports = "from pytest_torchprof.findings.finding import Need\nfrom pytest_torchprof.reasons.findings import ReadFromGpuWork\n"
    file.write_text(imports + file.read_text())
    result = run_tests(TWO[: TWO.index("@pytest.mark.torchprof", 5)], *arguments)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*forbid=sines*not measured: *the rule of sines raised ZeroDivisionError*"])


@pytest.mark.parametrize("raised", ["raise SystemExit(0)", "import pytest; pytest.fail('Timeout >1s')"])
def test_an_end_that_comes_from_elsewhere_is_no_failure_of_the_rule(run_tests, failing, raised):
    """It is no pass, and not blamed on the rule: a timeout fails whatever runs at the time."""
    result = run_tests("@cpu\ndef test_it():\n    torch.sin(x)\n", *failing(raised), "--torchprof-report=out.json")
    result.assert_outcomes(failed=1)
    result.stdout.no_fnmatch_line("*the rule of sines raised*")


@pytest.mark.parametrize(
    ("rules", "problem"),
    [
        ('[Rule(code="implicit-sync", find=find_sines, needs=())]', FindingTaken("implicit-sync")),
        ('[Rule(code="x", find=find_sines, needs=()) for _ in "ab"]', FindingTaken("x")),
        ('[Rule(code="x", find=None, needs=())]', UnusableRule("'x'", Lack.FUNCTION)),
        ('[Rule(code="x", find=find_sines, needs=("gpu",))]', UnusableRule("'x'", Lack.NEEDS)),
        ("[5]", BringsSomethingElse(Brings.RULE, "5")),
        ("5", BringsSomethingElse(Brings.RULES, "5")),
    ],
)
def test_what_is_no_rule_or_takes_anothers_place_is_bad_usage(run_tests, pytester, rules, problem):
    pytester.makepyfile(outside=OUTSIDE.replace('[Rule(code="sines", find=find_sines, needs=())]', rules))
    pytester.syspathinsert()
    result = run_tests("@cpu\ndef test_it():\n    torch.sin(x)\n", "-p", "outside")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert str(OfHook("pytest_torchprof_findings", "outside", problem)) in result.stderr.str()


@pytest.mark.parametrize("hook", ["limits", "findings", "kernels", "reporters"])
@pytest.mark.parametrize("body", ["return 1 / 0", "yield 1 / 0"])
def test_a_hook_that_raises_is_bad_usage_and_names_the_plugin(run_tests, pytester, hook, body):
    pytester.makepyfile(outside=f"def pytest_torchprof_{hook}():\n    {body}\n")
    pytester.syspathinsert()
    result = run_tests("@cpu\ndef test_it():\n    torch.sin(x)\n", "-p", "outside")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    told = f"*pytest_torchprof_{hook}: *outside*"
    result.stderr.fnmatch_lines([f"{told}ZeroDivisionError*" if body.startswith("return") else told])


@pytest.mark.parametrize("given", ["5", "{'csv': str}", "{'.csv': 5}"])
def test_what_is_no_report_format_is_bad_usage(run_tests, pytester, given):
    pytester.makepyfile(outside=f"def pytest_torchprof_reporters():\n    return {given}\n")
    pytester.syspathinsert()
    result = run_tests("@cpu\ndef test_it():\n    torch.sin(x)\n", "-p", "outside")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*pytest_torchprof_reporters: expected *plugin outside*bad-option*"])


@pytest.mark.parametrize(("body", "told"), [("return 1 / 0", "ZeroDivisionError"), ("return 5", "returned 5")])
def test_a_report_format_that_fails_leaves_the_other_reports_and_fails_the_run(run_tests, pytester, body, told):
    pytester.makepyfile(
        outside=f"def render(run):\n    {body}\ndef pytest_torchprof_reporters():\n    return {{'.csv': render}}\n"
    )
    pytester.syspathinsert()
    reports = ["--torchprof-report=out.csv", "--torchprof-report=out.json"]
    result = run_tests("@cpu\ndef test_it():\n    torch.sin(x)\n", "-p", "outside", *reports)
    result.assert_outcomes(passed=1)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines([f"*out.csv: the format .csv of the plugin outside*{told}*report-not-written*"])
    assert json.loads((pytester.path / "out.json").read_text())["results"]
    assert not (pytester.path / "out.csv").exists()
