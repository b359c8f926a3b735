"""Limits within ranges of the user's: each occurrence in each step is held to them, and the worst is named."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
import torch
from builder import AUTOGRAD, MAIN, TraceBuilder
from facts import misses, reasons_in, says, why_not, why_refused

from pytest_torchprof import LimitsMissed, NotMeasured, load, mark
from pytest_torchprof.cli import main
from pytest_torchprof.limits import read_limits
from pytest_torchprof.limits.seen import MatchesSeen
from pytest_torchprof.reasons.asked_wrongly import BoundsContradict, NoSuchLimit, SettingAlone
from pytest_torchprof.reasons.composed import OfKeyword, OfRange
from pytest_torchprof.reasons.limits import NothingRan, RangeNotInStep, RangeOfLaunchesUnknown
from pytest_torchprof.reasons.names_asked import NoRangeOfName
from pytest_torchprof.reasons.step_title import StepTitle
from pytest_torchprof.reasons.wrong_values import OfWholeMeasurement, ValueForm, WrongValue

STEP_US = 10_000


def recording(*, occurrences=24, steps=3, lines=True, kernels=2):
    """Return a recording of ours whose steps enter the range "decode" so often, with so many kernels each time."""
    builder = TraceBuilder()
    builder.own(steps=steps, lines=lines)
    for step in range(steps):
        at = step * STEP_US
        builder.step(step, at, STEP_US - 100)
        builder.launched("outside", at + 10)
        for number in range(occurrences):
            begin = begin_of(step, number)
            if lines:
                line(builder, "model.py(212): generate", begin - 5)
            builder.annotation("decode", begin, 300)
            if lines:
                line(builder, "model.py(230): decode", begin + 5)
            for place in range(kernels):
                builder.launched("k", begin + 10 + 20 * place)
    builder.sync(steps * STEP_US + 100, 50)
    return builder


def begin_of(step, number):
    """Return when an occurrence begins; both counted from 0."""
    return step * STEP_US + 100 + 400 * number


def line(builder, place, at):
    builder.event("python_function", f"[line] {place}, ", at, 1)


def item(builder, at, *, lines=True, tid=MAIN):
    """Add an ``.item()``, from model.py:241."""
    if lines:
        line(builder, "model.py(241): pick", at - 2)
    builder.op("aten::item", at, 30, tid=tid)
    builder.op("aten::_local_scalar_dense", at + 1, 28, tid=tid)
    builder.sync(at + 5, 20, what="stream sync", tid=tid)


@pytest.fixture
def profile(tmp_path):
    return lambda builder: load(builder.write(tmp_path / "t.json"))


def missed(profile, **limits):
    with pytest.raises(LimitsMissed) as error:
        profile.expect(ranges=limits)
    return " ".join(str(error.value).split())


def title(step, steps, **occurrence):
    """Return the title of an occurrence of the range in a step."""
    return StepTitle(step=step, steps=steps, place="model.py:212", **occurrence)


def not_measured(profile, **limits):
    """Return for which reason these limits on ranges are not judged."""
    return why_not(lambda: profile.expect(ranges=limits))


def test_one_item_in_occurrence_17_of_24_is_named_with_its_line(profile):
    builder = recording()
    item(builder, begin_of(1, 16) + 200)
    measured = profile(builder)
    text = missed(measured, decode={"max_syncs": 0, "max_kernels": 2})
    assert text.startswith('1 limit missed: max_syncs in "decode" (worst of 3 steps)')
    assert 'max_syncs=0 in "decode" 1 blocking call in occurrence 17 of 24 in step 2 of 3, model.py:212' in text
    assert "1 x cudaStreamSynchronize 20.0 us aten::item, aten::_local_... model.py:241 in pick" in text
    measured.expect(ranges={"decode": {"max_syncs": 1}})


def test_what_runs_outside_of_the_range_does_not_count(profile):
    builder = recording(kernels=1)
    item(builder, begin_of(1, 3) - 50)
    profile(builder).expect(ranges={"decode": {"max_kernels": 1, "max_syncs": 0, "forbid_kernels": "outside"}})


def test_each_occurrence_is_judged_and_not_their_sum(profile):
    builder = recording(occurrences=2, kernels=1)
    builder.launched("one more", begin_of(2, 1) + 100)
    verdict = misses(profile(builder), ranges={"decode": {"max_kernels": 1}})
    assert (verdict.number, verdict.in_step) == (2, title(3, 3, occurrence=2, occurrences=2))
    assert "one more" in [row.full for row in verdict.rows]


def test_limits_on_kernels_hold_within_each_occurrence(profile):
    builder = recording(occurrences=3)
    measured = profile(builder)
    measured.expect(ranges={"decode": {"kernels": {"k": 2}, "ops": {"aten::mul": 2}, "only_kernels": "k"}})
    verdict = misses(measured, ranges={"decode": {"kernels": ["outside"]}})
    assert verdict.seen == (MatchesSeen(0, "kernel", "outside", least=1, most=None),)
    assert verdict.in_step == title(1, 3, occurrence=1, occurrences=3)


def test_what_is_allowed_goes_inside(profile):
    builder = recording(occurrences=2)
    item(builder, begin_of(0, 0) + 200)
    measured = profile(builder)
    measured.expect(ranges={"decode": {"max_syncs": 0, "allow_syncs": "model.py:241"}})
    text = missed(measured, decode={"max_syncs": 0, "allow_syncs": "aten::nonzero"})
    assert "allowed nothing: 'aten::nonzero'" in text


def test_several_ranges_each_have_their_limits(profile):
    builder = recording(occurrences=1, steps=1)
    builder.annotation("sample", 600, 100)
    builder.launched("s", 610)
    measured = profile(builder)
    measured.expect(ranges={"decode": {"max_kernels": 2}, "sample": {"max_kernels": 1}}, max_kernels=4)
    text = missed(measured, decode={"max_kernels": 1}, sample={"max_kernels": 0, "min_kernels": 0})
    assert 'max_kernels in "decode", max_kernels in "sample"' in text


def test_a_range_inside_one_of_its_name_is_a_part_of_it(profile):
    builder = recording(occurrences=1, steps=1)
    builder.annotation("decode", 120, 50)
    builder.annotation("decode", 130, 20)
    measured = profile(builder)
    (one,) = measured.ranges("decode")
    assert (one.number, one.count, len(one.kernels)) == (1, 1, 2)


def test_an_exception_that_leaves_a_range_ends_it(tmp_path):
    def decode(fail):
        with mark("decode"):
            torch.sin(x)
            if fail:
                raise ValueError

    x = torch.ones(4)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as prof:
        for fail in (True, False):
            try:
                decode(fail)
            except ValueError:
                torch.cos(x)
    prof.export_chrome_trace(str(tmp_path / "t.json"))
    first, second = load(tmp_path / "t.json", device="cpu").ranges("decode")
    assert first.kernels.names == second.kernels.names == ["aten::sin"]


def test_coroutines_that_overlap_share_what_runs_while_both_are_open(profile):
    builder = recording(occurrences=0, steps=1)
    builder.annotation("decode", 100, 200)
    builder.annotation("decode", 200, 200)
    for at in (110, 220, 320):
        builder.launched("k", at)
    assert [len(one.kernels) for one in profile(builder).ranges("decode")] == [2, 2]


def test_a_range_beyond_its_step_belongs_to_where_it_begins_with_all_its_work(profile):
    builder = recording(occurrences=1, steps=2, kernels=1)
    builder.annotation("decode", STEP_US - 300, 700)
    builder.launched("before", STEP_US - 200)
    builder.launched("behind", STEP_US + 350)
    found = profile(builder).ranges("decode")
    assert [one.kernels.names for one in found] == [["k"], ["before", "outside", "k", "behind"]]
    assert [one.step.name for one in found] == ["ProfilerStep#0", "ProfilerStep#0"]


def test_threads_each_have_their_own_occurrences(profile):
    builder = recording(occurrences=1, steps=1, lines=False)
    builder.annotation("decode", 150, 100, tid=7)
    builder.launched("other", 160, tid=7)
    found = profile(builder).ranges("decode")
    assert [one.kernels.names for one in found] == [["k"], ["other"]]
    assert [(one.number, one.count) for one in found] == [(1, 2), (2, 2)]


def test_work_without_any_launch_is_in_the_ranges_in_which_it_ran(profile):
    builder = TraceBuilder()
    builder.annotation("decode", 100, 300)
    builder.annotation("decode", 150, 50, tid=7)
    builder.kernel("k", 300, 10, None)
    builder.kernel("k", 160, 10, None)
    assert [len(one.kernels) for one in profile(builder).ranges("decode")] == [2, 1]


def test_what_autograd_does_while_the_range_waits_for_it_counts(profile):
    builder = recording(occurrences=1, steps=1, lines=False, kernels=1)
    builder.op("autograd::engine::evaluate_function: X", 150, 60, tid=AUTOGRAD)
    builder.launched("backward", 160, tid=AUTOGRAD)
    item(builder, 180, lines=False, tid=AUTOGRAD)
    text = missed(profile(builder), decode={"max_kernels": 1, "max_syncs": 0})
    assert "2 kernels" in text
    assert "1 blocking call" in text


def test_a_step_without_the_range_is_not_measured(profile):
    builder = recording(occurrences=1, steps=3)
    builder.events = [
        event for event in builder.events if not (event["name"] == "decode" and event["ts"] > builder.begin + STEP_US)
    ]
    reason = not_measured(profile(builder), decode={"max_kernels": 9})
    assert says(reason, RangeNotInStep, name="decode", step=StepTitle(step=2, steps=3), others=1)


def test_a_name_that_no_range_has_is_not_measured_and_the_nearest_is_told(profile):
    reason = not_measured(profile(recording()), decod={"max_kernels": 9, "max_syncs": 0})
    assert says(reason, RangeNotInStep, name="decod", step=StepTitle(step=1, steps=3), near="decode")
    reason = not_measured(profile(recording()), prefill={"max_kernels": 9})
    assert says(reason, RangeNotInStep, name="prefill", near=None, there=("decode",))


def test_where_code_was_compiled_the_text_says_what_becomes_of_ranges_in_it(profile):
    builder = recording(occurrences=0)
    for step in range(3):
        builder.region("0/0", step * STEP_US + 5, 50)
    assert says(not_measured(profile(builder), decode={"max_kernels": 9}), RangeNotInStep, compiled=True)


def test_an_occurrence_in_which_nothing_ran_is_not_measured_unless_that_is_meant(profile):
    builder = recording(occurrences=3)
    builder.annotation("decode", begin_of(1, 5), 50)
    measured = profile(builder)
    for limits in ({"max_kernels": 9}, {"max_syncs": 0}):
        reason = not_measured(measured, decode=limits)
        assert says(
            reason, NothingRan, step=StepTitle(step=2, steps=3, occurrence=4, occurrences=4, place="model.py:230")
        )
        measured.expect(ranges={"decode": {**limits, "min_kernels": 0}})
    with pytest.raises(NotMeasured):
        measured.expect(ranges={"decode": {"max_kernels": 9}}, min_kernels=0)


def test_work_whose_launch_is_not_recorded_may_be_of_the_range_or_not(profile):
    builder = TraceBuilder()
    builder.own(steps=1)
    builder.step(0, 0, 900)
    builder.annotation("decode", 100, 200)
    builder.launched("k", 110)
    builder.kernel("g", 400, 10, builder.unrecorded())
    builder.sync(1100, 50)
    reason = not_measured(profile(builder), decode={"max_kernels": 9})
    assert says(reason, RangeOfLaunchesUnknown, operations=1, name="decode")


def test_occurrences_are_like_steps_to_look_at(profile):
    builder = recording(occurrences=2, steps=2)
    item(builder, begin_of(1, 1) + 200)
    found = profile(builder).ranges("decode")
    assert len(found) == 4
    last = found[-1]
    assert (last.name, last.number, last.count, last.step.name, last.place) == (
        "decode", 2, 2, "ProfilerStep#1", "model.py:212",
    )  # fmt: skip
    assert (last.syncs, len(last.kernels), last.launches, dict(last.ops)) == (1, 2, 2, {"aten::mul": 2})
    assert repr(last) == "<decode, occurrence 2 of 2 in step 2 of 2, model.py:212: 2 kernels>"
    assert says(why_not(lambda: profile(builder).ranges("nothing")), NoRangeOfName, name="nothing")
    why = why_refused(lambda: profile(builder).ranges(None))
    assert says(why, WrongValue, expected=ValueForm.RANGE, got="None")


def test_the_numbers_of_all_occurrences_are_those_of_the_range(profile):
    measured = profile(recording(occurrences=5, steps=1))
    assert sum(len(one.kernels) for one in measured.ranges("decode")) == measured.range("decode").kernels == 10


@pytest.mark.parametrize(
    ("ranges", "kind", "facts"),
    [
        ("decode", WrongValue, {"expected": ValueForm.RANGES, "got": "'decode'"}),
        ({}, WrongValue, {"expected": ValueForm.RANGES, "got": "{}"}),
        ({3: {"max_syncs": 0}}, WrongValue, {"expected": ValueForm.RANGE, "got": "3"}),
        ({"decode": 3}, WrongValue, {"expected": ValueForm.LIMITS, "got": "3"}),
        ({"decode": {}}, WrongValue, {"expected": ValueForm.LIMITS, "got": "{}"}),
        ({"decode": {"max_sync": 0}}, NoSuchLimit, {"name": "max_sync", "near": "max_syncs"}),
        ({"decode": {"max_syncs": -1}}, WrongValue, {"expected": ValueForm.WHOLE_NUMBER, "got": "-1", "least": 0}),
        ({"decode": {"max_peak_memory": "1GB"}}, OfWholeMeasurement, {"limit": "max_peak_memory"}),
        ({"decode": {"max_graph_breaks": 0}}, OfWholeMeasurement, {"limit": "max_graph_breaks"}),
        ({"decode": {"min_mfu": 0.1}}, OfWholeMeasurement, {"limit": "min_mfu"}),
        ({"decode": {"ranges": {"a": {"max_syncs": 0}}}}, NoSuchLimit, {"name": "ranges"}),
        ({"decode": {"allow_syncs": "aten::item"}}, SettingAlone, {"name": "allow_syncs", "limits": ("max_syncs",)}),
        ({"decode": {"max_kernels": 1, "min_kernels": 2}}, BoundsContradict, {"most": "max_kernels=1"}),
    ],
)
def test_bad_values_are_refused_at_collection(run_tests, ranges, kind, facts):
    why = why_refused(lambda: read_limits({"ranges": ranges}))
    assert says(why, kind, **facts)
    assert says(why, OfKeyword, keyword="ranges", value=repr(ranges))
    assert says(why, OfRange, range="decode") == ("decode" in ranges and ranges != "decode")
    result = run_tests(f"@pytest.mark.torchprof(ranges={ranges!r})\ndef test_it(): pass")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert f"torchprof marker: {why}" in result.stderr.str()


LIVE = """
from pytest_torchprof import mark

