"""cuDNN: convolutions of every generation, batch norm, layout conversions around them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pytest_torchprof.kernels.names.kernelname import (
    CONVOLUTION_OFFSETS,
    CONVOLUTION_WORKSPACE,
    LAYOUT_CONVERSION,
    NEVER_AMONG_SEVERAL,
    KernelName,
    split_k_sum,
)
from pytest_torchprof.kernels.names.text import (
    ARCHITECTURES,
    XMMA_SUM,
    common_dtype,
    dtype_of,
    first_dtype,
    first_meaning,
    leading_types,
    mangled_dtypes,
    numbers,
    word_table,
    xmma_dtype,
)
from pytest_torchprof.text.expressions import Expression, contains

if TYPE_CHECKING:
    import re

    from pytest_torchprof.kernels.names.text import Text

_XMMA: Final = Expression(
    r"(?P<arch>sm\d+)_xmma_(?P<kind>(?:fprop|dgrad|wgrad)\w*?)_(?P<a>[a-z]+\d*[a-z0-9]*)_(?P<acc>[a-z]+\d*[a-z0-9]*)_(?P<out>[a-z]+\d+[a-z0-9]*)"
    r"_(?P<lay>n[a-z]+_n[a-z]+)_tilesize(?P<tile>\d+x\d+x\d+)(?:_stage(?P<stages>\d+))?"
)
_XMMA_KINDS: Final = (
    "xmma_fprop",
    "xmma_dgrad",
    "xmma_wgrad",
    "xmma_conv",
    "xmma_implicit",
    "xmma_warp_specialized_implicit",
)
# volta_scudnn_.., volta_fp16_s884cudnn_fp16_.., after a prefix that depends on cuDNN's version.
_LEGACY: Final = Expression(
    r"(?:_\d+x_cudnn_|cudnn_(?:infer_|train_)?)?(?P<arch>volta|turing|ampere|maxwell|pascal|hopper)_(?:(?P<io>fp16|bf16|fp32|int8|h)_)?"
    r"(?P<mma>s|h|i|s884|h884|s1688|h1688|s16816|h16816|i8816)cudnn_(?:(?P<out>fp16|bf16|fp32|int8)_)?"
    r"(?:(?P<wino>winograd)_)?(?P<tile>\d+x\d+)?"
)
_CUTLASS: Final = Expression(
    r"cutlass(?:_(?P<arch>\d+))?_(?P<op>wmma_tensorop|tensorop|simt)_(?:(?P<in>bf16|f16|tf32|s8|d|f32)_)?(?P<mma>[a-z]{0,2}\d*)"
    r"(?P<kind>fprop|dgrad|wgrad)\w*?_(?P<tile>\d+x\d+)_(?P<tk>\d+)x(?P<stages>\d+)_\w*?(?:align(?P<align>\d+))?(?=[>:(]|$)",
    words="fprop dgrad wgrad",
)
_CUTLASS3: Final = Expression(
    r"cutlass3x_(?P<arch>sm\d+)_(?P<op>tensorop|simt)_\w*?(?P<kind>fprop|dgrad|wgrad)\w*?_(?P<a>[a-z]+\d\w*?)"
    r"_(?P<b>[a-z]+\d\w*?)_"
)

# A template with all its arguments, mangled: cutlass_cudnn::Kernel<conv::kernel::ImplicitGemmConvolution<..>>.
_IMPLICIT: Final = Expression(r"ImplicitGemmConvolution|Conv[123]d(?:Fprop|Dgrad|Wgrad)")
_OPERAND: Final = Expression(
    r"TileAccessIterator\w*?MatrixShapeILi\d+ELi\d+EEE"
    r"(?:f|d|N\w{1,3}_\d{1,2}(?P<type>half_t|bfloat16_t|tfloat32_t|float_e[45]m[23]_t))"
)

# Family: words in the function's name; the first that occurs decides. The last lines are names of cuDNN 7 and 8.
_WORDS: Final = word_table(
    """
    conv: implicit_convolve explicit_convolve precomputed_convolve convolve_common_engine xmma_cudnn:: conv2d_c1
    conv: winograd Winograd fft2d_ fft1d_ flip_filter wgrad_alg wgrad2d_ dgrad2d_ dgrad_engine dgrad_alg wgrad_engine
    conv: conv2d_grouped_direct dgrad2d_grouped_direct depthwise_fprop depthwise_bprop cask_cudnn _cudnn::xmma
    conv: nchwToNhwc nchwAddPadding nhwcAddPadding
    conv: nhwcToNchw nchwToFoldedNhwc nhwcToFoldedNhwc foldedNhwcToNhwc foldedNhwcToNchw ncdhwToNdhwc ndhwcToNcdhw
    conv: kern_precompute_indices
    pointwise: op_generic_tensor op_tensor_kernel add_tensor_kernel scalePackedTensor
    copy: convertTensor_kernel
    reduction: pooling_fw_4d pooling_bw_
    pointwise: elemWiseRNNcell LSTM_elementWise GRU_elementWise GENERIC_elementWise persistRNN_addBias
    """
)
_CONVERSIONS: Final = (
    *("nchwTo", "nhwcTo", "foldedNhwc", "ncdhwTo", "ndhwcTo", "Nchw", "Nhwc"),
    *("nchwAddPadding", "nhwcAddPadding"),
)
_OPS_WORDS: Final = word_table(
    """
    pointwise: scalePackedTensor scaleTensor
    copy: convertTensor transformTensor copyTensor
    pointwise: setTensor opTensor op_tensor add_tensor addTensor activation
    softmax: softmax
    reduction: pooling
    rng: dropout
    reduction: reduceTensor reduced_
    normalization: lrn
    """
)
# If no other word decides: the part of cuDNN that contains a convolution, and the parts of a convolution.
_CONVOLVING: Final = word_table("conv: cudnn::cnn:: conv wgrad dgrad fprop im2col col2im gemm fft engine filter")
_NO_COMMUNICATION: Final = frozenset({"communication"})


def _decode_xmma(match: re.Match[str]) -> KernelName:
    name = match.string
    if XMMA_SUM in name:
        return split_k_sum("cudnn", match["arch"])
    dtype = xmma_dtype(match["a"], match["acc"])
    tensor = None if not dtype else "ffma" not in name and dtype not in ("fp32", "fp64")
    tile = numbers(match["tile"])
    return KernelName(
        family="conv",
        library="cudnn",
        dtype=dtype,
        tensor_core=tensor,
        tile=tile,
        stages=int(match["stages"]) if match["stages"] else None,
        arch=match["arch"],
        stem=f"xmma_{match['kind'].split('_')[0]}_{match['tile']}",
    )


def _decode_legacy(match: re.Match[str]) -> KernelName:
    words = {match["io"], match["out"]}
    mma = match["mma"]
    dtype: str | None
    if words & {"bf16"}:
        dtype = "bf16"
    elif words & {"fp16", "h"} or mma.startswith("h"):
        dtype = "fp16"
    elif words & {"int8"} or mma.startswith("i"):
        dtype = "int8"
    else:
        dtype = "fp32" if mma == "s" else None
    return KernelName(
        family="conv",
        library="cudnn",
        dtype=dtype,
        tensor_core=len(mma) > 1,
        tile=numbers(match["tile"]) if match["tile"] else None,
        split_k="splitK" in match.string or None,
        epilogue=("relu",) if "_relu_" in match.string else (),
        arch=ARCHITECTURES.get(match["arch"]),
        stem=match[0].rstrip("_"),
    )


def _decode_cutlass(match: re.Match[str]) -> KernelName:
    words = set(match[0].split("_"))
    mma = match["mma"]
    if "tf32" in words:
        dtype: str | None = "tf32"
    elif words & {"bf16", "f16", "s8"}:
        dtype = common_dtype(word for word in ("bf16", "f16", "s8") if word in words)
        dtype = {"f16": "fp16", "s8": "int8"}.get(dtype or "", dtype)
    elif match["op"] == "simt":
        dtype = {"s": "fp32", "h": "fp16", "d": "fp64"}.get(mma)
    else:
        dtype = "fp16" if mma.startswith("h") else None
    return KernelName(
        family="conv",
        library="cudnn",
        dtype=dtype,
        tensor_core=match["op"] != "simt",
        tile=(*numbers(match["tile"]), int(match["tk"])),
        stages=int(match["stages"]),
        arch=f"sm{match['arch']}" if match["arch"] else None,
        alignment=int(match["align"]) if match["align"] else None,
        stem=f"cutlass_{match['kind']}_{match['tile']}",
    )


def _template_dtype(text: Text) -> str | None:
    """Return the type on which the leading template arguments agree (``<float, float, ..>``); None if they differ.

    For batch normalization the first is the tensors' type, the second the type that it computes in.
    """
    first = 1 if "::bn_" in text.base else 2
    if text.mangled:
        return common_dtype(mangled_dtypes(text.args, first))
    if first == 1:
        return first_dtype(text.args, 1)
    types = [dtype_of(word) for word in leading_types(text.args, 2)]
    if len(types) == 2 and types[0] and types[1] and types[0] != types[1]:
        return None
    return first_dtype(text.args, 3)


def decode(text: Text) -> KernelName | None:
    """Return the decoded name of a cuDNN kernel other than attention; None for any other kernel."""
    base = text.base
    if "cutlass" in base or "cutlass" in text.args[:80]:
        return _decode_cutlass_name(text.head) or _decode_implicit(text)
    if "xmma_" in base and contains(base, _XMMA_KINDS):
        match = _XMMA.search(base)
        return _decode_xmma(match) if match else KernelName(family="conv", library="cudnn", stem=base)
    if "cudnn_" in base and (match := _LEGACY.match(base)):
        return _decode_legacy(match)
    if base.startswith("RNN_blockPersist_"):
        return _decode_recurrent(text)
    return _decode_words(text)


def _decode_cutlass_name(head: str) -> KernelName | None:
    if match := _CUTLASS.search(head[:300]):
        return _decode_cutlass(match)
    return _decode_cutlass3(head) if "grad" in head[:300] or "fprop" in head[:300] else None


def _decode_implicit(text: Text) -> KernelName | None:
    if not text.mangled or not _IMPLICIT.search(text.args[:600]):
        return None
    operand = _OPERAND.search(text.args)
    return KernelName(
        family="conv",
        library="cudnn" if "cudnn" in text.base else "cutlass",
        dtype=dtype_of(operand["type"] or "") if operand else None,
        tensor_core=True if "TensorOp" in text.args else False if "Simt" in text.args else None,
        stem=text.last,
    )


def _decode_recurrent(text: Text) -> KernelName:
    """Return the name of a layer's whole recurrence in one kernel: products with the hidden state, and the gates."""
    return KernelName(
        never=NEVER_AMONG_SEVERAL,
        library="cudnn",
        dtype=_template_dtype(text),
        tensor_core=True if "HMMA" in text.base else None,
        stem=text.last,
    )


