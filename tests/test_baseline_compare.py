"""What a comparison with a baseline says, and which differences fail a test."""

from __future__ import annotations

from collections import Counter

import pytest
from facts import came
from hypothesis import given
from hypothesis import strategies as st
from msgspec import json
from msgspec.structs import replace

from pytest_torchprof.baseline import Entry, KernelRecord, source_hash
from pytest_torchprof.compare import Comparison, compare, lacking, tolerance_for
from pytest_torchprof.compare.change_words import change_words
from pytest_torchprof.compare.notes import EditedTest, OtherSoftware
from pytest_torchprof.compare.renames import explain_rename

pytestmark = pytest.mark.any_torch

GEMM = KernelRecord(
    name="nvjet_tst_128x256_64x4_1x2_h_bz_coopA_TNT", family="gemm", dtype="bf16", layout="tn", op="aten::addmm"
)
GEMM_64 = replace(GEMM, name="nvjet_tst_64x128_64x4_1x2_h_bz_coopA_TNT")
GEMM_NN = replace(GEMM, name="nvjet_tst_128x256_64x4_1x2_h_bz_coopA_NNT", layout="nn")
GEMM_FP32 = replace(GEMM, name="sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize128x128", dtype="fp32")


def pointwise(what: str, *, dtype: str = "fp32", op: str | None = None) -> KernelRecord:
    name = (
        "void at::native::vectorized_elementwise_kernel<4, "
        f"at::native::CUDAFunctor_{what}<float>, std::array<char*, 3ul>>(int, float)"
    )
    return KernelRecord(name=name, family="pointwise", dtype=dtype, op=op or f"aten::{what}")


ADD, MUL = pointwise("add"), pointwise("mul")
FUSED = KernelRecord(name="triton_poi_fused_gelu_mul_0", family="pointwise")
FLASH = KernelRecord(
    name="flash_fwd_kernel<Traits>", family="attention", dtype="bf16", op="aten::_flash_attention_forward"
)
SOFTMAX = KernelRecord(name="softmax_warp_forward<float>", family="softmax", op="aten::_softmax")

H200 = {
    "gpu": "NVIDIA H200",
    "compute_capability": "9.0",
    "torch": "2.13.0",
    "cuda": "13.0",
    "driver": "580.1",
    "tf32_matmul": False,
}


def entry(
    *steps: tuple[KernelRecord, ...], environment: dict | None = None, source: str = "s", **numbers: float
) -> Entry:
    most = max(map(len, steps), default=0)
    varying = {
        name: numbers.pop(name) for name in list(numbers) if name.endswith(("_us", "memory_bytes", "utilization"))
    }
    return Entry(
        source=source,
        environment=H200 if environment is None else environment,
        steps=tuple(dict.fromkeys(steps)),
        numbers={"kernels": most, "launches": most, "syncs": 0, **numbers},
        varying=varying,
    )


def kinds(comparison) -> list[tuple[str, str, bool]]:
    return [(change.kind, change.direction, change.fails) for change in comparison.changes]


def test_the_same_kernels_are_the_same():
    comparison = compare(entry((GEMM, ADD)), entry((GEMM, ADD)))
    assert (comparison.verdict, comparison.summary, comparison.lines) == ("same", "same", ())
    assert not comparison.fails(strict=True)


def test_without_a_baseline_it_is_new_which_fails_only_under_strict():
    comparison = compare(None, entry((GEMM,)))
    assert (comparison.verdict, comparison.summary) == ("new", "new")
    assert not comparison.fails()
    assert comparison.fails(strict=True)


def test_kernels_of_one_name_on_several_types_are_all_counted():
    """As of ``x.double().float()``: both are a copy, one from fp32 and one from fp64."""
    there = KernelRecord(name="copy_kernel", family="copy", dtype="fp32", op="aten::copy_")
    back = replace(there, dtype="fp64")
    worse = compare(entry((GEMM, ADD)), entry((GEMM, there, back, ADD)))
    (copies,) = [change for change in worse.changes if change.kind == "added"]
    assert (copies.times, copies.new, copies.launches, copies.fails) == (2, 2, (1, 2), True)
    better = compare(entry((GEMM, there, back, ADD)), entry((GEMM, ADD)))
    (copies,) = [change for change in better.changes if change.kind == "removed"]
    assert (copies.times, copies.old, copies.fails) == (2, 2, False)


