"""Patterns on kernels and operators: strings, selectors, what they answer when nothing tells, and the advice they give."""

from __future__ import annotations

import pytest
from facts import says, why_not, why_refused

from pytest_torchprof import (
    Kernel,
    Kernels,
    attention,
    communication,
    conv,
    family,
    gemm,
    library,
    triton,
)
from pytest_torchprof.analysis.origin import Places
from pytest_torchprof.kernels.carried import carries_all
from pytest_torchprof.kernels.names.kernelname import FAMILIES, LAYOUTS, LIBRARIES
from pytest_torchprof.kernels.operands import Launch, complete
from pytest_torchprof.kernels.patterns import compile_pattern, parse_value, unmatched
from pytest_torchprof.kernels.reply import NO, NOT_KNOWN, YES
from pytest_torchprof.kernels.selectors import compile_op_pattern
from pytest_torchprof.limits.evidence import carried_by_kernels
from pytest_torchprof.reasons.names_asked import MatchUnknown
from pytest_torchprof.reasons.wrong_patterns import (
    FunctionNotCalled,
    NoExpression,
    NoPattern,
    NotSpelledSo,
    OfOtherLimit,
    PartOf,
    PatternForm,
    SelectorAsText,
    SelectorWithoutValue,
    TextUnread,
    TooManyValues,
    UnknownPart,
)
from pytest_torchprof.reasons.wrong_values import NoneOfThese, ValueForm, WrongValue

pytestmark = pytest.mark.any_torch

TOLD = {YES: True, NO: False, NOT_KNOWN: None}
NVJET = "nvjet_tst_128x64_64x6_2x1_v_bz_bias_TNT"
AMPERE = "ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_stages_64x3_tn"
TENSILE = "Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT128x64x32_MI16x16x1_SN"
SGEMM = "volta_sgemm_128x64_nn"
SPLIT_K = "void splitKreduce_kernel<32, 16, int, __nv_bfloat16>(x)"
FLASH = "void pytorch_flash::flash_fwd_kernel<pytorch_flash::Flash_fwd_kernel_traits<64, 128, 128, 4, false, false, cutlass::bfloat16_t>>(P)"
SOFTMAX = "void (anonymous namespace)::softmax_warp_forward<float, float, float, 7, false, false>(x)"
FPROP = "void cutlass__5x_cudnn::Kernel<cutlass_tensorop_bf16_s16816fprop_optimized_bf16_256x64_32x4_nhwc_align8>(P)"
NCHW = "void cudnn::ops::nchwToNhwcKernel<float, float, float, false, true, (cudnnKernelDataType_t)0>(x)"
COMBINE = "void pytorch_flash::flash_fwd_splitkv_combine_kernel<pytorch_flash::Flash_fwd_kernel_traits<64>>(P)"
POINTWISE = "triton_poi_fused_add_mul_0"


def kernel(name, op=None, chain=(), **launch):
    """Return a kernel as the reader makes it."""
    op_chain = (*chain, op) if op else tuple(chain)
    decoded = complete(name, Launch(op=op, op_chain=op_chain, **launch))
    return Kernel(
        name=name,
        decoded=decoded,
        op=op,
        op_chain=op_chain,
        op_dtypes=launch.get("dtypes"),
        op_shapes=launch.get("shapes"),
        op_strides=launch.get("strides"),
        start_ns=0,
        dur_ns=1000,
        device=0,
        stream=7,
        launch=launch.get("call"),
        launch_start_ns=0,
        in_graph=False,
        collective=decoded.collective,
    )


def test_a_string_is_a_substring_a_glob_on_the_whole_name_or_an_expression():
    """The three kinds, and that square brackets are nothing special."""
    found = kernel(NVJET)
    for text, matches in [
        ("_bias_", True),
        ("_tn_", False),
        ("nvjet_*", True),
        ("nvjet_?st_*TNT", True),
        ("nvjet", True),
        ("*_bias", False),
        ("tst_*", False),
        ("?", False),
        ("re:^nvjet.*T$", True),
        ("re:bias$", False),
        ("a[b]*", False),
    ]:
        assert compile_pattern(text).matches(found) is matches, text
        assert TOLD[compile_pattern(text).verdict(found)] is matches
        assert str(compile_pattern(text)) == text
    assert compile_pattern("a[b]*").matches(kernel("a[b]c"))