def generate():
    for token in range(24):
        with mark("decode"):
            torch.sin(x)
            if token == 16:
                torch.cos(x)  # one too many
"""


def place_of(pytester, code):
    lines = (pytester.path / "test_it.py").read_text().splitlines()
    return f"test_it.py:{next(n for n, text in enumerate(lines, 1) if code in text)}"


ASKED = {
    "marker": """
@pytest.mark.torchprof(device="cpu", ranges={"decode": {"max_kernels": 1}})
def test_it(): generate()
""",
    "expect": """
@cpu
def test_it(torchprof):
    torchprof(generate).expect(ranges={"decode": {"max_kernels": 1}})
""",
    "measure": """
@cpu
def test_it(torchprof):
    with torchprof.measure("a", ranges={"decode": {"max_kernels": 1}}) as m:
        for _ in m.steps():
            generate()
""",
}


@pytest.mark.parametrize("test", ASKED.values(), ids=ASKED)
def test_live_the_worst_occurrence_and_its_work_have_the_lines_of_the_code(run_tests, pytester, test):
    result = run_tests(LIVE + test)
    result.assert_outcomes(failed=1)
    entered, work = place_of(pytester, "with mark"), place_of(pytester, "one too many")
    result.stdout.fnmatch_lines(
        [
            f'*max_kernels=1 in "decode"*2 kernels in occurrence 17 of 24 in step 1 of 5, {entered}',
            f"*{work} in generate",
        ]
    )


def test_reports_name_the_range_of_a_limit(run_tests, pytester):
    test = "@pytest.mark.torchprof(device='cpu', ranges={'decode': {'max_kernels': 2}})\ndef test_it(): generate()"
    run_tests(LIVE + test, "--torchprof-report=out.json").assert_outcomes(passed=1)
    (result,) = json.loads((pytester.path / "out.json").read_text())["results"]
    (limit,) = result["limits"]
    assert (limit["name"], limit["range"], limit["expected"], limit["status"]) == (
        "max_kernels",
        "decode",
        "2",
        "holds",
    )


def test_a_replay_judges_the_ranges_that_were_recorded(run_tests):
    test = "@pytest.mark.torchprof(device='cpu', ranges={'decode': {'max_kernels': %d}})\ndef test_it(): generate()"
    run_tests(LIVE + test % 2, "--torchprof-save=kept").assert_outcomes(passed=1)
    run_tests(LIVE + test % 1, "--torchprof-replay=kept").assert_outcomes(failed=1)


def test_with_v_a_range_that_holds_tells_what_was_allowed_in_it(run_tests, pytester):
    builder = recording(occurrences=1, steps=1)
    item(builder, begin_of(0, 0) + 200)
    builder.write(pytester.path / "t.json")
    source = """