def test_an_added_kernel_is_worse_and_named_with_its_operator():
    comparison = compare(entry((GEMM, ADD)), entry((GEMM, MUL, ADD)))
    assert comparison.verdict == "worse"
    assert comparison.fails()
    assert comparison.summary == "worse (+1 kernel)"
    assert comparison.lines[0] == f"  {came('aten::mul', name=MUL.name)}"
    assert "  kernels 2 -> 3" in comparison.lines[1:]


def test_a_vanished_kernel_is_better():
    comparison = compare(entry((GEMM, MUL, ADD)), entry((GEMM, ADD)))
    assert (comparison.verdict, comparison.summary) == ("better", "better (-1 kernel)")
    assert not comparison.fails(strict=True)
    assert comparison.lines[0].startswith("  - pointwise mul: 1 per step")


def test_a_kernel_launched_more_often_is_worse_and_the_counts_are_shown():
    comparison = compare(entry((ADD, GEMM)), entry((ADD, GEMM, ADD, ADD)))
    assert comparison.verdict == "worse"
    assert comparison.lines[0].startswith("  + pointwise add: 1 -> 3 ")
    change = comparison.changes[0]
    assert (change.kind, change.after[0].op, change.old, change.new) == ("count", "aten::add", 1, 3)


def test_many_kernels_are_summed_up_before_they_are_listed_and_numbers_come_after_them():
    eager = (GEMM, ADD, GEMM, MUL, GEMM, SOFTMAX, FLASH)
    comparison = compare(entry(eager, launches=50), entry((GEMM_FP32, FUSED), launches=200, syncs=3))
    exchange, *kernels = comparison.lines[:-3]
    families = "3 GEMMs bf16 -> 1 GEMM fp32; 2 pointwise fp32 -> 1 pointwise by Triton"
    assert exchange == f"  what came and went: {families}; 1 attention kernel bf16 gone; 1 softmax kernel gone"
    assert all(line.lstrip()[0] in "+-~" for line in kernels)
    # What fails the test before what is better.
    assert comparison.lines[-3:] == ("  launches 50 -> 200, 4.0x", "  syncs 0 -> 3", "  kernels 7 -> 2")


def test_what_fails_heads_a_comparison_and_what_varies_ends_it_in_one_line():
    old = entry((GEMM, ADD), syncs=0, memsets=2, gpu_busy_us=1.56e6, cpu_time_us=100.0, gemm_us=1.5e6)
    new = entry((GEMM_64, ADD, MUL), syncs=1, memsets=1, gpu_busy_us=290.0, cpu_time_us=900.0, gemm_us=280.0)
    comparison = compare(old, replace(new, source="edited"))
    kernels, numbers, rest = comparison.lines[:2], comparison.lines[2:5], comparison.lines[5:]
    assert [line.split()[0] for line in kernels] == ["+", "~"]
    assert numbers == ("  kernels 2 -> 3", "  launches 2 -> 3", "  syncs 0 -> 1")
    assert rest[:2] == ("  memsets 2 -> 1", f"  {EditedTest()}")
    (line,) = rest[2:]
    assert line == (
        "  for information, not gated: busy 1.56 s -> 290 us; CPU time 100 us -> 900 us; "
        "where the time is, by family: gemm 1.50 s -> 280 us (the same GEMM bf16)"
    )


def test_another_environment_is_said_before_what_fails():
    comparison = compare(entry((ADD,)), entry((ADD, MUL), environment=other(torch="2.14.0")))
    assert comparison.lines[0] == str(OtherSoftware("the baseline", "torch 2.13.0", "this run", "torch 2.14.0"))
    assert comparison.lines[1].startswith("  + pointwise mul")


def test_one_kernel_less_does_not_pay_for_another_one_more():
    comparison = compare(entry((GEMM, MUL)), entry((GEMM, ADD)))
    assert comparison.verdict == "worse"
    assert comparison.summary == "worse (1 kernel changed)"


def test_another_tile_of_the_same_gemm_is_shown_and_passes():
    comparison = compare(entry((GEMM, ADD)), entry((GEMM_64, ADD)))
    assert kinds(comparison) == [("renamed", "neutral", False)]
    assert (comparison.verdict, comparison.summary) == ("changed", "changed (1 kernel renamed)")
    assert not comparison.fails(strict=True)
    assert comparison.lines[0].startswith("  ~ ")