def _decode_words(text: Text) -> KernelName | None:
    """Return the name as decoded by words of the function's name, which has no fields; None if it is not cuDNN's."""
    base = text.base
    family = None
    if base.startswith("cudnn::") and ("::bn_" in base or "layernorm" in base or "batchnorm" in base):
        family = "normalization"
    family = family or first_meaning(base, _WORDS)
    if family is None and base.startswith("cudnn::"):
        family = first_meaning(base, _OPS_WORDS) or first_meaning(base.replace("convert", ""), _CONVOLVING)
    if family is None and base.startswith("cudnn_generated_") and "conv" in base:
        family = "conv"
    if family is None and not base.startswith(("cudnn::", "cudnn_generated_")):
        return None
    return KernelName(
        family=family,
        never=frozenset() if family else _NO_COMMUNICATION,
        library="cudnn",
        dtype=_template_dtype(text),
        tensor_core=False if "sgemm" in base else None,
        helper=_helper(text),
        stem=text.last,
    )


def _helper(text: Text) -> str | None:
    if text.last.startswith(_CONVERSIONS):
        return LAYOUT_CONVERSION
    if text.last == "init_device_workspace_kernel":
        return CONVOLUTION_WORKSPACE
    return CONVOLUTION_OFFSETS if "Offsets" in text.base or "precompute_indices" in text.base else None


def _decode_cutlass3(head: str) -> KernelName | None:
    match = _CUTLASS3.search(head[:400])
    if not match:
        return None
    kinds = {"bf16": "bf16", "f16": "fp16", "tf32": "tf32", "e4m3": "fp8", "e5m2": "fp8", "s8": "int8"}
    dtype = common_dtype((kinds.get(match["a"]), kinds.get(match["b"])))
    return KernelName(
        family="conv",
        library="cudnn",
        dtype=dtype,
        tensor_core=match["op"] != "simt",
        arch=match["arch"],
        stem=f"cutlass3x_{match['kind']}",
    )