def test_it(torchprof):
    torchprof.adopt("t.json", ranges={"decode": {"max_syncs": 0, "allow_syncs": ["model.py", "range:nothing"]}})
"""
    result = run_tests(source, "-v")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(
        [
            'test_it.py::test_it: max_syncs=0 in "decode": 1 blocking call, 1 allowed',
            "*cudaStreamSynchronize*allowed: model.py*model.py:241 in pick",
            "*allowed nothing: 'range:nothing'",
        ]
    )
    run_tests(source).stdout.no_fnmatch_line("*1 allowed*")


def test_the_fixture_has_the_mark_too(run_tests):
    source = """
@pytest.mark.torchprof(device="cpu", ranges={"decode": {"max_kernels": 1}})
def test_it(torchprof):
    @torchprof.mark("decode")
    def step(a):
        return torch.sin(a)
    assert torchprof(step, x).result.shape == x.shape
"""
    run_tests(source).assert_outcomes(passed=1)


def test_in_compiled_code_a_mark_breaks_no_graph_and_its_range_is_not_measured(run_tests, pytester):
    source = """
@pytest.mark.torchprof(device="cpu", max_graph_breaks=0, max_recompiles=0, ranges={"inside": {"max_kernels": 99}})
def test_inside(torchprof):
    @torch.compile(fullgraph=True, backend="aot_eager")
    def step(a):
        with torchprof.mark("inside"):
            return torch.sin(a) + 1
    torchprof(step, x)

