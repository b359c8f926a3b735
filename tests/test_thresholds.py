"""Findings can be told sooner or later: thresholds with a name and a reason, set in the ini file or on the command line."""

from __future__ import annotations

import inspect
import re
import textwrap
from pathlib import Path

import pytest
from builder import TraceBuilder
from facts import says

from pytest_torchprof import load
from pytest_torchprof.cli import main
from pytest_torchprof.findings import RULES, find, with_thresholds
from pytest_torchprof.findings.catalogue.costs import Hotspot
from pytest_torchprof.reasons.errors import UnknownLimit
from pytest_torchprof.reasons.thresholds import NoThresholdForm, ThresholdTwice, UnknownThreshold, WrongThreshold
from pytest_torchprof.testing import hookspecs

pytestmark = pytest.mark.any_torch

PAGE = (Path(__file__).parents[1] / "docs" / "findings.md").read_text()
NAMED = {f"{rule.code}.{one.name}": one for rule in RULES for one in rule.thresholds}
MUL = "void at::native::vectorized_elementwise_kernel<4, at::native::MulFunctor<float> >(int)"

# recording -> thresholds with a value at which the finding goes (-) or comes (+).
MOVED = {
    "a100_cuda_sync_events": [
        "-overhead-bound.late_launches=1.1",
        "-overhead-bound.busy=0",
        "-costly-children.inside=1",
        "-costly-children.share=1.1",
        "-small-grid.share=1.1",
        "+sync-over-little-work.wait_us=1",
    ],
    "a100_sam_fast_large": ["-unasked-fp64.share=0.2", "-unasked-fp64.meant=0.1"],
    "a100_sam_eager_large": ["-repeated-constant.calls=113", "-nothing-recorded.share=0.9"],
    "mi300x_vllm_decode_graph": ["-queued-work-waits.share=0.5"],
    "a100_moe_no_steps": [
        "-launch-delay.first_us=1e6",
        "-launch-delay.first_times=1e6",
        "-launch-gaps.share=0.9",
        "-sync-over-little-work.work=0",
        "-sync-over-little-work.wait_us=5000",
        "-cold-start.setup=1.1",
        "-kernel-time-varies.times=99",
        "-kernel-time-varies.run_us=9000",
        "-kernel-time-varies.share=0.5",
        "-kernel-time-varies.steps=1",
        "-kernel-time-varies.runs=999",
        "-fp32-gemm.share=1",
    ],
    "b200_eager_nvjet": [
        "-hotspot.share=0.9",
        "-hotspot.names=99",
        "-many-small-calls.calls=1000",
        "-many-small-calls.mean_us=1",
        "-many-small-calls.share=1",
        "-many-small-calls.busy=0",
        "+launch-delay.median_us=1",
    ],
    "a100_megatron_tp8_rank0": [
        "-exposed-communication.share=0.9",
        "-cpu-held-up.times=1e6",
        "-cpu-held-up.count=99",
        "-cpu-held-up.views=99",
        "-cpu-held-up.share=0.9",
        "+low-occupancy.occupancy=1.1",
        "+launch-delay.late_launches=0",
        "+guard-overhead.share=0",
    ],
    "h100_bert_small": ["-misaligned-gemm.share=0.9"],
    "h100_transformer_three_steps": ["-tf32-gemm.share=1"],
    "h100_qwen_orphans": [
        "-compute-bound.share=1",
        "-unfused-pointwise.chain=99",
        "-unfused-pointwise.share=0.9",
        "-unfused-norm.share=0.9",
        "-unfused-rotary.share=0.9",
        "-below-roofline.times=6",
        "-below-roofline.least_us=25",
        "-below-roofline.share=0.2",
    ],
    "a100_graphs_nccl_orphans": ["+copies-take-long.share=0.03"],
    "mi210_gpu_only": ["-layout-conversion.share=0.9", "-copy-kernels.share=0.5"],
    "mi250_string_tids": ["-hidden-copy.share=0.9"],
    "rtx3060_cudagraph_steps": ["-cudagraph-input-copy.share=0.9"],
    "a100_vit_capture_and_graphs": ["-graph-recaptured.share=1", "+low-occupancy.blocks_per_sm=0"],
    "rtx3060_compile_steps": ["+low-occupancy.share=0"],
    "v100_dlrm_rank0": ["-single-tensor-optimizer.kernels=99", "-single-tensor-optimizer.share=1.1"],
    "cpu_only_steps": ["+cold-start.gap_times=0"],
}


