"""What a kernel works on, where its name does not say it: a baseline keeps the operands, and two unknowns are no match."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path

import pytest
import torch
from builder import TraceBuilder
from facts import of_no_use, reasons_in, says
from msgspec.structs import replace
from torch.nn import functional

from pytest_torchprof import load, profile
from pytest_torchprof.baseline import KernelRecord, entry_of
from pytest_torchprof.compare import compare, lacking_kernels
from pytest_torchprof.compare.change_words import change_words
from pytest_torchprof.kernels.asked_types import TYPE_ARGUMENTS
from pytest_torchprof.reasons.comparing import TypesUnknown
from pytest_torchprof.report import Disuse
from pytest_torchprof.trace.columns import WITH_SETTINGS

ROWS, BF16, FP32 = torch.tensor([0, 1]), torch.bfloat16, torch.float32


def ones(*shape, dtype):
    return torch.ones(*shape, dtype=dtype)


def conv(f, dims, dtype):
    x, w = ones(2, 4, *[6] * dims, dtype=dtype), ones(4, 4, *[3] * dims, dtype=dtype)
    return lambda: f(x, w)


def of(f, *shape):
    """Return what makes, for a dtype, a call of ``f`` with a tensor of that shape."""

    def made(dtype):
        x = ones(*shape, dtype=dtype)
        return lambda: f(x)

    return made


def lstm(dtype):
    layer, x = torch.nn.LSTM(4, 4).to(dtype), ones(2, 2, 4, dtype=dtype)
    return lambda: layer(x)


OPERATORS = {
    "conv1d": lambda dtype: conv(functional.conv1d, 1, dtype),
    "conv2d": lambda dtype: conv(functional.conv2d, 2, dtype),
    "conv3d": lambda dtype: conv(functional.conv3d, 3, dtype),
    "conv_transpose2d": lambda dtype: conv(functional.conv_transpose2d, 2, dtype),
    "scaled_dot_product_attention": of(lambda x: functional.scaled_dot_product_attention(x, x, x), 2, 2, 8, 8),
    "mm": of(lambda x: x @ x, 4, 4),
    "linear of one row": of(lambda x: functional.linear(x[:1], x), 4, 4),
    "mv": of(lambda x: x @ x[0], 4, 4),
    "embedding": of(lambda x: functional.embedding(ROWS, x), 4, 4),
    "embedding_bag": of(lambda x: functional.embedding_bag(ROWS, x, ROWS[:1]), 4, 4),
    "max_pool1d": of(lambda x: functional.max_pool1d(x, 2), 2, 2, 4),
    "max_pool2d": of(lambda x: functional.max_pool2d(x, 2), 2, 2, 4, 4),
    "avg_pool2d": of(lambda x: functional.avg_pool2d(x, 2), 2, 2, 4, 4),
    "adaptive_avg_pool2d": of(lambda x: functional.adaptive_avg_pool2d(x, 2), 2, 2, 4, 4),
    "a number times": of(lambda x: x.mul(2), 4),
    "sum": of(lambda x: x.sum(), 4),
    "mean": of(lambda x: x.mean(0), 4, 4),
    "cumsum": of(lambda x: x.cumsum(0), 4),
    "softmax": of(lambda x: x.softmax(0), 4),
    "layer_norm": of(lambda x: functional.layer_norm(x, (4,)), 4, 4),
    "gelu": of(functional.gelu, 4),
    "lstm": lstm,
    "index_add": of(lambda x: x.index_add(0, ROWS, x[:2]), 4, 4),
    "gather": of(lambda x: x.gather(0, ROWS), 4),
    "sort": of(lambda x: x.sort(), 4),
    "topk": of(lambda x: x.topk(2), 4),
    "dropout": of(functional.dropout, 4, 4),
    "cross_entropy": of(lambda x: functional.cross_entropy(x, ROWS), 2, 4),
    "fill": of(lambda x: x.fill_(1), 4),
    "foreach": of(lambda x: torch._foreach_add([x, x], 1), 4),
}


def entry(call):
    return entry_of(profile(call, device="cpu", warmup=0, steps=1), source_hash="s")


def verdict(before, after):
    return compare(entry(before), entry(after)).verdict


@pytest.mark.parametrize("make", OPERATORS.values(), ids=OPERATORS)
def test_on_the_cpu_an_operator_on_another_type_is_worse_and_on_the_same_type_the_same(make):
    was = entry(make(BF16))
    assert compare(was, entry(make(BF16))).verdict == "same"
    now = compare(was, entry(make(FP32)))
    assert now.verdict == "worse"
    assert any("bf16" in line and "fp32" in line for line in now.kernel_lines)


def test_types_of_eight_bits_are_not_one_type():
    e4m3, e5m2 = (ones(4, 4, dtype=FP32).to(dtype) for dtype in (torch.float8_e4m3fn, torch.float8_e5m2))
    assert verdict(e4m3.clone, e4m3.clone) == "same"
    assert verdict(e4m3.clone, e5m2.clone) == "worse"


MIXED = {
    "one operand of two in fp32": (lambda x: lambda: x + x, lambda x: lambda: x + x.float()),
    "where, by another branch": (
        lambda x: lambda: torch.where(x > 0, x, x),
        lambda x: lambda: torch.where(x > 0, x, x.float()),
    ),
}


@pytest.mark.parametrize(("one", "other"), MIXED.values(), ids=MIXED)
def test_operands_of_one_type_and_of_two_are_not_the_same_either_way(one, other):
    x = ones(4, 4, dtype=BF16)
    # The conversions stand outside of what is compared.
    same, mixed = (replace(made, steps=(made.steps[0][-1:],)) for made in map(entry, (one(x), other(x))))
    assert compare(same, mixed).verdict == compare(mixed, same).verdict == "worse"


x, w = ones(6, 6, dtype=FP32), ones(12, 12, dtype=FP32)
image, kernel = ones(2, 4, 6, 6, dtype=FP32), ones(4, 4, 3, 3, dtype=FP32)
channels_last, heads = image.to(memory_format=torch.channels_last), ones(2, 4, 8, 8, dtype=FP32)
LAYOUTS = {
    "a transposed weight": (lambda: x @ w[:6, :6], lambda: x @ w[:6, :6].t()),
    "a weight without a unit stride": (lambda: x @ w[:6, :6], lambda: x @ w[::2, ::2]),
    "a weight without a unit stride, transposed before": (lambda: x @ w[:6, :6].t(), lambda: x @ w[::2, ::2]),
    "channels last": (
        lambda: functional.conv2d(image, kernel),
        lambda: functional.conv2d(channels_last, kernel),
    ),
    "heads behind the sequence": (
        lambda: functional.scaled_dot_product_attention(heads, heads, heads),
        lambda: functional.scaled_dot_product_attention(*[heads.transpose(1, 2)] * 3),
    ),
}


@pytest.mark.parametrize(("before", "after"), LAYOUTS.values(), ids=LAYOUTS)
def test_another_memory_layout_of_a_product_is_worse_either_way(before, after):
    assert verdict(before, before) == verdict(after, after) == "same"
    assert verdict(before, after) == verdict(after, before) == "worse"


large = torch.ones(512, 512)
SAME = {
    "a float instead of an integer as a number": (lambda: x.mul(2), lambda: x.mul(2.0)),
    "another size": (lambda: functional.conv2d(image, kernel), lambda: functional.conv2d(image[:, :, :5], kernel)),
    "a much larger one": (lambda: x @ x, lambda: large @ large),
    "another stride of a convolution": (
        lambda: functional.conv2d(image, kernel),
        lambda: functional.conv2d(image, kernel, stride=2),
    ),
    "attention that looks ahead": (
        lambda: functional.scaled_dot_product_attention(heads, heads, heads, is_causal=True),
        lambda: functional.scaled_dot_product_attention(heads, heads, heads),
    ),
    "another dimension": (lambda: x.softmax(0), lambda: x.softmax(1)),
    "rows of a larger matrix": (lambda: x @ w[:6, :6], lambda: x @ x),
}


@pytest.mark.parametrize(("before", "after"), SAME.values(), ids=SAME)
def test_what_tells_nothing_of_type_and_layout_is_no_difference(before, after):
    assert verdict(before, after) == "same"


def test_one_row_instead_of_many_leaves_the_layout_open_which_contradicts_nothing():
    assert verdict(lambda: x @ x.t(), lambda: x[:1] @ x.t()) == "changed"


whole, mask = ones(6, 6, dtype=torch.int64), x > 0
OTHER_TYPES = {
    "an integer tensor instead of one of floats": (lambda: x + x, lambda: x + whole),
    "a mask of bools instead of one of floats": (lambda: x * mask.float(), lambda: x * mask),
    "the type of a sum": (lambda: x.sum(dtype=FP32), lambda: x.sum(dtype=torch.float64)),
    "the type of a sum of a mask": (lambda: mask.sum(dtype=torch.int64), lambda: mask.sum(dtype=FP32)),
    "the type of a product over a dimension": (lambda: x.prod(0), lambda: x.prod(0, dtype=torch.float64)),
    "the type of a running sum": (lambda: x.cumsum(0), lambda: x.cumsum(0, dtype=torch.float64)),
    "the type of a norm": (
        lambda: torch.linalg.vector_norm(x),
        lambda: torch.linalg.vector_norm(x, dtype=torch.float64),
    ),
    "the type that is drawn": (lambda: torch.randperm(4), lambda: torch.randperm(4, dtype=torch.int32)),
    "what is quantized": (
        lambda: torch.quantize_per_tensor(x, 0.1, 0, torch.qint8),
        lambda: torch.quantize_per_tensor(x, 0.1, 0, torch.quint8),
    ),
    "a mask instead of indices": (lambda: x[ROWS], lambda: x[mask]),
}


@pytest.mark.filterwarnings("ignore:.*quantize_per_tensor:UserWarning")
@pytest.mark.parametrize(("one", "other"), OTHER_TYPES.values(), ids=OTHER_TYPES)
def test_another_type_beside_the_first_operand_is_worse_either_way(one, other):
    # The conversion of a mask stands outside of what is compared.
    was, now = (replace(made, steps=(made.steps[0][-1:],)) for made in map(entry, (one, other)))
    assert compare(was, now).verdict == compare(now, was).verdict == "worse"


UNASKED = {
    "the type that it has": (lambda: x.sum(), lambda: x.sum(dtype=FP32)),
    "the type that sums of bools have": (lambda: mask.sum(), lambda: mask.sum(dtype=torch.int64)),
}


@pytest.mark.parametrize(("one", "other"), UNASKED.values(), ids=UNASKED)
def test_to_ask_for_the_type_that_comes_anyhow_is_no_difference(one, other):
    assert verdict(one, other) == verdict(other, one) == "same"


def test_an_entry_that_did_not_tell_what_is_quantized_holds():
    op = "aten::quantize_per_tensor"
    was = KernelRecord(name=op, op=op, family="pointwise", dtype="fp32")
    assert compare(entry_with(was), entry_with(replace(was, operands="fp32 ->qint8"))).verdict == "same"


def test_in_place_an_operator_computes_the_same():
    assert verdict(x.sin, x.clone().sin_) == verdict(x.clone().sin_, x.sin) == "changed"
    assert verdict(x.sin, x.double().sin_) == "worse"


def test_a_recording_keeps_the_arguments_of_each_operator_that_is_asked_for_a_type():
    assert TYPE_ARGUMENTS.keys() <= WITH_SETTINGS
    for op, places in TYPE_ARGUMENTS.items():
        for count, place in places.items():
            told = [
                one.arguments[place].name
                for one in torch._C._jit_get_schemas_for_operator(op)
                if len(one.arguments) == count
            ]
            assert not told or "dtype" in told


MODEL = """
from torch.nn import functional as F