@pytest.mark.parametrize(
    ("value", "kind", "facts"),
    [
        *((value, WrongValue, {"expected": ValueForm.KERNEL, "got": repr(value)}) for value in ("", "re:")),
        ("re:(", NoExpression, {"written": "re:("}),
        *((value, NoPattern, {"expected": PatternForm.KERNEL, "got": repr(value)}) for value in (3, None, ["nvjet"])),
        ("gemm()", SelectorAsText, {"selector": "gemm"}),
        (gemm, FunctionNotCalled, {"name": None, "function": "gemm", "call": "gemm()"}),
    ],
)
def test_what_is_no_pattern_is_refused_with_what_was_expected(value, kind, facts):
    assert says(why_refused(lambda: compile_pattern(value)), kind, **facts)


@pytest.mark.parametrize("name", [NVJET, AMPERE, TENSILE])
def test_one_selector_holds_on_every_generation_and_library(name):
    """The same product on an A100, an H100 and an MI300X."""
    wanted = gemm(layout="tn", dtype="bf16", tensor_core=True, tile="128x64", op="addmm")
    assert wanted.matches(kernel(name, op="aten::addmm", chain=["aten::linear"]))
    assert not wanted.matches(kernel(name, op="aten::bmm"))
    assert not wanted.matches(kernel(SGEMM, op="aten::addmm"))


@pytest.mark.parametrize(
    ("selector", "name", "verdict"),
    [
        (gemm(), NVJET, True),
        (gemm(), SPLIT_K, False),
        (gemm(), FPROP, False),
        (gemm(tensor_core=False), SGEMM, True),
        (gemm(tile=(128, 64)), NVJET, True),
        (gemm(tile="64x64"), NVJET, False),
        (gemm(library="tensile"), TENSILE, True),
        (conv(dtype="bf16"), FPROP, True),
        (conv(), NCHW, False),
        (family("conv"), NCHW, True),
        (attention(), COMBINE, False),
        (conv(), NVJET, False),
        (attention(), FLASH, True),
        (attention(fused=True, dtype="bf16"), FLASH, True),
        (attention(fused=True), SOFTMAX, False),
        (triton(), POINTWISE, True),
        (triton("poi"), POINTWISE, True),
        (triton("red"), POINTWISE, False),
        (triton("poi", ops=["add", "mul"]), POINTWISE, True),
        (triton("poi", ops=["aten::add"]), POINTWISE, True),
        (triton("poi", ops=["gelu"]), POINTWISE, False),
        (triton("poi"), "triton_", None),
        (triton(ops=["add"]), "triton_", None),
        (triton(), "triton_", True),
        (communication(), "ncclDevKernel_Generic(x)", True),
        (communication("all_reduce"), "ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)", True),
        (communication("all_reduce"), "ncclDevKernel_AllGather_RING_LL(x)", False),
        (communication("all_reduce"), "ncclDevKernel_Generic(x)", None),
        (family("softmax"), SOFTMAX, True),
        (family("reduction"), SPLIT_K, True),
        (library("cublas"), NVJET, True),
        (library("cublas"), FLASH, False),
    ],
)
def test_a_selector_answers_yes_no_or_unknown(selector, name, verdict):
    """Unknown is neither a match nor a mismatch; matches() is true only for yes."""
    assert TOLD[selector.verdict(kernel(name))] is verdict
    assert selector.matches(kernel(name)) is (verdict is True)


def test_a_field_that_the_name_leaves_open_is_unknown_until_the_launch_tells():
    """A limit must be able to say that it could not be measured."""
    plain = "gemm_kernel"
    assert TOLD[gemm(dtype="bf16").verdict(kernel(plain))] is None
    assert TOLD[gemm(layout="tn").verdict(kernel(plain))] is None
    assert TOLD[gemm(tile="64x64").verdict(kernel(plain))] is None
    assert TOLD[gemm(op="mm").verdict(kernel(NVJET))] is None, "no operator launched it in a graph replay"
    told = kernel(
        plain,
        op="aten::mm",
        dtypes=("c10::BFloat16", "c10::BFloat16"),
        shapes=((4, 8), (8, 16)),
        strides=((8, 1), (1, 8)),
    )
    assert TOLD[gemm(dtype="bf16", layout="tn", op="aten::mm").verdict(told)] is True
    assert TOLD[conv(dtype="bf16").verdict(kernel(plain))] is False, "one field that surely differs decides"


