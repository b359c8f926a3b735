"""What the check of another plugin's limit returns: a verdict, or the limit is not measured and named."""

from __future__ import annotations

import json

import fresh
import pytest
from conftest import PREAMBLE
from facts import says, verdicts_in

from pytest_torchprof.limits.seen import Unworded
from pytest_torchprof.reasons.composed import OfEntry
from pytest_torchprof.reasons.plugins import (
    Brings,
    BringsSomethingElse,
    FieldOfLimit,
    KeywordTaken,
    Lack,
    UnusableLimit,
)
from pytest_torchprof.reasons.reason import Verbatim

pytestmark = pytest.mark.any_torch

PLUGIN = """
from pytest_torchprof.reasons.codes import Code
from pytest_torchprof.reasons.errors import NotMeasured, UnknownLimit
from pytest_torchprof.limits import HOLDS, MISSED, NOT_MEASURED, InWords, Limit, Verdict
from pytest_torchprof.limits.evidence import Evidence
from pytest_torchprof.limits.limit import whole_number
from pytest_torchprof.limits.seen import Seen
from pytest_torchprof.reasons.reason import Reason

class TooHot(Reason, frozen=True):
    CODE = Code.NOT_RECORDED
    SENTENCE = "the board is at {degrees} degrees"
    degrees: int

class UnknownCode(TooHot, frozen=True):
    CODE = "too-hot"

class Heat(Seen, frozen=True):
    SENTENCE = "{degrees} degrees seen"
    degrees: int

class Fan(Evidence, frozen=True):
    SENTENCE = "the fan turns {times} times"
    times: int

def check(profile, bound):
    RETURNED

def pytest_torchprof_limits():
    return [Limit(name="max_heat", read=whole_number, check=check)]
"""

TEST = """
@pytest.mark.torchprof(device="cpu", max_heat=1)
def test_it():
    WORK
"""


@pytest.fixture
def judged(run_tests, pytester):
    """Return the verdict in the JSON report on a limit whose check has this body, with the outcome of its test."""

    def judged(returned, *args, work="torch.sin(x)"):
        pytester.makeconftest(PLUGIN.replace("RETURNED", returned))
        run_tests(TEST.replace("WORK", work), "--torchprof-report=out.json", *args)
        (result,) = json.loads((pytester.path / "out.json").read_text())["results"]
        (verdict,) = result["limits"]
        assert verdict["limit"] == "max_heat"
        return result["outcome"], verdict

    return judged


@pytest.mark.parametrize(
    ("returned", "kind"),
    [
        ("return ()", "no-verdict"),
        ("return None", "no-verdict"),
        ("return True", "no-verdict"),
        ("return (Verdict(status=HOLDS), True)", "no-verdict"),
        ('return Verdict(status=HOLDS, number="two")', "unreadable-verdict"),
        ('return Verdict(status=HOLDS, number=float("nan"))', "unreadable-verdict"),
        ("return Verdict(status=HOLDS, number=profile)", "unreadable-verdict"),
        ('return Verdict(status=HOLDS, seen=("text",))', "unreadable-verdict"),
        ("return Verdict(status=HOLDS, seen=None)", "unreadable-verdict"),
        ('return Verdict(status=HOLDS, evidence=("text",))', "unreadable-verdict"),
        ('return Verdict(status="fine")', "unreadable-verdict"),
        ('return Verdict(status=NOT_MEASURED, reason="too hot")', "unreadable-verdict"),
        ("return Verdict(status=NOT_MEASURED)", "without-reason"),
    ],
)
def test_what_is_no_verdict_is_not_measured_and_names_the_limit(judged, returned, kind):
    outcome, verdict = judged(returned)
    assert (outcome, verdict["status"], verdict["reason"]["reason"]) == ("not measured", "not measured", kind)
    assert verdict["reason"]["limit"] == "max_heat"
    assert verdict["message"].endswith("[no-verdict]")


def test_a_verdict_that_holds_and_says_why_it_is_not_measured_is_not(judged):
    outcome, verdict = judged("return Verdict(status=HOLDS, reason=TooHot(90))")
    assert (outcome, verdict["status"]) == ("not measured", "not measured")


@pytest.mark.parametrize("returned", ["return Verdict(status=HOLDS)", "return (Verdict(status=HOLDS),)"])
def test_a_limit_does_not_hold_where_nothing_ran(judged, returned):
    outcome, verdict = judged(returned, work="pass")
    assert (outcome, verdict["reason"]["reason"]) == ("not measured", "nothing-ran")


@pytest.mark.parametrize(
    ("returned", "text"),
    [
        ("return Verdict(status=NOT_MEASURED, reason=TooHot(90))", "the board is at 90 degrees [not-recorded]"),
        ("return Verdict(status=NOT_MEASURED, reason=UnknownCode(90))", "the board is at 90 degrees [too-hot]"),
        ("return Verdict(status=MISSED, seen=(Heat(90),), evidence=(Fan(3),))", "90 degrees seen"),
    ],
)
def test_facts_of_a_plugins_own_kinds_are_told_in_its_words(judged, returned, text):
    _, verdict = judged(returned)
    assert verdict["message"] == text
    assert verdict["details"] == (["the fan turns 3 times"] if "Fan" in returned else [])