def run(dtype):
    image, heads, table = torch.ones(2, 4, 6, 6).to(dtype), torch.ones(1, 2, 8, 8).to(dtype), torch.ones(4, 4).to(dtype)
    def step():
        F.max_pool2d(F.conv2d(image, image[:, :, :3, :3]), 2).mul(2).sum()
        F.scaled_dot_product_attention(heads, heads, heads)
        torch.cat([F.embedding(torch.tensor([0, 1]), table)] * 2)
    return step

@pytest.mark.torchprof(device="cpu", warmup=0, steps=1)
def test_model(torchprof):
    torchprof(run(torch.bfloat16))

@pytest.mark.torchprof(device="cpu", warmup=0, steps=1)
def test_other(torchprof):
    torchprof(run(torch.float16))
"""


def test_a_model_that_goes_from_bf16_to_fp32_fails_and_says_each_kernel(run_tests):
    run_tests(MODEL, "--torchprof-baseline=update")
    run_tests(MODEL, "--torchprof-baseline=strict").assert_outcomes(passed=2)
    result = run_tests(MODEL.replace("bfloat16", "float32"), "--torchprof-baseline=strict", "-vv")
    result.assert_outcomes(passed=1, failed=1)
    for op in ("conv", "attention", "index", "max_pool2d", "mul", "sum"):
        result.stdout.fnmatch_lines([f"*~ *{op}*bf16* -> *fp32*"])


ON_LISTS = """
import pytest, torch

