"""MIOpen: assembler and winograd convolutions, tensor helpers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pytest_torchprof.kernels.names.kernelname import LAYOUT_CONVERSION, KernelName
from pytest_torchprof.kernels.names.text import numbers, word_table
from pytest_torchprof.text.expressions import Expression

if TYPE_CHECKING:
    from pytest_torchprof.kernels.names.text import Text

_IGEMM: Final = Expression(
    r"igemm_(?P<kind>fwd|bwd|wrw|upsampling_clear)(?:_gtc(?P<xdl>x?\d?|m\d?|n\d?))?\w*?_(?P<lay>nhwc|nchw|nchwc|kcyx\w*|cyxkn?)"
    r"(?:_(?P<dt>fp32|fp16|bf16|int8|int4))?"
)
_TILE: Final = Expression(r"_bt(?P<tile>\d+x\d+x\d+)")
_TYPES: Final = {"fp32": "fp32", "fp16": "fp16", "bf16": "bf16", "int8": "int8"}

# Start of the function's name -> family.
_STARTS: Final = word_table(
    """
    conv: miopenSp3AsmConv miopenGcnAsmConv miopenGcnAsmWinograd miopenConv miopenWinograd MIOpenConv MIOpenCvFwd
    conv: MIOpenCvBwd MIOpenGroupConv MIOpenIm2Col MIOpenIm2d2Col Im2d2Col Im2Col Im3d2Col Col2Im2d Col2Im3d
    conv: gcnAsmConv gridwise_convolution naive_conv_ transpose_NCHW2CNHW transpose_CNHW2NCHW transpose_packed_MN2NM
    normalization: MIOpenBatchNorm MIOpenBnFwd MIOpenBnBwd MIOpenLayerNorm LayernormFwd MIOpenLRN
    softmax: MIOpenSoftmax SoftmaxForward
    reduction: mloPooling MIOpenReduce
    pointwise: MIOpenNeuron MIOpenActive
    rng: MIOpenDropout
    pointwise: SubTensorOpWithScalar
    copy: SubTensorOpWithSubTensor SubTensorOpWithCast
    pointwise: SubTensorOpWithTransform Op1dTensor Op2dTensor Op3dTensor Op4dTensor Op5dTensor OpTensor
    copy: batched_transpose_ general_3d_reorder
    conv: wrw_reduction_hip
    """
)

_BEGINNINGS: Final = tuple(start for start, _ in _STARTS)
_CONVERSIONS: Final = ("batched_transpose", "transpose_", "general_3d")


def decode(text: Text) -> KernelName | None:
    """Return the decoded name of a MIOpen kernel; None for any other."""
    base = text.base
    if base.startswith("igemm_"):
        match = _IGEMM.match(base)
        tile = _TILE.search(text.head)
        return KernelName(
            family="conv",
            library="miopen",
            dtype=_TYPES.get(match["dt"] or "") if match else None,
            tensor_core=True if match and (match["xdl"] or "").startswith("x") else None,
            tile=numbers(tile["tile"]) if tile else None,
            stem=(match[0] if match else base) + (f" {tile['tile']}" if tile else ""),
        )
    if base.startswith(_BEGINNINGS):
        family = next(family for start, family in _STARTS if base.startswith(start))
        helper = LAYOUT_CONVERSION if base.startswith(_CONVERSIONS) else None
        return KernelName(family=family, library="miopen", helper=helper, stem=base)
    if text.last.startswith(("MIOpen", "miopen")) or "miopen" in base:
        # Its name shows only the library from which it comes.
        convolves = "conv" if "onv" in base else None
        return KernelName(family=convolves, never=frozenset({"communication"}), library="miopen", stem=base)
    return None
