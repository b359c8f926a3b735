"""ATen: elementwise kernels and their functors, reductions, softmax, normalization, index and copy kernels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pytest_torchprof.kernels.names.kernelname import FAMILIES, KernelName
from pytest_torchprof.kernels.names.text import (
    common_dtype,
    dtype_of,
    first_dtype,
    mangled_dtype,
    word_list,
    word_table,
)
from pytest_torchprof.text.expressions import Expression, contains

if TYPE_CHECKING:
    from pytest_torchprof.kernels.names.text import Text

# Kernels whose template argument, a functor, shows their work.
_ELEMENTWISE: Final = frozenset(
    word_list(
        """
        vectorized_elementwise_kernel vectorized_templated_elementwise_kernel unrolled_elementwise_kernel
        unrolled_elementwise_kernel_for_multi_outputs elementwise_kernel elementwise_kernel_manual_unroll
        elementwise_kernel_with_index legacy_elementwise_kernel
        """
    )
)  # Only their functor shows the work of these kernels; of a kernel of this name in another namespace nothing is known.
_TEMPLATES: Final = _ELEMENTWISE | {"reduce_kernel"}

# A word in the function's name -> family; the first that occurs. Copy before index before reduction.
_WORDS: Final = word_table(
    """
    index: CatArrayBatchedCopy
    softmax: softmax_warp SoftMax softmax host_softmax
    normalization: layer_norm LayerNorm GammaBeta GroupNorm group_norm RowwiseMoments ComputeFusedParams
    normalization: ComputeInternalGradients ComputeBackwardFusedParams ComputeGradOutputCoefficient
    normalization: Compute1dBackwardFusedParams RMSNorm rms_norm batch_norm batchnorm renorm weight_norm
    rng: distribution_elementwise distribution_nullary distribution_binary fused_dropout rrelu philox randperm
    rng: sampleMultinomial binomial_cuda poisson_cuda
    sort: gatherTopK sbtopk mbtopk bitonicSort radixSort gatherKthValue gatherMedian radixFindKthValues
    sort: computeBlockwiseWithinKCounts computeBlockwiseKthCounts computeDigitCumSum sort_postprocess
    sort: fill_reverse_indices fill_index_and_segment compute_mode searchsorted unique_ adjacent_difference
    index: FlattenIndex flatten_index write_indices indexSelect indexFunc index_elementwise_kernel indexing_backward
    index: index_ vectorized_gather scatter gather embedding Embedding EmbeddingBag krn_partial sum_and_scatter
    index: compute_grad_weight take_put put_kernel masked_scatter masked_select cub_adjacent
    copy: roll_cuda flip_kernel
    pointwise: triu_tril
    index: tril_indices triu_indices
    copy: reflection_pad replication_pad
    index: repeat_interleave compute_cuda_kernel
    reduction: reduce_kernel reduce_1d tensor_kernel_scan scan cumsum max_pool maxpool MaxPool avg_pool avgpool
    reduction: adaptive_average_pool adaptiveaveragepool adaptivemaxpool adaptiveaverage nll_loss ClassNLLCriterion
    reduction: ctc_loss MultiMargin MultiLabelMargin histogram bincount kernelHistogram
    pointwise: upsample grid_sampler interpolat gatedlinear glu_ prelu
    reduction: cdist lpnorm
    copy: chunk_cat
    gemm: tinygemm
    conv: im2col col2im vol2col col2vol conv_depthwise depthwise slow_conv
    pointwise: transform_bias_rescale_qkv transformer
    copy: padding remove_padding
    pointwise: amp_update_scale amp_non_finite lstm_cell gru_cell fill_kernel pointwise
    reduction: segment_reduce
    copy: copy transpose Copy
    pointwise: arange linspace
    copy: channel_shuffle pixel_shuffle
    pointwise: elementwise
    rng: bernoulli
    reduction: reduc
    index: LookupTable
    sort: sort Sort topk
    rng: dropout random
    reduction: loss pool
    normalization: norm
    pointwise: Pointwise
    """
)

_FUNCTOR_COPY: Final = (
    "direct_copy_kernel",
    "copy_kernel_cuda",
    "copy_device_to_device",
    "_copy_kernel",
    "CopyFunctor",
)
_FUNCTOR_RNG: Final = (
    "bernoulli",
    "random_",
    "normal_kernel",
    "uniform_kernel",
    "exponential_kernel",
    "geometric_kernel",
)
# Kernels that are pointwise with any functor.
_SURE: Final = ("Functor<", "Compare", "BinaryFunctor")
# A functor's name as people say it: CUDAFunctor_add -> add, MulFunctor -> mul, GeluCUDAKernelImpl -> gelu.
_FUNCTOR: Final = Expression(
    r"(?:::|<|, |^)(?P<name>[A-Za-z_]\w*?)(?:Functor|_kernel_cuda|_kernel_impl|CUDAKernelImpl|_kernel|KernelImpl|"
    r"_cuda_out|_scalar)(?=[<(_,:> ]|\w)"
)
_CUDA_FUNCTOR: Final = Expression(r"CUDAFunctor(?:OnSelf|OnOther)?_(?P<name>[a-z]+)", words="CUDAFunctor")
_REDUCTION: Final = Expression(r"\b(\w{1,60}?)(?:_functor|Ops|Functor|_kernel_cuda)[<(]")
_REDUCED: Final = Expression(r"ReduceOp<([\w:]+),")
_WRAPPING: Final = frozenset({"aunary", "bunary", "binary", "compareeq", "gpu", "gpu_index", "elementwise", "compare"})
_LAMBDA: Final = Expression(r"lambda\(([^()]{1,120})\)")
_SAME: Final = Expression(r"(?:\d+, )?(?:\w+::){0,4}\w*Functor\w*<(?P<types>[\w:, ]{1,100})[<>]", words="Functor")
# A kernel that ATen compiles at run time with NVRTC: reduction_prod_kernel
# (aten/src/ATen/native/cuda/reduction_template.cuh).
_JITERATED: Final = Expression(r"reduction_(?P<name>[a-z]+)_kernel$")
_LIBRARY_SPACES: Final = ("at::", "c10::")
# A template takes one element at a time, and is of none of these families, even if its functor is cut off.
_NOT_ELEMENTWISE: Final = frozenset(FAMILIES) - {"pointwise", "copy", "index", "rng"}


def _functor(text: Text) -> str:
    """Return the functor's part of an elementwise kernel's template arguments."""
    args = text.args[:700]
    for mark in ("gpu_kernel_impl_nocast<", "gpu_kernel_impl<", "gpu_index_kernel<"):
        at = args.find(mark)
        if 0 <= at < 60:
            return args[at + len(mark) :]
    return args[1:]


def _functor_word(functor: str) -> str:
    """Return a functor's name as a person would say it; empty if it has none."""
    if match := _CUDA_FUNCTOR.search(functor[:200]):
        return match["name"]
    for match in _FUNCTOR.finditer(functor[:400]):
        name = match["name"].lower().strip("_").removeprefix("launch_").removesuffix("_cuda").removesuffix("_tensor")
        name = name.removesuffix("scalar").rstrip("_")
        if name and name not in _WRAPPING:
            return name
    return "compare" if "Compare" in functor[:200] else ""


