"""Kernels of serving and training libraries: vLLM, SGLang, FlashInfer, TensorRT-LLM, TE, apex, fbgemm, bitsandbytes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pytest_torchprof.kernels.names.kernelname import KernelName
from pytest_torchprof.kernels.names.text import first_dtype, mangled_dtype

if TYPE_CHECKING:
    from pytest_torchprof.kernels.names.text import Text

# A word in the function's qualified name, lower case -> family; the first that occurs. These libraries name their
# kernels by what they do, so one table serves all of them; a name without such a word stays "other".
_WORDS: Final = (
    ("softmax", "softmax"),
    ("rmsnorm", "normalization"),
    ("rms_norm", "normalization"),
    ("layernorm", "normalization"),
    ("layer_norm", "normalization"),
    ("batchnorm", "normalization"),
    ("batch_norm", "normalization"),
    ("groupnorm", "normalization"),
    ("group_norm", "normalization"),
    ("qknorm", "normalization"),
    ("qk_norm", "normalization"),
    ("ln_fwd", "normalization"),
    ("ln_bwd", "normalization"),
    ("cuapplylayernorm", "normalization"),
    ("cucompute", "normalization"),
    ("l2norm", "normalization"),
    ("reshape_and_cache", "copy"),
    ("store_kvcache", "copy"),
    ("store_kv_cache", "copy"),
    ("concat_and_cache", "copy"),
    ("appendpagedkv", "copy"),
    ("append_paged_kv", "copy"),
    ("kv_cache", "copy"),
    ("kvcache", "copy"),
    ("copy_blocks", "copy"),
    ("swap_blocks", "copy"),
    ("copy_page", "copy"),
    ("transpose", "copy"),
    ("finalizemoerouting", "reduction"),
    ("expertmap", "sort"),
    ("topk", "sort"),
    ("top_k", "sort"),
    ("sorting", "sort"),
    ("sort_", "sort"),
    ("radix", "sort"),
    ("moe_align", "sort"),
    ("nms_kernel", "sort"),
    ("routing", "sort"),
    ("sampling", "rng"),
    ("dropout", "rng"),
    ("rotary", "pointwise"),
    ("rope_", "pointwise"),
    ("embedding_codegen", "index"),
    ("embedding_backward", "index"),
    ("split_embedding", "index"),
    ("embedding", "index"),
    ("bounds_check_indices", "index"),
    ("linearize_index", "index"),
    ("bucketize", "index"),
    ("permutation", "copy"),
    ("permute", "index"),
    ("gather", "index"),
    ("scatter", "index"),
    ("indices", "index"),
    ("index", "index"),
    ("token_ids", "index"),
    ("expandinputrows", "index"),
    ("finalize", "reduction"),
    ("moe_sum", "reduction"),
    ("moe_unpermute", "index"),
    ("roi_align", "index"),
    ("act_and_mul", "pointwise"),
    ("silu", "pointwise"),
    ("gelu", "pointwise"),
    ("swiglu", "pointwise"),
    ("geglu", "pointwise"),
    ("activation", "pointwise"),
    ("quant", "pointwise"),
    ("amax", "reduction"),
    ("clamp", "pointwise"),
    ("cast_", "copy"),
    ("_cast", "copy"),
    ("add_bias", "pointwise"),
    ("bias_", "pointwise"),
    ("elementwise", "pointwise"),
    ("pointwise", "pointwise"),
    ("memcpy", "copy"),
    ("copy", "copy"),
    ("fill_kernel", "pointwise"),
    ("fillbuffer", "pointwise"),
    ("unary_kernel", "pointwise"),
    ("padding", "copy"),
    ("causal_conv1d", "conv"),
    ("memset", "pointwise"),
    ("reduce", "reduction"),
    ("prefixsum", "reduction"),
    ("prefix_sum", "reduction"),
    ("cumsum", "reduction"),
)


def decode(text: Text) -> KernelName | None:
    """Return the decoded name of a library kernel by the words in it, None where none is known."""
    base = text.base[-96:].lower()  # what it does stands at the end
    for word, family in _WORDS:
        if word in base:
            dtype = mangled_dtype(text.args) if text.mangled else first_dtype(text.args, 2)
            return KernelName(family=family, dtype=dtype, stem=text.last)
    return None