DTYPE = torch.bfloat16
x = torch.ones(4, 4, dtype=DTYPE)

@torch.library.custom_op("lists::made", mutates_args=())
def made(given: list[torch.Tensor]) -> torch.Tensor:
    return torch.ones(3)

def optimizer():
    weight = torch.ones(4, 4, dtype=DTYPE, requires_grad=True)
    weight.grad = torch.ones_like(weight)
    return torch.optim.AdamW([weight], fused=True).step

pytestmark = pytest.mark.torchprof(device="cpu", warmup=0, steps=1)

def test_join(torchprof):
    torchprof(lambda: torch.cat([x, x]))

def test_stack(torchprof):
    torchprof(lambda: torch.stack([x, x]))

def test_fused_optimizer(torchprof):
    torchprof(optimizer())

def test_own_operator(torchprof):
    torchprof(lambda: made([x, x]))
"""
TESTS_ON_LISTS = 4


def test_the_types_in_a_list_of_tensors_are_known_and_another_is_worse(run_tests, pytester):
    """The exported trace tells none; nothing else that a fused optimizer does tells of a weight's either."""
    run_tests(ON_LISTS, "--torchprof-baseline=update").assert_outcomes(passed=TESTS_ON_LISTS)
    run_tests(ON_LISTS, "--torchprof-baseline=strict").assert_outcomes(passed=TESTS_ON_LISTS)
    other = ON_LISTS.replace("DTYPE = torch.bfloat16", "DTYPE = torch.float32")
    for mode in ("strict", "compare"):
        result = run_tests(other, f"--torchprof-baseline={mode}", "-vv")
        result.assert_outcomes(failed=TESTS_ON_LISTS)
        result.stdout.fnmatch_lines([f"*~ *{op}*bf16* -> *fp32*" for op in ("cat", "cat", "_fused_adamw_", "made")])