def _functor_dtype(functor: str, text: Text) -> str | None:
    """Return the operand type of a functor; None if the kernel casts, so that memory may hold another type."""
    if text.mangled or "gpu_kernel_impl<" in text.args[:60] or "WithCast" in text.args[:1600]:
        return None
    if match := _SAME.match(functor):
        return common_dtype(dtype_of(word) for word in match["types"].split(",")[:2] if word.strip() != "bool")
    # The last lambda that takes an operand is the functor's; the lambdas around it take none, and the one after it
    # takes an index.
    for types in reversed(_LAMBDA.findall(functor[:600])):
        kinds = {dtype_of(word) for word in types.split(",") if word.strip() not in ("bool", "long", "int")}
        if kinds and None not in kinds:
            return common_dtype(kinds)
    return None


def _decode_elementwise(text: Text) -> KernelName:
    if not text.args:
        return KernelName(never=_NOT_ELEMENTWISE, library="aten", tensor_core=False, stem=text.last)
    functor = _functor(text)
    where = functor[:300]
    if contains(where, _FUNCTOR_COPY):
        return KernelName(family="copy", library="aten", tensor_core=False, stem=_functor_word(functor) or "copy")
    word = _functor_word(functor)
    if text.is_cut and not word and not contains(where, _SURE):
        return KernelName(never=_NOT_ELEMENTWISE, library="aten", tensor_core=False, stem=text.last)
    family = "normalization" if "batch_norm_" in where else "rng" if contains(where, _FUNCTOR_RNG) else "pointwise"
    return KernelName(
        family=family,
        library="aten",
        dtype=_functor_dtype(functor, text),
        tensor_core=False,
        stem=word or text.last,
    )