def test_attention_that_is_not_fused_is_its_products_and_softmax():
    """The operator that computes attention step by step is the sign."""
    math = ["aten::scaled_dot_product_attention", "aten::_scaled_dot_product_attention_math"]
    assert attention(fused=False).matches(kernel(SOFTMAX, op="aten::_softmax", chain=math))
    assert attention(fused=False).matches(kernel(NVJET, op="aten::bmm", chain=math))
    assert not attention(fused=False).matches(kernel(SOFTMAX, op="aten::_softmax"))
    assert not attention(fused=False).matches(kernel(FLASH, op="aten::_flash_attention_forward"))


def test_selectors_print_as_they_are_written_and_compare_by_what_they_mean():
    """So that a report shows what stands in the test, and a dict of limits can hold them."""
    assert str(gemm(layout="tn", dtype="bf16", op="addmm")) == "gemm(layout='tn', dtype='bf16', op='addmm')"
    assert repr(triton("poi", ops=["add", "mul"])) == "triton('poi', ops=['add', 'mul'])"
    assert str(attention(fused=True)) == "attention(fused=True)"
    assert str(gemm()) == "gemm()"
    assert gemm(tile="128x64") == gemm(tile=(128, 64))
    assert {gemm(layout="tn"): 1}[gemm(layout="tn")] == 1
    assert gemm(layout="tn") != gemm(layout="nn")
    assert compile_pattern(gemm()) == gemm()


VALUE, KEYWORD = PartOf.VALUE, PartOf.KEYWORD


@pytest.mark.parametrize(
    ("make", "kind", "facts"),
    [
        (lambda: gemm(layuot="tn"), UnknownPart, {"what": KEYWORD, "of": "gemm", "name": "'layuot'", "near": "layout"}),
        (
            lambda: gemm(dtype="float32"),
            UnknownPart,
            {"what": VALUE, "of": "dtype", "name": "'float32'", "near": "fp32"},
        ),
        (lambda: gemm(dtype="torch.half"), UnknownPart, {"name": "'torch.half'", "near": "fp16"}),
        (lambda: gemm(dtype="bfloat16"), UnknownPart, {"near": "bf16"}),
        (lambda: gemm(layout="TN"), UnknownPart, {"of": "layout", "name": "'TN'", "known": tuple(sorted(LAYOUTS))}),
        (lambda: gemm(tensor_core="yes"), NoneOfThese, {"known": ("True", "False"), "got": "'yes'"}),
        (lambda: gemm(tile="big"), WrongValue, {"expected": ValueForm.TILE, "got": "tile='big'"}),
        (lambda: gemm(op=3), WrongValue, {"expected": ValueForm.OPERATOR, "got": "3"}),
        (lambda: family("redction"), UnknownPart, {"of": "family", "near": "reduction"}),
        (family, SelectorWithoutValue, {"selector": "family", "known": FAMILIES}),
        (library, SelectorWithoutValue, {"selector": "library", "known": LIBRARIES}),
        (lambda: library("cuda"), UnknownPart, {"of": "library", "name": "'cuda'"}),
        (lambda: triton("pointwise"), UnknownPart, {"of": "category", "name": "'pointwise'"}),
        (lambda: triton("poi", "red"), TooManyValues, {"selector": "triton", "takes_one": True, "given": 2}),
        (lambda: triton(ops=[]), WrongValue, {"expected": ValueForm.CARRIED, "got": "ops=[]"}),
        (lambda: communication("allreduce"), UnknownPart, {"near": "all_reduce"}),
        (lambda: gemm("tn"), TooManyValues, {"selector": "gemm", "takes_one": False}),
    ],
)
def test_a_wrong_selector_is_refused_with_the_nearest_valid_word(make, kind, facts):
    """At the place where it is written, before anything is measured."""
    assert says(why_refused(make), kind, **facts)


