"""CUTLASS GEMMs: the 2.x and 3.x names of cuBLAS, and instantiated templates of the library itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pytest_torchprof.kernels.names.gemms import TILES_OF_FP8
from pytest_torchprof.kernels.names.kernelname import KernelName
from pytest_torchprof.kernels.names.text import common_dtype, dtype_of, numbers
from pytest_torchprof.text.expressions import Expression

if TYPE_CHECKING:
    import re

    from pytest_torchprof.kernels.names.text import Text

_V2: Final = Expression(
    r"cutlass_(?:(?P<arch>\d+)_)?(?P<op>wmma_tensorop|tensorop|wmma|simt)_(?P<types>(?:(?:bf16|f16|tf32|s8|u8|s4|f32|d|z|c|h|i32)_)?"
    r"(?P<mma>[a-z]{0,3}\d{0,7})(?P<math>tf32|bf16|f16|fastf32)?)gemm(?P<epi>(?:_[a-z][a-z0-9]*)*?)"
    r"_(?P<tile>\d+x\d+)(?:_(?P<tk>\d+)x(?P<stages>\d+))?_(?P<lay>[nt]{2})(?:_unity_stride)?_align(?P<align>\d+)"
)
_V3: Final = Expression(
    r"cutlass3x_(?P<arch>sm\d+a?)_(?P<op>(?:bs)?(?:sp)?tensorop|simt)_(?P<mma>[a-z]{0,2}\d*(?:x\d+x\d+)?)(?:sp|tf32|bf16|f16)?gemm(?:_grouped)?"
    r"_(?:block_scaled_|blockwise_|ptr_array_)?(?P<types>[a-z0-9]+(?:_[a-z0-9]+){1,6}?)"
    r"_(?P<tile>\d+x\d+x\d+)_(?:(?P<cluster>\d+x\d+x\d+)_)?(?P<stages>\d+)_(?P<lay>[nt]{2})[nt]?_align(?P<align>\d+)(?P<rest>\w*)"
)
_V3_TYPES: Final = (
    ("bf16", "bf16"),
    ("f16", "fp16"),
    ("tf32", "tf32"),
    ("e4m3", "fp8"),
    ("e5m2", "fp8"),
    ("f8", "fp8"),
    ("f4", "fp4"),
    ("e2m1", "fp4"),
    ("s8", "int8"),
    ("f64", "fp64"),
    ("d", "fp64"),
)
_WRAPPERS: Final = ("cutlass::Kernel", "cutlass::device_kernel", "cutlass::Kernel2", "cutlass__5x_cublas::Kernel")
_ELEMENT: Final = Expression(
    r"[<( ](cutlass::(?:bfloat16_t|half_t|tfloat32_t|float_e[45]m[23]_t|float_e2m1_t|"
    r"complex<float>)|float|double|signed char|int8_t)(?=[,> ])"
)
_MAINLOOP: Final = Expression(r"Collective(?:Mma|Builder)<|Mma(?:Multistage|Pipelined|SingleStage)<|DefaultMma")


def _v2_dtype(match: re.Match[str]) -> str | None:
    """Return the operand dtype of a 2.x name; a tensor core at f32 without bf16 or f16 is tf32 (sm80 and newer)."""
    words = {*match["types"].split("_"), *match["epi"].split("_")}
    mma = match["mma"]
    if "tf32" in words or match["math"] == "tf32":
        return "tf32"
    if match["math"]:
        return None
    named = [dtype for word, dtype in (("bf16", "bf16"), ("f16", "fp16"), ("s8", "int8")) if word in words]
    if named:
        return common_dtype(named)
    letters = mma.rstrip("0123456789")
    if match["op"] == "simt":
        return {"s": "fp32", "h": "fp16", "d": "fp64", "c": "complex64"}.get(letters)
    if mma == "s1688" and int(match["arch"] or 0) >= 80:
        return "tf32"
    return {"h": "fp16", "d": "fp64", "c": "complex64", "gc": "complex64"}.get(letters)


def _decode_v2(match: re.Match[str]) -> KernelName:
    tile = numbers(match["tile"])
    epilogue = match["epi"].split("_")
    return KernelName(
        family="gemm",
        library="cutlass",
        dtype=_v2_dtype(match),
        layout=match["lay"],
        tensor_core=match["op"] != "simt",
        tile=(*tile, int(match["tk"])) if match["tk"] else tile,
        stages=int(match["stages"]) if match["stages"] else None,
        epilogue=tuple(word for word in ("relu", "bias", "gelu") if word in epilogue),
        arch=f"sm{match['arch']}" if match["arch"] else None,
        alignment=int(match["align"]),
        stem=f"cutlass_{match['types']}gemm_{match['tile']}",
    )


def _v3_dtype(match: re.Match[str]) -> str | None:
    """Return the operand dtype of a 3.x name (types are A_B_acc_C_D); f32 operands of a tensor core are tf32."""
    pair = match["types"].split("_")[:2]
    if set(pair) == {"f32"}:
        return "tf32" if match["op"] != "simt" else "fp32"
    return common_dtype(next((dtype for code, dtype in _V3_TYPES if word.endswith(code)), None) for word in pair)


def _decode_v3(match: re.Match[str]) -> KernelName:
    cluster = match["cluster"]
    stages = int(match["stages"])
    rest = match["rest"].split("_")
    return KernelName(
        family="gemm",
        library="cutlass",
        dtype=_v3_dtype(match),
        layout=match["lay"],
        tensor_core=match["op"] != "simt",
        tile=numbers(match["tile"]),
        stages=stages or None,
        cluster=numbers(cluster) if cluster else None,
        split_k=True if "splitK" in rest or "streamk" in rest else None,
        epilogue=tuple(word for word in ("relu", "bias", "gelu") if word in rest),
        arch=match["arch"],
        alignment=int(match["align"]),
        stem=f"cutlass3x_{match['types'].split('_')[0]}_{match['tile']}",
    )


def _decode_template(text: Text) -> KernelName | None:
    """Return the decoded name of a kernel template: a GEMM if it holds one, with a type if A and B have the same."""
    args = text.args
    if "::conv::" in args or "Conv2d" in args or "ImplicitGemmConvolution" in args:
        return KernelName(family="conv", library="cutlass", stem=text.last)
    if "gemm" not in args and "Gemm" not in args:
        return None
    start = _MAINLOOP.search(args)
    elements = [dtype_of(match[1]) for match in _ELEMENT.finditer(args, start.end() if start else 0)][:2]
    dtype = common_dtype(elements) if len(elements) == 2 else "fp8" if TILES_OF_FP8.search(args) else None
    simt = "OpClassSimt" in args or "MmaSimt" in args
    if dtype == "fp32" and not simt:
        dtype = None
    return KernelName(
        family="gemm",
        library="cutlass",
        dtype=dtype,
        tensor_core=False
        if simt
        else (True if "OpClassTensorOp" in args or "Gmma" in args or "Umma" in args else None),
        stem=text.last,
    )


# CuTe DSL: kernel_cutlass_<module and class run together>_<arguments>.
_CUTE: Final = (
    ("Attention", "attention"),
    ("attention", "attention"),
    ("rmsnorm", "normalization"),
    ("norm", "normalization"),
    ("softmax", "softmax"),
    ("conv_", "conv"),
    ("gemm", "gemm"),
    ("grouped_mm", "gemm"),
    ("topk", "sort"),
    ("elementwise", "pointwise"),
    ("convert", "copy"),
    ("transpose", "copy"),
    ("cross_entropy", "reduction"),
    ("quant", "pointwise"),
    ("reduc", "reduction"),
)


def _decode_cute(base: str) -> KernelName:
    where = base[:160].lower()
    family = next((family for word, family in _CUTE if word.lower() in where), None)
    return KernelName(family=family, library="cutlass", stem=base.removeprefix("kernel_cutlass_"))


def decode(text: Text) -> KernelName | None:
    """Return the decoded name of a CUTLASS GEMM; None for any other."""
    head = text.head
    if "cutlass" not in head[:200]:
        return None
    if text.base.startswith("kernel_cutlass_"):
        return _decode_cute(text.base)
    if match := _V2.search(head[:400]):
        return _decode_v2(match)
    if "cutlass3x_" in head[:200] and (match := _V3.search(head[:400])):
        return _decode_v3(match)
    if text.base.startswith(_WRAPPERS):
        return _decode_template(text)
    return None
