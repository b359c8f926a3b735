"""What a failure says of limits: which work, in which order, and what to do about it."""

from __future__ import annotations

import json
import re

import pytest
from builder import TraceBuilder, own_recording
from test_every_word import TABLE, recorded

from pytest_torchprof import LimitsMissed, NotMeasured, gemm, load
from pytest_torchprof.cli import main
from pytest_torchprof.limits import LIMITS, Screen, Verdict, check_limits, error_for, in_one_line, read_limits
from pytest_torchprof.limits.evidence import KernelCarries, WorkRow
from pytest_torchprof.limits.failure import Failure
from pytest_torchprof.limits.failure_text import failure_text
from pytest_torchprof.limits.limit import MISSED
from pytest_torchprof.limits.remedies import REMEDIES

pytestmark = pytest.mark.any_torch

BF16, FP32 = "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn", "ampere_sgemm_128x64_tn"
EXP, SIN = "void exp_kernel(float*)", "void sin_kernel(float*)"


def failure(profile, **limits):
    with pytest.raises(LimitsMissed) as missed:
        profile.expect(**limits)
    return str(missed.value)


def rows(text):
    return [re.sub(r" {2,}.*", "", line.strip()) for line in text.splitlines() if re.match(r" +\d+ x ", line)]


def better(profile, limit):
    """Return what to do about a limit where a finding tells it better."""
    of = {finding.code: at_its_line(finding) for finding in profile.findings}
    if limit in ("max_kernels", "max_launches"):
        return of["graph-break"]
    meant = "waits that are meant go into allow_syncs"
    return f"{of['implicit-sync']}; {meant}" if limit == "max_syncs" else REMEDIES[limit]


def at_its_line(finding):
    return finding.remedy if finding.source is None else f"at {finding.source}: {finding.remedy}"


def remedies(text):
    return [line.removeprefix("  do: ") for line in text.splitlines() if line.startswith("  do: ")]


def brief(profile, **limits):
    return in_one_line(check_limits(profile, read_limits(limits)), ())


def of(tmp_path, kernels):
    return load(own_recording(kernels).write(tmp_path / "t.json"))


def test_there_is_something_to_do_about_each_limit():
    assert {limit.name for limit in LIMITS} - {"ranges"} == set(REMEDIES)


@pytest.mark.parametrize("limits", [missed for _, missed in TABLE if not {"forbid", "fused"} & {*missed}], ids="-".join)
def test_a_missed_limit_says_what_to_do_about_it(tmp_path, limits):
    (name, *_), within = limits, limits.get("ranges", {})
    inside = [limit for asked in within.values() for limit in asked]
    profile = recorded(tmp_path, graph="cuda_graph" in limits)
    limit = (inside or [name])[0]
    assert remedies(failure(profile, **limits)) == [better(profile, limit)]


@pytest.mark.parametrize("breaks", [0, 1])
def test_what_broke_a_compiled_graph_is_what_to_do_about_its_kernels(tmp_path, breaks):
    told = [{"reason": "Call to graph_break", "file": "model.py", "line": 3, "function": "forward"}]
    builder = TraceBuilder()
    builder.own(device="cpu", steps=1, compile={"dynamo": True, "graphs_are_marked": True, "breaks": told[:breaks]})
    builder.step(0, 0, 900)
    builder.region("0/0", 100, 150)
    builder.op("aten::mm", 110, 130)
    profile = load(builder.write(tmp_path / "t.json"))
    broken = [at_its_line(finding) for finding in profile.findings if finding.code == "graph-break"]
    assert remedies(failure(profile, max_kernels=0)) == (broken or [REMEDIES["max_kernels"]])
    assert len(broken) == breaks


def broken(tmp_path, *breaks):
    """Return a profile of compiled code whose graph breaks where and why these say."""
    builder = TraceBuilder()
    told = [{"reason": why, "file": "model.py", "line": line, "function": "forward"} for line, why in breaks]
    builder.own(device="cpu", steps=1, compile={"dynamo": True, "graphs_are_marked": True, "breaks": told})
    builder.step(0, 0, 900)
    builder.region("0/0", 100, 150)
    builder.op("aten::mm", 110, 130)
    return load(builder.write(tmp_path / "t.json"))