def test_values_on_the_command_line_are_read_and_never_evaluated():
    """Literals, selectors, and lists and dicts of them."""
    assert parse_value('gemm(layout="tn", tensor_core=True)') == gemm(layout="tn", tensor_core=True)
    assert parse_value("triton('poi', ops=['add'])") == triton("poi", ops=["add"])
    assert parse_value('[gemm(), "x"]') == [gemm(), "x"]
    assert parse_value(' {gemm(layout="tn"): 3, "x": (1, 2)}') == {gemm(layout="tn"): 3, "x": (1, 2)}
    wrong = [
        *("gemm(layout=__import__('os').name)", "gemm(**{'layout': 'tn'})", "gemm(layout=)", "gemm() + gemm()"),
        *("[gemm(", "{**{}}", "{[1]: 2}", "[x]", "(" * 5000, "gemm(gemm())", "void gemm(float*)", "os.system('x')"),
    ]
    for text in wrong:
        assert isinstance(why_refused(lambda text=text: parse_value(text)), TextUnread)
    why = why_refused(lambda: parse_value("[gem()]"))
    assert says(why, UnknownPart, what=PartOf.SELECTOR, name="gem", near="gemm")


@pytest.mark.parametrize(
    ("pattern", "op", "matches"),
    [
        ("aten::mm", "aten::mm", True),
        ("aten::mm", "aten::addmm", False),
        ("aten::add", "aten::addmm", False),
        ("aten::add", "aten::add_", False),
        ("mm", "aten::addmm", False),
        ("addmm", "aten::addmm", True),
        ("add", "aten::add_", True),
        ("scaled_dot_product", "aten::_scaled_dot_product_flash_attention", True),
        ("layer_norm", "aten::native_layer_norm", True),
        ("aten::*mm", "aten::addmm", True),
        ("*flash*", "aten::_flash_attention_forward", True),
        ("re:^aten::.?mm$", "aten::addmm", False),
        ("re:^aten::b?mm$", "aten::bmm", True),
        ("bmm", "mylib::bmm", True),
        ("aten::bmm", "mylib::bmm", False),
    ],
)
def test_operator_patterns_mean_whole_names_or_whole_words(pattern, op, matches):
    """`aten::add` is never `aten::addmm`."""
    assert compile_op_pattern(pattern).matches_op(op) is matches


def test_fused_means_that_one_inductor_kernel_carries_all_of_it():
    """Triton on a GPU, C++ on the CPU; two kernels that carry one each are not enough."""
    for name in (POINTWISE, "cpp_fused_add_mul_0", "graph_0_cpp_fused_add_mul_3"):
        assert carries_all(kernel(name), ["add", "mul"]) is YES
        assert carries_all(kernel(name), ["aten::mul"]) is YES
        assert carries_all(kernel(name), ["add", "gelu"]) is NO
    assert carries_all(kernel(NVJET), ["add"]) is NO
    assert carries_all(kernel("triton_poi_fused_index_add_0"), ["add"]) is NO


def test_what_is_not_fused_is_listed_with_its_operators_in_order():
    """Generated kernels say what they carry, the others what launched them."""
    lines = carried_by_kernels(
        [
            kernel(NVJET, op="aten::addmm"),
            kernel("triton_poi_fused_add_0"),
            kernel("triton_poi_fused_mul_1"),
            kernel(NVJET, op="aten::addmm"),
            kernel(NVJET, op="aten::addmm"),
            kernel(NVJET),
        ],
        Places(),
    )
    assert [str(line) for line in lines] == [
        "gemm bf16 tn nvjet_tst_128x64 launched by aten::addmm",
        "triton_poi_fused_add_0 carries add",
        "triton_poi_fused_mul_1 carries mul",
        "2 x gemm bf16 tn nvjet_tst_128x64 launched by aten::addmm",
        "gemm bf16 tn nvjet_tst_128x64 launched by ?",
    ]