def test_exact_names_make_another_tile_fail():
    comparison = compare(entry((GEMM, ADD)), entry((GEMM_64, ADD)), names="exact")
    assert kinds(comparison) == [("changed", "worse", True)]
    assert comparison.verdict == "worse"


@pytest.mark.parametrize(
    ("now", "said"),
    [(GEMM_NN, "nvjet_tst_128x256: bf16 tn -> bf16 nn"), (GEMM_FP32, "tilesize128x128: bf16 tn -> fp32 tn")],
    ids=["layout", "dtype"],
)
def test_a_gemm_of_another_dtype_or_layout_fails_and_says_what_changed(now, said):
    comparison = compare(entry((GEMM, ADD)), entry((now, ADD)))
    assert kinds(comparison) == [("changed", "worse", True)]
    assert said in comparison.lines[0]


def test_a_kernel_of_another_dtype_and_layout_is_told_with_those_of_both_sides():
    was = KernelRecord(name="aten::mm", family="gemm", dtype="bf16", layout="tn", op="aten::mm")
    comparison = compare(entry((was,)), entry((replace(was, dtype="fp32", layout="nn"),)))
    (line,) = comparison.lines
    assert line.startswith("  ~ gemm mm: bf16 tn -> fp32 nn, ")


def test_a_pointwise_kernel_of_another_dtype_fails():
    comparison = compare(entry((ADD,)), entry((replace(ADD, dtype="bf16"),)))
    assert comparison.verdict == "worse"
    assert comparison.lines[0].startswith("  ~ pointwise add: fp32 -> bf16, ")


def test_a_dtype_that_is_no_longer_told_is_shown_and_passes():
    comparison = compare(entry((GEMM,)), entry((replace(GEMM, dtype=None),)))
    assert (comparison.verdict, kinds(comparison)) == ("changed", [("changed", "neutral", False)])
    assert "bf16 tn -> tn, dtype unknown" in comparison.lines[0]


def test_what_a_newer_version_of_the_package_reads_from_the_same_names_is_no_change():
    old = tuple(replace(row, family="other", dtype=None, layout=None) for row in (GEMM, ADD))
    assert compare(entry(old), entry((GEMM, ADD))).verdict == "same"
    worse = compare(entry(old), entry((GEMM, ADD, ADD)))
    assert next(change_words(change) for change in worse.changes if change.fails).startswith(
        "pointwise add: 1 -> 2 per step"
    )


def test_triton_s_trailing_index_is_no_change():
    assert compare(entry((FUSED,)), entry((replace(FUSED, name="triton_poi_fused_gelu_mul_7"),))).verdict == "same"


def test_triton_s_trailing_index_is_a_change_with_exact_names():
    now = entry((replace(FUSED, name="triton_poi_fused_gelu_mul_7"),))
    assert compare(entry((FUSED,)), now, names="exact").verdict == "worse"


def test_another_order_is_shown_and_passes():
    comparison = compare(entry((GEMM, ADD, MUL)), entry((GEMM, MUL, ADD)))
    assert kinds(comparison) == [("reordered", "neutral", False)]
    assert comparison.summary == "changed (order)"
    (change,) = comparison.changes
    assert (change.times, change.what) == (1, "pointwise add")


def test_a_step_is_compared_with_any_step_the_baseline_had():
    old = entry((GEMM, ADD), (GEMM, ADD, MUL))
    assert compare(old, entry((GEMM, ADD, MUL), (GEMM, ADD))).verdict == "same"
    assert compare(old, entry((GEMM, ADD, MUL))).verdict == "same"
    worse = compare(old, entry((GEMM, ADD), (GEMM, ADD, MUL, FUSED)))
    assert [change.what for change in worse.changes if change.kind == "added"] == ["triton_poi_fused_gelu_mul_0"]
    assert not [change for change in worse.changes if change.kind == "removed"]


@pytest.mark.parametrize("number", ["launches", "syncs", "memcpys", "memcpys_d2h", "graph_breaks"])
def test_a_gated_number_fails_when_it_rises_and_is_better_when_it_falls(number):
    low, high = entry((GEMM,), **{number: 1}), entry((GEMM,), **{number: 2})
    assert compare(low, high).fails()
    assert compare(high, low).verdict == "better"
    assert f"  {number} 1 -> 2" in compare(low, high).lines


