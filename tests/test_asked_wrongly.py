"""What a test asks for wrongly arrives as data: which keyword it is, which value it has, what was expected."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from facts import reasons_in, says, why_refused

from pytest_torchprof import judge, load, measure, profile
from pytest_torchprof.limits.written import read_limit_texts
from pytest_torchprof.reasons.asked_wrongly import (
    CachesOfRanks,
    DeviceOfRanks,
    NoDeviceOfKind,
    NothingToJudge,
    PositionalValue,
    UnknownKeyword,
    WarmBoundCold,
)
from pytest_torchprof.reasons.codes import Code
from pytest_torchprof.reasons.composed import OfEntry, OfKeyword
from pytest_torchprof.reasons.misuse import (
    CallWithout,
    EnteredTwice,
    KeywordHandedOver,
    ProfileTooEarly,
    StepsOutside,
    StepsTwice,
    Takes,
    WrongCall,
)
from pytest_torchprof.reasons.reason import Verbatim
from pytest_torchprof.reasons.wrong_patterns import NoSuchOperatorInTorch, TextUnread
from pytest_torchprof.reasons.wrong_values import (
    CountsMixed,
    GivenTwice,
    HugeNumber,
    NameOf,
    NoneOfThese,
    ReaderRaised,
    UnknownName,
    ValueForm,
    WrongValue,
)
from pytest_torchprof.testing.collection import state_of
from pytest_torchprof.testing.marker_options import read_test_options

pytestmark = pytest.mark.any_torch

RECORDING = next((Path(__file__).parent / "recordings").glob("test_linear.test_compiled_is_the_same_gemm*"))

x = torch.ones(2)

PLUGIN = """
from pytest_torchprof import UnknownLimit
from pytest_torchprof.limits import HOLDS, Limit, Verdict

def in_words(value):
    raise UnknownLimit("it is too hot for that")

def in_words_with_a_code(value):
    raise UnknownLimit("it is too cold for that", "too-cold")

def check(profile, value):
    return Verdict(status=HOLDS)

def pytest_torchprof_limits():
    return [Limit(name="max_heat", read=float, check=check), Limit(name="max_cold", read=in_words, check=check),
            Limit(name="min_heat", read=in_words_with_a_code, check=check)]
