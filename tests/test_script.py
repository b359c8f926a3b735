"""Measurements outside of tests: in a script or a notebook, without pytest's session."""

from __future__ import annotations

import asyncio
import gc
import re
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
import torch
from builder import TraceBuilder
from facts import says, why_not, why_refused

from pytest_torchprof import LimitsMissed, TorchprofError, load, measure, profile
from pytest_torchprof.limits.seen import NumberSeen
from pytest_torchprof.reasons.asked_wrongly import BoundsContradict, MeantForEither, NoSuchLimit
from pytest_torchprof.reasons.capturing import NotReadBack, ProfilerInside
from pytest_torchprof.reasons.composed import MaybeOfFunction, OfKeyword
from pytest_torchprof.reasons.limits import NothingRan
from pytest_torchprof.reasons.lines import RepeatRaised
from pytest_torchprof.reasons.measuring import NoGpuHere, OnlyMakesAnObject, ReturnsWork, StepsLeft, StepsNotStarted
from pytest_torchprof.reasons.wrong_values import NoneOfThese, ValueForm, WrongValue

x = torch.ones(8, 8)
without_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="what a machine without a GPU says")


def two(x, scale=2):
    y = x + 1
    return y * scale


def test_a_function_is_called_and_what_ran_is_told():
    calls = []
    found = profile(lambda x: calls.append(1) or two(x), x, device="cpu", max_kernels=2, kernels=["aten::add"])
    assert found.kernels.names == ["aten::add", "aten::mul"]
    assert torch.equal(found.result, two(x))
    assert len(calls) == 3 + 5
    assert found.trace.metadata.nodeid is None


LEAVES_QUOTES = torch.__version__ < "2.14"


def in_a_range(name):
    def run():
        with torch.profiler.record_function(name):
            two(x)

    return run


@pytest.mark.parametrize("name", ['load "m"', 'say "a", "b"'])
def test_a_range_may_have_quotation_marks_in_its_name(name):
    recorded = name if LEAVES_QUOTES else name.replace('"', "'")
    found = profile(in_a_range(name), device="cpu", ranges={recorded: {"max_kernels": 2}})
    assert len(found.ranges(recorded)) == 5


@pytest.mark.skipif(not LEAVES_QUOTES, reason="this torch writes apostrophes in their place")
def test_a_recording_that_cannot_be_read_back_is_not_measured():
    assert says(why_not(lambda: profile(in_a_range('"a": 1'), device="cpu", max_kernels=2)), NotReadBack)


def test_steps_and_warmup_are_how_often_it_is_called():
    calls = []
    found = profile(lambda: calls.append(1) or two(x), device="cpu", steps=2, warmup=1)
    assert (len(calls), len(found.steps)) == (3, 2)


def test_keywords_of_the_function_are_bound_to_it():
    assert torch.equal(profile(partial(two, scale=3), x, device="cpu").result, two(x, 3))


LINE_IN_TWO = r"aten::mul  tests/test_script\.py:\d+ in two"


def test_a_missed_limit_tells_its_lines():
    with pytest.raises(LimitsMissed, match=rf"(?s)max_kernels=1 .*{NumberSeen('kernels', 2)}.*{LINE_IN_TWO}"):
        profile(two, x, device="cpu", max_kernels=1)


def test_a_limit_that_is_asked_for_later_calls_the_code_once_more_for_its_lines():
    calls = []
    found = profile(lambda: calls.append(1) or two(x), device="cpu")
    with pytest.raises(LimitsMissed, match=LINE_IN_TWO):
        found.expect(max_kernels=1)
    assert len(calls) == 3 + 5 + 1


def test_the_code_may_raise_when_it_is_called_once_more():
    calls = []

    def nine_times():
        calls.append(1)
        if len(calls) > 8:
            raise ValueError("too often")
        return two(x)

    with pytest.raises(LimitsMissed, match=RepeatRaised("ValueError: too often").sentence):
        profile(nine_times, device="cpu").expect(max_kernels=1)
    calls.clear()
    with pytest.raises(LimitsMissed, match=RepeatRaised("ValueError: too often").sentence):
        profile(nine_times, device="cpu", max_kernels=1)


def test_what_the_code_raises_is_raised():
    with pytest.raises(ZeroDivisionError):
        profile(lambda: 1 / 0, device="cpu")


