"""Two measurements of the same code compared: the words, the data, and the command."""

from __future__ import annotations

import gzip
import json
import re
from functools import cache
from pathlib import Path

import pytest
from builder import TraceBuilder
from facts import came, says, why_not
from msgspec import to_builtins

from pytest_torchprof import load
from pytest_torchprof.analysis.numbers import BY_NAME
from pytest_torchprof.cli import main
from pytest_torchprof.compare.change_words import became_words, change_words
from pytest_torchprof.compare.comparison_json import comparison_json
from pytest_torchprof.compare.number_words import number_words
from pytest_torchprof.reasons.own_steps import NoGpuOperations

pytestmark = pytest.mark.any_torch

SHARED = Path(__file__).parents[2] / "shared" / "traces"
needs_recordings = pytest.mark.skipif(not SHARED.is_dir(), reason="the shared recordings are not here")


def run(words):
    return main(["diff", *words])


GEMM = "nvjet_tst_128x64_64x6_2x1_v_bz_bias_TNT"
WIDER = "nvjet_tst_128x128_64x6_2x1_v_bz_bias_TNT"
BMM = "nvjet_tst_64x64_64x6_2x1_v_bz_NNT"
FLASH = "void pytorch_flash::flash_fwd_kernel<pytorch_flash::Flash_fwd_kernel_traits<64, 128, 128, 4, false, false, cutlass::bfloat16_t>>(P)"
SOFTMAX = "void (anonymous namespace)::softmax_warp_forward<float, float, float, 7, false, false>(x)"
GELU = "void at::native::vectorized_elementwise_kernel<4, at::native::GeluCUDAKernelImpl(at::TensorIteratorBase&)::{lambda(float)#1}, std::array<char*, 2ul> >(int)"
MUL = "void at::native::vectorized_elementwise_kernel<4, at::native::BinaryFunctor<float, float, float, at::native::MulFunctor<float> >, std::array<char*, 3ul> >(int)"