def test_lists_of_several_types_tell_them_in_order():
    bf16 = x.bfloat16()
    assert [kernel.operands for kernel in entry(lambda: torch.cat([x, bf16])).kernels][-1:] == ["fp32 bf16"]
    assert [kernel.operands for kernel in entry(lambda: torch.cat([bf16, x])).kernels][-1:] == ["bf16 fp32"]
    assert verdict(lambda: torch.cat([x, x]), lambda: torch.cat([x, x, x])) == "same"
    assert verdict(lambda: torch.cat([x, x]), lambda: torch.cat([x, bf16])) == "worse"


JOINS = """
import pytest, torch
x = torch.ones(4, 4, dtype=torch.bfloat16)

@pytest.mark.torchprof(device="cpu")
def test_join(torchprof):
    torchprof(lambda: torch.cat([x, x]))

@pytest.mark.torchprof(device="cpu")
def test_join_and_sum(torchprof):
    torchprof(lambda: torch.cat([x, x]).sum())
"""


def test_what_is_in_lists_is_kept_where_times_are_taken_too(run_tests, pytester):
    run_tests(JOINS.replace('"cpu")', '"cpu", tolerance={"time": 0.9})'), "--torchprof-baseline=update", "-k", "sum")
    (file,) = pytester.path.rglob("__torchprof__/*.json")
    assert '"dtype": "bf16", "op": "aten::cat"' in file.read_text()
    assert '"quantiles_us"' in file.read_text()