def run_block(code, **asked):
    """Measure a block and return it, also where its end raises; the second of the two is what it raised."""
    block = measure(device="cpu", **asked)
    try:
        with block:
            for _ in block.steps():
                code()
    except Exception as problem:  # noqa: BLE001
        return block, problem
    return block, None


def test_a_block_is_measured_and_judged_at_its_end():
    block, problem = run_block(lambda: two(x), max_kernels=2)
    assert problem is None
    assert block.profile.kernels.count == 2
    block, problem = run_block(lambda: two(x), label="scaled", max_kernels=1)
    assert isinstance(problem, LimitsMissed)
    assert str(problem).startswith("scaled: 1 limit missed: max_kernels")
    assert re.search(r"tests/test_script\.py:\d+ in two", str(problem))
    assert block.profile.kernels.count == 2


def leave_before_its_loop(block):
    with block:
        pass


def leave_in_its_loop(block):
    with block:
        for done, _ in enumerate(block.steps()):
            if done == 3:
                break


@pytest.mark.parametrize(
    ("leave", "reason"),
    [(leave_before_its_loop, StepsNotStarted("measure()")), (leave_in_its_loop, StepsLeft("measure()", calls=4))],
)
def test_a_block_that_is_left_early_is_not_measured(leave, reason):
    assert why_not(lambda: leave(measure(device="cpu"))) == reason


def test_a_block_ends_as_its_code_does():
    _, problem = run_block(lambda: 1 / 0, max_kernels=1)
    assert isinstance(problem, ZeroDivisionError)
    assert profile(two, x, device="cpu").kernels.count == 2  # The profiler runs no more.


def test_the_code_of_a_block_may_raise_when_it_is_called_once_more():
    calls = []

    def nine_times():
        calls.append(1)
        if len(calls) > 8:
            raise ValueError("too often")
        two(x)

    _, problem = run_block(nine_times, max_kernels=1)
    assert isinstance(problem, LimitsMissed)
    assert RepeatRaised("ValueError: too often").sentence in str(problem)


def test_nothing_that_ran_is_not_measured():
    assert says(why_not(lambda: profile(lambda: None, device="cpu")), NothingRan)
    assert profile(lambda: None, device="cpu", min_kernels=0).kernels.count == 0


def test_another_profiler_in_the_code_is_not_measured():
    def profiled():
        with torch.profiler.profile():
            two(x)

    assert says(why_not(lambda: profile(profiled, device="cpu")), ProfilerInside, left_running=False)


def test_a_coroutine_function_is_not_measured():
    async def later():
        two(x)

    assert says(why_not(lambda: profile(later, device="cpu")), OnlyMakesAnObject)
    returns_it = why_not(lambda: profile(lambda: map(two, [x]), device="cpu", min_kernels=0))
    assert says(returns_it, ReturnsWork, returned="map object")
    assert profile(lambda: asyncio.run(later()), device="cpu").kernels.count == 2


@without_gpu
def test_without_a_gpu_its_limits_and_numbers_are_not_measured():
    calls = []
    assert says(why_not(lambda: profile(lambda: calls.append(1), max_kernels=5)), NoGpuHere, limits=("max_kernels",))
    assert not calls
    found = profile(two, x)
    assert says(why_not(lambda: found.kernels), NoGpuHere, number="kernels")
    assert says(why_not(lambda: found.expect(max_kernels=5)), NoGpuHere, number="expect")


@without_gpu
def test_without_a_gpu_what_the_compiler_did_is_judged():
    def broken(x):
        torch._dynamo.graph_break()
        return x + 1

    assert profile(torch.compile(lambda x: x + 1, backend="eager"), x, max_graph_breaks=0).graph_breaks == 0
    with pytest.raises(LimitsMissed, match=r"max_graph_breaks.*\n.*test_script\.py"):
        profile(torch.compile(broken, backend="eager"), x, max_graph_breaks=0)