@pytest.fixture
def recording(tmp_path):
    """Write a recording of one step that runs (kernel, operator) pairs, and return its path."""

    def write(name, kernels, dur=5):
        events = [event("ProfilerStep#1", "user_annotation", 0, 1000 + 100 * len(kernels))]
        for at, (kernel, op) in enumerate(kernels):
            start = 10 + 50 * at
            events.append(event(op, "cpu_op", start, 40, {"External id": at + 1}))
            launch = {"correlation": at + 1, "External id": at + 1}
            events.append(event("cudaLaunchKernel", "cuda_runtime", start + 5, 10, launch))
            device = {**launch, "device": 0, "stream": 7}
            events.append({**event(kernel, "kernel", start + 20, dur, device), "pid": 0, "tid": 7})
        path = tmp_path / f"{name}.json"
        path.write_text(
            json.dumps({"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "GPU"}], "traceEvents": events})
        )
        return path

    return write


def event(name, cat, ts, dur, args=None):
    return {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": 1, "ts": ts, "dur": dur, "args": args or {}}


def of_kind(found, kind):
    return [change for change in found.changes if change.kind == kind]


def numbers(found):
    return {change.what: (change.old, change.new) for change in of_kind(found, "number")}


EAGER = [(GEMM, "aten::addmm"), (GELU, "aten::gelu"), (MUL, "aten::mul")]
COMPILED = [(GEMM, "aten::addmm"), ("triton_poi_fused_gelu_mul_0", "triton_poi_fused_gelu_mul_0")]


def test_eager_and_compiled_are_compared_in_words_and_as_data(recording):
    """The example of the documentation: the product stayed, two pointwise kernels became one."""
    found = load(recording("eager", EAGER)).diff(load(recording("compiled", COMPILED)))
    assert found.words == f"same GEMM, {became_words(found.changes[0])}"
    assert found.kernels_differ
    assert found
    (change,) = of_kind(found, "replaced")
    assert [kernel.op for kernel in change.before] == ["aten::gelu", "aten::mul"]
    assert [kernel.name for kernel in change.after] == ["triton_poi_fused_gelu_mul_0"]
    assert numbers(found)["kernels"] == (3, 2)
    data = json.loads(json.dumps(to_builtins(comparison_json(found))))
    assert [kernel["name"] for kernel in data["changes"][0]["before"]] == [GELU, MUL]
    assert data["same"] == {"gemm": 1}


def test_the_same_change_in_every_layer_is_said_once(recording):
    """Three layers, one line with a count."""
    found = load(recording("eager", EAGER * 3)).diff(load(recording("compiled", COMPILED * 3)))
    (change,) = of_kind(found, "replaced")
    assert found.words == f"same three GEMMs, {became_words(change)} (3x)"


def test_another_variant_of_a_gemm_is_a_rename_with_its_reason(recording):
    """Structure is the same, the tile is not."""
    found = load(recording("a", [(GEMM, "aten::mm")] * 2)).diff(load(recording("b", [(WIDER, "aten::mm")] * 2)))
    assert of_kind(found, "replaced") == []
    (renamed,) = of_kind(found, "renamed")
    assert (renamed.before[0].name, renamed.after[0].name, renamed.times) == (GEMM, WIDER, 2)
    assert change_words(renamed).startswith("gemm bf16 tn nvjet_tst_128x128: tile 128x64 -> 128x128 ")
    assert found.words == "same two GEMMs, 2 renamed"


def test_attention_that_fell_apart_is_said(recording):
    """One fused kernel became three."""
    unfused = [(BMM, "aten::bmm"), (SOFTMAX, "aten::_softmax"), (BMM, "aten::bmm")]
    found = load(recording("a", [(FLASH, "aten::_flash_attention_forward")])).diff(load(recording("b", unfused)))
    assert found.words == "one attention kernel became two GEMMs and one kernel"


def test_kernels_that_came_or_went_are_counted(recording):
    """Added behind, or dropped."""
    one, two = recording("one", EAGER[:1]), recording("two", EAGER[:2])
    assert load(one).diff(load(two)).words == "same GEMM, one pointwise more"
    assert load(two).diff(load(one)).words == "same GEMM, one pointwise gone"


def test_only_the_index_of_a_triton_kernel_is_no_difference(recording, capsys):
    """Inductor counts its kernels anew in each graph; times alone never differ either."""
    first = recording("a", [("triton_poi_fused_add_0", "x")], dur=5)
    second = recording("b", [("triton_poi_fused_add_7", "x")], dur=9)
    found = load(first).diff(load(second))
    assert not found
    assert of_kind(found, "renamed") == []
    assert run([str(first), str(second)]) == 0
    assert "GPU time 5.00 us -> 9.00 us, 1.8x" in capsys.readouterr().out


def test_numbers_that_print_alike_are_in_the_data_only(recording):
    found = load(recording("a", EAGER, dur=40)).diff(load(recording("b", EAGER, dur=40.001)))
    assert numbers(found)["kernel_time_us"] == (120, pytest.approx(120.003))
    assert found.lines == ("same GEMM and two pointwise",)
    assert str(found) == "same GEMM and two pointwise"


def test_long_steps_are_aligned_too(recording):
    """Thousands of kernels, of which nearly all stayed."""
    many = [(GEMM, "aten::mm"), (GELU, "aten::gelu")] * 1600
    found = load(recording("a", many)).diff(load(recording("b", [*many[1:], (MUL, "aten::mul")])))
    assert found.words == "same 1599 GEMMs and 1600 pointwise, one pointwise more, one GEMM gone"


def test_long_steps_with_little_in_common_are_aligned_too(recording):
    """Every layer of a large model changed."""
    found = load(recording("eager", EAGER * 600)).diff(load(recording("compiled", COMPILED * 600)))
    (change,) = of_kind(found, "replaced")
    assert found.words == f"same 600 GEMMs, {became_words(change)} (600x)"


def test_a_pointwise_kernel_of_another_dtype_is_another_kernel(recording):
    """As in a comparison with a baseline: two kernels are the same in both or in neither."""
    half = MUL.replace("float", "c10::Half")
    found = load(recording("a", [(MUL, "aten::mul")])).diff(load(recording("b", [(half, "aten::mul")])))
    assert found.words == "one pointwise became another"
    assert change_words(found.changes[0]).endswith("pointwise mul: fp32 -> fp16, launched by aten::mul")


def test_the_command_says_what_differs_and_exits_one(recording, capsys):
    """Lines for people; with --json one object."""
    first, second = recording("eager", EAGER), recording("compiled", COMPILED)
    assert run([str(first), str(second)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "GPU time 15.0 us -> 10.0 us, 0.67x"
    became = became_words(load(first).diff(load(second)).changes[0])
    assert lines[-2] == f"same GEMM, {became}"
    assert lines[-1].startswith(f"  {became}: pointwise gelu (aten::gelu), pointwi")
    assert lines[-1].endswith("triton_poi_fused_gelu_mul_0")
    assert run([str(first), str(second), "--json"]) == 1
    data = json.loads(capsys.readouterr().out)
    assert (data["schema"], data["kernels_differ"]) == (1, True)
    assert [(one["old"], one["new"]) for one in data["changes"] if one["what"] == "kernels"] == [(3, 2)]
    assert run([str(first), str(first)]) == 0


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["missing.json", "missing.json"], "missing.json"),
        (["one.json"], "B"),
        (["a", "b", "--what"], "unknown option '--what'"),
        (["{folder}", "{folder}"], "[recording-missing]"),
        (["{folder}", "one.json"], "{folder} is a folder"),
    ],
)
def test_bad_usage_is_one_line_and_exit_two(words, text, tmp_path, capsys):
    """What is wrong and what to do, no traceback."""
    assert run([word.format(folder=tmp_path) for word in words]) == 2
    error = capsys.readouterr().err
    assert text.format(folder=tmp_path) in error
    assert error.startswith("torchprof diff: ")
    assert len(error.splitlines()) == 1


def test_help_says_the_exit_codes(capsys):
    """Asked for, it is no error."""
    assert run(["--help"]) == 0
    assert "exit status: 0" in capsys.readouterr().out
    assert run([]) == 2


def test_two_baseline_files_are_compared_test_by_test_as_a_run_compares_them(recording, tmp_path, capsys):
    """Entries of the same test; one that only one file has is all new or all gone."""
    from pytest_torchprof.baseline import entry_of, update

    eager = entry_of(load(recording("eager", EAGER)), source_hash="1")
    compiled = entry_of(load(recording("compiled", COMPILED)), source_hash="1")
    first, second = tmp_path / "a.json", tmp_path / "b.json"
    update(first, {"test_mlp": eager, "test_same": eager})
    update(second, {"test_mlp": compiled, "test_same": eager, "test_new": compiled})
    assert run([str(first), str(second), "--json"]) == 1
    tests = json.loads(capsys.readouterr().out)["tests"]
    assert {key: entry["kernels_differ"] for key, entry in tests.items()} == {
        "test_mlp": True,
        "test_new": True,
        "test_same": False,
    }
    assert run([str(first), str(second)]) == 1
    said = capsys.readouterr().out
    assert "test_mlp: worse (1 kernel changed)" in said
    assert f"- {came('aten::gelu', name=GELU).removeprefix('+ ')}" in said
    assert "test_new: only in the second" in said
    assert run([str(first), str(first)]) == 0


OURS = Path(__file__).parent / "recordings"
BEFORE = "test_transformer_step.test_before_attention_is_written_out.7f32cc08"
AFTER = "test_transformer_step.test_after_attention_is_one_operator.eb101b37"


def of_test(name, nodeid, path, faster=1):
    """Write one of our recordings as that of another test, in which everything takes a part of the time."""
    trace = json.loads(gzip.decompress((OURS / f"{name}.json.gz").read_bytes()))
    trace["torchprof"]["nodeid"] = nodeid
    for one in trace["traceEvents"]:
        one.update({name: one[name] / faster for name in ("ts", "dur") if name in one})
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(trace))
    return path


def test_a_recording_is_compared_with_the_entry_of_its_test(tmp_path, capsys):
    """By kernels, numbers and times by family, in either direction."""
    from pytest_torchprof.baseline import entry_of, update

    kept = tmp_path / "kept.json"
    entry = entry_of(load(OURS / f"{BEFORE}.json.gz"), source_hash="1")
    update(kept, {"test_step": entry, "test_other": entry})
    after = str(of_test(AFTER, "tests/test_x.py::test_step", tmp_path / "after.json"))
    assert run([str(kept), after]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "test_step: worse (36 kernels changed)"
    assert lines[1].startswith("    what came and went: ")
    # What makes it worse comes first, and -v tells all.
    assert {line[:6] for line in lines[2:6]} == {"    ~ "}
    assert "    kernels 167 -> 159, 0.95x" in lines[7:]
    assert lines[-1].startswith("    for information, not gated: ")
    assert "; where the time is, by family: " in lines[-1]
    assert run([str(kept), after, "-v"]) == 1
    every = capsys.readouterr().out.splitlines()
    assert every[:6] == lines[:6]
    assert lines[6] == f"    ... and {len(every) - len(lines) + 1} more changes (-v)"
    assert any(line.startswith("    - softmax ") for line in every)
    assert run([after, str(kept), "--json"]) == 1
    tests = json.loads(capsys.readouterr().out)["tests"]
    assert [*tests] == ["test_step"]
    families = {one["family"]: one["time_us"] for one in tests["test_step"]["families"]}
    assert families["attention"][1] == 0 < families["attention"][0]
    assert tests["test_step"]["summary"].startswith("worse")
    other = str(of_test(AFTER, "tests/test_x.py::test_new", tmp_path / "new.json"))
    assert run([str(kept), other]) == 2
    assert "is of test_new, and" in capsys.readouterr().err


def test_two_folders_are_compared_test_by_test_the_costliest_first(tmp_path, capsys):
    before, after = tmp_path / "before", tmp_path / "after"
    of_test(AFTER, "test_x.py::test_a", before / "1.json")
    of_test(AFTER, "test_x.py::test_a", after / "2.json", faster=1.01)
    of_test(BEFORE, "test_x.py::test_b", before / "3.json")
    of_test(BEFORE, "test_x.py::test_b", after / "4.json", faster=4)
    assert run([str(before), str(after)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "test_x.py::test_b:"
    assert re.fullmatch(r"  kernel time .* ms -> .* us, 0\.25x", lines[1])
    assert lines.index("test_x.py::test_a:") > 5
    of_test(BEFORE, "test_x.py::test_new", after / "5.json")
    assert run([str(before), str(after), "--json"]) == 1
    data = json.loads(capsys.readouterr().out)
    assert [*data["recordings"]] == ["test_x.py::test_b", "test_x.py::test_a"]
    assert data["alone"] == {"first": [], "second": ["test_x.py::test_new"]}


def test_what_is_not_measured_in_a_folder_is_told_and_is_no_difference(tmp_path, capsys):
    for side in ("before", "after"):
        (tmp_path / side).mkdir()
        steps(tmp_path / side / "a.json", [GEMM])
    builder = TraceBuilder()
    builder.launch(10)
    for side in ("before", "after"):
        builder.write(tmp_path / side / "b.json")
    assert run([str(tmp_path / "before"), str(tmp_path / "after")]) == 3
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == ["a.json:", "  same GEMM"]
    assert lines[2].startswith("b.json: not measured: ")


def steps(path, *steps):
    """Write a recording whose steps run these kernels, a name each."""
    builder = TraceBuilder()
    for number, names in enumerate(steps):
        builder.step(number, 1000 * number, 900)
        for place, name in enumerate(names):
            builder.launched(name, 1000 * number + 20 * place + 10)
    return builder.write(path)


def test_a_kernel_that_is_missing_in_one_step_is_a_difference(tmp_path, capsys):
    whole = steps(tmp_path / "a.json", [GEMM, MUL], [GEMM, MUL], [GEMM, MUL])
    short = steps(tmp_path / "b.json", [GEMM, MUL], [GEMM], [GEMM, MUL])
    found = load(whole).diff(load(short))
    assert found.words == "same GEMM, one pointwise gone"
    assert found.steps == ("ProfilerStep#0", "ProfilerStep#1")
    assert run([str(whole), str(short)]) == 1
    assert "ProfilerStep#0 and ProfilerStep#1; the steps with most kernels run the same" in capsys.readouterr().out
    assert run([str(short), str(whole)]) == 1
    assert run([str(short), str(short)]) == 0


def test_the_same_steps_in_another_order_or_number_are_no_difference(tmp_path):
    first = steps(tmp_path / "a.json", [GEMM, MUL], [GEMM, GELU])
    turned = steps(tmp_path / "b.json", [GEMM, GELU], [GEMM, MUL])
    longer = steps(tmp_path / "c.json", [GEMM, GELU], [GEMM, MUL], [GEMM, MUL])
    once_less = steps(tmp_path / "d.json", [GEMM, GELU], [GEMM, GELU], [GEMM, MUL])
    assert run([str(first), str(turned)]) == 0
    assert run([str(first), str(longer)]) == 0
    assert run([str(longer), str(once_less)]) == 1


def test_a_recording_that_is_not_measured_is_not_compared(tmp_path, capsys):
    """Two recordings without their GPU side are not the same: nothing is known of either."""
    good = steps(tmp_path / "a.json", [GEMM])
    builder = TraceBuilder()
    builder.launch(10)
    bad = builder.write(tmp_path / "b.json")
    for pair in ((good, bad), (bad, good), (bad, bad)):
        assert run([*map(str, pair), "--json"]) == 3
        said = capsys.readouterr()
        assert said.out == ""
        assert f"{bad} is not measured: {NoGpuOperations(launches=1)}" in said.err
    assert says(why_not(lambda: load(good).diff(load(bad))), NoGpuOperations, launches=1)


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda text: "<<<<<<< HEAD\n" + text + "=======\n" + text + ">>>>>>> theirs\n", "merge"),
        (lambda text: text.replace('"schema": 2', '"schema": 99'), "newer"),
        (lambda _: '{"schema": 99}', "newer"),
        (lambda _: '{"schema": 1, "entries": [1]}', "baseline"),
        (lambda _: '{"entries": {}}', "baseline"),
        (lambda text: text[: len(text) // 2], "baseline"),
    ],
)
def test_a_damaged_baseline_is_the_baseline_s_own_error(recording, tmp_path, capsys, damage, said):
    from pytest_torchprof.baseline import entry_of, update

    sound, path = tmp_path / "a.json", tmp_path / "b.json"
    update(sound, {"test_mlp": entry_of(load(recording("eager", EAGER)), source_hash="1")})
    path.write_text(damage(sound.read_text()))
    assert run([str(sound), str(path)]) == 2
    error = capsys.readouterr().err
    assert str(path) in error
    assert said in error
    assert "not a recording" not in error


def test_names_are_escaped_and_shortened(tmp_path, capsys):
    first = steps(tmp_path / "a.json", [f"evil \x1b[2J\u202e{'x' * 3000}"])
    second = steps(tmp_path / "b.json", [f"worse \x1b[2J\x9b{'y' * 3000}"])
    assert run([str(first), str(second)]) == 1
    out = capsys.readouterr().out
    assert not any(char in out for char in "\x1b\x9b\u202e")
    assert max(map(len, out.splitlines())) < 700


@needs_recordings
def test_recordings_of_two_ranks_run_the_same_kernels(capsys):
    """Megatron's ranks 0 and 1: the times differ, the structure hardly."""
    files = [str(SHARED / f"a100_megatron_tp8_rank{rank}.json.gz") for rank in (0, 1)]
    assert run(files) in (0, 1)
    assert "same " in capsys.readouterr().out


def test_what_only_moved_took_nobodys_place(recording):
    first = recording("first", [("gemm", "aten::mm"), ("a", "aten::add"), ("b", "aten::mul"), ("c", "aten::exp")])
    second = recording("second", [("c", "aten::exp"), ("gemm", "aten::mm"), ("b", "aten::mul"), ("a", "aten::add")])
    found = load(first).diff(load(second))
    assert not found
    assert [(change.kind, change.times) for change in found.changes] == [("reordered", 2)]
    assert found.words.endswith("2 in another place")


PAIRS = (
    ("rtx3060_cudagraph_steps", "rtx3060_cudagraph_steps_slow"),
    ("rtx3060_compile_steps", "rtx3060_cudagraph_steps"),
    ("a100_sam_eager_large", "a100_sam_fast_large"),
    ("a100_megatron_tp8_rank0", "a100_megatron_tp8_rank1"),
    ("v100_resnet50_oldest", "v100_resnet50_steps"),
)
"""The recordings of which one is before and the other after, in either direction."""
SCREEN = 40


def seconds(words):
    """Return what a cell such as "+9.36 ms" says."""
    value, unit = words.split()
    return float(value) * {"us": 1e-6, "ms": 1e-3, "s": 1.0}[unit]


def accounted(lines, title):
    """Return the differences of a table of the screen: those of its rows, and what the others come to."""
    begin = next(at for at, line in enumerate(lines) if line.split()[:1] == [title])
    heads = [lines[begin].index("before"), lines[begin].index("after") + 5, lines[begin].index("difference") + 10]
    rows, others = [], 0.0
    for line in lines[begin + 2 :]:
        if not line.startswith("  "):
            break
        moved = seconds(line[heads[1] : heads[2]].strip())
        if line.split()[1] == "others":
            others = moved
            break
        rows.append(moved)
    return rows, others


@cache
def seconds_of_the_gpu(file):
    return load(file).median.gpu_time_us / 1e6


@needs_recordings
@pytest.mark.parametrize("turned", [False, True], ids=["", "turned"])
@pytest.mark.parametrize("pair", PAIRS, ids="-".join)
def test_the_first_screen_explains_where_the_gpu_time_went(pair, turned, monkeypatch, capsys):
    """At least 90 % of the difference is in families that the screen names; and its tables add up."""
    monkeypatch.setenv("COLUMNS", "100")
    files = [SHARED / f"{name}.json.gz" for name in (reversed(pair) if turned else pair)]
    run([*map(str, files)])
    lines = capsys.readouterr().out.splitlines()[:SCREEN]
    assert max(map(len, lines)) <= 100
    before, after = map(seconds_of_the_gpu, files)
    assert any(line.startswith("GPU time ") for line in lines[:2])
    if abs(after - before) < 0.02 * max(before, after):
        return
    for title in ("family", "kernel"):
        rows, others = accounted(lines, title)
        assert sum(rows) + others == pytest.approx(after - before, rel=0.01)
    rows, others = accounted(lines, "family")
    assert abs(others) <= 0.1 * abs(after - before)
    explained = [float(share) for share in re.findall(r"(\d+)% (?:is )?in ", " ".join(lines))]
    assert sum(explained) >= 90


@needs_recordings
def test_a_kernel_that_only_got_slower_is_an_explanation(monkeypatch, capsys):
    """Nothing came or went that would say why the step takes 7.5 times as long."""
    monkeypatch.setenv("COLUMNS", "100")
    run([str(SHARED / f"{name}.json.gz") for name in PAIRS[0]])
    out = capsys.readouterr().out
    assert out.startswith("GPU time 22.7 ms -> 170 ms, 7.5x\n")
    assert "of the 147 ms more, 68% is in the same 51 GEMMs fp32, on average 8.0x as long;" in out
    assert not re.search(r"(one [\w ]+) became \1\b", out)


@needs_recordings
def test_what_came_and_went_is_said_by_family(capsys):
    run([str(SHARED / f"{name}.json.gz") for name in PAIRS[2]])
    assert "what came and went: 1,281 GEMMs fp32 -> 929 GEMMs bf16; 1,124 copies fp32 -> 465" in capsys.readouterr().out


def test_all_single_kernels_are_listed_on_demand(recording, capsys):
    names = [f"kernel_{letter}" for letter in "abcdefgh"]
    first = recording("first", [(GEMM, "aten::mm")])
    second = recording("second", [(GEMM, "aten::mm"), *((name, "aten::mul") for name in names for _ in range(2))])
    run([str(first), str(second)])
    assert "more" in capsys.readouterr().out
    run([str(first), str(second), "-v"])
    out = capsys.readouterr().out
    assert all(name in out for name in names)


@needs_recordings
def test_the_documentation_shows_what_is_printed(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "100")
    run([str(SHARED / f"{name}.json.gz") for name in PAIRS[0]])
    page = (Path(__file__).parents[1] / "docs" / "kernels.md").read_text()
    shown = re.search(r"```\n(GPU time .*?)\.\.\.\n```", page, re.DOTALL)[1]
    assert capsys.readouterr().out.startswith(shown)


@needs_recordings
@pytest.mark.parametrize("columns", [40, 60])
def test_no_line_about_two_recordings_is_wider_than_the_screen(monkeypatch, capsys, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    run([str(SHARED / f"{name}.json.gz") for name in ("b200_eager_nvjet", "h100_bert_small")])
    lines = capsys.readouterr().out.splitlines()
    assert "the first was recorded on NVIDIA B200" in " ".join(" ".join(lines).split())
    assert max(map(len, lines)) <= columns


@pytest.mark.parametrize(
    ("was", "now", "words"),
    [
        (1e-6, 2000.0, "busy 0 us -> 2.00 ms, over 1,000x"),
        (2000.0, 1e-6, "busy 2.00 ms -> 0 us, under 0.001x"),
        (2000.0, 0.0, "busy 2.00 ms -> 0 us"),
        (1.0, 900.0, "busy 1.00 us -> 900 us, 900x"),
    ],
)
def test_of_what_was_next_to_nothing_no_factor_is_made_up(was, now, words):
    assert number_words(BY_NAME["gpu_busy_us"], was, now, called="busy").replace("0.000 us", "0 us") == words
