"""``torchprof analyze``: the JSON object that scripts read, and the text that people read."""

from __future__ import annotations

import io
import json
import re
import shlex
import subprocess
import sys

import pytest
from builder import TraceBuilder, own_recording
from facts import LEFT_OUT, says, why_command_refused
from findings_on_recordings import FINDINGS
from reference_pages import commands_of

from pytest_torchprof import load
from pytest_torchprof.analysis import tables
from pytest_torchprof.analysis.numbers import BY_NAME, OF_STEP
from pytest_torchprof.cli import COMMANDS, main, parser_of
from pytest_torchprof.cli.analyze import WAYS
from pytest_torchprof.findings.catalogue.compiling import CompiledInWindow
from pytest_torchprof.findings.catalogue.costs import ManySmallCalls, RepeatedConstant
from pytest_torchprof.reasons.command_line import ArgumentTooMany
from pytest_torchprof.report import analysis_text
from pytest_torchprof.report.analysis_text import text
from pytest_torchprof.text.units import show_us

pytestmark = pytest.mark.any_torch

DOCUMENTED = ["schema", "trace", "summary", "steps", "kernels", "compile", "findings"]
OPTIONS = [
    *([], ["--by", "family"], ["--by=op"], ["--by", "range"], ["--by", "module"]),
    *(["--top", "1"], ["--no-findings"], ["--step", "1"]),
]


@pytest.fixture
def trace(tmp_path):
    builder = own_recording({"ampere_sgemm_128x64_tn": 2, "triton_poi_fused_add_0": 1}, steps=3)
    builder.launched("void at::native::vectorized_elementwise_kernel<4, A very long name>(" + "int, " * 100, 1700)
    builder.module("Linear_0", 1000, 500)
    builder.region("0/0", 1800, 50)
    return builder.write(tmp_path / "t.json.gz")


@pytest.fixture
def analyze(capsys):
    def run(*argv):
        status = main(["analyze", *map(str, argv)])
        out, err = capsys.readouterr()
        assert (status, err) == (0, "")
        return out

    return run


@pytest.fixture
def analyze_json(analyze):
    return lambda *argv: json.loads(analyze(*argv, "--json"))


def test_the_object_has_the_documented_keys(analyze_json, trace):
    found = analyze_json(trace)
    assert [key for key in found if key in DOCUMENTED] == DOCUMENTED
    assert found["schema"] == 1
    assert found["trace"] == {
        "path": str(trace),
        "steps": 3,
        "orphans": 0,
        "lost_kernels": 0,
        "unrecorded_launches": 0,
        "measured": True,
        "why_not": None,
        "attribution": "launch",
        "samples_hardware": False,
        "devices": [{"index": 0, "name": "Test GPU"}],
        "events": found["trace"]["events"],
    }
    assert list(found["summary"]) == [*BY_NAME, "worst"]
    assert list(found["summary"]["worst"]) == list(BY_NAME)
    assert [step["name"] for step in found["steps"]] == [f"ProfilerStep#{number}" for number in range(3)]
    assert all(list(step) == ["name", *OF_STEP] for step in found["steps"])
    told = ["regions", "nested_regions", "graph_breaks", "recompiles", "compiled_in_window", "caches"]
    assert list(found["compile"]) == told
    assert found["compile"]["regions"] == 1


def test_the_numbers_of_section_3_are_all_there():
    assert set(BY_NAME) >= {
        *("kernels", "launches", "graph_launches", "memcpys", "memsets", "memcpys_h2d", "memcpys_d2h", "memcpys_d2d"),
        *("memcpy_bytes", "syncs", "kernel_time_us", "gpu_time_us", "gpu_busy_us", "gpu_span_us", "cpu_time_us"),
        *("cpu_gpu_ratio", "gpu_utilization", "sm_efficiency", "achieved_occupancy", "graph_breaks", "recompiles"),
        "peak_memory_bytes",
    }


