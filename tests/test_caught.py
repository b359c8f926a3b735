"""What the test is told is not measured never passes, even where the test keeps the error to itself."""

from __future__ import annotations

import pytest

from pytest_torchprof.limits.evidence import CaughtByTest

pytestmark = pytest.mark.any_torch

QUESTIONS = {
    "a limit": ("profile.expect(max_syncs=0)", "max_syncs=0 * [[]needs-gpu]"),
    "a limit beside one that is missed": ("profile.expect(max_kernels=0, max_syncs=0)", "max_syncs=0 * [[]needs-gpu]"),
    "a range": ("profile.range('nowhere')", "profile=measured * [[]not-in-recording]"),
    "occurrences of a range": ("profile.ranges('nowhere')", "profile=measured * [[]not-in-recording]"),
    "a selector": ("profile.kernels.matching(IN_DOUBLES).count == 0", "profile=measured * [[]match-unknown]"),
    "a selector in a step": (
        "profile.steps[0].kernels[:1].matching(IN_DOUBLES).time_us",
        "profile=measured * [[]match-unknown]",
    ),
    "a kernel of a selector": (
        "assert torch.sin not in profile.kernels.matching(IN_DOUBLES)",
        "profile=measured * [[]match-unknown]",
    ),
    "other ranks": ("profile.ranks", "profile=measured * [[]one-rank]"),
}
CATCHING = {
    "raises": "with pytest.raises(Exception)",
    "raises, by name": "with pytest.raises(pytest_torchprof.NotMeasured)",
    "suppress": "with contextlib.suppress(Exception)",
}
TEST = """
import contextlib

IN_DOUBLES = pytest_torchprof.family("pointwise", dtype="fp64")

@cpu
def test_it(torchprof):
    profile = torchprof(torch.div, torch.arange(8), 2)
    {catching}:
        {question}

@cpu
def test_next(torchprof):
    torchprof(torch.sin, x).expect(max_kernels=1)
"""


@pytest.mark.parametrize("question", QUESTIONS)
def test_what_was_not_measured_and_was_caught_is_not_measured(run_tests, question):
    asked, said = QUESTIONS[question]
    result = run_tests(TEST.format(catching=CATCHING["suppress"], question=asked), "-vv")
    result.assert_outcomes(failed=1, passed=1)
    result.stdout.fnmatch_lines([f"*{said}*", f"*{CaughtByTest()}*"])


REFUSED = {
    "a limit that is misspelt": "profile.expect(max_kernls=0)",
    "a limit of the wrong type": "profile.expect(max_kernels='many')",
    "limits in advance": "torchprof.limits(max_kernls=0)",
    "limits of a block": "torchprof.measure('it', max_kernls=0).__enter__()",
    "a block without a name": "torchprof.measure('', max_kernels=0)",
    "no recording": "torchprof.adopt(3)",
    "no function": "torchprof()",
    "no name": "torchprof.measure()",
    "a limit without a name": "torchprof.limits(3)",
    "a limit of a profile without a name": "profile.expect(3)",
    "a keyword and no recording": "torchprof.adopt(step='forward')",
    "a pattern": "profile.kernels.matching(7)",
    "a range": "profile.range(7)",
}


@pytest.mark.parametrize("asked", REFUSED.values(), ids=REFUSED)
def test_what_was_refused_and_was_caught_fails_the_test(run_tests, asked):
    result = run_tests(TEST.format(catching=CATCHING["suppress"], question=asked), "-vv")
    result.assert_outcomes(failed=1, passed=1)
    result.stdout.fnmatch_lines(["*not measured*", "test_it*::test_it* error"])


@pytest.mark.parametrize(
    "asked",
    [
        *REFUSED.values(),
        "with torchprof.measure('it') as m: list(m.steps(3))",
        "torchprof.measure('it', 'there')",
        "torchprof(torch.sin, x).expect(0)",
    ],
)
def test_what_was_refused_is_no_failure_that_was_expected(run_tests, asked):
    source = f"""
@pytest.mark.xfail(reason="known")
@cpu
def test_it(torchprof):
    profile = torchprof(torch.sin, x)
    {asked}
"""
    result = run_tests(source, "-vv")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["test_it*::test_it* error"])