@pytest.mark.torchprof(device="cpu", max_graph_breaks=0, ranges={"around": {"max_kernels": 99}})
def test_around(torchprof):
    step = torch.compile(torch.sin, backend="aot_eager")
    @torchprof.mark("around")
    def run(a):
        return step(a)
    torchprof(run, x)
"""
    result = run_tests(source, "--torchprof-report=out.json")
    result.assert_outcomes(failed=1, passed=1)
    result.stdout.fnmatch_lines(['1 limit not measured: max_kernels in "inside"*'])
    assert any(
        says(why, RangeNotInStep, name="inside", compiled=True) for why in reasons_in(pytester.path / "out.json")
    )


def test_without_a_profiler_a_mark_imports_nothing():
    source = """
import sys
from pytest_torchprof import mark
with mark("decode"):
    pass
assert mark("decode")(max)(1, 2) == 2
assert not {"torch", "msgspec", "pytest"} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", source], check=True)


def test_one_mark_may_be_entered_inside_itself(tmp_path):
    decode, x = mark("decode"), torch.ones(4)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as prof:
        with decode:
            with decode:
                torch.sin(x)
            torch.cos(x)
        torch.exp(x)
    prof.export_chrome_trace(str(tmp_path / "t.json"))
    (one,) = load(tmp_path / "t.json", device="cpu").ranges("decode")
    assert one.kernels.names == ["aten::sin", "aten::cos"]