def test_kernels_are_one_row_per_name_over_all_steps_the_longest_first(analyze_json, trace):
    kernels = analyze_json(trace)["kernels"]
    assert [(row["count"], row["time_us"]) for row in kernels] == [(6, 60), (3, 30), (1, 10)]
    first = kernels[0]
    assert set(first) == {
        *("name", "family", "library", "dtype", "layout", "tensor_core", "triton", "op", "op_chain", "forward_op"),
        *("count", "time_us", "mean_us", "min_us", "max_us", "worst_step", "worst_step_us"),
        *("tflops", "gb_per_s"),
    }
    assert (first["name"], first["family"], first["layout"]) == ("ampere_sgemm_128x64_tn", "gemm", "tn")
    assert (first["op"], first["op_chain"]) == ("aten::mul", ["aten::mul"])


def test_top_limits_the_rows(analyze_json, trace):
    assert len(analyze_json(trace, "--top", 1)["kernels"]) == 1
    assert len(analyze_json(trace, "--top=2")["kernels"]) == 2


def test_one_step_is_looked_at_alone(analyze_json, trace):
    found = analyze_json(trace, "--step", 1)
    assert [step["name"] for step in found["steps"]] == ["ProfilerStep#1"]
    assert sum(row["count"] for row in found["kernels"]) == found["summary"]["kernels"] == 4
    assert found["trace"]["steps"] == 3


def test_operators_come_with_times_and_shapes(analyze_json, tmp_path):
    builder = TraceBuilder()
    builder.step(0, 0, 100)
    builder.op("aten::linear", 5, 40)
    builder.launched("k", 10, op="aten::mm", inputs=[([4, 8], [8, 1], "float")], dur=30)
    builder.allocation(512, 16)
    builder.allocation(-128, 17, device_type=0)
    rows = analyze_json(builder.write(tmp_path / "t.json"), "--by", "op")["ops"]
    columns = ("name", "calls", "self_cpu_us", "cpu_us", "self_gpu_us", "gpu_us", "shapes")
    # The launch takes 3 us of the product's own 8.
    assert [tuple(row[column] for column in columns) for row in rows] == [
        ("aten::linear", 1, 32, 40, 0, 30, None),
        ("aten::mm", 1, 5, 8, 30, 30, [[4, 8]]),
    ]
    sizes = ("self_gpu_memory_bytes", "gpu_memory_bytes", "self_cpu_memory_bytes", "cpu_memory_bytes")
    assert [tuple(row[name] for name in sizes) for row in rows] == [(0, 512, 0, -128), (512, 512, -128, -128)]


@pytest.mark.parametrize(("by", "key"), [("family", "families"), ("range", "ranges"), ("module", "modules")])
def test_other_ways_add_rows_of_their_own(analyze_json, trace, by, key):
    assert analyze_json(trace, "--by", by)[key]


@pytest.mark.parametrize(
    ("recording", "device"),
    [("v100_dlrm_rank0", "cuda"), ("rtx3060_cudagraph_steps", "cuda"), ("cpu_only_steps", "cpu")],
)
def test_families_add_up_the_kernels_of_all_their_names(recording, device, shared_trace):
    profile = load(shared_trace(recording), device=device)
    added = {}
    for row in tables.rows_by("kernel", profile, profile.steps):
        of_family = added.setdefault((row.decoded.family, row.decoded.library), [0, 0])
        of_family[0] += row.count
        of_family[1] += sum(row.times.steps_ns)
    rows = tables.rows_by("family", profile, profile.steps)
    assert {(row.family, row.library): [row.count, sum(row.times.steps_ns)] for row in rows} == added
    assert [row.time_us for row in rows] == sorted((row.time_us for row in rows), reverse=True)


def test_findings_can_be_left_out(analyze_json, tmp_path):
    builder = TraceBuilder()
    builder.kernel("from before", 5, 1, 1)
    builder.launched("k", 10)
    path = builder.write(tmp_path / "t.json")
    assert [finding["code"] for finding in analyze_json(path)["findings"]]
    assert analyze_json(path, "--no-findings")["findings"] == []


def test_a_folder_gives_a_list(analyze, analyze_json, trace):
    found = analyze_json(trace.parent)
    assert [one["trace"]["path"] for one in found] == [str(trace)]
    assert str(trace) in analyze(trace.parent)


@pytest.mark.parametrize("width", [40, 60, 80, 100, 120])
@pytest.mark.parametrize("options", OPTIONS)
def test_the_text_fits_into_the_terminal(analyze, trace, options, width, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(width))
    lines = analyze(trace, *options).splitlines()
    assert max(map(len, lines)) <= width
    assert lines[-1] == lines[-1].rstrip() != ""