def test_a_type_error_of_the_measured_code_stays_what_it_is(run_tests):
    source = """
def takes_one(x):
    pass

@pytest.mark.xfail(raises=TypeError, strict=True)
@cpu
def test_it(torchprof):
    torchprof(takes_one)
"""
    run_tests(source).assert_outcomes(xfailed=1)


SKIPPING = """
import unittest

@cpu
def test_it(torchprof):
    profile = torchprof(torch.sin, x)
    try:
        {asked}
    except Exception:
        {skip}
"""
SKIPS = {
    "skip": "pytest.skip('not here')",
    "importorskip": "pytest.importorskip('no_such_module')",
    "unittest": "raise unittest.SkipTest('not here')",
    "skip in a block": "\n        with torchprof.measure('it') as m:\n            pytest.skip('not here')",
}


@pytest.mark.parametrize("skip", SKIPS.values(), ids=SKIPS)
def test_a_skip_does_not_hide_it(run_tests, skip):
    result = run_tests(SKIPPING.format(asked="profile.expect(max_syncs=0)", skip=skip))
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*max_syncs=0 * [[]needs-gpu]*"])


@pytest.mark.parametrize(
    "asked", [*REFUSED.values(), "torchprof(lambda: None).kernels.count", "with torchprof.measure('it') as m: pass"]
)
def test_a_skip_hides_nothing_that_is_not_measured(run_tests, asked):
    run_tests(SKIPPING.format(asked=asked, skip=SKIPS["skip"])).assert_outcomes(failed=1)


@pytest.mark.parametrize(
    "asked",
    ["profile.expect(max_kernels=0)", "torchprof(torch.sin, 'no tensor')", "raise ImportError"],
    ids=["a limit that is missed", "the measured code raises", "the test itself"],
)
def test_a_test_may_skip_itself_for_reasons_of_its_own(run_tests, asked):
    run_tests(SKIPPING.format(asked=asked, skip=SKIPS["skip"])).assert_outcomes(skipped=1)


@pytest.mark.parametrize("catching", CATCHING)
def test_however_it_was_caught(run_tests, catching):
    result = run_tests(TEST.format(catching=CATCHING[catching], question="profile.expect(max_syncs=0)"))
    result.assert_outcomes(failed=1, passed=1)


@pytest.mark.parametrize("mark", ["@pytest.mark.xfail", "@pytest.mark.xfail(strict=True)"])
def test_an_expected_failure_does_not_hide_it(run_tests, mark):
    source = TEST.format(catching=CATCHING["suppress"], question="profile.expect(max_syncs=0)")
    result = run_tests(source.replace("@cpu\ndef test_it", f"{mark}\n@cpu\ndef test_it"))
    result.assert_outcomes(failed=1, passed=1)


def test_with_the_limits_of_the_marker_all_is_told_together(run_tests):
    source = TEST.format(catching=CATCHING["suppress"], question="profile.expect(max_syncs=0)")
    result = run_tests(
        source.replace("@cpu\ndef test_it", '@pytest.mark.torchprof(device="cpu", max_kernels=0)\ndef test_it')
    )
    result.assert_outcomes(failed=1, passed=1)
    result.stdout.fnmatch_lines(["*1 limit missed: max_kernels; 1 limit not measured: max_syncs*"])


@pytest.mark.parametrize(
    "body",
    [
        "with pytest.raises(pytest_torchprof.LimitsMissed): torchprof(torch.sin, x).expect(max_kernels=0)",
        "repr(torchprof(torch.sin, x)._repr_html_())",
        "profile = torchprof(torch.sin, x); profile.kernels.matching(pytest_torchprof.gemm()).count",
    ],
    ids=["a limit that is missed", "a table", "an answer"],
)
def test_what_was_measured_passes(run_tests, body):
    result = run_tests(f"@cpu\ndef test_it(torchprof):\n    {body}\n")
    result.assert_outcomes(passed=1)


def test_a_recording_that_a_test_loads_is_no_measurement_of_the_test(run_tests):
    result = run_tests(
        """
def test_it(torchprof, tmp_path):
    torchprof(torch.sin, x).save(tmp_path / "one.json")
    with pytest.raises(pytest_torchprof.NotMeasured):
        pytest_torchprof.load(tmp_path / "one.json").expect(max_syncs=0)
""",
        "--torchprof-device=cpu",
    )
    result.assert_outcomes(passed=1)