def test_a_mark_gives_back_what_the_function_returns_and_its_name():
    @mark("sample")
    def sample(a, *, b):
        """Sample."""
        return a + b

    assert (sample(1, b=2), sample.__name__, sample.__doc__) == (3, "sample", "Sample.")


def test_the_command_judges_ranges(tmp_path, capsys):
    path = str(recording(occurrences=2, steps=1).write(tmp_path / "t.json"))
    assert main(["check", path, "--limit", 'ranges={"decode": {"max_kernels": 2, "max_syncs": 0}}']) == 0
    assert main(["check", path, "--limit", 'ranges={"decode": {"max_kernels": 1}}']) == 1
    out = " ".join(capsys.readouterr().out.split())
    assert 'holds max_syncs=0 in "decode" 0 blocking calls' in out
    assert 'max_kernels=1 in "decode" 2 kernels in occurrence 1 of 2, model.py:212' in out


@pytest.mark.parametrize(
    ("name", "range_name", "kernels"),
    [
        (
            "mi300x_vllm_decode_graph",
            "execute_32_context_0(sq0sk0sqsq0sqsk0)_generation_32(sq32sk55086sqsq32sqsk55086)",
            [425],
        ),
        ("mi300x_sglang_decode_device9", "step[DECODE bs=32]", [550]),
        ("a100_megatron_tp8_rank0", "nccl:all_reduce", [1] * 84 + [0]),
        ("h100_transformer_three_steps", "Self-Attention", [9] * 3),
        ("v100_ns_timestamps", "## backward ##", [562] * 5),
        ("rtx3060_compile_steps", "Optimizer.step#AdamW.step", [3] * 5),
    ],
)
def test_ranges_that_frameworks_make_are_judged_in_real_recordings(shared_trace, name, range_name, kernels):
    measured = load(shared_trace(name))
    found = measured.ranges(range_name)
    assert [len(one.kernels) for one in found] == kernels
    assert max(sum(len(one.kernels) for one in found if one.step is step) for step in measured.steps) == (
        measured.range(range_name).kernels
    )
    measured.expect(ranges={range_name: {"max_kernels": max(kernels), "min_kernels": min(kernels)}})
    assert f"{max(kernels)} kernel" in missed(measured, **{range_name: {"max_kernels": max(kernels) - 1}})


@pytest.mark.parametrize(
    ("name", "range_name", "file"),
    [
        ("mi300x_vllm_decode_graph", "execute_32_", "vllm/v1/worker/gpu_model_runner.py"),
        ("mi300x_sglang_decode_device9", "step[DECODE", "cuda_graph_runner.py"),
    ],
)
def test_the_wait_of_a_serving_engines_step_may_be_allowed_by_its_file(shared_trace, name, range_name, file):
    measured = load(shared_trace(name))
    (whole,) = {text for text in measured.trace.names if text.startswith(range_name)}
    measured.expect(ranges={whole: {"max_syncs": 0, "allow_syncs": file}})
    assert file.rpartition("/")[2] in missed(measured, **{whole: {"max_syncs": 0, "allow_syncs": "other.py"}})
