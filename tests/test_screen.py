"""How much a failure says: a screen by default, a line with ``-q``, everything with ``-vv``."""

from __future__ import annotations

import json
import re

import pytest
from builder import TraceBuilder, own_recording
from msgspec.structs import replace

from pytest_torchprof import LimitsMissed, load
from pytest_torchprof.limits import FailureLine, Screen, Verdict, check_limits, error_for, read_limits
from pytest_torchprof.limits.evidence import LineInWords, WorkRow
from pytest_torchprof.limits.seen import InWords, NumberSeen
from pytest_torchprof.reasons.recordings import NeedsGpu
from pytest_torchprof.reasons.step_title import StepTitle
from pytest_torchprof.reasons.testing import EndedByError

pytestmark = pytest.mark.any_torch

MANY = """
ops = [torch.sin, torch.cos, torch.tan, torch.exp, torch.sqrt, torch.abs, torch.neg, torch.floor, torch.ceil, torch.log,
       torch.sigmoid, torch.tanh, torch.relu, torch.erf, torch.sign, torch.round, torch.trunc, torch.asin, torch.atan,
       torch.sinh, torch.cosh, torch.log2, torch.log10, torch.log1p, torch.expm1, torch.rsqrt, torch.reciprocal]

@pytest.mark.torchprof(device="cpu", max_kernels=3, forbid_kernels="aten::sin", only_kernels="aten::cos", max_gpu_time=0)
def test_it():
    for op in ops:
        op(x)
"""
PLACE = "test_it.py:13 in test_it"


def failure_section(result):
    """Return the lines of the one failure: from its title to the table at the end of the run."""
    lines = result.stdout.lines
    begin = next(i for i, line in enumerate(lines) if line.strip("_ ") == "test_it" and line.startswith("_"))
    end = next(i for i, line in enumerate(lines) if "torchprof: " in line and i > begin)
    return [line for line in lines[begin + 1 : end] if line]