@pytest.mark.parametrize("number", ["memsets", "recompiles", "memcpy_bytes", "graph_launches"])
def test_a_number_that_is_not_gated_is_shown_and_passes(number):
    comparison = compare(entry((GEMM,), **{number: 1}), entry((GEMM,), **{number: 2}))
    assert comparison.verdict == "changed"
    assert number in comparison.lines[0]
    assert not comparison.fails(strict=True)


def test_a_number_that_is_no_longer_recorded_is_no_silent_pass():
    comparison = compare(entry((GEMM,), graph_breaks=0), entry((GEMM,)))
    assert comparison.verdict == "changed"
    assert comparison.lines == ("  graph_breaks 0 -> not recorded",)


def test_times_alone_change_nothing_but_are_shown_with_their_direction():
    old = entry((GEMM,), kernel_time_us=10.0, gpu_busy_us=10.0, gpu_utilization=0.5, peak_memory_bytes=1000)
    new = entry((GEMM,), kernel_time_us=30.0, gpu_busy_us=30.0, gpu_utilization=0.9, peak_memory_bytes=5000)
    comparison = compare(old, new)
    assert comparison.verdict == "same"
    assert [change.direction for change in comparison.changes] == ["worse", "worse", "better", "worse"]
    words = ("busy 10.0 us -> 30.0 us", "peak memory 1000 B -> 4.88 KiB", "utilization 0.50 -> 0.90")
    assert comparison.lines == (f"  for information, not gated: {'; '.join(words)}",)
    assert not compare(entry((GEMM,), gpu_busy_us=10.0), entry((GEMM,), gpu_busy_us=10.9)).changes


SLOWER = {"gpu_busy_us": 100.0, "gemm_us": 62.0, "pointwise_us": 30.0, "softmax_us": 8.0}


def test_where_the_time_went_is_said_by_family_the_costliest_difference_first():
    old = entry((GEMM, ADD, MUL, SOFTMAX), **SLOWER)
    new = entry(
        (GEMM_FP32, ADD, MUL, ADD),
        gpu_busy_us=215.0,
        gemm_us=145.0,
        pointwise_us=32.0,
        reduction_us=1.0,
        memcpy_us=37.0,
    )
    comparison = compare(old, new)
    families = (
        "gemm 62.0 us -> 145 us (1 GEMM bf16 -> 1 GEMM fp32)",
        "memcpy 0 us -> 37.0 us",
        "softmax 8.00 us -> 0 us (1 softmax kernel gone)",
    )
    where = f"where the time is, by family: {'; '.join(families)}"
    assert comparison.lines[-1] == f"  for information, not gated: busy 100 us -> 215 us; {where}"
    assert comparison.varied() == comparison.lines[-1:]
    assert comparison.without_noise().varied() == (f"  for information, not gated: {where}",)
    assert "busy" not in comparison.summary


def test_of_many_families_the_costliest_four_are_named():
    old = entry((ADD,), gpu_busy_us=100.0, pointwise_us=100.0)
    times = {f"{family}_us": 20.0 + i for i, family in enumerate(("gemm", "conv", "attention", "sort", "index", "rng"))}
    comparison = compare(old, entry((ADD,), gpu_busy_us=235.0, pointwise_us=100.0, **times))
    told = comparison.lines[-1].partition("by family: ")[2].split("; ")
    assert [family.split()[0] for family in told] == ["rng", "index", "sort", "attention", "and"]
    assert told[-1] == "and 2 more families"
    assert [shift.family for shift in comparison.families][-3:] == ["conv", "gemm", "pointwise"]


@pytest.mark.parametrize(
    ("before", "after", "environment"),
    [
        (SLOWER, SLOWER | {"gpu_busy_us": 105.0, "gemm_us": 67.0}, H200),
        (SLOWER, SLOWER | {"gpu_busy_us": 190.0, "gemm_us": 152.0}, H200 | {"torch": "2.14.0"}),
        ({"gpu_busy_us": 100.0}, SLOWER | {"gpu_busy_us": 190.0, "gemm_us": 152.0}, H200),
    ],
    ids=["a few percent", "another torch", "an entry without them"],
)
def test_where_the_time_went_is_not_said_where_it_would_mislead(before, after, environment):
    comparison = compare(entry((GEMM,), **before), entry((GEMM,), environment=environment, **after))
    assert comparison.families == ()
    assert not any("by family" in line for line in comparison.lines)