def test_a_string_that_finds_nothing_says_which_selector_would():
    """The advice of the layout, of a dtype, of a family; none where there is nothing to find."""
    kernels = [*[kernel(NVJET)] * 3, kernel(POINTWISE)]
    meant = unmatched(compile_pattern("_tn_"), kernels)
    assert (str(meant.selector), meant.asked, meant.names) == ("gemm(layout='tn')", ("layout tn",), {NVJET: 3})
    meant = unmatched(compile_pattern("ampere_bf16_s16816gemm*_tn"), kernels)
    assert str(meant.selector) == "gemm(dtype='bf16', layout='tn', tensor_core=True)"
    meant = unmatched(compile_pattern("triton_red"), kernels)
    assert (meant.noun, meant.asked, len(meant.kernels)) == ("Triton kernel", (), 1)
    assert unmatched(compile_pattern("_nn_"), kernels) is None
    assert unmatched(compile_pattern("nvjet"), kernels) is None, "it matches"
    assert unmatched(gemm(layout="nn"), kernels) is None, "a selector needs no advice"
    assert unmatched(compile_pattern("something_else"), kernels) is None


def test_kernels_are_selected_by_any_pattern():
    """`.matching` takes strings and selectors."""
    ran = [kernel(NVJET, op="aten::mm"), kernel(SPLIT_K, op="aten::mm"), kernel(POINTWISE)]
    kernels = Kernels(lambda: ran, len(ran))
    assert kernels.matching(gemm()).count == 1
    assert kernels.matching("triton_*").names == [POINTWISE]
    assert kernels.matching(family("reduction", op="mm")).names == [SPLIT_K]


@pytest.mark.parametrize("text", ["aten:mm", "aten::mm.default", "::", " ", "mm()"])
def test_a_text_that_can_be_no_operator_is_refused_rather_than_forbidden_for_ever(text):
    assert says(why_refused(lambda: compile_op_pattern(text)), NotSpelledSo, written=text, of_operator=True)


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        ("Memcpy", "max_memcpys"),
        ("Memcpy HtoD", "max_memcpys"),
        ("Memset", "max_memsets"),
        ("cudaLaunchKernel", "max_launches"),
        ("cudaStreamSynchronize", "max_syncs"),
    ],
)
def test_what_is_no_kernel_is_refused_with_the_limit_that_there_is_for_it(text, limit):
    assert says(why_refused(lambda: compile_pattern(text)), OfOtherLimit, written=text, limit=limit)


@pytest.mark.parametrize("text", ["cuApplyLayerNorm", "hipblaslt", "memcpy32_post", "Mem"])
def test_names_that_only_look_like_calls_are_kernels(text):
    compile_pattern(text)


def test_what_may_match_besides_is_never_passed_over():
    told, untold = kernel(NVJET, op="aten::mm"), kernel(NVJET)
    surely = Kernels(lambda: [told, kernel(SGEMM, op="aten::bmm")], 2).matching(gemm(op="mm"))
    assert (surely.count, len(surely), bool(surely)) == (1, 1, True)
    untellable = Kernels(lambda: [untold], 1).matching(gemm(op="mm"))
    half_told = Kernels(lambda: [told, untold], 2).matching(gemm(op="mm"))
    assert bool(half_told)
    assert told in half_told
    assert half_told.matching(gemm())
    assert "at least 1" in repr(half_told)
    for ask in (
        lambda: untellable.names,
        lambda: untold not in untellable,
        lambda: next(iter(untellable), None),
        lambda: any(one.dtype == "fp32" for one in untellable),
        lambda: sum(1 for _ in half_told),
        lambda: set(half_told),
        lambda: list(half_told),
        lambda: half_told[0],
        lambda: half_told[5:],
        lambda: list(reversed(half_told)),
        lambda: half_told.index(untold),
        lambda: half_told.matching("nvjet").count,
        lambda: untellable.count,
        lambda: bool(untellable),
        lambda: half_told.count,
        lambda: half_told.time_us,
        lambda: len(half_told),
        lambda: half_told[:1].count,
    ):
        assert says(why_not(ask), MatchUnknown, pattern="gemm(op='mm')", kernels=1)


def test_a_text_is_in_the_kernels_if_one_of_their_names_has_it():
    ran = [kernel("aten::mm", op="aten::mm"), kernel(POINTWISE, chain=["Torch-Compiled Region: 0/0"])]
    found = Kernels(lambda: ran, 2)
    assert "aten::mm" in found
    assert "triton_*" in found
    assert "aten::add" not in found
    assert found[0] in found