@pytest.mark.parametrize("width", ["80", "100"])
def test_by_default_all_that_a_failure_says_fits_on_a_screen(run_tests, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", width)
    lines = failure_section(run_tests(MANY))
    assert sum(-(-len(line) // int(width)) for line in lines) <= 40
    text = "\n".join(lines)
    for name in ("max_kernels=3", "forbid_kernels=aten::sin", "only_kernels=aten::cos", "max_gpu_time=0"):
        assert f"  {name} " in text
    assert f"{NumberSeen('kernels', 27)} in {StepTitle(step=1, steps=5)}" in text
    assert PLACE in text
    assert "more: pytest -vv" in text
    assert "recording: .torchprof/" in text
    rows = [line for line in lines if " x " in line or line.strip() == PLACE]
    assert max(map(len, rows)) <= int(width)


def test_with_more_verbosity_nothing_is_left_out(run_tests):
    # One step: of several each limit shows the worst, and which one took longest is the machine's business.
    source = MANY.replace("max_kernels=3", "max_kernels=3, steps=1")
    text = "\n".join(failure_section(run_tests(source, "-vv")))
    assert "pytest -vv" not in text
    for op in ("sin", "reciprocal", "expm1", "log10"):
        assert f" x pointwise {op} " in text
    assert text.count(PLACE) == 27 + 1 + 26


def test_quietly_one_line_says_the_limit_both_numbers_and_a_kernel(run_tests):
    (line,) = failure_section(run_tests(MANY, "-q"))
    assert line.startswith("max_kernels=3: 27 kernels; earliest: pointwise ")
    assert line.endswith(f", {PLACE.split(maxsplit=1)[0]}; also: forbid_kernels, only_kernels, max_gpu_time")


def test_quietly_what_was_not_measured_is_one_line_too(run_tests):
    source = "@pytest.mark.torchprof(device='cpu', max_syncs=0)\ndef test_it():\n    torch.sin(x)\n"
    assert failure_section(run_tests(source, "-q")) == [
        f"max_syncs=0: not measured: {NeedsGpu('cpu', 'blocking calls')}"
    ]


def test_each_part_that_fails_says_one_line_when_quiet_and_its_share_of_a_screen_else(run_tests):
    source = """
@cpu
def test_it(torchprof):
    for part in ("first", "second", "third"):
        with torchprof.measure(part, max_kernels=0) as m:
            for _ in m.steps():
                for op in [torch.sin, torch.cos, torch.tan, torch.exp, torch.sqrt, torch.abs, torch.neg, torch.erf]:
                    op(x)
"""
    lines = failure_section(run_tests(source, "-q"))
    assert [line.partition(":")[0] for line in lines] == ["first", "second", "third"]
    assert len(failure_section(run_tests(source))) <= 50


def test_reports_hold_the_whole_text_when_the_terminal_is_quiet(run_tests, pytester):
    run_tests(MANY, "-q", "--torchprof-report=report.md")
    assert "and 26 more" not in (text := (pytester.path / "report.md").read_text())
    assert "4 limits missed: max_kernels, forbid_kernels, only_kernels, max_gpu_time" in text
    assert PLACE in text


def test_the_kernels_of_a_failure_are_a_table_only_with_v(run_tests):
    run_tests(MANY).stdout.no_fnmatch_line("kernel *calls*time*launched by*")
    run_tests(MANY, "-v").stdout.fnmatch_lines(["kernel *calls*time*launched by*"])


@pytest.mark.parametrize("width", [60, 80, 100, 140])
def test_the_table_of_results_fits_the_terminal(run_tests, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    source = (
        "@cpu\ndef test_that_has_a_long_name_that_says_what_is_the_case_in_many_words():\n    torch.sin(x)\n" + MANY
    )
    result = run_tests(source, "--torchprof-baseline=update")
    lines = result.stdout.lines
    begin = next(i for i, line in enumerate(lines) if line.startswith("test "))
    rows = lines[begin : lines.index("", begin)]
    assert max(map(len, rows)) <= width
    assert [rows[0].split()[i] for i in (0, 1, -1)] == ["test", "kernels", "verdict"]
    assert ("CPU/GPU" in rows[0]) == (width >= 100)
    assert rows[2].split()[0].endswith("in_many_words")


def judged(tmp_path, **limits):
    profile = load(own_recording({"void kernel_a(float*)": 3, "gemm_" + "x" * 200: 1}).write(tmp_path / "t.json"))
    asked = read_limits(limits)
    return lambda **screen: str(
        error_for(check_limits(profile, asked), profile, profile.why_missed, screen=Screen(**screen))
    )


def test_kernels_that_only_their_full_names_tell_apart_are_numbered(tmp_path):
    fill, add = ("void at::native::vectorized_elementwise_kernel<{}, at::native::" + what for what in ("Fill", "Add"))
    kernels = {fill.format(4) + "Functor<float>, x>(int)": 3, fill.format(2) + "Functor<float>, x>(int)": 2}
    profile = load(own_recording({**kernels, add.format(4) + "Functor<float>, x>(int)": 1}).write(tmp_path / "t.json"))

    def rows(**screen):
        asked = read_limits({"max_kernels": 1, "forbid_kernels": "*<2, *Fill*"})
        error = error_for(check_limits(profile, asked), profile, profile.why_missed, screen=Screen(**screen))
        return [line.partition(" x ")[2].partition("  ")[0] for line in str(error).splitlines() if " x " in line]

    named = rows()
    assert named == ["pointwise fill [1]", "pointwise fill [2]", "pointwise add", "pointwise fill [2]"]
    assert rows(everything=True) == named


def test_names_are_cut_to_the_screen_and_whole_when_all_is_asked_for(tmp_path):
    told = judged(tmp_path, max_kernels=1)
    for everything in (False, True):
        rows = [line for line in told(width=80, everything=everything).splitlines() if " x " in line]
        assert max(map(len, rows)) <= 80
    assert "x" * 200 not in told(width=80)
    assert "gemm_" + "x" * 200 in told(width=80, everything=True)


@pytest.mark.parametrize("columns", [40, 60, 80, 120, None])
def test_all_that_is_asked_for_holds_every_word_of_the_plain_text_and_the_whole_names(tmp_path, columns):
    product = "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute_segment_k"
    builder = TraceBuilder()
    builder.step(0, 0, 2000)
    builder.launched(product, 100, dur=50, op="aten::mm")
    builder.launched("void at::native::vectorized_elementwise_kernel<4, at::native::AddFunctor<float> >()", 400)
    builder.launched(
        "void a_kernel_of_ours_with_a_name(float*)", 700, op="ours::an_operator_with_a_name_as_long_as_this"
    )
    profile = load(builder.write(tmp_path / "t.json"))
    verdicts = check_limits(profile, read_limits({"max_kernels": 1, "max_gpu_time": 0}))

    def shown(*, everything):
        screen = Screen.of_columns(columns, everything=everything)
        return str(error_for(verdicts, profile, profile.why_missed, screen=screen))

    whole = shown(everything=True)
    assert product in whole
    assert "ours::an_operator_with_a_name_as_long_as_this" in whole
    if columns is None or columns >= 80:
        assert "gemm bf16 tn sm90_xmma_128x128x64" in whole
    assert {word for word in shown(everything=False).split() if "..." not in word} <= set(whole.split())
    rows = [line for line in whole.splitlines() if " x " in line]
    assert max(map(len, rows)) <= (columns or 100)


def test_names_that_begin_alike_keep_their_ends(tmp_path):
    alike = [f"triton_red_fused__to_copy_add_mul_native_layer_norm_view_{what}" for what in ("gelu_3", "sum_14")]
    profile = load(own_recording(dict.fromkeys([*alike, "x" * 80], 1)).write(tmp_path / "t.json"))
    error = error_for(
        check_limits(profile, read_limits({"max_kernels": 1})), profile, profile.why_missed, screen=Screen(width=80)
    )
    first, second, other = (line.partition(" x ")[2] for line in str(error).splitlines() if " x " in line)
    assert first.startswith("...")
    assert "norm_view_gelu_3 " in first
    assert "norm_view_sum_14 " in second
    assert "xxx... " in other


def test_the_word_for_the_family_is_no_beginning_that_makes_names_alike(tmp_path):
    ends = "_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
    names = {f"ncclDevKernel_{what}{ends}": 1 for what in ("AllReduce_Sum", "AllGather")}
    profile = load(own_recording(names).write(tmp_path / "t.json"))
    error = error_for(
        check_limits(profile, read_limits({"max_kernels": 1})), profile, profile.why_missed, screen=Screen(width=60)
    )
    rows = [line.partition(" x ")[2] for line in str(error).splitlines() if " x " in line]
    assert [row.startswith("communication all_") for row in rows] == [True, True]
    assert {row.partition("all_")[2][:3] for row in rows} == {"red", "gat"}


@pytest.mark.parametrize("columns", [60, 80])
@pytest.mark.parametrize("limits", [1, 2])
def test_a_name_keeps_its_type_and_layout_whatever_rows_nobody_sees_and_operators_are_called(tmp_path, columns, limits):
    builder = TraceBuilder()
    builder.step(0, 0, 9000)
    product = "sm90_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize128x128x32_warpgroupsize1x1x1_execute_segment_k"
    builder.launched(product, 100, dur=500, op="aten::mm")
    builder.launched("void a_kernel_with_another_name(float*)", 700, dur=400, op="ours::an_operator_with_a_long_name")
    for at in range(20):
        builder.launched(f"void kernel_{at}_{'with_a_name_of_many_words_' * 3}(float*)", 1200 + 100 * at, dur=100 - at)
    profile = load(builder.write(tmp_path / "t.json"))
    verdicts = check_limits(profile, read_limits(dict([("max_gpu_time", 0), ("max_launches", 1)][:limits])))
    lines = str(error_for(verdicts, profile, profile.why_missed, screen=Screen.of_columns(columns))).splitlines()
    rows = [line for line in lines if " x " in line]
    assert "gemm tf32 tn sm90_xmma_128x128x32 " in rows[0]
    assert max(map(len, lines)) <= columns


def test_with_little_room_a_place_keeps_its_file_and_the_name_before_it(shared_trace):
    profile = load(shared_trace("h100_transformer_three_steps"))
    verdicts = check_limits(profile, read_limits({"max_gpu_time": "1us", "max_kernels": 1}))
    lines = str(error_for(verdicts, profile, profile.why_missed, screen=Screen.of_columns(80))).splitlines()
    assert lines.count("      gemm tf32 tn sm90_xmma_128x128x32: torch_prof.py:36 and 1 more place") == 2


@pytest.mark.parametrize("kernels", range(20, 26))
def test_where_a_single_row_would_be_left_out_it_is_shown(tmp_path, kernels):
    profile = load(own_recording({f"void kernel_{at}(float*)": 1 for at in range(kernels)}).write(tmp_path / "t.json"))
    verdicts = check_limits(profile, read_limits({"max_kernels": 1}))
    lines = str(error_for(verdicts, profile, profile.why_missed, screen=Screen())).splitlines()
    rows = [line for line in lines if " x " in line]
    left = [line.split()[1] for line in lines if line.strip().startswith("and ")]
    assert len(rows) + sum(map(int, left)) == kernels
    assert "1" not in left


def test_the_numbers_that_decide_are_in_the_headline_however_many_kernels_came(tmp_path):
    headline = FailureLine("worse than before", "headline", numbers="kernels 2 -> 90")
    came = [FailureLine(f"    + kernel {at}", "came", subject=f"kernel {at}") for at in range(88)]
    error = error_for(
        (), load(own_recording({"a": 1}).write(tmp_path / "t.json")), lambda _: (), also=[headline, *came]
    )
    assert str(error).splitlines()[0] == "worse than before: kernels 2 -> 90"
    assert error.in_one_line == "worse than before: new: kernel 0 and 87 more kinds"


def test_a_graph_break_is_named_once_though_a_limit_and_a_baseline_are_missed_by_it(tmp_path):
    builder = TraceBuilder()
    breaks = [{"reason": "Data-dependent", "file": "model.py", "line": 21, "function": "forward"}]
    builder.own(device="cpu", steps=1, compile={"dynamo": True, "graphs_are_marked": True, "breaks": breaks})
    builder.step(0, 0, 900)
    builder.region("0/0", 100, 150)
    builder.op("aten::mm", 110, 130)
    profile = load(builder.write(tmp_path / "t.json"))
    of_baseline = [
        FailureLine("worse than before", "headline", numbers="graph_breaks 0 -> 1"),
        FailureLine("    graph break at: model.py:21 in forward: Data-dependent", "broke", subject="model.py:21"),
        FailureLine("    graph break at: other.py:4 in forward: Data-dependent", "broke", subject="other.py:4"),
    ]
    verdicts = check_limits(profile, read_limits({"max_graph_breaks": 0}))
    text = str(error_for(verdicts, profile, profile.why_missed, also=of_baseline))
    assert text.count("model.py:21 in forward") == 1
    assert text.count("other.py:4 in forward") == 1


PLACED = "      pointwise mul: 3 x examples/cookbook/test_it.py:21 in forward, Sequential_0.Attention_0 and 1 more"


@pytest.mark.parametrize("columns", range(40, len(PLACED) + 1))
def test_a_line_that_is_too_long_loses_words_and_never_a_file_with_its_line(columns):
    shown = Screen.of_columns(columns).broken_places(PLACED, 1)
    assert max(map(len, shown)) <= columns
    assert len(shown) <= 3
    assert shown[0].startswith("      pointwise ")
    assert all(line.startswith("      ") for line in shown)
    words = " ".join(shown).split()
    assert "examples/cookbook/test_it.py:21" in words
    assert set(words) <= {*PLACED.split(), "..."}
    assert columns < len(PLACED) or words == PLACED.split()


def test_a_name_that_is_too_long_keeps_its_beginning_and_its_end():
    name, *others = Screen.of_columns(60).broken(f"  forbid_kernels=void_{'x' * 100}_gelu_3 in the first step")
    assert re.fullmatch(r"  forbid_kernels=void_x+\.\.\.x+_gelu_3( in)?", name)
    assert " ".join(others).split()[-3:] == ["the", "first", "step"]


def test_places_with_more_files_than_fit_keep_them_all():
    files = [f"package/module_{at}.py:{at}0" for at in range(6)]
    shown = Screen.of_columns(60).broken_places(f"      relu: {' and then again '.join(files)}", 1)
    assert [file for file in files if file not in " ".join(shown).split()] == []


@pytest.mark.parametrize("columns", [40, 60, 80])
@pytest.mark.parametrize("others", [0, 2])
def test_a_sentence_is_whole_however_little_room_it_has(tmp_path, columns, others):
    said = f"{'what was seen is no part of what is asked for, ' * 6}and 3 of 4 are not known"
    verdict = Verdict(limit="max_kernels", expected="0", status="missed", seen=(InWords(said),))
    noted = Verdict(
        limit="max_syncs", expected="0", status="missed", evidence=(LineInWords(said),), seen=(InWords("1"),)
    )
    profile = load(own_recording({"k": 1}).write(tmp_path / "t.json"))
    verdicts = [verdict, noted, *[replace(verdict, limit=f"limit_{at}") for at in range(others)]]
    text = str(error_for(verdicts, profile, lambda _: (), screen=Screen.of_columns(columns)))
    whole = " ".join(text.split())
    # What there is no room for is counted, and never a sentence without its middle.
    assert whole.count(said) == len(verdicts) - ("more line" in whole)
    assert "..." not in whole
    assert max(map(len, text.splitlines())) <= columns


def test_places_of_a_row_for_which_there_is_no_room_are_counted(tmp_path):
    builder = TraceBuilder()
    builder.own(steps=1)
    builder.step(0, 0, 2000)
    for at in range(8):
        builder.event("python_function", f"model.py({at}1): layer_{at}", at * 200, 190)
        builder.launched("sin_kernel", at * 200 + 10, op="aten::sin", dur=40)
    profile = load(builder.write(tmp_path / "t.json"))
    verdicts = check_limits(profile, read_limits({"max_kernels": 0, "max_launches": 1, "max_gpu_time": 1e-7}))
    text = str(error_for(verdicts, profile, profile.why_missed, screen=Screen.of_columns(80)))
    assert text.count("model.py:") == 1
    assert "1 x layer_0 (model.py:1) and 7 more places" in text


def test_a_screen_too_small_still_names_each_limit(tmp_path):
    text = judged(tmp_path, max_kernels=0, max_launches=0, only_kernels="none", forbid_kernels="*")(lines=10)
    for name in ("max_kernels=0", "max_launches=0", "only_kernels=none", "forbid_kernels=*"):
        assert name in text


def test_what_holds_is_no_failure(tmp_path):
    profile = load(own_recording({"a": 1}).write(tmp_path / "t.json"))
    assert error_for(check_limits(profile, read_limits({"max_kernels": 1})), profile, profile.why_missed) is None
    assert isinstance(error_for((), profile, profile.why_missed, also=[FailureLine("worse", "headline")]), LimitsMissed)


def test_however_many_kernels_came_what_to_do_is_said(tmp_path):
    profile = load(own_recording({"a": 1}).write(tmp_path / "t.json"))
    kernels = [FailureLine(f"  + kernel {i}", "came") for i in range(200)]
    lines = [FailureLine("worse than b.json", "headline"), *kernels, FailureLine("fix it", "remedy")]
    told = str(error_for((), profile, profile.why_missed, also=lines)).splitlines()
    assert len(told) <= Screen().lines + 2
    assert told[-2:] == ["  and 165 more lines (165 new): pytest -vv", "  do: fix it"]
    whole = error_for((), profile, profile.why_missed, also=lines, screen=Screen(everything=True))
    assert str(whole).splitlines() == [
        "worse than b.json:",
        *(line.text for line in kernels),
        "  do: fix it",
    ]


def test_one_line_that_does_not_fit_is_shown_instead_of_its_number(tmp_path):
    profile = load(own_recording({"a": 1}).write(tmp_path / "t.json"))
    lines = [FailureLine("worse", "headline"), *(FailureLine(f"    + kernel {i}", "came") for i in range(4))]
    told = {
        most: str(error_for((), profile, profile.why_missed, also=lines, screen=Screen(lines=most))).splitlines()
        for most in (3, 4)
    }
    assert told[3][-1] == "  and 2 more lines (2 new): pytest -vv"
    assert told[4] == ["worse:", *(line.text for line in lines[1:])]


def test_what_a_caught_failure_says_does_not_depend_on_verbosity(run_tests):
    source = """
@cpu
def test_it(torchprof):
    profile = torchprof(torch.add, x, x)
    with pytest.raises(pytest_torchprof.LimitsMissed, match="1 x pointwise add"):
        profile.expect(max_kernels=0)
"""
    for verbosity in ("-q", "-v", "-vv"):
        run_tests(source, verbosity).assert_outcomes(passed=1)


WIDE = """
class Net(torch.nn.Module):
    def forward(self, x):
        for op in ops:
            x = self.twice(op(x * 2))
        return x
    def twice(self, x):
        x = x * 3
        return torch.add(torch.add(x, 1), 2)

ops = [torch.sin, torch.cos, torch.tan, torch.exp, torch.sqrt, torch.abs, torch.neg, torch.floor, torch.ceil, torch.sign,
       torch.sigmoid, torch.tanh, torch.relu, torch.erf, torch.round, torch.trunc, torch.asin, torch.atan]
once = iter(range(8))

@pytest.mark.torchprof(device="cpu", max_kernels=2)
def test_it(torchprof):
    torchprof(Net(), x)

@pytest.mark.torchprof(device="cpu", max_kernels=0, max_syncs=0)
def test_lines(torchprof):
    torchprof(lambda: (next(once), torch.sin(x)))
"""


def test_all_kernels_are_named_by_count_before_any_place_is(run_tests, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    lines = failure_section(run_tests(WIDE, "test_it.py::test_it"))
    rows = [line for line in lines if re.match(r" +\d+ x ", line)]
    assert len(rows) == 10
    counts = [int(row.split()[0]) for row in rows]
    assert counts == sorted(counts, reverse=True)
    assert sum(counts) == 80
    places = [place for place, line in enumerate(lines) if ": 18 x " in line]
    assert places
    assert min(places) > lines.index(rows[-1])


@pytest.mark.parametrize("width", [60, 80, 120])
def test_every_line_of_a_failure_fits_the_terminal(run_tests, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    text = run_tests(WIDE).stdout.str().partition("= FAILURES =")[2].partition("torchprof: ")[0]
    assert "lines: not known: " in text
    lines = text.splitlines()
    # A path can be copied only whole.
    assert [line for line in lines if len(line) > width and "/" not in line] == []


def test_a_command_stays_on_one_line(run_tests, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    run_tests("@cpu\ndef test_it():\n    torch.sin(x)\n", "--torchprof-baseline=update")
    result = run_tests("@cpu\ndef test_it():\n    torch.sin(torch.cos(x))\n")
    result.stdout.fnmatch_lines(['    pytest "test_it.py::test_it" --torchprof-baseline=update'])


def test_where_nobody_knows_the_width_lines_of_prose_stay_whole(run_tests, monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    text = run_tests(WIDE, "test_it.py::test_lines", in_process=False).stdout.str()
    assert "  do: `torchprof explain needs-gpu` says more; a limit that was not measured never passes\n" in text


def test_what_ended_the_measured_code_is_named(run_tests, pytester):
    run_tests(
        """
def fails():
    raise ValueError("no such shape\\nand more")

@cpu
def test_call(torchprof):
    torchprof(fails)

@cpu
def test_block(torchprof):
    with torchprof.measure("block") as m:
        for _ in m.steps():
            fails()

@cpu
def test_body():
    fails()
""",
        "--torchprof-report=out.json",
    ).assert_outcomes(failed=3)
    results = json.loads((pytester.path / "out.json").read_text())["results"]
    reason = f"not measured: {EndedByError('ValueError: no such shape')}"
    assert [result["message"].removeprefix("block: ") for result in results] == [reason] * 3


def test_the_cpu_is_called_no_gpu(run_tests, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")  # too narrow for the column of a ratio that the CPU has not
    result = run_tests("@pytest.mark.torchprof(device='cpu', max_gpu_time=0)\ndef test_it():\n    torch.sin(x)\n")
    result.stdout.fnmatch_lines(["  max_gpu_time=0 * [um]s busy in step *", "test *kernels*busy*verdict"])
    assert "GPU" not in result.stdout.str()


def test_noise_is_told_only_with_v(run_tests, pytester):
    source = "@cpu\ndef test_it():\n    torch.sin(x)\n"
    run_tests(source, "--torchprof-baseline=update")
    (file,) = (pytester.path / "__torchprof__").glob("*.json")
    file.write_text(re.sub(r'"gpu_busy_us": [\d.]+', '"gpu_busy_us": 0.001', file.read_text()))
    noise = "  for information, not gated: *busy 0.001 us -> * us*"
    quiet, loud = run_tests(source), run_tests(source, "-v")
    for result in (quiet, loud):
        result.assert_outcomes(passed=1)
    quiet.stdout.no_fnmatch_line(noise)
    quiet.stdout.no_fnmatch_line("*against the baseline*")
    loud.stdout.fnmatch_lines(["*: against the baseline", noise])


COPIES = [("DtoD", 782, 5 << 20), ("HtoD", 1.5, 700), ("DtoH", 3.84, 16)]


@pytest.mark.parametrize("columns", [32, 40, 48, 60, 100])
@pytest.mark.parametrize("everything", [False, True], ids=["plain", "all"])
def test_each_row_of_work_stands_in_one_line_however_narrow_the_screen_is(tmp_path, columns, everything):
    builder = TraceBuilder()
    builder.own(steps=1)
    builder.step(0, 0, 5000)
    for at, (kind, dur, size) in enumerate(COPIES):
        builder.op("aten::copy_", 100 * at, 20)
        correlation = builder.call("cudaMemcpyAsync", 100 * at + 5, 10)
        builder.memcpy(kind, 1000 * at + 20, dur, correlation, size=size)
    builder.sync(4000, 50)
    profile = load(builder.write(tmp_path / "t.json"))
    verdicts = check_limits(profile, read_limits({"max_memcpys": 0}))
    screen = Screen.of_columns(max(columns, 40), everything=everything).beside(40 - min(columns, 40))
    lines = str(error_for(verdicts, profile, lambda _: (), screen=screen)).splitlines()
    rows = [line for line in lines if " 1 x Memcpy" in line]
    assert len(rows) == len(COPIES)
    assert max(map(len, rows)) <= columns
    if everything:
        text = " ".join(" ".join(lines).split())
        assert all(fact in text for fact in ("782 us", "5.00 MiB", "Memcpy DtoD (Device -> Device)"))


def test_the_modules_of_a_place_lose_their_beginning_before_a_line_is_wider_than_the_screen(tmp_path):
    modules = ".".join(f"ABlockOfManyLayers_{number}" for number in range(4))
    place = f"forward (model.py:7), {modules}"
    row = WorkRow(count=1, name="add", full="add", places=((1, place), (2, "forward (model.py:9)")))
    verdict = Verdict(limit="max_kernels", expected="0", status="missed", evidence=(row,), seen=(InWords("1 kernel"),))
    profile = load(own_recording({"k": 1}).write(tmp_path / "t.json"))

    def lines(**more):
        return str(error_for([verdict], profile, lambda _: (), screen=Screen.of_columns(40, **more))).splitlines()

    assert max(map(len, lines())) <= 40
    text = " ".join(" ".join(lines()).split())
    assert "(model.py:7), ..." in text
    assert "ABlockOfManyLayers_3" in text
    assert modules in " ".join(lines(everything=True))


@pytest.mark.parametrize("places", [1, 2, 3])
@pytest.mark.parametrize("count", range(2, 8))
def test_no_place_of_a_row_is_left_out_without_being_counted(tmp_path, count, places):
    if count * (1 + places) > 18:
        pytest.skip("places stand below all rows")
    below = tuple((1, f"a/folder/with/a/long/name/model_{at}.py:9 in forward") for at in range(places))
    rows = tuple(WorkRow(count=1, name=f"kernel_{at}", full=f"kernel_{at}", places=below) for at in range(count))
    verdict = Verdict(limit="max_kernels", expected="0", status="missed", evidence=rows, seen=(InWords("more"),))
    profile = load(own_recording({"k": 1}).write(tmp_path / "t.json"))

    def shown(**more):
        return str(error_for([verdict], profile, lambda _: (), screen=Screen.of_columns(80, **more)))

    short, whole = shown(), shown(everything=True)
    assert len(re.findall(r"1 x kernel_", short)) == count or "more: pytest -vv" in short
    is_whole = short.count("model_") == whole.count("model_") > 0
    assert is_whole or "more: pytest -vv" in short