def test_tolerance_allows_so_much_more_and_makes_memory_gated():
    two, three = entry((GEMM, ADD), syncs=2), entry((GEMM, ADD, MUL), syncs=3)
    assert compare(two, three).fails()
    assert compare(two, three, tolerance={"kernels": 1, "launches": 1, "syncs": 0.5}).verdict == "changed"
    assert compare(two, three, tolerance={"kernels": 1, "launches": 1}).summary == "worse (+1 sync)"
    less, more = entry((GEMM,), peak_memory_bytes=1000), entry((GEMM,), peak_memory_bytes=1200)
    assert compare(less, more, tolerance={"memory": 0.3}).verdict == "same"
    assert compare(less, more, tolerance={"memory": 0.1}).summary == "worse (+20.0% peak memory)"


def other(**differ: object) -> dict:
    return {**H200, **differ}


def test_memory_that_a_test_asks_to_compare_is_lacking_where_the_baseline_has_none():
    old, new = entry((GEMM,)), entry((GEMM,), peak_memory_bytes=1000)
    assert lacking(old, new, {"memory": 0.05}) == ["peak_memory_bytes"]
    assert lacking(old, new, {}) == []
    assert lacking(new, new, {"memory": 0.05}) == []


def test_another_torch_is_said_first_and_names_are_not_gated():
    new = entry((GEMM_64, MUL), environment=other(torch="2.14.0", cuda="13.2"))
    comparison = compare(entry((GEMM, ADD)), new, names="exact")
    assert comparison.lines[0] == str(
        OtherSoftware("the baseline", "torch 2.13.0 / CUDA 13.0", "this run", "torch 2.14.0 / CUDA 13.2")
    )
    assert comparison.verdict == "changed"
    assert comparison.summary == "changed (2 kernels, other environment)"


def test_under_another_torch_a_kernel_may_be_renamed_and_moved_but_not_joined_by_another():
    new = other(torch="2.14.0")
    moved = compare(entry((ADD, GEMM, FUSED)), entry((GEMM_64, MUL, FUSED), environment=new))
    assert (moved.verdict, {change.kind for change in moved.changes}) == ("changed", {"changed", "renamed"})
    more = compare(entry((ADD, GEMM)), entry((ADD, GEMM, MUL), environment=new))
    assert more.lines[1] == f"  {came('aten::mul', name=MUL.name)}"
    assert more.summary == "worse (+1 kernel, other environment)"


def test_under_another_torch_a_step_is_compared_with_the_one_of_most_like_structure():
    old = entry((GEMM,), (GEMM, ADD, SOFTMAX))
    assert not compare(old, entry((GEMM_64, MUL, SOFTMAX), environment=other(torch="2.14.0"))).fails()


def test_structure_is_gated_under_another_torch():
    unfused = (GEMM_NN, SOFTMAX, GEMM)
    comparison = compare(entry((FLASH,)), entry(unfused, environment=other(torch="2.14.0")))
    assert comparison.verdict == "worse"
    assert comparison.summary == "worse (+2 kernels, other environment)"
    dtype = compare(entry((GEMM,)), entry((GEMM_FP32,), environment=other(torch="2.14.0")))
    assert dtype.verdict == "worse"
    assert "bf16 tn -> fp32 tn" in "\n".join(dtype.lines)


@pytest.mark.parametrize("differ", [{"driver": "590.2"}, {"tf32_matmul": True}, {"cuda": None}])
def test_driver_and_precision_flags_are_another_environment(differ):
    assert compare(entry((GEMM,)), entry((GEMM,), environment=other(**differ))).environment is not None


def test_another_device_is_no_baseline():
    comparison = compare(entry((GEMM,)), entry((ADD,), environment=other(gpu="NVIDIA H100")))
    assert (comparison.verdict, comparison.summary) == ("new", "new (other device)")
    assert "NVIDIA H200 (9.0), this run used NVIDIA H100 (9.0)" in comparison.lines[0]


def test_an_edited_test_is_stale_and_still_gated():
    comparison = compare(entry((GEMM,)), entry((GEMM, ADD), source="edited"))
    assert comparison.stale
    assert comparison.fails()
    assert comparison.summary == "worse (+1 kernel, stale)"
    assert compare(entry((GEMM,)), entry((GEMM,), source="edited")).summary == "same (stale)"


def test_only_what_the_code_says_makes_a_test_another_one():
    source = "def test_a():\n    # why\n\n    f(1)\n"
    assert source_hash(source) == source_hash("    def test_a():\r\n        f(1)   \r\n")
    assert source_hash(source) != source_hash(source.replace("1", "2"))