def without_lists(pytester):
    """Make the recordings ones that do not tell what is in lists of tensors, as those of earlier versions."""
    for kept in pytester.path.joinpath("kept").glob("*.json.gz"):
        document = json.loads(gzip.decompress(kept.read_bytes()))
        assert document["torchprof"].pop("tensor_lists")
        kept.write_bytes(gzip.compress(json.dumps(document).encode()))


def test_a_recording_that_does_not_tell_what_is_in_lists_is_not_measured_against_a_baseline(run_tests, pytester):
    run_tests(JOINS, "--torchprof-save=kept").assert_outcomes(passed=2)
    without_lists(pytester)
    result = run_tests(JOINS, "--torchprof-replay=kept", "--torchprof-baseline=update", "--torchprof-report=out.json")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*not measured: *", "*copy cat*"])
    assert any(says(reason, TypesUnknown) for reason in reasons_in(Path("out.json")))
    # Beside a kernel that tells its type the join passes, and not under strict.
    run_tests(JOINS, "--torchprof-replay=kept", "-k", "sum").assert_outcomes(passed=1, deselected=1)
    result = run_tests(JOINS, "--torchprof-replay=kept", "-k", "sum", "--torchprof-baseline=strict")
    result.assert_outcomes(failed=1, deselected=1)
    result.stdout.fnmatch_lines(["*not measured: *", "*copy cat*not-recorded*"])


def test_a_join_in_an_entry_of_an_earlier_version_holds_until_it_is_renewed(run_tests, pytester):
    run_tests(JOINS, "--torchprof-baseline=update")
    (file,) = pytester.path.rglob("__torchprof__/*.json")
    file.write_text(file.read_text().replace('"dtype": "bf16", "op": "aten::cat"', '"op": "aten::cat"'))
    run_tests(JOINS).assert_outcomes(passed=2)
    result = run_tests(JOINS, "--torchprof-baseline=strict")
    result.assert_outcomes(failed=2)
    result.stdout.fnmatch_lines(["*not measured: the types of copy cat*", "*baseline-incomplete*"])
    run_tests(JOINS, "--torchprof-baseline=update").assert_outcomes(passed=2)
    run_tests(JOINS, "--torchprof-baseline=strict").assert_outcomes(passed=2)


def without_operands(pytester):
    """Make the baseline one of an earlier version."""
    (file,) = pytester.path.rglob("__torchprof__/*.json")
    file.write_text(re.sub(r', "operands": "[^"]*"', "", file.read_text()))
    return file


def test_entries_of_an_earlier_version_hold_and_it_is_said_once_how_to_renew_them(run_tests, pytester):
    run_tests(MODEL, "--torchprof-baseline=update")
    file = without_operands(pytester)
    before = file.read_bytes()
    result = run_tests(MODEL, "--torchprof-report=r.json", "--torchprof-report=r.md")
    result.assert_outcomes(passed=2)
    said = of_no_use(Disuse.UNTOLD, "test_model")
    shown = f"__torchprof__/{file.name}"
    assert str(result.stdout).count("earlier version") == 1
    result.stdout.fnmatch_lines([f"{shown}: {said},*", "  test_other", "  do: pytest --torchprof-baseline=update"])
    assert json.loads(pytester.path.joinpath("r.json").read_text())["untold"] == {shown: ["test_model", "test_other"]}
    assert pytester.path.joinpath("r.md").read_text().count("earlier version") == 1
    assert file.read_bytes() == before