@pytest.mark.parametrize("recording", MOVED)
def test_a_finding_comes_and_goes_with_each_of_its_thresholds(recording, shared_trace):
    profile = load(shared_trace(recording))
    for text in MOVED[recording]:
        change, code = text[0], text[1:].partition(".")[0]
        usual, found = (
            any(finding.code == code for finding in find(profile, [rule for rule in rules if rule.code == code]))
            for rules in (RULES, with_thresholds(RULES, [text[1:]]))
        )
        assert (usual, found) == (change == "-", change == "+"), text


def codes(builder, path, *thresholds):
    return {finding.code for finding in find(load(builder.write(path)), with_thresholds(RULES, thresholds))}


def test_the_others_do_so_on_traces_built_for_them(tmp_path):
    builder = TraceBuilder()
    for number, (start, length) in enumerate([(0, 3000), (3000, 500), (3500, 500)]):
        builder.step(number, start, length)
        builder.annotation("block", start, 400)
        builder.op("aten::mul", start + (90 if number == 0 else 5), 10)
    path = tmp_path / "cold.json"
    assert "cold-start" in codes(builder, path)
    assert "cold-start" not in codes(builder, path, "cold-start.steps=4")
    assert "cold-start" not in codes(builder, path, "cold-start.first_step=9")
    assert "cold-start" not in codes(builder, path, "cold-start.first_step_us=2600")
    assert "cold-start" in codes(builder, path, "cold-start.first_step=9", "cold-start.gap_us=80")
    builder.event("python_function", "model.py(1): forward", 100, 50)
    assert "cold-start" in codes(builder, path)
    assert "cold-start" not in codes(builder, path, "cold-start.function_us=1600")
    loading = TraceBuilder()
    loading.step(0, 0, 1000)
    loading.annotation("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 20, 100)
    loading.launched(MUL, 5)
    loading.launched(MUL, 500)

    def remedy(*thresholds):
        rules = with_thresholds(RULES, thresholds)
        found = find(load(loading.write(tmp_path / "loading.json")), rules)
        return next(finding.remedy for finding in found if finding.code == "launch-gaps")

    assert "num_workers" in remedy()
    assert "num_workers" not in remedy("launch-gaps.data_loading=0.2")
    loading.sync(10, 20)
    assert "synchronization" in remedy()
    assert "synchronization" not in remedy("launch-gaps.after_waits=0.9")


def test_on_a_gpu_that_idles_a_hotspot_is_not_where_to_start(tmp_path):
    builder = TraceBuilder()
    for at, name in enumerate(["a", "b", "c"]):
        builder.launched(name, at * 1000, dur=100 if at else 400)
    profile = load(builder.write(tmp_path / "idle.json"))

    def hotspot(*thresholds):
        return next(one for one in find(profile, with_thresholds(RULES, thresholds)) if one.code == "hotspot")

    assert hotspot().idle_share > 0.5
    assert hotspot("hotspot.busy=0").idle_share is None
    assert hotspot("hotspot.busy=0").remedy == Hotspot.REMEDY != hotspot().remedy


@pytest.mark.parametrize("value", ["0", "1000000"])
def test_no_value_of_a_threshold_is_an_error(value, shared_trace):
    for recording in ("rocm_no_correlation", "cpu_only_steps", "mi250_string_tids", "a100_launches_without_kernels"):
        profile = load(shared_trace(recording))
        for name in NAMED:
            assert isinstance(find(profile, with_thresholds(RULES, [f"{name}={value}"])), tuple)


def test_each_threshold_is_shown_to_matter():
    shown = {text[1:].partition("=")[0] for texts in MOVED.values() for text in texts}
    built = {
        "cold-start.steps",
        "cold-start.first_step",
        "cold-start.first_step_us",
        "cold-start.function_us",
        "hotspot.busy",
        "cold-start.gap_us",
        "launch-gaps.data_loading",
        "launch-gaps.after_waits",
    }
    assert shown | built == set(NAMED)


def test_the_page_has_each_threshold_with_its_value_and_its_reason():
    rows = re.findall(r"^\| `([a-z0-9-]+\.[a-z_]+)` \| (\S+) \| (.+) \|$", PAGE, re.MULTILINE)
    assert sorted(rows) == sorted((name, f"{one.value:g}", one.reason) for name, one in NAMED.items())


def test_a_rules_thresholds_have_different_names():
    assert len(NAMED) == sum(len(rule.thresholds) for rule in RULES)


@pytest.mark.parametrize("code", ["fp32-gemm", "small-grid", "misaligned-gemm", "layout-conversion", "low-occupancy"])
@pytest.mark.parametrize("value", ["0", "1"])
def test_kernels_without_a_length_are_no_error_at_any_threshold(code, value, tmp_path):
    builder = TraceBuilder()
    operands = [([63, 63], [63, 1], "c10::BFloat16")] * 2
    names = ["ampere_sgemm_128x64_tn", "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn", MUL]
    for at, name in enumerate([*names, "void cudnn::ops::nchwToNhwcKernel<float, float>(int)"]):
        builder.launched(name, at * 20, op="aten::mm", dur=0, inputs=operands, blocks_per_sm=0.5, occupancy=1)
    assert codes(builder, tmp_path / "t.json", f"{code}.share={value}") is not None


@pytest.mark.parametrize(
    ("given", "kind", "facts"),
    [
        (["hotspot.shares = 0.6"], UnknownThreshold, {"name": "hotspot.shares"}),
        (["hotspot.share"], NoThresholdForm, {}),
        (["hotspot.share = much"], WrongThreshold, {"got": "much", "is_whole": False, "default": 0.4}),
        (["hotspot.share = -1"], WrongThreshold, {"got": "-1"}),
        (["hotspot.share = nan"], WrongThreshold, {"got": "nan"}),
        (["hotspot.names = 2.5"], WrongThreshold, {"got": "2.5", "is_whole": True, "default": 3}),
        (["hotspot.share = 0.5", "hotspot.share=0.6"], ThresholdTwice, {"name": "hotspot.share"}),
    ],
)
def test_what_cannot_be_a_threshold_is_refused(given, kind, facts):
    with pytest.raises(UnknownLimit) as refused:
        with_thresholds(RULES, given)
    assert says(refused.value.reason, kind, **facts)


def test_the_names_that_there_are_are_listed():
    with pytest.raises(UnknownLimit) as refused:
        with_thresholds(RULES, ["hotspot.shares = 0.6"])
    assert refused.value.reason.known[0] == "below-roofline.least_us"


MANY = """
@pytest.mark.torchprof(device="cpu", forbid="costly-children")
def test_it():
    torch.nn.functional.linear(x, x)
"""


def test_the_ini_file_sets_thresholds_for_a_run(run_tests, pytester):
    pytester.makeini("[pytest]\ntorchprof_thresholds =\n    costly-children.inside = 0.01\n    hotspot.share = 0.9\n")
    failed = run_tests(MANY)
    failed.assert_outcomes(failed=1)
    failed.stdout.fnmatch_lines(["*forbid=costly-children*"])
    pytester.makeini("[pytest]\ntorchprof_thresholds = costly-children.inside = 1\n")
    run_tests(MANY).assert_outcomes(passed=1)


def test_a_wrong_threshold_in_the_ini_file_is_one_usage_error_with_the_names(run_tests, pytester):
    pytester.makeini("[pytest]\ntorchprof_thresholds = hotspot.shares = 0.9\n")
    result = run_tests(MANY)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    errors = [line for line in result.errlines if line.startswith("ERROR")]
    assert len(errors) == 1
    assert errors[0].startswith("ERROR: torchprof_thresholds: ")
    assert "'hotspot.shares'" in errors[0]
    assert "hotspot.share," in errors[0]


def test_another_plugins_rule_may_have_thresholds(run_tests, pytester):
    # The example of the hook's own documentation.
    example = inspect.getdoc(hookspecs.pytest_torchprof_findings).partition(".. code-block:: python")[2]
    code = textwrap.dedent(example.partition("\n``find``")[0])
    pytester.makepyfile(outside="from pytest_torchprof.findings import Finding, Rule, Threshold\n" + code)
    pytester.syspathinsert()
    source = "\n@pytest.mark.torchprof(device='cpu', forbid='sines')\ndef test_it():\n    torch.sin(torch.sin(x))\n"
    run_tests(source, "-p", "outside").assert_outcomes(passed=1)
    pytester.makeini("[pytest]\ntorchprof_thresholds = sines.kernels = 1\n")
    run_tests(source, "-p", "outside").assert_outcomes(failed=1)


def test_analyze_takes_thresholds_too(capsys, tmp_path):
    builder = TraceBuilder()
    for at, (name, dur) in enumerate([("one", 50), ("two", 30), ("three", 30)]):
        builder.launched(name, at * 60, op=None, dur=dur)
    path = str(builder.write(tmp_path / "t.json"))
    assert main(["analyze", path]) == 0
    assert "Hotspot" in capsys.readouterr().out
    assert main(["analyze", path, "--threshold", "hotspot.share=0.6", "--threshold=compute-bound.share=0.99"]) == 0
    assert "Hotspot" not in capsys.readouterr().out
    assert main(["analyze", str(tmp_path), "--threshold=hotspot.share=0.6"]) == 0
    assert "Hotspot" not in capsys.readouterr().out
    assert main(["analyze", path, "--threshold", "hotspot.shares=0.6"]) == 2
    error = capsys.readouterr().err
    assert "--threshold: " in error
    assert "'hotspot.shares'" in error