"""


def in_report(run_tests, source):
    run_tests(source, "--torchprof-report=out.json").assert_outcomes(failed=1)
    return reasons_in(Path("out.json"))


def test_a_code_that_another_plugin_gives_its_words_stands_once_behind_them(run_tests, pytester):
    pytester.makeconftest(PLUGIN)
    result = run_tests("@cpu\ndef test_it(torchprof):\n    torchprof.limits(min_heat=1)\n")
    result.stdout.fnmatch_lines(["E *UnknownLimit: min_heat=1: it is too cold for that [[]too-cold]"])


@pytest.mark.parametrize(
    ("statement", "kind", "facts"),
    [
        ("torchprof(3)", CallWithout, {"call": "torchprof()", "takes": Takes.FUNCTION, "got": "3"}),
        ("torchprof.measure('')", CallWithout, {"call": "torchprof.measure()", "takes": Takes.LABEL, "got": "''"}),
        ("torchprof.limits()", CallWithout, {"call": "torchprof.limits()", "takes": Takes.LIMITS, "got": "none"}),
        ("torchprof.measure()", WrongCall, {"call": "torchprof.measure()"}),
        ("torchprof(lambda: torch.sin(x), steps=2)", KeywordHandedOver, {"keyword": "steps"}),
        ("torchprof.limits(max_kernels='few')", OfKeyword, {"keyword": "max_kernels", "value": "'few'"}),
        ("torchprof.limits(max_kernels='few')", WrongValue, {"expected": ValueForm.WHOLE_NUMBER, "got": "'few'"}),
        ("torchprof(torch.sin, x).expect(min_mfu=-1)", WrongValue, {"expected": ValueForm.NUMBER, "got": "-1"}),
        ("torchprof.limits(max_kernels=2**70)", OfKeyword, {"keyword": "max_kernels", "value": "..."}),
        ("torchprof.limits(max_kernels=2**70)", HugeNumber, {}),
        ("torchprof.limits(forbid='slow')", UnknownName, {"what": NameOf.FINDING, "name": "'slow'"}),
        ("torchprof.limits(ops='aten::sinn')", OfKeyword, {"keyword": "ops", "value": "aten::sinn"}),
        ("torchprof.limits(ops='aten::sinn')", NoSuchOperatorInTorch, {"namespace": "aten", "name": "sinn"}),
        ("torchprof.limits(max_heat='hot')", OfKeyword, {"keyword": "max_heat", "value": "'hot'"}),
        ("torchprof.limits(max_heat='hot')", ReaderRaised, {}),
        ("torchprof.limits(max_cold=1)", OfKeyword, {"keyword": "max_cold", "value": "1"}),
        ("torchprof.limits(max_cold=1)", Verbatim, {"said": "it is too hot for that"}),
    ],
)
def test_what_the_fixture_is_asked_wrongly_is_in_the_report(run_tests, pytester, statement, kind, facts):
    pytester.makeconftest(PLUGIN)
    reasons = in_report(run_tests, f"@cpu\ndef test_it(torchprof):\n    {statement}\n")
    assert any(says(why, kind, **facts) for why in reasons), reasons


def block():
    return measure("a", device="cpu", steps=1, warmup=0)


def entered_twice():
    with (once := block()):
        for _ in once.steps():
            torch.sin(x)
    with once:
        pass


def steps_twice():
    with block() as m:
        for _ in m.steps():
            torch.sin(x)
        m.steps()


@pytest.mark.parametrize(
    ("use", "kind", "facts"),
    [
        (entered_twice, EnteredTwice, {"block": "'a'", "call": "pytest_torchprof.measure"}),
        (lambda: block().steps(), StepsOutside, {"call": "pytest_torchprof.measure"}),
        (steps_twice, StepsTwice, {"block": "'a'"}),
        (lambda: block().profile, ProfileTooEarly, {"block": "'a'"}),
        (lambda: profile(3), CallWithout, {"call": "profile()", "takes": Takes.FUNCTION, "known_as": Code.BAD_VALUE}),
        (lambda: profile(torch.sin, x, device="cpu").diff(3), CallWithout, {"takes": Takes.PROFILE, "got": "3"}),
        (lambda: load(3), CallWithout, {"call": "load()", "takes": Takes.PATH, "got": "3"}),
        (lambda: judge(torch.sin, x, limits={}), NothingToJudge, {}),
        (lambda: load(RECORDING, device="tpu"), NoDeviceOfKind, {"known": ("cuda", "cpu"), "got": "'tpu'"}),
    ],
)
def test_what_a_script_asks_wrongly_is_in_its_error(use, kind, facts):
    assert says(why_refused(use), kind, **facts)


@pytest.mark.parametrize(
    ("keywords", "kind", "facts"),
    [
        ("5", PositionalValue, {"got": "5"}),
        ("max_kernel=5", UnknownKeyword, {"name": "max_kernel", "near": "max_kernels"}),
        ("steps=0", OfKeyword, {"keyword": "steps", "value": "0"}),
        ("steps=0", WrongValue, {"expected": ValueForm.WHOLE_NUMBER, "least": 1}),
        ("steps=2**70", HugeNumber, {}),
        ("record='all'", NoneOfThese, {"known": ("stacks", "modules", "memory"), "several": True}),
        ("baseline=1", NoneOfThese, {"known": ("True", "False")}),
        ("compile_cache='hot'", NoneOfThese, {"known": ("cold", "warm")}),
        ("max_compile_time={'tepid': 1}", WrongValue, {"expected": ValueForm.COMPILE_TIME}),
        ("tolerance=0.1", WrongValue, {"expected": ValueForm.TOLERANCES}),
        ("tolerance={'tiem': 0.1}", UnknownName, {"what": NameOf.TOLERANCE, "near": "time"}),
        ("tolerance={'time': 1}", OfEntry, {"entry": '"time"'}),
        ("tolerance={'time': 1}", WrongValue, {"expected": ValueForm.SHARE_MORE, "got": "1"}),
        ("tolerance={'kernels': 1.5}", WrongValue, {"expected": ValueForm.SO_MANY_MORE, "got": "1.5"}),
        ("tolerance={'cache': 'warm'}", NoneOfThese, {"got": "'warm'"}),
        ("ranks=2, device='cuda:1'", DeviceOfRanks, {"device": "cuda:1", "ranks": 2}),
        ("ranks=2, compile_cache='cold'", CachesOfRanks, {"phase": "cold", "ranks": 2}),
        ("compile_cache='cold', max_compile_time={'warm': 1}", WarmBoundCold, {}),
    ],
)
def test_what_the_marker_says_wrongly_is_in_its_error(pytester, keywords, kind, facts):
    item = pytester.getitem(f"import pytest\n@pytest.mark.torchprof({keywords})\ndef test_it(): pass", "test_it")
    state = state_of(item.config)
    assert says(why_refused(lambda: read_test_options(item, state.options, state.limits)), kind, **facts)


@pytest.mark.parametrize(
    ("texts", "kind", "facts"),
    [
        (["max_kernels"], OfKeyword, {"keyword": "--limit 'max_kernels'"}),
        (["max_kernels"], WrongValue, {"expected": ValueForm.NAME_AND_VALUE}),
        (["max_kernels=1", "max_kernels=2"], GivenTwice, {"name": "--limit max_kernels", "entry": None}),
        (["kernels={'a': 1}", "kernels={'a': 2}"], GivenTwice, {"name": "--limit kernels", "entry": "a"}),
        (["kernels=a", "kernels={'a': 2}"], CountsMixed, {"name": "--limit kernels"}),
        (["kernels=gemm("], OfKeyword, {"keyword": "--limit kernels", "value": None}),
        (["kernels=gemm("], TextUnread, {"written": "'gemm('"}),
    ],
)
def test_what_limits_in_lines_say_wrongly_is_in_the_error(texts, kind, facts):
    assert says(why_refused(lambda: read_limit_texts(texts)), kind, **facts)