def test_operators_that_a_graph_break_keeps_apart_are_together_without_it(tmp_path):
    (remedy,) = remedies(failure(broken(tmp_path, (3, "Unknown")), fused=["mm", "relu"]))
    assert "graph break at model.py:3, so that" in remedy
    assert remedies(failure(broken(tmp_path), fused=["mm", "relu"])) == [REMEDIES["fused"]]


def test_what_to_do_about_graph_breaks_is_what_their_kind_asks_for(tmp_path):
    branch = (21, "Data-dependent branching: generic_jump TensorVariable()")
    (of_one,) = remedies(failure(broken(tmp_path, branch), max_graph_breaks=0))
    (of_two,) = remedies(failure(broken(tmp_path, branch, (23, branch[1])), max_graph_breaks=0))
    assert of_one.startswith("at model.py:21: ")
    assert "torch.where" in of_one
    assert of_two == of_one.replace("model.py:21", "these lines")
    assert remedies(failure(broken(tmp_path, branch, (3, "Unknown")), max_graph_breaks=0)) == [
        REMEDIES["max_graph_breaks"]
    ]


def test_what_calls_an_operator_that_nobody_calls_by_name_is_said(tmp_path):
    def asked(operator):
        builder = TraceBuilder()
        builder.own(device="cpu", steps=1)
        builder.step(0, 0, 900)
        builder.op(operator, 110, 130)
        return failure(load(builder.write(tmp_path / "t.json")), forbid_ops=operator)

    assert ".item()" in remedies(asked("aten::_local_scalar_dense"))[0]
    assert remedies(asked("aten::mm")) == [REMEDIES["forbid_ops"]]


@pytest.mark.parametrize("limit", ["max_kernels", "max_launches", "max_syncs", "max_memcpys"])
def test_data_for_programs_has_what_a_failure_says_to_do(tmp_path, capsys, limit):
    profile = recorded(tmp_path)
    assert main(["check", profile.trace.path, "--limit", f"{limit}=0", "--json"]) == 1
    (verdict,) = json.loads(capsys.readouterr().out)["limits"]
    assert [verdict["remedy"]] == remedies(failure(profile, **{limit: 0}))


def test_a_forbidden_finding_says_what_to_do_about_the_finding(tmp_path):
    profile = recorded(tmp_path)
    finding = profile.findings[0]
    assert remedies(failure(profile, forbid=finding.code)) == [finding.remedy]


def test_one_line_on_a_forbidden_finding_has_its_code_twice_at_most(tmp_path):
    profile = recorded(tmp_path)
    finding = profile.findings[0]
    assert brief(profile, forbid=finding.code) == f"forbid={finding.code}: {finding.code}; {finding.message}"


def test_of_several_limits_each_remedy_says_which_it_is_for_and_none_is_said_twice(tmp_path):
    profile = recorded(tmp_path)
    text = failure(profile, max_kernels=0, max_launches=0, max_syncs=0)
    expected = [
        f"for max_kernels, max_launches: {better(profile, 'max_kernels')}",
        f"for max_syncs: {better(profile, 'max_syncs')}",
    ]
    assert remedies(text) == expected


def test_where_nothing_was_compiled_the_remedy_is_not_about_graph_breaks(tmp_path):
    builder = own_recording({EXP: 1})
    builder.own(steps=2, compile={"dynamo": True, "compiled": False})
    (remedy,) = remedies(failure(load(builder.write(tmp_path / "t.json")), max_graph_breaks=0))
    assert remedy not in REMEDIES.values()
    assert "torch.compile" in remedy


def test_the_headline_speaks_of_steps_only_where_one_was_judged(tmp_path):
    def headline(**limits):
        return failure(recorded(tmp_path), **limits).splitlines()[0]

    assert headline(max_kernels=0).endswith("(worst of 2 steps)")
    assert headline(max_kernels=0, max_graph_breaks=0).endswith("(worst of 2 steps)")
    for limits in ({"max_graph_breaks": 0}, {"max_recompiles": 0}, {"max_compile_time": 1}, {"max_peak_memory": 1}):
        assert "steps" not in headline(**limits)