def test_the_text_has_all_that_one_opens_a_trace_for(analyze, trace):
    shown = analyze(trace)
    table = shown.partition("\nsteps\n")[2]
    steps = [line.split() for line in table.splitlines() if line.startswith("ProfilerStep#")]
    # Name, length, CPU time and GPU busy with their units, kernels, launches, blocking calls.
    assert [(row[0], *row[-3:]) for row in steps] == [
        ("ProfilerStep#0", "3", "3", "0"),
        ("ProfilerStep#1", "4", "4", "0"),
        ("ProfilerStep#2", "3", "3", "0"),
    ]
    lines = shown.splitlines()
    shares = dict(line.split(": ") for line in lines if "kernel time, " in line)
    assert [*shares.values()] == ["gemm 60.0%, pointwise 30.0%, not known 10.0%", "aten::mul 100.0%"]
    assert [what.partition(", ")[2] for what in shares] == ["by family", "launched by"]
    assert any(line.startswith("of a step's time (") for line in lines)
    assert any(line.startswith("what stands out") for line in lines)
    one = analyze(trace, "--step", 1)
    assert not [line for line in one.splitlines() if line.startswith("ProfilerStep#")]


def test_of_many_steps_the_first_ones_are_shown(analyze, tmp_path):
    shown = analyze(own_recording({"k": 1}, steps=12).write(tmp_path / "t.json"))
    rows = shown.partition("\nsteps\n")[2]
    assert sum(line.startswith("ProfilerStep#") for line in rows.splitlines()) == 10
    assert "... and 2 more (--step N)" in shown


@pytest.fixture
def found_once(monkeypatch):
    """Keep rows, times and findings of a recording, which are the same however wide and long the text is that shows them."""
    made = {}

    def keep(holder, name, key_of):
        make = getattr(holder, name)

        def kept(*facts):
            key = name, *key_of(*facts)
            if key not in made:
                made[key] = facts, make(*facts)
            return made[key][1]

        monkeypatch.setattr(holder, name, kept)

    keep(tables, "rows_by", lambda way, _, steps: (way, *map(id, steps)))
    keep(analysis_text, "_kernel_times_ns", lambda _, steps: tuple(map(id, steps)))
    keep(analysis_text, "_kernels_of_no_step", lambda analysis: (id(analysis),))
    keep(analysis_text, "find", lambda analysis, _: (id(analysis),))
    keep(analysis_text, "standing_out", lambda analysis, _: (id(analysis),))


@pytest.mark.usefixtures("found_once")
@pytest.mark.parametrize("recording", [name for name in FINDINGS if name not in LEFT_OUT])
def test_every_recording_fits_whichever_way_it_is_looked_at(recording, shared_trace):
    profile = load(shared_trace(recording))
    last = profile.steps[-1].name
    ways = [
        {},  # What stands out is told alike beside all rows.
        *({"by": by, "findings": False} for by in WAYS),
        *({"by": by, "top": 1, "findings": False} for by in WAYS),
        {"top": 1000, "findings": False},
        *([{"step": int(last.rpartition("#")[2])}] if last else []),
    ]
    for width, way in ((width, way) for width in (40, 60, 80, 100) for way in ways):
        lines = text(profile, **way, width=width).splitlines()
        assert max(map(len, lines)) <= width, way
        assert all(line == line.rstrip() for line in lines), way


def test_modules_that_were_not_recorded_are_told_with_how_to_record_them(analyze, tmp_path):
    path = TraceBuilder().write(tmp_path / "t.json")
    assert "not recorded: record them with profile(with_stack=True)" in analyze(path, "--by", "module")


def test_the_text_says_what_stands_in_the_file(analyze, trace):
    shown = analyze(trace)
    headline, _, rest = shown.partition("\n\n")
    assert headline.startswith("The GPU")
    assert rest.startswith(str(trace)[:97] + "..." if len(str(trace)) > 100 else str(trace))
    assert "Test GPU" in shown
    assert "3 steps" in shown
    assert "gemm" in shown
    assert "aten::mul" in shown


