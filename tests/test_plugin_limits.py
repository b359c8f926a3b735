"""What the check of another plugin's limit returns: a verdict, or the limit is not measured and named."""

from __future__ import annotations

import json

import pytest

pytestmark = pytest.mark.any_torch

PLUGIN = """
from pytest_torchprof.reasons.codes import Code
from pytest_torchprof.reasons.errors import NotMeasured
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


def test_a_plugins_own_reason_may_be_raised(run_tests, pytester):
    pytester.makeconftest(PLUGIN.replace("RETURNED", "raise NotMeasured(UnknownCode(90))"))
    result = run_tests(TEST.replace("WORK", "torch.sin(x)"))
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*the board is at 90 degrees*too-hot*"])