def test_below_a_limit_on_types_stand_kernels_that_compute_the_same_and_no_others(tmp_path):
    profile = of(tmp_path, {EXP: 3, FP32: 2, BF16: 1})
    ran = {kernel.short: kernel.dtype for kernel in profile.kernels.matching("gemm")}
    bf16, fp32 = sorted(ran, key=ran.get)
    assert rows(failure(profile, kernels={gemm(dtype="bf16"): 2})) == [f"1 x {bf16}", f"2 x {fp32}"]
    assert rows(failure(profile, kernels={gemm(dtype="fp32"): 1})) == [f"2 x {fp32}"]
    assert len(rows(failure(profile, kernels={"conv fp32": 1}))) == 3, "what ran, where nothing computes the same"


def test_no_kernel_stands_twice_below_a_limit_on_several(tmp_path):
    text = failure(of(tmp_path, {EXP: 3, SIN: 1, FP32: 2}), kernels={"exp": 4, "sin": 2})
    assert [row.split()[0] for row in rows(text)] == ["3", "1", "2"]


def test_below_a_limit_on_operators_that_ran_too_often_they_stand_alone(tmp_path):
    assert rows(failure(recorded(tmp_path), ops={"aten::mm": 0})) == ["1 x aten::mm"]


def test_below_a_limit_on_operators_that_ran_too_seldom_they_stand_before_what_else_ran(tmp_path):
    first, *others = rows(failure(recorded(tmp_path), ops={"aten::mm": 7}))
    assert first == "1 x aten::mm"
    assert others


@pytest.mark.parametrize(("kernels", "shown"), [(10, 10), (11, 11), (12, 10), (40, 10)])
@pytest.mark.parametrize("columns", [80, 120])
def test_a_last_row_is_shown_where_it_takes_no_more_room_than_to_count_it(tmp_path, kernels, shown, columns):
    profile = of(tmp_path, {f"void kernel_{at}(float*)": 1 for at in range(kernels)})
    screen = Screen.of_columns(columns)
    error = error_for(check_limits(profile, read_limits({"max_kernels": 0})), profile, lambda _: (), screen=screen)
    assert len(rows(str(error))) == shown


SHORT, LONG = ((1, "f (m.py:1)"),), ((1, "g (n.py:1)"), (2, "h (n.py:2)"))


@pytest.mark.parametrize(
    ("rows", "below", "behind"),
    [
        ({"long": (2, LONG)}, ["long0", "long1"], []),
        ({"long": (20, LONG)}, [], ["long0", "long1"]),
        # Those that are not listed have no place that anybody could look for.
        ({"short": (10, SHORT), "long": (10, LONG)}, [], []),
    ],
    ids=["few", "many", "many, of which those with long places are not listed"],
)
def test_where_rows_come_from_stands_beside_them_or_below_few_or_behind_many(rows, below, behind):
    evidence = [
        WorkRow(count=1, name=f"{name}{i}", full=f"{name}{i}", places=places)
        for name, (count, places) in rows.items()
        for i in range(count)
    ]
    missed = Verdict(limit="max_kernels", expected="2", status=MISSED, evidence=tuple(evidence))
    text = failure_text([missed], Failure(steps=1), (), Screen.of_columns(80))
    assert re.findall(r"1 x (\w+)\n +1 x g ", text) == below
    assert re.findall(r"^ +(\w+): 1 x g ", text, re.MULTILINE) == behind
    assert ("more places" in text) == bool(behind)


def test_the_longest_kernel_stands_below_a_limit_on_time_where_another_limit_has_no_room_for_it(tmp_path):
    builder = TraceBuilder()
    builder.own(steps=1)
    builder.step(0, 0, 900)
    for at in range(40):
        builder.launched(f"kernel_{at // 2}", 10 + 20 * at, dur=5)
    builder.launched(FP32, 820, dur=300)
    builder.sync(1600, 50)
    profile = load(builder.write(tmp_path / "t.json"))
    text = failure(profile, max_kernels=0, max_gpu_time=0)
    assert [row.split()[0] for row in rows(text.partition("max_gpu_time=")[0])] == ["2"] * 8
    assert [row.split()[2] for row in rows(text.partition("max_gpu_time=")[2])] == ["gemm"]
    assert "gemm" not in text.partition("max_gpu_time=")[0]


def test_below_a_limit_on_fusion_stand_first_the_kernels_that_carry_one_of_the_operators(tmp_path):
    builder = TraceBuilder()
    builder.step(0, 0, 900)
    for at, name in enumerate(["triton_poi_fused_add_0", "triton_red_fused_sum_1", "triton_poi_fused_gelu_2"]):
        builder.launched(name, 10 + 30 * at)
    text = failure(load(builder.write(tmp_path / "t.json")), fused=["gelu", "mul"])
    assert re.findall(r"_\d carries (\w+)", text) == ["gelu", "add", "sum"]