def test_of_a_recording_that_is_not_to_be_believed_the_text_begins_with_why_and_ends_with_what_to_do(analyze, tmp_path):
    builder = own_recording({"k": 1})
    builder.launch(500)
    path = builder.write(tmp_path / "t.json")
    text = analyze(path)
    (found,) = [finding for finding in load(path).findings if finding.code == "lost-kernels"]
    headline, recording, *_ = text.split("\n\n")
    assert " ".join(headline.split()).startswith("Not measured: 1 of 3 launches ")
    assert headline.endswith("[lost-kernels]")
    assert "not measured" not in recording.lower()
    after = " ".join(text.split("\n\nnext\n")[1].split())
    assert after.startswith(f"{found.title}: {found.remedy}")
    assert "torchprof explain lost-kernels" in after
    assert after.endswith(f"see it: torchprof report {path} -o page.html")
    assert "NOT MEASURED: 1 of 3 launches" in analyze(path, "--no-findings"), "where no headline stands above"


def test_the_text_of_an_empty_trace_is_no_error(analyze, tmp_path):
    text = analyze(TraceBuilder().write(tmp_path / "t.json"))
    assert text.startswith("Not measured: ")
    assert "kernels" not in text, "what the GPU did is not known, and is not 0"


def test_orphans_and_attribution_by_time_are_said(analyze, tmp_path):
    builder = TraceBuilder()
    builder.kernel("from before", 5, 1, 1)
    builder.launched("k", 10)
    assert "1 GPU operation launched before " in analyze(builder.write(tmp_path / "a.json"))
    builder = TraceBuilder()
    builder.kernel("k", 5, 1, None)
    assert "kernels count where they ran" in analyze(builder.write(tmp_path / "b.json"))


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["analyze"], "TRACE|DIR"),
        (["analyze", "a", "b"], "'b'"),
        (["analyze", "a", "--colour"], "'--colour'"),
        (["analyze", "a", "--tpo=5"], "did you mean '--top'?"),
        (["analyze", "a", "--thresh", "hotspot.share=1"], "did you mean '--threshold'?"),
        (["analyze", "a", "--by", "colour"], "'colour'"),
        (["analyze", "a", "--top", "0"], "'0'"),
        (["analyze", "a", "--top", "-1"], "'-1'"),
        (["analyze", "a", "--top"], "--top"),
        (["analyze", "a", "--step=x"], "'x'"),
        (["colour"], "'colour'"),
        (["analyse", "a"], "did you mean 'analyze'?"),
        (["--colour", "analyze", "a"], "'--colour'"),
    ],
)
def test_bad_usage_ends_with_2_and_says_why(capsys, argv, words):
    assert main(argv) == 2
    out, err = capsys.readouterr()
    assert words in err
    assert "[bad-usage]" in err
    assert (out, len(err.splitlines())) == ("", 1)


def test_a_value_stands_behind_its_option_or_an_equals_sign(analyze, trace):
    assert analyze(trace, "--top", 1) == analyze(trace, "--top=1") != analyze(trace)


def test_behind_two_dashes_all_words_are_files(capsys):
    assert main(["analyze", "--json", "--", "--top"]) == 2
    assert "[recording-missing]" in capsys.readouterr().err


def test_a_step_that_is_not_there_is_named_with_those_that_are(capsys, trace, tmp_path):
    assert main(["analyze", str(trace), "--step", "7"]) == 2
    assert "no ProfilerStep#7" in (err := capsys.readouterr().err)
    assert "ProfilerStep#0, ProfilerStep#1, ProfilerStep#2" in err
    path = TraceBuilder().write(tmp_path / "none.json")
    assert main(["analyze", str(path), "--json", "--step", "0"]) == 2
    assert "the whole trace is one" in capsys.readouterr().err


def test_a_name_that_is_cut_has_no_dot_of_its_own_at_the_cut(tmp_path, capsys, monkeypatch):
    builder = TraceBuilder()
    builder.step(0, 0, 900)
    builder.annotation("a.b.c.d.e.f.g.h.i.j.k.l.m.n.o.p.q.r.s.t.u.v.w.x.y.z.0.1.2.3.4.5.6.7.8.9", 5, 100)
    builder.launched("kernel", 10)
    path = str(builder.write(tmp_path / "t.json"))
    for columns in (60, 61, 62, 63, 64):
        monkeypatch.setenv("COLUMNS", str(columns))
        assert main(["analyze", path, "--by", "range"]) == 0
        shown = capsys.readouterr().out
        assert "..." in shown
        assert "...." not in shown