def test_a_piece_of_a_name_may_have_an_asterisk():
    name = "void elementwise<at::detail::Array<char*, 3> >(int, at::detail::Array<char*, 3>)"
    assert TOLD[compile_pattern("Array<char*, 3>").verdict(kernel(name))] is True
    assert TOLD[compile_pattern("Array<char*, 2>").verdict(kernel(name))] is False


def test_the_operator_says_which_collective_is_made_of_sends_and_receives():
    name = "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclDevComm*, unsigned long, ncclWork*)"
    exchange = kernel(name, op="record_param_comms", chain=["c10d::alltoall_base_"])
    assert TOLD[communication("all_to_all").verdict(exchange)] is True
    assert TOLD[communication("all_reduce").verdict(exchange)] is False
    assert TOLD[communication("send_recv").verdict(exchange)] is None
    plain = kernel(name, op="record_param_comms", chain=["c10d::send"])
    assert TOLD[communication("send_recv").verdict(plain)] is True
    assert TOLD[communication("all_to_all").verdict(plain)] is False


def test_products_and_softmax_of_a_native_attention_are_not_fused():
    around = ["aten::_native_multi_head_attention"]
    unfused = attention(fused=False)
    assert TOLD[unfused.verdict(kernel(SGEMM, op="aten::bmm", chain=around))] is True
    assert TOLD[unfused.verdict(kernel(SOFTMAX, op="aten::_softmax", chain=around))] is True
    assert TOLD[unfused.verdict(kernel(SGEMM, op="aten::addmm", chain=around))] is False
    assert TOLD[unfused.verdict(kernel(SGEMM, op="aten::bmm"))] is False


@pytest.mark.parametrize(
    ("op", "dtypes", "shapes", "told", "not_told"),
    [
        # x * 2.0 and x + 1: a Python number is recorded as a tensor without dimensions.
        ("aten::mul", ("float", "double"), ([8, 8], []), "fp32", None),
        ("aten::add", ("float", "long int", "Scalar"), ([8, 8], [], []), "fp32", None),
        ("aten::where", ("bool", "float", "float"), ([8, 8], [8, 8], []), "fp32", None),
        ("aten::masked_fill_", ("float", "bool", "Scalar"), ([8, 8], [8, 8], []), "fp32", None),
        ("aten::gt", ("long int", "Scalar"), ([8, 8], []), "int64", None),
        ("aten::add", ("int", "int"), ([8], [8]), "int32", None),
        ("aten::bitwise_not", ("bool",), ([8],), "bool", None),
        ("aten::add", ("long int", "float"), ([8], [8]), "fp32", None),
        # Two types of one kind: one of them, and surely no third.
        ("aten::copy_", ("double", "float", "Scalar"), ([8], [8], []), None, ("fp64", "fp32")),
        # 1 / 2 of integers, and integers times 2.5, are of torch's default type.
        ("aten::div", ("long int", "long int"), ([8], []), None, ("fp32", "fp64", "int64")),
        ("aten::mul", ("long int", "double"), ([8], []), None, ("fp32", "fp64", "int64")),
    ],
)
def test_operands_tell_the_dtype_as_torch_promotes_them(op, dtypes, shapes, told, not_told):
    one = kernel(op, op=op, dtypes=dtypes, shapes=shapes)
    name = one.family
    answers = {
        dtype: TOLD[family(name, dtype=dtype).verdict(one)]
        for dtype in ("fp32", "fp64", "bf16", "int64", "int32", "bool")
    }
    if told is not None:
        assert answers == {dtype: dtype == told for dtype in answers}
    else:
        assert {dtype for dtype, answer in answers.items() if answer is None} >= set(not_told)
        assert True not in answers.values()


def test_operands_that_contradict_the_name_tell_nothing():
    one = kernel(NVJET, op="aten::mm", dtypes=("float", "float"), shapes=((4, 8), (8, 16)), strides=((8, 1), (16, 1)))
    assert one.dtype is None
    assert TOLD[gemm(dtype="bf16").verdict(one)] is None
    assert TOLD[gemm(dtype="fp32").verdict(one)] is None
