"""The kernels that Inductor generates: Triton kernels, and C++ kernels on the CPU."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pytest_torchprof.devices.cpu import operator_work
from pytest_torchprof.devices.kinds import OperatorWork
from pytest_torchprof.kernels.names.kernelname import NO_PRODUCT, KernelName
from pytest_torchprof.kernels.names.operators import decode as decode_operator
from pytest_torchprof.kernels.names.text import parse, word_list
from pytest_torchprof.text.expressions import Expression

if TYPE_CHECKING:
    from pytest_torchprof.kernels.names.text import Text

# Operators with an underscore in their name: without this list, tokens joined by "_" are ambiguous.
KNOWN_OPS: Final = """
_to_copy _unsafe_view _softmax _log_softmax _softmax_backward_data _log_softmax_backward_data _unsafe_index
_unsafe_index_put _scaled_mm _native_batch_norm_legit _native_batch_norm_legit_functional
_native_batch_norm_legit_no_training _scaled_dot_product_flash_attention _scaled_dot_product_efficient_attention
_scaled_dot_product_cudnn_attention _scaled_dot_product_flash_attention_for_cpu _adaptive_avg_pool2d
_adaptive_avg_pool2d_backward _embedding_bag _fused_rms_norm _fused_rms_norm_backward _foreach_add _foreach_mul
_assert_async _weight_norm_interface _cdist_forward _grouped_mm native_layer_norm native_layer_norm_backward
native_dropout native_dropout_backward native_group_norm native_group_norm_backward native_batch_norm
native_batch_norm_backward gelu_backward silu_backward tanh_backward sigmoid_backward threshold_backward
hardtanh_backward hardswish_backward hardsigmoid_backward leaky_relu leaky_relu_backward elu_backward
softplus_backward mish_backward embedding_dense_backward embedding_backward nll_loss_forward nll_loss_backward
nll_loss2d_forward nll_loss2d_backward mse_loss mse_loss_backward l1_loss smooth_l1_loss huber_loss
binary_cross_entropy binary_cross_entropy_with_logits select_backward slice_backward select_scatter slice_scatter
diagonal_scatter index_select index_put index_add index_copy index_fill index_reduce masked_fill masked_scatter
masked_select scatter_add scatter_reduce constant_pad_nd reflection_pad1d reflection_pad2d replication_pad2d
max_pool2d_with_indices max_pool2d_with_indices_backward avg_pool2d avg_pool2d_backward avg_pool3d adaptive_max_pool2d
upsample_nearest2d upsample_bilinear2d upsample_bicubic2d upsample_nearest2d_backward new_zeros new_ones new_empty
new_full zeros_like ones_like full_like empty_like rand_like randn_like bernoulli_p scalar_tensor bitwise_and
bitwise_or bitwise_xor bitwise_not bitwise_left_shift bitwise_right_shift logical_and logical_or logical_not
logical_xor floor_divide true_divide clamp_min clamp_max convolution_backward log_sigmoid log_sigmoid_forward
log_sigmoid_backward log_softmax std_mean var_mean split_with_sizes as_strided as_strided_scatter flash_attention
scaled_dot_product_attention pixel_shuffle pixel_unshuffle grid_sampler_2d roi_align repeat_interleave count_nonzero
lift_fresh_copy prepare_softmax_online rms_norm layer_norm group_norm batch_norm cross_entropy_loss linear_backward
inductor_random inductor_seeds inductor_lookup_seed inductor_randint sym_size moe_forward all_reduce
all_gather_into_tensor reduce_scatter_tensor wait_tensor dequantize_per_tensor quantize_per_tensor
dequantize_per_channel quantize_per_channel convert_element_type fused_rms_norm rotary_embedding flex_attention
flex_attention_backward flex_decoding auto_functionalized auto_functionalized_v2 unfold_backward _int_mm mm_plus_mm
scaled_mm grouped_mm scaled_grouped_mm special_erf special_i0 special_entr special_expit special_log1p special_logit
special_ndtr linalg_vector_norm
"""

# Operators that reduce: the name of a C++ kernel has no category that would show it.
REDUCING_OPS: Final = """
sum mean max min amax amin prod argmax argmin any all var var_mean std std_mean logsumexp native_layer_norm
native_layer_norm_backward native_group_norm native_batch_norm_backward _softmax _log_softmax _softmax_backward_data
_log_softmax_backward_data norm linalg_vector_norm nll_loss_forward mse_loss cumsum
"""

# Operators that are one matrix product.
GEMM_OPS: Final = """
mm addmm bmm baddbmm mm_plus_mm _int_mm _scaled_mm scaled_mm _grouped_mm grouped_mm scaled_grouped_mm
"""

# Operators that no library computes when Inductor compiles for a GPU or the CPU.
ALWAYS_GENERATED: Final = word_list(
    f"""
    {REDUCING_OPS} abs acos add addcdiv addcmul alias arange argmax argmin asin atan atan2 bitwise_and bitwise_not
    bitwise_or bitwise_xor cat ceil celu clamp clamp_max clamp_min clone constant_pad_nd convert_element_type copy cos
    cosh div elu elu_backward embedding eq erf exp exp2 expand expm1 fill floor floor_divide fmod full full_like ge
    gelu gelu_backward glu gt hardsigmoid hardswish hardswish_backward hardtanh hardtanh_backward index_select isinf
    isnan le leaky_relu leaky_relu_backward lerp log log10 log1p log2 logical_and logical_not logical_or logical_xor lt
    masked_fill maximum minimum mish mul ne neg new_zeros nll_loss_backward ones_like permute pow
    prepare_softmax_online reciprocal relu remainder round rsqrt select select_scatter sgn sigmoid sigmoid_backward
    sign silu silu_backward sin sinh slice slice_scatter softplus softplus_backward split sqrt squeeze stack sub t tan
    tanh tanh_backward threshold_backward transpose tril triu trunc unsqueeze view where zeros_like _fused_rms_norm
    _to_copy _unsafe_view
    """
)


# triton_<category>_fused_<ops>_<n>, triton_<category>__<n> without descriptive names, while autotuning triton_mm_<n>;
# AOTInductor puts the model's name in front and Triton 2 a signature (_0d1d2de) behind.
_FUSED: Final = Expression(
    r"(?:[A-Za-z]\w{0,80}?_)?triton_(?P<cat>poi|per|red|tem|for|spl|unk)_(?:fused(?P<ops>\w*?))?(?:_(?P<index>\d+))?"
    r"(?:_0[\dcde]*d[\dcde]*)?$"
)
_TEMPLATE: Final = Expression(
    r"triton_(?:tem_)?(?P<what>mm_plus_mm|mm|bmm|addmm|flex_attention(?:_backward)?|flex_decoding|convolution(?:[23]d)?|"
    r"scaled_mm|scaled_grouped_mm|grouped_mm)(?:_(?P<index>\d+))?$"
)
_ANONYMOUS: Final = Expression(r"triton_(?:_?\d[\dcde]*)?$")
_CPP: Final = Expression(r"(?:graph_\d+_)?cpp_(?:\w{0,80}?_)?fused(?P<ops>\w*?)(?:_(?P<index>\d+))?$")

# Known operator names with an underscore, the longest first: without them, tokens joined by "_" are ambiguous.
_KNOWN_OPS: Final = frozenset(KNOWN_OPS.split())
_LONGEST: Final = max(op.count("_") for op in _KNOWN_OPS) + 1
# C++ templates of the CPU: graph_0_gemm_m64n64k64_.., cpp_CppMicroGemmFP32Vec_..
_CPP_TEMPLATE: Final = Expression(r"(?:graph_\d+_)?(?:gemm_m\d+n\d+k\d+|cpp_CppMicroGemm)")


def fused_ops(text: str) -> tuple[str, ...]:
    """Return the operators of the ``_add_gelu`` part of an Inductor name, in its order.

    Known operators that hold an underscore are kept whole; an unknown word stands for itself.
    """
    words = text[1:].split("_")
    ops: list[str] = []
    at = 0
    while at < len(words):
        for length in range(min(_LONGEST, len(words) - at), 0, -1):
            candidate = "_".join(words[at : at + length])
            if length == 1 or candidate in _KNOWN_OPS:
                break
        ops.append(candidate)
        at += length
    return tuple(word for word in ops if word)


# A template computes the operator that it was made for; for the others the category decides, not the ops they name.
_GEMM_OPS: Final = frozenset(GEMM_OPS.split())
_ATTENTION_OPS: Final = frozenset({"flex_attention", "flex_attention_backward", "flex_decoding"})
_FAMILY_OF_CATEGORY: Final = {
    "poi": "pointwise",
    "for": "pointwise",
    "per": "reduction",
    "red": "reduction",
    "spl": "reduction",
}
_CUT_AT: Final = 100
"""The least number of characters that tools keep of a name."""
_ONE_BY_ONE: Final = frozenset({"pointwise", "copy", "index", "rng"})
_NO_COMMUNICATION: Final = frozenset({"communication"})
_REDUCING_OPS: Final = frozenset(REDUCING_OPS.split())


def family_of(category: str | None, ops: tuple[str, ...]) -> str | None:
    """Return the family of a generated kernel; None if neither its category nor its operators show it."""
    if category == "tem":
        named = frozenset(ops)
        if named & _ATTENTION_OPS:
            return "attention"
        if named & _GEMM_OPS:
            return "gemm"
        return "conv" if any(op.startswith("convolution") for op in ops) else None
    if category in (None, "unk") and _REDUCING_OPS.intersection(ops):
        return "reduction"
    return _family_of_loop(ops) if category is None else _FAMILY_OF_CATEGORY.get(category)


def _family_of_loop(ops: tuple[str, ...]) -> str | None:
    """Return the family of a C++ kernel that does not reduce, a loop, since templates have other names; else None."""
    working = [name for op in ops if operator_work(name := f"aten::{op}") is not OperatorWork.NOTHING]
    families = {operator.family if (operator := decode_operator(parse(name))) else None for name in working}
    return "pointwise" if ops and families <= _ONE_BY_ONE else None


def _generated(category: str | None, ops: tuple[str, ...], index: str | None, stem: str) -> KernelName:
    # Every generated name ends in a number: a name that was cut may lack the operator for which a template was made.
    is_cut = category == "tem" and index is None and len(stem) >= _CUT_AT
    family = None if is_cut else family_of(category, ops)
    return KernelName(
        family=family,
        never=_NO_COMMUNICATION if category else NO_PRODUCT,
        library="triton" if category else "other",
        triton=category,
        triton_ops=ops,
        triton_index=int(index[:9]) if index else None,
        stem=stem,
    )


def decode(text: Text) -> KernelName | None:
    """Return the decoded name of a kernel that Inductor generated; None for any other."""
    if text.args:
        return None
    if "triton_" in text.base:
        return _decode_triton(text)
    if "cpp_" in text.base and (match := _CPP.match(text.head)):
        return _generated(None, fused_ops(match["ops"][:1200]), match["index"], text.head)
    if ("gemm_m" in text.base or "CppMicroGemm" in text.base) and _CPP_TEMPLATE.match(text.head):
        return KernelName(family="gemm", stem=text.head)
    return None


def _decode_triton(text: Text) -> KernelName | None:
    if match := _FUSED.match(text.head):
        return _generated(match["cat"], fused_ops((match["ops"] or "")[:1200]), match["index"], text.head)
    if match := _TEMPLATE.match(text.head):
        return _generated("tem", (match["what"],), match["index"], text.head)
    # With unique_kernel_names off every Inductor kernel is called triton_, so its category is unknown.
    return (
        KernelName(never=_NO_COMMUNICATION, library="triton", triton="unk", stem=text.head)
        if _ANONYMOUS.match(text.head)
        else None
    )
