"""Kernels of today's engines: names from their sources and binaries, by the rule that decodes them (engine_names.txt)."""

from __future__ import annotations

from pathlib import Path

import pytest
from builder import own_recording
from test_patterns import kernel

from pytest_torchprof import NotMeasured, attention, communication, family, gemm, load
from pytest_torchprof.kernels.names import decode
from pytest_torchprof.kernels.names.kernelname import DTYPES
from pytest_torchprof.kernels.operands import Launch, complete
from pytest_torchprof.kernels.patterns import compile_pattern
from pytest_torchprof.kernels.reply import NO, NOT_KNOWN, YES

pytestmark = pytest.mark.any_torch

SHARED = Path(__file__).parents[2] / "shared" / "traces"


def read():
    """Return (what it is, source, name) of each line by the rule above it."""
    rules, lines = {}, Path(__file__).with_name("engine_names.txt").read_text(encoding="utf-8").splitlines()
    for line in lines:
        if line.startswith("# "):
            rule = rules[line[2:]] = []
        elif " | " in line:
            rule.append(tuple(line.split(" | ")))
    return {rule: names for rule, names in rules.items() if names}


RULES = read()
NAMES = {name: what for names in RULES.values() for what, _, name in names}


def said(name):
    """Return what a name says, in the words of the table."""
    found = decode(name)
    if found.family is None:
        return "not known"
    told = (found.dtype, found.layout) if found.family in ("gemm", "attention") else ()
    return " ".join(filter(None, (found.family, *told, found.collective)))


@pytest.mark.parametrize("names", RULES.values(), ids=RULES)
def test_names_of_engines_say(names):
    assert {name: said(name) for _, _, name in names} == {name: what for what, _, name in names}


def test_there_are_three_hundred_of_them_that_no_recording_has():
    recorded = (SHARED / "kernel_names.tsv").read_text(encoding="utf-8") if SHARED.is_dir() else ""
    assert len([name for name in NAMES if name.partition("(...)")[0] not in recorded]) >= 300


@pytest.mark.parametrize(
    ("name", "stem"),
    [
        ("void vllm::cvt_fp16_to_fp4<__half, false, true>(x)", "quantize cvt_fp16_to_fp4"),
        ("void kQuantizeBlockwise<__half, 4096, 4, 0, 0>(x)", "quantize kQuantizeBlockwise"),
        ("_upcast_from_mxfp", "dequantize _upcast_from_mxfp"),
        (
            "void per_token_group_quant_8bit_kernel<c10::Half, signed char>(x)",
            "quantize per_token_group_quant_8bit_kernel",
        ),
    ],
)
def test_casts_of_all_engines_are_found_by_one_word(name, stem):
    found = decode(name)
    assert (found.family, found.stem) == ("pointwise", stem)
    assert compile_pattern("quantize").verdict(kernel(name)) is YES


def test_what_serves_a_product_is_none_and_counts_as_none():
    for name in ("fill_tensormaps_kernel", "void get_group_gemm_starts<float>(x)", "get_mla_metadata_kernel(x)"):
        assert gemm().verdict(kernel(name)) is NO, name
        assert attention().verdict(kernel(name)) is NO, name
        assert family("copy").verdict(kernel(name)) is NOT_KNOWN, name


def test_time_of_expert_parallelism_is_communication(tmp_path):
    names = [name for name, what in NAMES.items() if "::ep::inter" in name and what.startswith("communication")]
    profile = load(own_recording(dict.fromkeys(names, 1)).write(tmp_path / "t.json"))
    assert profile.kernels.matching(communication()).count == len(names) > 4
    profile.expect(only_kernels=communication())


# ----------------------------------------------------------------------------------------------------------------------
# Where the kernel's name says nothing, the operator that launched it does


