"""Kernels of serving and training libraries: vLLM, SGLang, FlashInfer, TensorRT-LLM, TE, apex, fbgemm, bitsandbytes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pytest_torchprof.kernels.names.kernelname import PRODUCTS, KernelName
from pytest_torchprof.kernels.names.text import first_dtype, looked_up, mangled_dtype, word_table
from pytest_torchprof.kernels.names.words import end_of, names_product

if TYPE_CHECKING:
    from pytest_torchprof.kernels.names.text import Text

# A word in the function's qualified name, lower case -> family; the first that occurs. These libraries name their
# kernels by what they do, so one table serves all of them; of a name without such a word nothing is known.
_WORDS: Final = word_table(
    """
    softmax: softmax
    normalization: rmsnorm rms_norm layernorm layer_norm batchnorm batch_norm groupnorm group_norm qknorm qk_norm
    normalization: ln_fwd ln_bwd cuapplylayernorm cucompute l2norm
    copy: reshape_and_cache store_kvcache store_kv_cache concat_and_cache appendpagedkv append_paged_kv kv_cache
    copy: kvcache copy_blocks swap_blocks copy_page transpose
    reduction: finalizemoerouting
    sort: expertmap topk top_k sorting sort_ radix moe_align nms_kernel routing
    rng: sampling dropout
    pointwise: rotary rope_
    index: embedding_codegen embedding_backward split_embedding embedding bounds_check_indices linearize_index
    index: bucketize
    copy: permutation
    index: permute gather scatter indices index token_ids expandinputrows
    reduction: finalize moe_sum
    index: moe_unpermute roi_align
    pointwise: act_and_mul silu gelu swiglu geglu activation quant
    reduction: amax
    pointwise: clamp
    copy: cast_ _cast
    pointwise: add_bias bias_ elementwise pointwise
    copy: memcpy copy
    pointwise: fill_kernel fillbuffer unary_kernel
    copy: padding
    conv: causal_conv1d
    pointwise: memset
    reduction: reduce prefixsum prefix_sum cumsum
    """
)


def decode(text: Text) -> KernelName | None:
    """Return the decoded name of a library kernel by the words in it, None where none is known."""
    family = looked_up(end_of(text), _WORDS)
    if family is None:
        return None
    if family not in PRODUCTS and names_product(text):
        return KernelName(by_word=True, stem=text.last)
    dtype = mangled_dtype(text.args) if text.mangled else first_dtype(text.args, 2)
    return KernelName(family=family, by_word=True, dtype=dtype, stem=text.last)