def test_rows_are_in_the_order_of_what_the_limit_judges(tmp_path):
    builder = TraceBuilder()
    builder.own(steps=1)
    builder.step(0, 0, 900)
    for at, (name, dur) in enumerate([(EXP, 5), (EXP, 5), (FP32, 300), (SIN, 20)]):
        builder.launched(name, 10 + 20 * at, dur=dur, wait=320 * at)
    builder.sync(1600, 50)
    profile = load(builder.write(tmp_path / "t.json"))

    by_count, by_time = (rows(failure(profile, **limit)) for limit in ({"max_kernels": 0}, {"max_gpu_time": 0}))
    assert [row[0] for row in by_count] == ["2", "1", "1"]
    assert by_count[1:] == by_time[:2], "the longer one first"
    assert by_time[2] == by_count[0]


def test_one_line_ranks_work_only_where_there_is_something_to_rank(tmp_path):
    several = of(tmp_path, {EXP: 2, SIN: 1})
    exp = several.steps[0].kernels[0].short
    assert brief(several, max_kernels=0).endswith(f"; most: 2 x {exp}")
    assert brief(several, max_gpu_time=0).endswith(f"; longest: 2 x {exp}")
    assert brief(several, forbid_kernels="sin").endswith("; sin_kernel")
    assert brief(several, forbid_kernels="exp").endswith(f"; 2 x {exp}")
    assert brief(of(tmp_path, {EXP: 1, SIN: 1}), max_kernels=0).endswith(f"; first: {exp}")
    assert brief(of(tmp_path, {EXP: 1, SIN: 1}), max_kernels=1).endswith(f"; earliest: {exp}"), "one of them is allowed"


@pytest.mark.parametrize("exp_us", [5, 300], ids=["shorter", "longer"])
def test_one_line_names_the_same_kernel_whatever_the_clock_says(tmp_path, exp_us):
    builder = TraceBuilder()
    builder.own(steps=1)
    builder.step(0, 0, 2000)
    for at, (name, dur) in enumerate([(EXP, exp_us), (SIN, 20), (SIN, 20), (EXP, exp_us), (FP32, 100)]):
        builder.launched(name, 10 + 20 * at, dur=dur, wait=400 * at)
    builder.sync(2400, 50)
    profile = load(builder.write(tmp_path / "t.json"))
    exp = profile.steps[0].kernels[0].short
    assert brief(profile, max_kernels=0).endswith(f"; most: 2 x {exp}"), "the first of those with most calls"
    (verdict,) = check_limits(profile, read_limits({"max_kernels": 0}))
    assert verdict.culprit.name == exp
    longest = exp if exp_us > 50 else profile.steps[0].kernels[-1].short
    assert f"longest: {'2 x ' * (longest == exp)}{longest}" in brief(profile, max_gpu_time=0), (
        "a limit on time names it by time"
    )


def test_a_kernel_of_a_graph_whose_operator_is_not_known_is_launched_by_its_replay(tmp_path):
    text = failure(recorded(tmp_path, graph=True), max_kernels=0)
    (replayed,) = [line for line in text.splitlines() if " x replayed " in line]
    assert replayed.endswith("  graph replay")


def test_of_a_file_that_cannot_be_judged_nobody_is_sent_to_the_doctor_of_this_machine(tmp_path):
    builder = TraceBuilder()
    builder.op("aten::mm", 0, 10)
    with pytest.raises(NotMeasured) as refused:
        load(builder.write(tmp_path / "t.json")).expect(max_kernels=1)
    assert "explain" in str(refused.value)
    assert "doctor" not in str(refused.value)


def test_one_line_on_a_fusion_that_is_missing_has_the_line_that_launched_the_first_piece():
    piece = KernelCarries("pointwise triton_poi_fused_mul_0", ("aten::mul",), None, line=("model.py", 16))
    verdict = Verdict(limit="fused", expected="['mul', 'gelu']", status="missed", evidence=(piece,))
    assert in_one_line([verdict], ()).endswith("triton_poi_fused_mul_0 carries aten::mul, model.py:16")