@pytest.mark.parametrize(
    ("returned", "unit", "text"),
    [
        ("status=MISSED, number=1234", "None", "1,234"),
        ("status=MISSED, number=0.0012", "'s'", "1.20 ms"),
        ("status=MISSED, number=2048", "'bytes'", "2.00 KiB"),
        ("status=HOLDS, number=0.25", "'share'", "25.0%"),
        ("status=MISSED", "None", str(Unworded())),
    ],
)
def test_a_verdict_without_words_shows_its_number_or_that_it_has_none(run_tests, pytester, returned, unit, text):
    source = PLUGIN.replace("RETURNED", f"return Verdict({returned}, unit={unit})")
    pytester.makeconftest(source)
    run_tests(TEST.replace("WORK", "torch.sin(x)"), "--torchprof-report=out.json")
    (found,) = json.loads((pytester.path / "out.json").read_text())["results"]
    (verdict,) = found["limits"]
    assert verdict["message"] == text


def test_they_travel_from_a_worker_of_xdist(run_tests, pytester):
    several = "(Verdict(status=MISSED, seen=(Heat(90),)), Verdict(status=NOT_MEASURED, reason=UnknownCode(91)))"
    pytester.makeconftest(PLUGIN.replace("RETURNED", f"return {several}"))
    result = run_tests(TEST.replace("WORK", "torch.sin(x)"), "-n1", "--torchprof-report=out.json")
    result.assert_outcomes(failed=1)
    (found,) = json.loads((pytester.path / "out.json").read_text())["results"]
    assert [verdict["message"] for verdict in found["limits"]] == [
        "90 degrees seen",
        "the board is at 91 degrees [too-hot]",
    ]


def test_an_entry_that_a_plugin_refuses_for_a_reason_of_its_own_travels_from_a_worker_of_xdist(run_tests, pytester):
    # By a check: what the marker says is read in the controller's process as well.
    refused = "raise NotMeasured(UnknownLimit.because(TooHot(90)).of_entry('fan').reason)"
    pytester.makeconftest(PLUGIN.replace("RETURNED", refused))
    run_tests(TEST.replace("WORK", "torch.sin(x)"), "-n1", "--torchprof-report=out.json").assert_outcomes(failed=1)
    (verdict,) = verdicts_in(pytester.path / "out.json")
    assert says(verdict.reason, OfEntry, entry="fan"), verdict.reason
    assert says(verdict.reason, Verbatim, said="the board is at 90 degrees", known_as="not-recorded")


def test_a_value_that_a_plugin_refuses_in_the_test_travels_from_a_worker_of_xdist(run_tests, pytester):
    source = PLUGIN.replace("RETURNED", "return Verdict(status=HOLDS)").replace("read=whole_number", "read=refuse")
    source = source.replace(
        "def check(", "def refuse(value):\n    raise UnknownLimit.because(TooHot(value))\n\ndef check("
    )
    pytester.makeconftest(source)
    test = """
@pytest.mark.torchprof(device="cpu")
def test_it(torchprof):
    torchprof(lambda: x + 1)
    with torchprof.measure("hot", max_heat=90) as m:
        for _ in m.steps():
            x + 1
"""
    run_tests(test, "-n1", "--torchprof-report=out.json").assert_outcomes(failed=1)
    first, _ = json.loads((pytester.path / "out.json").read_text())["results"]
    assert "90 degrees" in json.dumps(first["reason"])


def test_a_plugins_own_reason_may_be_raised(run_tests, pytester):
    pytester.makeconftest(PLUGIN.replace("RETURNED", "raise NotMeasured(UnknownCode(90))"))
    result = run_tests(TEST.replace("WORK", "torch.sin(x)"))
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*the board is at 90 degrees*too-hot*"])


RAISED = [
    "return 1 / 0",
    "import pytest; pytest.skip('no')",
    "import unittest; raise unittest.SkipTest('no')",
    "import pytest; pytest.xfail('no')",
    "from pytest_torchprof import TorchprofError; raise TorchprofError('no')",
    "profile.expect(max_kernels=0)",
]


@pytest.mark.parametrize("raised", RAISED)
def test_a_check_that_raises_is_not_measured_and_takes_no_other_verdict_along(run_tests, pytester, raised):
    pytester.makeconftest(PLUGIN.replace("RETURNED", raised))
    test = TEST.replace("WORK", "torch.sin(x)").replace("max_heat=1", "max_heat=1, max_kernels=0")
    run_tests(test, "--torchprof-report=out.json").assert_outcomes(failed=1)
    (result,) = json.loads((pytester.path / "out.json").read_text())["results"]
    by_limit = {verdict["limit"]: verdict for verdict in result["limits"]}
    assert by_limit["max_kernels"]["status"] == "missed"
    assert by_limit["max_heat"]["status"] == "not measured"
    assert by_limit["max_heat"]["reason"]["reason"] == "check-raised"