def test_several_workers_say_it_once_too(run_tests, pytester):
    run_tests(MODEL, "--torchprof-baseline=update")
    without_operands(pytester)
    result = run_tests(MODEL, "-n", "2")
    result.assert_outcomes(passed=2)
    assert str(result.stdout).count("earlier version") == 1


def test_under_strict_such_an_entry_is_not_measured_until_it_is_renewed(run_tests, pytester):
    run_tests(MODEL, "--torchprof-baseline=update")
    complete = without_operands(pytester).read_bytes()
    result = run_tests(MODEL, "--torchprof-baseline=strict")
    result.assert_outcomes(failed=2)
    result.stdout.fnmatch_lines(["*not measured: the types of conv *", "*baseline-incomplete*"])
    result = run_tests(MODEL, "--torchprof-baseline=update")
    result.assert_outcomes(passed=2)
    assert "earlier version" not in str(result.stdout)
    (file,) = pytester.path.rglob("__torchprof__/*.json")
    assert file.read_bytes() != complete
    run_tests(MODEL, "--torchprof-baseline=strict").assert_outcomes(passed=2)


def test_what_such_an_entry_does_say_is_still_compared():
    was, now = entry(lambda: (x.bfloat16() @ x.bfloat16()).sum()), entry(lambda: (x @ x).sum())
    steps = tuple(tuple(replace(one, operands=None) for one in step) for step in was.steps)
    found = compare(replace(was, steps=(steps[0][2:],)), now)
    assert (found.verdict, [line.split(":")[0] for line in found.kernel_lines]) == ("worse", ["  ~ gemm mm"])


def test_another_name_of_other_software_is_no_contradiction_of_such_an_entry():
    old, now = gemm("gemm_a", op="mine::mm"), gemm("gemm_b", op="mine::mm", operands="bf16")
    upgraded = replace(entry_with(now), environment={"torch": "99"})
    found = compare(entry_with(old), upgraded)
    assert (found.verdict, found.unknown) == ("changed", ())
    # An entry of today with nothing told, as of a CUDA graph, leaves it open.
    assert compare(entry_with(replace(old, op=None)), upgraded).unknown


def test_the_kernels_of_such_an_entry_may_be_any_of_those_of_their_name():
    bf16, fp32 = (KernelRecord(name="aten::sum", op="aten::sum", operands=one) for one in ("bf16", "fp32"))
    old = replace(bf16, operands=None)
    assert compare(entry_with(old, old), entry_with(bf16, fp32)).verdict == "same"
    assert compare(entry_with(old), entry_with(bf16, fp32)).verdict == "worse"
    assert compare(entry_with(bf16, bf16), entry_with(bf16, fp32)).verdict == "worse"


def recording(tmp_path, name, inputs, *, kernel="matmul_kernel", op="mine::matmul"):
    builder = TraceBuilder()
    builder.own(steps=1)
    builder.step(0, 0, 900)
    builder.launched(kernel, 10, op=op, inputs=inputs)
    builder.sync(1100, 50)
    return load(builder.write(tmp_path / f"{name}.json"))


def operands(dtype):
    return [([8, 8], [8, 1], dtype)] * 2


def of_recording(found):
    return entry_of(found, source_hash="s")


BF16_INPUTS, FP32_INPUTS = operands("c10::BFloat16"), operands("float")
TRITON = "triton_red_fused_addmm_sum_3"


@pytest.mark.parametrize("kernel", ["matmul_kernel", TRITON, "triton_tem_fused_mm_0"])
def test_on_a_gpu_a_kernel_whose_name_tells_no_type_is_told_apart_by_its_operator(tmp_path, kernel):
    was, same, now = (
        recording(tmp_path, name, inputs, kernel=kernel)
        for name, inputs in (("was", BF16_INPUTS), ("same", BF16_INPUTS), ("now", FP32_INPUTS))
    )
    assert compare(of_recording(was), of_recording(same)).verdict == "same"
    assert compare(of_recording(was), of_recording(now)).verdict == "worse"
    assert not was.diff(same).kernels_differ
    assert was.diff(now).kernels_differ
    assert "bf16" in change_words(was.diff(now).changes[0])


