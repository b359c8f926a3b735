"""Kernels of serving and training libraries: vLLM, SGLang, FlashInfer, TensorRT-LLM, TE, apex, fbgemm, bitsandbytes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pytest_torchprof.kernels.names.kernelname import NO_PRODUCT, PRODUCTS, KernelName
from pytest_torchprof.kernels.names.text import first_element_type, first_meaning, word_table
from pytest_torchprof.kernels.names.words import end_of, function_of, names_product, serves_products
from pytest_torchprof.text.expressions import Expression

if TYPE_CHECKING:
    from pytest_torchprof.kernels.names.text import Text

# A word in the function's own name, lower case -> family; the first that occurs. These libraries name their kernels
# after their work, so one table serves all of them; a name without such a word shows nothing.
_WORDS: Final = word_table(
    """
    reduction: multi_tensor_l2norm moe_sum topk_sum topk_reduce reduce_dbias max_reduction data_to_scale
    rng: samplingfrom
    softmax: softmax
    normalization: rmsnorm rms_norm layernorm layer_norm batchnorm batch_norm groupnorm group_norm qknorm qk_norm
    normalization: ln_fwd ln_bwd cuapplylayernorm cucompute l2norm poly_norm norm_rope normrope
    copy: reshape_and_cache store_kvcache store_kv_cache concat_and_cache appendpagedkv append_paged_kv kv_cache
    copy: kvcache copy_blocks swap_blocks copy_page
    pointwise: zero_amax zeroamax
    copy: amaxmemcpy transpose repack prepack swizzle interleave reorder_tensor
    reduction: finalizemoerouting
    sort: expertmap topk top_k toppr sorting sort_ radix moe_align nms_kernel routing
    rng: sampling dropout
    pointwise: rotary rope_
    index: embedding_codegen embedding_backward split_embedding embedding bounds_check_indices linearize_index
    index: bucketize
    copy: permutation
    index: permute gather scatter indices index token_ids expandinputrows shuffleinputrows expand_to_fused
    reduction: finalize
    index: moe_unpermute roi_align
    pointwise: act_and_mul _and_mul gated_act silu gelu swiglu geglu activation quant
    reduction: amax
    pointwise: clamp
    copy: cast_ _cast
    pointwise: add_bias bias_ elementwise pointwise
    copy: memcpy copy
    pointwise: fill_kernel fillbuffer unary_kernel unary_grad
    copy: padding _pad_
    conv: causal_conv1d
    pointwise: memset
    reduction: reduce prefixsum prefix_sum cumsum max_pool avg_pool
    """
)
# Words that contain one of those above and mean something else.
_NOT: Final = Expression("prefill|pre_?transpose|non_?transpose|quantile|broadcast")
_RMS: Final = Expression("(?:^|_)(?:rms|norm_(?:fwd|bwd|forward|backward))(?:_|$)", words="rms norm_")


def _family_in(name: str) -> str | None:
    name = _NOT.compiled().sub("", name)
    return "normalization" if _RMS.search(name) else first_meaning(name, _WORDS)


def decode(text: Text) -> KernelName | None:
    """Return the decoded name of a library's kernel by the words in it; None if no word is known."""
    # The function's own name comes first: module::attention::gather_cache gathers.
    where = function_of(text)
    family = _family_in(where)
    if family is None:
        if serves_products(text):
            return KernelName(never=NO_PRODUCT, by_word=True, stem=text.last)
        where = end_of(text)
        family = _family_in(where)
    if family is None:
        return None
    if family not in PRODUCTS and names_product(where):
        return KernelName(by_word=True, stem=text.last)
    return KernelName(family=family, by_word=True, dtype=first_element_type(text), stem=text.last)