@pytest.mark.parametrize("columns", [40, 60, 80])
@pytest.mark.parametrize(
    "command",
    [
        [],
        *([name] for name in COMMANDS),
        *([name, part] for name in COMMANDS for part in commands_of(commands_of(parser_of(name))[name])),
    ],
    ids=" ".join,
)
def test_help_fits_the_screen_and_its_examples_can_be_pasted(command, columns, capsys, monkeypatch):
    helps = {}
    for width in (columns, 400):
        monkeypatch.setenv("COLUMNS", str(width))
        assert main([*command, "--help"]) == 0
        helps[width] = capsys.readouterr().out
    assert [line for line in helps[columns].splitlines() if len(line) > columns] == []
    examples = [
        [shlex.split(line) for line in text.replace("\\\n", " ").splitlines() if line.startswith("  torchprof ")]
        for text in helps.values()
    ]
    assert examples[0] == examples[1]


@pytest.mark.parametrize("option", ["-h", "--help"])
@pytest.mark.parametrize("command", [[], *([name] for name in COMMANDS), ["baseline", "prune"]])
def test_help_is_no_error_and_asks_for_nothing_else(capsys, command, option):
    assert main([*command, option]) == 0
    out, err = capsys.readouterr()
    assert out.startswith(" ".join(["usage: torchprof", *command]))
    assert err == ""


LONG = "a" * 5000


@pytest.mark.parametrize(
    "words",
    [
        ["analyze", LONG],
        ["analyze", LONG, "--ranks"],
        ["check", LONG, "--limit", "max_kernels=1"],
        ["report", LONG, "-o", "out.html"],
        ["report", "tests", "-o", LONG],
        ["diff", LONG, LONG],
        ["export", LONG, "--lanes", "-o", "out.json"],
        ["export", __file__, "--lanes", "-o", LONG],
        ["open", LONG],
        ["run", LONG],
        *(["baseline", command, LONG] for command in ("list", "show", "prune", "resolve")),
        ["baseline", "diff", LONG, LONG],
        ["baseline", "rename", LONG, "test_it.py::test_a"],
    ],
)
def test_a_path_that_is_too_long_for_a_file_is_bad_usage(capsys, words):
    assert main(words) == 2
    assert capsys.readouterr().err.startswith(f"torchprof {words[0]}: ")


def test_what_stands_behind_two_dashes_is_no_option():
    assert says(why_command_refused("check", "a.json", "--", "--limit"), ArgumentTooMany, argument="--limit")


def test_without_a_command_the_usage_is_an_error(capsys):
    assert main([]) == 2
    assert "analyze" in capsys.readouterr().err


