"""Words that are no limits of their own and change what others count: here one of another plugin's limits."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.any_torch

OUTSIDE = """
from pytest_torchprof.reasons.errors import UnknownLimit
from pytest_torchprof.limits import HOLDS, MISSED, InWords, Limit, Setting, Verdict
from pytest_torchprof.limits.limit import whole_number

def read_operator(value):
    if isinstance(value, str) and "::" in value:
        return value
    raise UnknownLimit(f"expected an operator's name, got {value!r}")

def check(profile, most, *, of=None):
    count = sum(kernel.op == of for kernel in profile.kernels) if of else len(profile.kernels)
    return Verdict(seen=(InWords(f"{count} calls"),), number=count, status=HOLDS if count <= most else MISSED)

def pytest_torchprof_limits():
    return [Limit(name="max_calls", read=whole_number, check=check, settings=(Setting(name="of", read=read_operator),))]
"""
TWO_SINES = "torch.sin(x); torch.sin(x); torch.cos(x)"


@pytest.fixture
def run_with_setting(pytester, run_tests):
    pytester.makepyfile(outside=OUTSIDE)
    pytester.syspathinsert()

    def run(*tests):
        return run_tests("\n".join(tests), "-p", "outside")

    return run


def marked(words, *, name="test_it", body=TWO_SINES, fixture=""):
    return f"@pytest.mark.torchprof(device='cpu', {words})\ndef {name}({fixture}): {body}"


def test_a_setting_changes_what_its_limit_counts_and_is_no_verdict_of_its_own(run_with_setting):
    result = run_with_setting(
        marked("max_calls=1", name="test_all"),
        marked("max_calls=1, of='aten::sin'", name="test_sines"),
        marked("of='aten::cos', max_calls=1", name="test_cosines"),
    )
    result.assert_outcomes(failed=2, passed=1)
    result.stdout.fnmatch_lines(["*1 limit missed: max_calls*", "*max_calls=1 *3 calls*"])
    result.stdout.fnmatch_lines(["*1 limit missed: max_calls*", "*max_calls=1 *2 calls*"])


def test_the_markers_setting_counts_for_a_measurements_limit_and_the_other_way_round(run_with_setting):
    measure = """
    with torchprof.measure("a", {words}) as m:
        for _ in m.steps():
            torch.sin(x); torch.sin(x); torch.cos(x)
"""
    result = run_with_setting(
        marked("of='aten::cos'", fixture="torchprof", body=measure.format(words="max_calls=1")),
        marked("max_calls=1", name="test_2", fixture="torchprof", body=measure.format(words="of='aten::cos'")),
        marked(
            "max_calls=1, of='aten::sin'",
            name="test_nearest",
            fixture="torchprof",
            body=measure.format(words="of='aten::cos'"),
        ),
    )
    result.assert_outcomes(passed=3)


def test_without_its_limit_a_setting_is_refused_at_collection(run_with_setting):
    result = run_with_setting(marked("max_kernels=9, of='aten::sin'"))
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(
        ["*test_it: torchprof marker: of changes what max_calls counts; give max_calls too [[]lone-setting]*"]
    )


def test_where_a_measurement_might_bring_the_limit_it_is_refused_when_none_does(run_with_setting):
    result = run_with_setting(marked("of='aten::sin'", fixture="torchprof", body="torchprof(torch.sin, x)"))
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*UnknownLimit: of changes what max_calls counts; give max_calls too*"])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("max_calls=1, of='sin'", "of='sin': expected an operator's name, got 'sin' [[]bad-value]"),
        ("max_calls=1, off='aten::sin'", "unknown keyword 'off'; did you mean 'of'?*"),
    ],
)
def test_a_bad_setting_is_refused_like_a_bad_limit(run_with_setting, words, said):
    result = run_with_setting(marked(words))
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"*torchprof marker: {said}"])