@pytest.mark.parametrize(
    ("asked", "kind", "facts"),
    [
        ({"max_kernel": 1}, NoSuchLimit, {"name": "max_kernel", "near": "max_kernels"}),
        ({"mask": x}, MaybeOfFunction, {}),
        ({"max_kernels": "many"}, WrongValue, {"expected": ValueForm.WHOLE_NUMBER, "got": "'many'"}),
        ({"min_kernels": 3, "max_kernels": 2}, BoundsContradict, {}),
        ({"steps": 0}, WrongValue, {"expected": ValueForm.WHOLE_NUMBER, "least": 1}),
        ({"warmup": -1}, WrongValue, {"expected": ValueForm.WHOLE_NUMBER, "least": 0}),
        ({"device": "gpu"}, OfKeyword, {"keyword": "device", "value": "'gpu'"}),
        ({"device": "gpu"}, NoneOfThese, {"known": ("auto", "cpu", "cuda", "cuda:N")}),
        ({"scale": 3}, NoSuchLimit, {"name": "scale"}),
    ],
)
def test_a_keyword_that_cannot_be_used_is_refused_before_anything_runs(asked, kind, facts):
    calls = []
    why = why_refused(lambda: profile(lambda **_: calls.append(1), **asked))
    assert says(why, kind, **facts)
    assert says(why, MaybeOfFunction) == (why.code == "unknown-keyword")
    assert not calls


def test_a_keyword_that_the_function_has_too_is_not_taken_from_it():
    def denoise(x, steps=50):
        return x * steps

    why = why_refused(lambda: profile(denoise, x, device="cpu", steps=4))
    assert says(why, MeantForEither, keyword="steps", value="4")
    assert len(profile(partial(denoise, steps=20), x, device="cpu", steps=4).steps) == 4


def test_a_device_that_is_not_there_is_an_error():
    with pytest.raises(TorchprofError, match="cuda:63"):
        profile(two, x, device="cuda:63")


def test_the_recording_is_there_as_long_as_its_profile(tmp_path):
    found = profile(two, x, device="cpu")
    recording = Path(found.trace.path)
    view = found.with_others(())
    del found
    gc.collect()
    view.save(tmp_path / "kept.json.gz")
    assert load(tmp_path / "kept.json.gz").kernels.count == 2
    del view
    gc.collect()
    assert not recording.parent.exists()


@pytest.mark.any_torch
def test_a_script_needs_no_session_of_pytest_and_leaves_no_file(tmp_path):
    script = """
import sys, torch
from pytest_torchprof import LimitsMissed, profile
found = profile(torch.sin, torch.ones(8), device="cpu")
print(found.trace.path, found.kernels.names, "pytest" in sys.modules)
profile(torch.sin, torch.ones(8), device="cpu", max_kernels=0)
"""
    ran = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False, env={"TMPDIR": str(tmp_path)}
    )
    assert ran.stdout.endswith("recording.json ['aten::sin'] False\n"), ran.stderr
    assert "pytest_torchprof.errors.LimitsMissed: 1 limit missed: max_kernels" in ran.stderr
    assert "pytest -vv" not in ran.stderr
    assert list(tmp_path.glob("torchprof-*")) == []


# --------------------------------------------------------------------------------------------------------- in a notebook


def test_a_notebook_shows_the_kernels_as_a_table():
    page = profile(two, x, device="cpu")._repr_html_()
    assert page.count("<tr>") == 1 + 2
    assert "pointwise add" in page
    assert "overflow-x:auto" in page
    assert "color" not in page  # The notebook's own, light or dark.


def test_names_out_of_a_trace_are_no_markup(tmp_path):
    trace = TraceBuilder()
    trace.launched("</table><script>alert(1)</script>", 10)
    page = load(trace.write(tmp_path / "a.json"))._repr_html_()
    assert "<script>" not in page
    assert "&lt;script&gt;" in page


def test_what_is_not_to_be_believed_is_said_above_the_table(tmp_path):
    page = load(TraceBuilder().write(tmp_path / "a.json"))._repr_html_()
    assert "0 kernel names" in page
    assert "not measured:" in page


@without_gpu
def test_a_notebook_without_a_gpu_says_so():
    page = profile(two, x)._repr_html_()
    assert "no GPU" in page
    assert "<table" not in page


# -------------------------------------------------------------------------------------------------- the documentation's


def test_the_documentations_example_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    page = (Path(__file__).parents[1] / "docs" / "limits.md").read_text()
    example = re.search(r"<!-- example: script -->\n```python\n(.*?)```", page, re.DOTALL)[1]
    exec(example, {"model": two, "x": x})
    assert load("decode.json.gz").kernels.count == 2