def test_a_joined_list_of_tensors_tells_the_size_of_its_elements(tmp_path):
    name = "void at::native::(anonymous namespace)::CatArrayBatchedCopy<at::native::(anonymous namespace)::OpaqueType<{}u>, 2>"
    of_two, of_four = (
        of_recording(recording(tmp_path, f"{size}", [([], [], "TensorList")], kernel=name.format(size), op="aten::cat"))
        for size in (2, 4)
    )
    assert compare(of_two, of_two).verdict == "same"
    assert compare(of_two, of_four).verdict == "worse"


def test_a_recording_without_operands_is_compared_by_names(tmp_path):
    told, untold = (recording(tmp_path, name, inputs) for name, inputs in (("a", BF16_INPUTS), ("b", None)))
    assert not told.diff(untold).kernels_differ


def gemm(name, **fields):
    return KernelRecord(name=name, family="gemm", **fields)


def entry_with(*kernels):
    made = entry(lambda: x + x)
    return replace(made, steps=(kernels,), numbers={**made.numbers, "kernels": len(kernels)})


GRAPH = gemm("gemm_kernel_a")
UNKNOWN = {
    "other names, nothing told on either side": (GRAPH, gemm("gemm_kernel_b")),
    "told before, and not now": (gemm("gemm_kernel_a", dtype="bf16", layout="tn"), gemm("gemm_kernel_b")),
    "told now, and not before": (gemm("gemm_kernel_b"), gemm("gemm_kernel_a", dtype="bf16", layout="tn")),
    "a function compiled for each type": (
        gemm("triton_tem_fused_mm_0", dtype="bf16", op="aten::mm"),
        gemm("triton_tem_fused_mm_0"),
    ),
}


@pytest.mark.parametrize(("was", "now"), UNKNOWN.values(), ids=UNKNOWN)
def test_products_of_which_nothing_tells_whether_they_are_the_same_are_not_known(was, now):
    found = compare(entry_with(was), entry_with(now))
    assert (found.verdict, len(found.unknown)) == ("changed", 1)
    assert not [*lacking_kernels(entry_with(was), entry_with(now))]


def test_where_nothing_can_be_known_the_same_name_is_the_same_kernel():
    assert compare(entry_with(GRAPH), entry_with(GRAPH)).verdict == "same"


def test_a_name_that_stands_for_one_piece_of_code_needs_no_operator():
    name = "void cutlass::device_kernel<at::cuda::detail::enable_3x_kernel_for_sm9x<Gemm> >(Params)"
    found = compare(entry_with(gemm(name, dtype="bf16", op="aten::mm")), entry_with(gemm(name)))
    assert (found.verdict, found.unknown) == ("changed", ())


REPLAYED = """
@pytest.mark.torchprof(device="cpu", warmup=0, steps=1)
def test_it(torchprof):
    torchprof(lambda: torch.nn.functional.scaled_dot_product_attention(*[torch.ones(1, 2, 8, 8)] * 3))
"""


def test_a_product_that_was_told_and_is_not_any_more_is_not_measured(run_tests, pytester):
    run_tests(REPLAYED, "--torchprof-baseline=update", "--torchprof-save=kept")
    (kept,) = pytester.path.joinpath("kept").glob("*.json.gz")
    found = load(kept)
    assert found.kernels[-1].decoded.operands == "fp32"
    strip_inputs(kept)
    result = run_tests(REPLAYED, "--torchprof-replay=kept")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*not measured: *", "*[[]not-recorded]*"])


def strip_inputs(file):
    """Take the operands out of a recording, as one that was made without shapes has none."""
    document = json.loads(gzip.decompress(file.read_bytes()))
    for event in document["traceEvents"]:
        event["args"] = {key: value for key, value in event.get("args", {}).items() if not key.startswith("Input")}
    file.write_bytes(gzip.compress(json.dumps(document).encode()))