@pytest.mark.parametrize(
    ("name", "op", "family"),
    [
        ("_fwd_kernel", "vllm::unified_attention_with_output", "attention"),
        ("_fwd_kernel_0d1d2de", "FlashAttnFunc", "attention"),
        ("_bwd_kernel", "AttentionFunctionBackward", "attention"),
        ("kernel", "mylib::rms_norm", "normalization"),
        ("void mylib::detail::kernel<128, float>(float*)", "LayerNormFn", "normalization"),
        ("_kernel", "aten::silu", "pointwise"),
        # The name says something, if nothing that a table knows: the operator may launch several kernels.
        ("page_table_kernel", "vllm::unified_attention", None),
        ("_fwd_kernel", None, None),
        # The operator says nothing, or two things.
        ("_fwd_kernel", "mylib::step", None),
        ("_fwd_kernel", "mylib::fused_attention_layer_norm", None),
        ("_fwd_kernel", "mylib::attention_mask", None),
        ("_fwd_kernel", "vllm::reshape_and_cache", None),
        ("_fwd_kernel", "mylib::summary", None),
        # What the name says stands.
        ("void vllm::attention::gather_cache<float>(x)", "vllm::unified_attention", "index"),
        ("triton_", "mylib::attention", None),
    ],
)
def test_an_operator_tells_what_its_kernels_name_does_not(name, op, family):
    assert complete(name, Launch(op=op)).family == family


BATCH_NORM = (
    "void at::native::unrolled_elementwise_kernel<at::native::(anonymous namespace)::{}(at::Tensor const&)::"
    "{{lambda()#1}}::operator()() const::{{lambda(float, float)#1}}, std::array<char*, 3ul> >(int)"
)


@pytest.mark.parametrize("functor", ["batch_norm_elementwise", "batch_norm_update_stats", "batch_norm_calc_invstd"])
def test_a_batch_norm_that_runs_as_an_elementwise_kernel_is_a_norm(functor):
    assert decode(BATCH_NORM.format(functor)).family == "normalization"
    assert decode(BATCH_NORM.format("norm_of_batch")).family == "pointwise"


# ----------------------------------------------------------------------------------------------------------------------
# Names that tools have cut at 100 characters


WHOLE = {
    "void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl_nocast<at::native::direct_copy_kernel_cuda("
    "at::TensorIteratorBase&)::{lambda(float)#1}>(x)::{lambda(int)#1}>(int)": "copy",
    "void at::native::unrolled_elementwise_kernel<at::native::(anonymous namespace)::launch_log_sigmoid_forward_kernel("
    "at::TensorIteratorBase&)::{lambda(float)#1}, std::array<char*, 3ul> >(int)": "pointwise",
    "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::(anonymous namespace)::"
    "FusedOptimizerTensorListMetadata<4>, at::native::(anonymous namespace)::FusedAdamMathFunctor<float, 4> >(x)": "optimizer",
    "triton_tem_fused__to_copy_add_clone_convert_element_type_expand_index_mul_select_slice_transpose_view_flex_attention_0": "attention",
}  # fmt: skip


@pytest.mark.parametrize(("name", "family"), WHOLE.items(), ids=WHOLE.values())
def test_where_what_decides_is_cut_off_nothing_is_known(name, family):
    assert decode(name).family == family
    assert decode(name[:100]).family is None


@pytest.mark.parametrize(
    ("name", "family"),
    [
        ("void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<c10::BFloat16>, std::array<char*", "pointwise"),
        ("void at::native::vectorized_elementwise_kernel<4, at::native::BinaryFunctor<float, float, float, at::nati", "pointwise"),
        ("void at::native::reduce_kernel<512, 1, at::native::ReduceOp<c10::BFloat16, at::native::func_wrapper_t<c1", "reduction"),
        ("void cutlass::device_kernel<flash::enable_sm90_or_later<flash::FlashAttnFwdSm90<flash::CollectiveMainlo", "attention"),
        ("void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<c10::BFl", "normalization"),
        ("triton_poi_fused__to_copy_add_clone_convert_element_type_expand_index_mul_select_slice_transpose_view_us", "pointwise"),
    ],
)  # fmt: skip
def test_what_stands_before_the_cut_is_known(name, family):
    assert decode(name).family == family


def test_a_limit_on_a_cut_name_is_not_measured(tmp_path):
    cut = next(iter(WHOLE))[:100]
    profile = load(own_recording({cut: 1}).write(tmp_path / "t.json"))
    with pytest.raises(NotMeasured):
        profile.expect(forbid_kernels=family("copy"))
    profile.expect(forbid_kernels=[gemm(), communication(), *map(family, ("reduction", "sort"))])


def test_every_type_of_the_table_is_one():
    words = {word for what in NAMES.values() for word in what.split() if word[-1].isdigit()}
    assert words <= set(DTYPES)