def test_names_out_of_recordings_are_printable():
    evil = KernelRecord(name="\x1b[31mred\n\u202e", family="other", op="aten::\x07")
    comparison = compare(entry((GEMM,), environment=other(driver="\x1b[0m")), entry((evil, GEMM)))
    assert all(line.isprintable() for line in comparison.lines)


def test_one_more_kernel_in_each_of_many_layers_is_one_line():
    layer = [replace(ADD, name=f"kernel_{i}", op=f"aten::op{i}") for i in range(30)]
    old = entry(tuple(layer * 160))
    new = entry(tuple([*layer, MUL] * 160))
    comparison = compare(old, new)
    assert [(change.kind, change.times) for change in comparison.changes if change.kind != "number"] == [("added", 160)]
    assert compare(old, entry(tuple([MUL, SOFTMAX] * 2500))).verdict == "worse"


ROWS = st.lists(st.sampled_from([GEMM, GEMM_64, GEMM_NN, ADD, MUL, FUSED, SOFTMAX]), max_size=12).map(tuple)


@given(ROWS, ROWS)
def test_changes_account_for_every_launch(before, after):
    comparison = compare(entry(before), entry(after))
    tally = Counter()
    for change in comparison.changes:
        if change.kind in {"added", "removed", "count"}:
            tally["net"] += change.times if change.direction == "worse" else -change.times
    assert tally["net"] == len(after) - len(before)
    worse = Counter(row.identity for row in after) - Counter(row.identity for row in before)
    assert comparison.fails() == bool(worse)
    assert (comparison.verdict == "same") == (
        [row.identity for row in before] == [row.identity for row in after]
        and [row.name for row in before if row.family == "gemm"] == [row.name for row in after if row.family == "gemm"]
    )


@given(ROWS, ROWS)
def test_under_another_torch_exactly_the_structure_is_gated(before, after):
    comparison = compare(entry(before), entry(after, environment=other(torch="2.14.0")))
    more = Counter(row.structure for row in after) - Counter(row.structure for row in before)
    # A dtype that one side does not tell is no other dtype, so kernels of one family may still stand for each other.
    families = Counter(row.family for row in after) - Counter(row.family for row in before)
    assert comparison.fails() or not families
    assert more or not comparison.fails()


def fused_and_apart(*apart):
    was = KernelRecord(name="triton_poi_fused_add_mul_relu_0", family="pointwise")
    now = [KernelRecord(name=name, family="pointwise", op=op) for name, op in apart]
    return compare(entry((was,)), entry(tuple(now)))


@pytest.mark.parametrize(
    "apart",
    [
        [("triton_poi_fused_add_mul_0", None), ("triton_poi_fused_relu_1", None)],
        [("triton_poi_fused_add_mul_0", None), ("aten::clamp_min", "aten::clamp_min")],
        [("cpp_fused_mul_0", None), ("cpp_fused_add_relu_1", None)],
    ],
)
def test_a_fusion_that_was_lost_is_told(apart):
    comparison = fused_and_apart(*apart)
    assert comparison.verdict == "worse"
    (lost,) = [change.lost_fusion for change in comparison.changes if change.lost_fusion]
    assert (lost.ops, lost.kernels) == (("add", "mul", "relu"), 2)
    assert any("; fusion lost: add, mul and relu " in line for line in comparison.lines)


@pytest.mark.parametrize(
    "apart",
    [
        [("triton_poi_fused_add_mul_0", None)],  # The rest is not done any more.
        [("triton_poi_fused_add_mul_relu_sum_0", None), ("aten::mul", "aten::mul")],
        [("triton_poi_fused_exp_0", None), ("aten::mul", "aten::mul")],
    ],
)
def test_another_kernel_is_no_lost_fusion(apart):
    assert not any("fusion" in line for line in fused_and_apart(*apart).lines)


def test_of_many_kernels_the_cause_is_told_first_and_then_what_came():
    """On a screen, where not all of them are shown."""
    gone = tuple(pointwise(what) for what in ("abs", "neg", "exp", "log", "cos"))
    fused = KernelRecord(name="triton_poi_fused_add_mul_0", family="pointwise")
    came = (pointwise("add"), pointwise("mul"))
    comparison = compare(entry((*gone, fused)), entry(came))
    brief = comparison.screen_lines(every=False)
    first = brief.index(comparison.kernel_lines[0])
    end = first + 4
    assert [line.split()[0] for line in brief[first:end]] == ["-", "+", "+", "-"]
    assert "; fusion lost: add and mul " in brief[first]
    assert brief[end] == "  ... and 4 more changes (-v)"
    assert comparison.screen_lines(every=True) == (*brief[:end], *comparison.kernel_lines[4:], *brief[end + 1 :])


