"""MIOpen: assembler and winograd convolutions, tensor helpers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pytest_torchprof.kernels.names.kernelname import KernelName
from pytest_torchprof.kernels.names.text import Expression, numbers

if TYPE_CHECKING:
    from pytest_torchprof.kernels.names.text import Text

_IGEMM: Final = Expression(
    r"igemm_(?P<kind>fwd|bwd|wrw|upsampling_clear)(?:_gtc(?P<xdl>x?\d?|m\d?|n\d?))?\w*?_(?P<lay>nhwc|nchw|nchwc|kcyx\w*|cyxkn?)"
    r"(?:_(?P<dt>fp32|fp16|bf16|int8|int4))?"
)
_TILE: Final = Expression(r"_bt(?P<tile>\d+x\d+x\d+)")
_TYPES: Final = {"fp32": "fp32", "fp16": "fp16", "bf16": "bf16", "int8": "int8"}

# Start of the function's name -> family.
_STARTS: Final = (
    ("miopenSp3AsmConv", "conv"),
    ("miopenGcnAsmConv", "conv"),
    ("miopenGcnAsmWinograd", "conv"),
    ("miopenConv", "conv"),
    ("miopenWinograd", "conv"),
    ("MIOpenConv", "conv"),
    ("MIOpenCvFwd", "conv"),
    ("MIOpenCvBwd", "conv"),
    ("MIOpenGroupConv", "conv"),
    ("MIOpenIm2Col", "conv"),
    ("MIOpenIm2d2Col", "conv"),
    ("Im2d2Col", "conv"),
    ("Im2Col", "conv"),
    ("Im3d2Col", "conv"),
    ("Col2Im2d", "conv"),
    ("Col2Im3d", "conv"),
    ("gcnAsmConv", "conv"),
    ("gridwise_convolution", "conv"),
    ("naive_conv_", "conv"),
    ("transpose_NCHW2CNHW", "conv"),
    ("transpose_CNHW2NCHW", "conv"),
    ("transpose_packed_MN2NM", "conv"),
    ("MIOpenBatchNorm", "normalization"),
    ("MIOpenBnFwd", "normalization"),
    ("MIOpenBnBwd", "normalization"),
    ("MIOpenLayerNorm", "normalization"),
    ("LayernormFwd", "normalization"),
    ("MIOpenLRN", "normalization"),
    ("MIOpenSoftmax", "softmax"),
    ("SoftmaxForward", "softmax"),
    ("mloPooling", "reduction"),
    ("MIOpenReduce", "reduction"),
    ("MIOpenNeuron", "pointwise"),
    ("MIOpenActive", "pointwise"),
    ("MIOpenDropout", "rng"),
    ("SubTensorOpWithScalar", "pointwise"),
    ("SubTensorOpWithSubTensor", "copy"),
    ("SubTensorOpWithCast", "copy"),
    ("SubTensorOpWithTransform", "pointwise"),
    ("Op1dTensor", "pointwise"),
    ("Op2dTensor", "pointwise"),
    ("Op3dTensor", "pointwise"),
    ("Op4dTensor", "pointwise"),
    ("Op5dTensor", "pointwise"),
    ("OpTensor", "pointwise"),
    ("batched_transpose_", "copy"),
    ("general_3d_reorder", "copy"),
    ("wrw_reduction_hip", "conv"),
)

_BEGINNINGS: Final = tuple(start for start, _ in _STARTS)
_CONVERSIONS: Final = ("batched_transpose", "transpose_", "general_3d")


def decode(text: Text) -> KernelName | None:
    """Return the decoded name of a MIOpen kernel, None for any other."""
    base = text.base
    if base.startswith("igemm_"):
        found = _IGEMM.match(base)
        tile = _TILE.search(text.head)
        return KernelName(
            family="conv",
            library="miopen",
            dtype=_TYPES.get(found["dt"] or "") if found else None,
            tensor_core=True if found and (found["xdl"] or "").startswith("x") else None,
            tile=numbers(tile["tile"]) if tile else None,
            stem=(found[0] if found else base) + (f" {tile['tile']}" if tile else ""),
        )
    if base.startswith(_BEGINNINGS):
        family = next(family for start, family in _STARTS if base.startswith(start))
        helper = "layout conversion" if base.startswith(_CONVERSIONS) else None
        return KernelName(family=family, library="miopen", helper=helper, stem=base)
    if text.last.startswith(("MIOpen", "miopen")) or "miopen" in base:
        return KernelName(family="conv" if "onv" in base else "other", library="miopen", stem=base)
    return None