def _reduction_word(text: Text) -> str:
    match = _REDUCTION.search(text.args[:400])
    return f"{match[1].lower()}" if match else text.last


def _dtype(text: Text, family: str) -> str | None:
    """Return the operand type: the first template argument that is one."""
    if text.mangled:
        return mangled_dtype(text.args.partition("ReduceOpI")[2] if text.last == "reduce_kernel" else text.args)
    if family == "reduction" and text.last == "reduce_kernel":
        match = _REDUCED.search(text.args[:200])
        return dtype_of(match[1]) if match else None
    return first_dtype(text.args, 2)


def decode(text: Text) -> KernelName | None:
    """Return the decoded name of one of ATen's own kernels; None for any other."""
    base = text.base
    last = text.last
    is_own = base.startswith(_LIBRARY_SPACES)
    if "::" in base and not is_own:
        return KernelName(by_word=True, stem=last) if last in _TEMPLATES else None
    if last in _ELEMENTWISE:
        return _decode_elementwise(text)
    if base.startswith("reduction_") and not text.args and (match := _JITERATED.match(base)):
        return KernelName(family="reduction", library="aten", tensor_core=False, stem=match["name"])
    return _decode_function(text) if is_own or last in _BARE or last.startswith(_BARE_STARTS) else None


def _decode_function(text: Text) -> KernelName:
    base, last = text.base, text.last
    if "softmax_warp" not in last and base.startswith("at::cuda::") and "spin_kernel" in last:
        return KernelName(family="other", library="aten", stem=last, helper="spin")
    for word, family in _WORDS:
        if word in base:
            stem = _reduction_word(text) if last == "reduce_kernel" else last
            return KernelName(family=family, library="aten", dtype=_dtype(text, family), tensor_core=False, stem=stem)
    return KernelName(never=frozenset({"communication"}), library="aten", stem=last)


# ATen's kernels outside its namespaces (in an anonymous namespace at the top level, or in old code).
_BARE: Final = frozenset(
    word_list(
        """
        indexing_backward_kernel indexing_backward_kernel_small_stride cunn_ClassNLLCriterion_updateOutput_kernel
        cunn_ClassNLLCriterion_updateOutput_kernel_1d cunn_ClassNLLCriterion_updateGradInput_kernel softmax_warp_forward
        softmax_warp_backward reduce_kernel CatArrayBatchedCopy gatherTopK bitonicSortKVInPlace max_pool_forward_nchw
        max_pool_backward_nchw upsample_bilinear2d_out_frame kernelPointwiseApply1 kernelPointwiseApply2
        kernelPointwiseApply3 kernelHistogram1D fused_dropout_kernel fused_dropout_kernel_vec masked_scale_kernel
        krn_partials_per_segment krn_partial_segment_offset compute_grad_weight compute_grad_weight_bags sum_and_scatter
        fill_reverse_indices_kernel fill_index_and_segment_kernel batch_norm_transform_input_kernel
        """
    )
)
_BARE_STARTS: Final = word_list(
    "cunn_ cuda_scatter_gather CatArrayBatchedCopy indexSelect GammaBeta LayerNorm batch_norm_ vectorized_layer_norm"
)