def test_names_that_only_another_version_gives_are_told_together():
    """As by pytest --torchprof-against-python: what is the same but for its name, and what is not."""
    names = [
        ("cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_128x256_32x3_tn_align8", "nvjet_tst_128x256_64x4_1x2_h_bz_TNT"),
        ("sm80_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize64x64x32_stage4", "nvjet_tst_64x64_64x4_1x2_h_bz_TNT"),
    ]
    old, new = (
        tuple(KernelRecord(name=name, family="gemm", dtype="bf16", layout="tn", op="aten::addmm") for name in side)
        for side in zip(*names, strict=True)
    )
    comparison = compare(entry(old * 2 + (SOFTMAX,)), entry(new * 2 + (SOFTMAX,), environment=other(torch="2.14.0")))
    assert comparison.summary == "changed (4 kernels renamed, other environment)"
    how = [explain_rename(*pair) for pair in names]
    assert comparison.lines[1:] == (
        *(f"  ~ two GEMMs renamed: {words}" for words in how),
        "    apart from names the kernels are the same",
    )
    sides = ("main (42cca44)", "my branch")
    named = compare(entry(old), entry(new, environment=other(torch="2.14.0")), sides=sides)
    assert named.lines[0] == str(OtherSoftware(sides[0], "torch 2.13.0", sides[1], "torch 2.14.0"))
    more = compare(entry(old), entry((*new, GEMM_NN), environment=other(torch="2.14.0")))
    assert more.verdict == "worse"
    assert "    apart from names the kernels are the same" not in more.lines


@pytest.mark.parametrize(
    ("before", "after", "is_shown"),
    [
        (32 << 10, 272 << 20, True),
        (272 << 20, 32 << 10, True),
        (32 << 10, 256 << 10, False),
        (300 << 20, 400 << 20, False),
    ],
)
def test_a_leap_of_memory_is_seen_without_a_tolerance(before, after, is_shown):
    """Where two processes are compared, numbers that differ between any two are left out."""
    found = compare(entry((ADD,), peak_memory_bytes=before), entry((ADD,), peak_memory_bytes=after))
    assert found.verdict == "same"
    seen = [line for line in found.lines if "memory" in line and line not in found.varied()]
    assert bool(seen) == is_shown


@pytest.mark.parametrize(
    ("before", "after", "tolerance", "fits"),
    [
        (entry((ADD,)), entry((ADD, MUL, MUL)), {}, {"kernels": 2}),
        (entry((ADD,)), entry((GEMM, MUL)), {}, {"kernels": 2}),
        (entry((ADD,), peak_memory_bytes=100), entry((ADD,), peak_memory_bytes=251), {"memory": 0.1}, {"memory": 1.51}),
        (entry((ADD,), graph_breaks=0), entry((ADD,), graph_breaks=2), {}, {"graph_breaks": 2}),
    ],
)
def test_the_tolerance_that_is_advised_is_one_with_which_it_passes(before, after, tolerance, fits):
    found = compare(before, after, tolerance=tolerance)
    assert found.fails()
    assert tolerance_for(found.changes) == fits
    assert not compare(before, after, tolerance=fits).fails()


@pytest.mark.parametrize(
    "pair",
    [
        (entry((GEMM, ADD), launches=2), entry((GEMM_64, MUL, ADD), launches=3, source="edited")),
        (entry((GEMM, ADD)), entry((GEMM_64, ADD), environment=other(torch="2.14.0"))),
        (entry((GEMM,)), entry((GEMM,), environment=other(gpu="NVIDIA H100"))),
        (entry((GEMM, ADD, MUL)), entry((ADD, GEMM, MUL))),
        (entry((ADD,), gpu_busy_us=100.0, pointwise_us=90.0), entry((ADD,), gpu_busy_us=200.0, pointwise_us=190.0)),
        (None, entry((GEMM,))),
    ],
)
def test_a_comparison_is_the_same_after_it_was_written_and_read(pair):
    comparison = compare(*pair)
    assert json.decode(json.encode(comparison), type=Comparison) == comparison