@pytest.mark.parametrize(
    ("raised", "text"),
    [("raise SystemExit(0)", "SystemExit: 0"), ("import pytest; pytest.fail('Timeout >1s')", "Timeout >1s")],
)
def test_an_end_that_comes_from_elsewhere_is_not_blamed_on_the_check(run_tests, pytester, raised, text):
    """A timeout fails whatever runs at the time, and a signal's handler leaves the program."""
    pytester.makeconftest(PLUGIN.replace("RETURNED", raised))
    result = run_tests(TEST.replace("WORK", "torch.sin(x)"))
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines([f"*{text}*"])
    result.stdout.no_fnmatch_line("*[[]no-verdict]*")


def test_who_ends_the_run_from_a_check_ends_it(pytester):
    pytester.makeconftest(PLUGIN.replace("RETURNED", "import pytest; pytest.exit('enough', 7)"))
    pytester.makepyfile(PREAMBLE + TEST.replace("WORK", "torch.sin(x)"))
    # A run that ends here leaves its watch of torch.compile in the process.
    assert fresh.run_pytest("-p", "no:cacheprovider").ret == 7


@pytest.mark.parametrize(
    ("limits", "problem"),
    [
        ('[Limit(name="max_kernels", read=whole_number, check=check)]', KeywordTaken("'max_kernels'", "max_kernels")),
        ('[Limit(name="warmup", read=whole_number, check=check)]', KeywordTaken("'warmup'", "warmup")),
        ('[Limit(name="x", read=whole_number, check=check) for _ in "ab"]', KeywordTaken("'x'", "x")),
        (
            '[Limit(name="x", read=whole_number, check=check, settings=(Setting(name="allow_syncs", read=int),))]',
            KeywordTaken("'x'", "allow_syncs"),
        ),
        ('[Limit(name="no name", read=whole_number, check=check)]', UnusableLimit("'no name'", Lack.NAME)),
        ('[Limit(name="x", read=None, check=check)]', UnusableLimit("'x'", Lack.FUNCTIONS)),
        (
            '[Limit(name="x", read=whole_number, check=check, needs="quantum")]',
            FieldOfLimit("'x'", "needs", "'gpu' or 'compile'", "'quantum'"),
        ),
        ('[Limit(name="x", read=whole_number, check=check, unit="parsec")]', "parsec"),
        ('Limit(name="x", read=whole_number, check=check)', "[bad-option]"),
        ("[None]", BringsSomethingElse(Brings.LIMIT, "None")),
        ("5", BringsSomethingElse(Brings.LIMITS, "5")),
    ],
)
def test_what_is_no_limit_or_takes_anothers_place_is_bad_usage(run_tests, pytester, limits, problem):
    source = PLUGIN.replace("RETURNED", "return Verdict(status=HOLDS)")
    listed = '[Limit(name="max_heat", read=whole_number, check=check)]'
    source = source.replace("import whole_number", "import Setting, whole_number")
    assert listed in source
    pytester.makeconftest(source.replace(listed, limits))
    result = run_tests(TEST.replace("WORK", "torch.sin(x)"))
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    said = str(problem).removesuffix(" [bad-option]")
    result.stderr.fnmatch_lines([f"*pytest_torchprof_limits: *{said}*bad-option*"])


def test_limits_may_share_a_setting(run_tests, pytester):
    source = PLUGIN.replace("RETURNED", "return Verdict(status=HOLDS)")
    source = source.replace("import whole_number", "import Setting, whole_number").replace(
        "return [Limit(",
        """own = Setting(name="watched", read=whole_number)
    def watching(profile, bound, watched=0):
        return check(profile, bound)
    return [Limit(name="min_heat", read=whole_number, check=watching, settings=(own,)),
            Limit(name="most_heat", read=whole_number, check=watching, settings=(own,)), Limit(""",
    )
    pytester.makeconftest(source)
    test = TEST.replace("WORK", "torch.sin(x)").replace("max_heat=1", "min_heat=1, most_heat=1, watched=1")
    run_tests(test).assert_outcomes(passed=1)


@pytest.mark.parametrize(("read", "value"), [("float", '"heat"'), ("lambda value: 1 / 0", "1")])
def test_a_value_that_cannot_be_read_is_bad_usage(run_tests, pytester, read, value):
    source = PLUGIN.replace("RETURNED", "return Verdict(status=HOLDS)").replace("read=whole_number", f"read={read}")
    pytester.makeconftest(source)
    result = run_tests(TEST.replace("max_heat=1", f"max_heat={value}").replace("WORK", "torch.sin(x)"))
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*torchprof marker: max_heat=*Error: *"])


def test_a_bound_without_end_is_none_in_the_report(run_tests, pytester):
    source = PLUGIN.replace("RETURNED", "return Verdict(status=HOLDS)").replace("read=whole_number", "read=float")
    pytester.makeconftest(source)
    run_tests(
        TEST.replace("max_heat=1", 'max_heat="inf"').replace("WORK", "torch.sin(x)"), "--torchprof-report=out.json"
    ).assert_outcomes(passed=1)
    (result,) = json.loads((pytester.path / "out.json").read_text())["results"]
    assert result["limits"][0]["bound"] is None