def test_the_version_is_told(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("torchprof 0")


def test_what_is_said_of_the_whole_recording_beside_one_step_is_told_so(analyze, trace):
    whole, one = analyze(trace), analyze(trace, "--step", 1)
    assert "of the whole recording, all its 3 steps:" in one
    assert "of the whole recording" not in whole
    assert "GPU utilization" in whole
    assert "GPU utilization" not in one


def test_what_stands_out_is_listed_above_all_tables(analyze, tmp_path):
    builder = TraceBuilder()
    builder.event("python_function", "train.py(12): step", 0, 3000)
    for at in range(0, 3000, 300):
        builder.op("aten::item", at, 250)
        builder.launched("ampere_sgemm_128x64_tn", at + 10, op="aten::mm", dur=40)
        builder.sync(at + 50, 190, what="stream sync")
    path = builder.write(tmp_path / "t.json")
    profile = load(path)
    first = [one for one in profile.findings if one.severity != "information"][:3]
    assert len(first) == 3
    top = analyze(path).partition(f"\n\n{path}")[0].splitlines()
    named = [f"  {one.title}, up to {show_us(one.saves_us)} at step (train.py:12)" for one in first]
    begin = top.index("What stands out:") + 1
    assert top[begin : begin + 3] == named
    assert "What stands out" not in analyze(path, "--no-findings")


@pytest.mark.parametrize("width", [60, 80, 200])
def test_the_first_screen_says_in_a_line_what_to_do_about_what_most_stands_out(analyze, tmp_path, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    builder = TraceBuilder()
    for at in range(0, 3000, 300):
        builder.op("aten::item", at, 250)
        builder.launched("k", at + 10, op="aten::mm", dur=40)
        builder.sync(at + 50, 190, what="stream sync")
    path = builder.write(tmp_path / "t.json")
    first = next(finding for finding in load(path).findings if finding.severity != "information")
    (line,) = [line for line in analyze(path).splitlines() if line.startswith("What to do first: ")]
    assert line.removeprefix("What to do first: ") in (first.remedy, first.action)
    assert len(line) <= min(width, 80)
    assert "What to do" not in analyze(path, "--no-findings")


@pytest.mark.parametrize("name", ["mi300x_compile_tiny", "rocm_no_correlation"])
def test_where_nothing_costs_time_the_text_ends_with_what_could_still_be_done(analyze, shared_trace, name):
    first, *_ = (finding for finding in load(shared_trace(name)).findings if finding.remedy)
    assert first.severity == "information"
    after = " ".join(analyze(shared_trace(name)).split("\n\nnext\n")[1].split())
    assert after.startswith(f"{first.title}: {first.remedy} see it: ")


NO_LINES = "Lines of your code are not recorded: "


@pytest.mark.parametrize(
    ("frames", "ours", "said"),
    [
        (False, False, ["Lines of your code are not recorded: profile(with_stack=True) records them."]),
        (False, True, ['Lines of your code are not recorded: record=["stacks"] records them.']),
        (True, False, []),
    ],
    ids=["of a script", "of a test", "with lines"],
)
def test_where_no_line_is_known_the_first_screen_says_how_to_get_them(analyze, tmp_path, frames, ours, said):
    builder = TraceBuilder()
    if frames:
        builder.event("python_function", "train.py(12): step", 0, 3000)
    if ours:
        builder.own(steps=1)
        builder.step(0, 0, 3100)
    builder.op("aten::item", 0, 3000)
    for at in range(0, 3000, 300):
        builder.launched("k", at + 10, op="aten::mm", dur=40)
        builder.sync(at + 50, 190, what="stream sync")
    top, _, _ = analyze(builder.write(tmp_path / "t.json")).partition("\n\n")
    assert [line for line in top.splitlines() if line.startswith(NO_LINES)] == said
    assert not said or top.splitlines()[-2].startswith("What to do first: ")


def test_where_the_cpu_is_not_recorded_at_all_lines_need_its_activities_too(analyze, tmp_path):
    builder = TraceBuilder()
    for at in range(0, 3000, 300):
        builder.kernel("nchwToNhwcKernel", at + 5, 299, builder.launch(at))
    top, _, _ = analyze(builder.write(tmp_path / "t.json")).partition("\n\n")
    assert "with_stack=True" in top
    assert "ProfilerActivity.CPU" in top


def test_no_code_of_what_to_do_next_is_broken_at_a_hyphen(analyze, shared_trace, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    path = shared_trace("a100_megatron_tp8_rank1")
    assert any("forbid=exposed-communication" in line for line in analyze(path).splitlines())


@pytest.mark.parametrize("stacks", [False, True])
def test_that_a_recording_was_made_with_stacks_is_said(analyze, tmp_path, stacks):
    builder = TraceBuilder()
    builder.launched("k", 0, op="aten::mm", dur=50)
    if stacks:
        builder.event("python_function", "train.py(12): step", 0, 3000)
    shown = analyze(builder.write(tmp_path / "t.json"))
    assert ("recorded with Python functions" in shown) is stacks


def test_kernels_of_no_step_that_utilization_counts_are_said(analyze, tmp_path):
    builder = TraceBuilder()
    builder.launch(0)
    builder.kernel("earlier", 120, 30, 4711)
    builder.step(0, 100, 300)
    builder.launched("own", 200, op="aten::mm", dur=50)
    shown = " ".join(analyze(builder.write(tmp_path / "t.json")).split())
    assert "1 kernel of no step that ran meanwhile does count" in shown


def test_how_many_of_the_operations_of_no_step_are_kernels_is_said(analyze, tmp_path):
    builder = TraceBuilder()
    builder.kernel("earlier", 20, 30, 4711)
    builder.memcpy("HtoD", 60, 10, 4712)
    builder.step(0, 100, 300)
    builder.launched("own", 200, op="aten::mm", dur=50)
    shown = " ".join(analyze(builder.write(tmp_path / "t.json")).split())
    assert "2 GPU operations (1 kernel)" in shown


def test_a_recording_without_the_gpus_side_shows_no_number_of_a_gpu(analyze, tmp_path):
    builder = TraceBuilder()
    for number in range(3):
        builder.step(number, 1000 * number, 900)
        builder.op("aten::mm", 1000 * number + 10, 500)
    rows = [line.split() for line in analyze(builder.write(tmp_path / "t.json")).splitlines()]
    assert any(row[:2] == ["CPU", "time"] for row in rows)
    assert ["step", "length", "CPU", "time"] in rows
    assert not any("kernels" in row or "GPU busy" in " ".join(row) for row in rows)


def test_that_nothing_stands_out_is_said(analyze, tmp_path):
    builder = TraceBuilder()
    builder.launched("k", 0, dur=50)
    assert "\nnothing stands out\n" in analyze(builder.write(tmp_path / "t.json"))


def test_kernels_that_only_raw_names_tell_apart_are_numbered(analyze, tmp_path):
    builder = TraceBuilder()
    for i, width in enumerate((2, 4)):
        name = f"void at::native::vectorized_elementwise_kernel<{width}, at::native::CUDAFunctor_add<float>, x>(int)"
        builder.launched(name, 100 * i, op="aten::add", dur=20 - i)
    shown = analyze(builder.write(tmp_path / "t.json"))
    assert [line.split("  ")[0] for line in shown.splitlines() if "pointwise fp32 add" in line] == [
        "pointwise fp32 add [1]",
        "pointwise fp32 add [2]",
    ]


def test_ranges_on_the_cpu_have_the_kernels_that_the_range_says(tmp_path):
    builder = TraceBuilder()
    builder.step(0, 0, 1000)
    builder.annotation("forward", 10, 500)
    for at in (20, 100):
        builder.op("aten::mul", at, 30)
    builder.op("aten::mul", 600, 30)
    builder.own(device="cpu", steps=1)
    profile = load(builder.write(tmp_path / "cpu.json"))
    assert (profile.range("forward").kernels, profile.range("forward").kernel_time_us) == (2, 60)
    heading, *_, row = profile.table(by="range").split("\n")
    assert heading == "user annotations in the step"
    # Calls, own and total CPU time, kernels, own and total time of the kernels; of the one call mean, least and most.
    assert row.split() == ["forward", "1", *["500", "us"] * 2, "2", *["60.0", "us"] * 5]


def test_shares_say_what_they_are_of(analyze, trace, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    shown = " ".join(analyze(trace).split())
    window = "2.90 ms from the first step's start until CPU and GPU are done"
    assert f"GPU utilization and SM efficiency are of {window}" in shown
    assert "shares of 100 us of kernel time" in shown
    assert "of a step's time (900 us until CPU and GPU are done; the mean of 3): kernel 3.7%" in shown
    assert f'what stands out ("of the time": of {window})' in shown


def test_what_other_is_made_of_is_listed(analyze, tmp_path):
    builder = TraceBuilder()
    builder.step(0, 0, 100)
    builder.op("aten::mul", 10, 20)
    builder.op("aten::add", 60, 20)
    builder.kernel("k", 15, 5, builder.launch(12))
    lines = analyze(builder.write(tmp_path / "t.json")).splitlines()
    place = next(number for number, line in enumerate(lines) if line.startswith("after "))
    assert lines[place - 2].startswith("other: between these ranges on the CPU")
    assert [line.split() for line in lines[place + 2 : place + 5]] == [
        ["aten::mul", "aten::add", "30.0%", "1", "30.0", "us"],
        ["aten::add", "the", "step's", "end", "20.0%", "1", "20.0", "us"],
        ["the", "step's", "beginning", "aten::mul", "10.0%", "1", "10.0", "us"],
    ]


class Terminal(io.StringIO):
    """A terminal of some encoding."""

    encoding = "utf-8"

    def isatty(self):
        return True


@pytest.fixture
def terminal(monkeypatch):
    """Return a function that analyses a recording on a terminal, and returns what it shows."""
    for name in ("NO_COLOR", "FORCE_COLOR", "PY_COLORS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")

    def show(path, columns=80, encoding="utf-8", stream=Terminal, **environment):
        for name, value in {"COLUMNS": str(columns), **environment}.items():
            monkeypatch.setenv(name, value)
        screen = stream() if encoding == "utf-8" else type("Other", (stream,), {"encoding": encoding})()
        with monkeypatch.context() as patched:
            patched.setattr(sys, "stdout", screen)
            assert main(["analyze", "--no-findings", str(path)]) == 0
        return screen.getvalue()

    return show


def shares(shown, heading):
    """Return the lines below a heading."""
    lines = shown.splitlines()
    begin = next(at for at, line in enumerate(lines) if heading in line)
    return [line for line in lines[begin + 1 : begin + 9] if line.startswith("  ") and "%" in line]


def test_a_terminal_shows_shares_as_bars(trace, terminal):
    shown = terminal(trace, NO_COLOR="1")
    bars = shares(shown, "kernel time, by family:")
    assert bars
    assert all(re.fullmatch(r"  \S.*  +[\d.]+%  [▏▎▍▌▋▊▉█]*", line) for line in bars)
    assert "\033" not in shown
    assert max(map(len, shown.splitlines())) <= 80
    # As long as the share is large.
    sizes = [(float(line.split("%")[0].split()[-1]), line.count("█")) for line in bars]
    assert [size for _, size in sorted(sizes)] == sorted(size for _, size in sizes)


def test_bars_are_coloured_by_pytests_rules(trace, terminal):
    assert "\033[36m" in terminal(trace)
    assert "\033" not in terminal(trace, NO_COLOR="1")
    assert "\033" in terminal(trace, NO_COLOR="1", PY_COLORS="1")
    assert "\033" in terminal(trace, NO_COLOR="", PY_COLORS="", FORCE_COLOR="1", stream=io.StringIO)


def test_where_no_bar_can_be_drawn_there_is_a_sentence(trace, terminal):
    sentence = "kernel time, by family: "
    assert sentence in terminal(trace, TERM="dumb")
    assert sentence in terminal(trace, stream=io.StringIO)
    assert "█" not in (plain := terminal(trace, encoding="ascii", TERM="xterm"))
    assert "##" in plain


@pytest.mark.parametrize(
    "name",
    ["a100_moe_no_steps", "b200_eager_nvjet", "mi210_gpu_only", "mi300x_sglang_decode_device9", "rocm_no_correlation"],
)
@pytest.mark.parametrize("by", ["kernel", "op"])
def test_of_a_recording_without_steps_no_text_speaks_of_any(shared_trace, capsys, name, by):
    path = shared_trace(name)
    assert main(["analyze", str(path), "--by", by]) == 0
    said = capsys.readouterr().out.replace(str(path), "").replace("no step ranges", "")
    assert re.findall(r".*\bsteps?\b.*", said) == []


@pytest.mark.parametrize("steps", [0, 1])
def test_findings_on_small_calls_and_constants_name_the_step_only_where_there_is_one(steps):
    found = {
        "many-small-calls": ManySmallCalls(
            time_us=9.0,
            share=0.5,
            ops={"aten::add": 40},
            mean_us={"aten::add": 2.0},
            launch_us=5.0,
            has_steps=bool(steps),
        ),
        "repeated-constant": RepeatedConstant(
            time_us=9.0, count=4, different=1, constants=("arange(8)",), calls_per_step=(4,), has_steps=bool(steps)
        ),
        "compile-in-window": CompiledInWindow(time_us=9.0, share=0.5, count=1, has_steps=bool(steps)),
    }
    assert {code: "step" in finding.message for code, finding in found.items()} == dict.fromkeys(found, bool(steps))


def test_a_longer_process_keeps_no_recording_that_it_has_shown(trace):
    code = (
        "import contextlib, gc, io\nfrom pytest_torchprof.cli import main\n"
        f"with contextlib.redirect_stdout(io.StringIO()): main(['analyze', {str(trace)!r}, '--json'])\n"
        "gc.collect()\n"
        "kept = [type(thing).__name__ for thing in gc.get_objects() if type(thing).__name__ in ('Trace', 'Profile')]\n"
        "print(gc.isenabled(), gc.get_freeze_count(), kept)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "True 0 []\n"
