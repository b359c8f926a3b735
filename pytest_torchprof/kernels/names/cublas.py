"""cuBLAS and cuBLASLt: nvjet, xmma, the ampere_/volta_ names, gemv, and split-K reductions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pytest_torchprof.kernels.names.kernelname import SPLIT_K_REDUCE, KernelName, split_k_sum
from pytest_torchprof.kernels.names.text import (
    ARCHITECTURES,
    XMMA_SUM,
    common_dtype,
    dtype_of,
    first_dtype,
    leading_types,
    mangled_dtype,
    numbers,
    word_list,
    xmma_dtype,
)
from pytest_torchprof.text.expressions import Expression, contains

if TYPE_CHECKING:
    import re

    from pytest_torchprof.kernels.names.text import Text

# Hopper and B200: nvjet_tst_128x64_64x6_2x1_v_bz_bias_TNT; sm120: nvjet_sm120_tst_mma_64x64x128_3_32x32x128_.._TNNN.
_NVJET: Final = Expression(
    r"nvjet(?:_(?P<sm>sm\d+))?_(?P<dt>[a-z]{3,5})(?:_(?P<tf32>tf32))?(?:_mma)?_(?P<tile>\d+x\d+(?:x\d+)?)"
    r"(?:_(?P<tk>\d+)x(?P<stages>\d+)(?:_(?P<cluster>\d+x\d+)(?![\dx]))?|_(?P<depth>\d+)(?:_\d+x\d+x\d+)?)?"
    r"(?P<rest>(?:_[A-Za-z0-9]+)*?)(?:_(?P<lay>[NT]{2})[NT]{0,2})?$"
)
_NVJET_TYPES: Final = {
    "h": "fp16",
    "t": "bf16",
    "q": "fp8",
    "r": "fp8",
    "o": "fp4",
    "d": "fp64",
    "c": "complex64",
    "b": "int8",
}

_LEGACY: Final = Expression(
    r"(?P<arch>volta|turing|ampere|ada|hopper|maxwell|pascal)_(?:(?P<io>fp16|bf16|tf32|fp32|h|i8|int8|int32|fp64)_)?"
    r"(?P<mma>[a-z]{0,2}\d{3,6}|gc|[shdczi]|)gemm_(?:(?P<out>fp16|bf16|fp32|int8|int32|fp64)_)?"
    r"(?P<tile>\d+x\d+)(?P<mid>(?:_[A-Za-z0-9]+)*?)_(?P<lay>[nt]{2})(?P<tail>(?:_[a-z0-9]+)*)$",
    words="gemm_",
)
# cuBLAS up to 9: names from the days of Maxwell, without the architecture.
_OLDEST: Final = Expression(r"(?P<mma>[shdcz])gemm_(?P<tile>\d+x\d+)(?:x\d+)?_(?P<lay>[NT]{2})(?:_vec|_bias)*$")
_XMMA: Final = Expression(
    r"(?P<arch>sm\d+)_xmma_(?:sparse_)?gemm_(?P<a>[a-z0-9]+)_(?P<acc>[a-z0-9]+)_(?P<out>[a-z0-9]+)_(?P<lay>[nt]{2})_[nt]"
    r"_tilesize(?P<tile>\d+x\d+x\d+)(?:_stage(?P<stages>\d+))?(?:_warpgroupsize\d+x\d+x\d+)?(?:_cluster(?P<cluster>\d+x\d+x\d+))?"
)
_MMA_TYPES: Final = {"s": "fp32", "h": "fp16", "d": "fp64", "c": "complex64", "gc": "complex64"}
_WORD_TYPES: Final = {
    "bf16": "bf16",
    "fp16": "fp16",
    "h": "fp16",
    "tf32": "tf32",
    "int8": "int8",
    "i8": "int8",
    "fp64": "fp64",
}

_GEMV: Final = word_list(
    """
    gemv2T_kernel_val gemv2T_kernel gemv2N_kernel gemvNSP_kernel gemvNSP_kernel_val gemv1_kernel gemvx::kernel gemv_
    dot_kernel gemmSN_ gemmk1_kernel gemm_kernel1x1_core
    """
)
_LARGE_K: Final = Expression(r"(?P<mma>[shdcz])gemm_largek_", words="gemm_largek_")
_SMALL_LAYOUT: Final = Expression(r"gemmSN_(?P<lay>[NT]{2})_kernel")
_TENSOR: Final = Expression(r"cublasGemvTensor\w*<(?P<type>[\w:]+)(?P<const> const)?>")
_HELPERS: Final = {
    "splitKreduce_kernel": SPLIT_K_REDUCE,
    "reduce_1Block_kernel": "dot reduce",
    "scal_kernel": "beta scale",
    "scale_kernel": "beta scale",
}


def _nvjet_dtype(code: str, *, tf32: bool) -> str | None:
    """Return the operand dtype: three letters are (A = B) compute D, five are A B C compute D."""
    if tf32:
        return "tf32"
    letters = code[:2] if len(code) >= 5 else code[:1]
    return common_dtype(_NVJET_TYPES.get(letter) for letter in letters)


def _decode_nvjet(match: re.Match[str]) -> KernelName:
    rest = match["rest"].split("_")[1:]
    tile = numbers(match["tile"])
    cluster = match["cluster"]
    stages = match["stages"] or match["depth"]
    layout = match["lay"]
    return KernelName(
        family="gemm",
        library="cublas",
        dtype=_nvjet_dtype(match["dt"], tf32=bool(match["tf32"])),
        layout=layout.lower() if layout else None,
        tensor_core=True,
        tile=(*tile, int(match["tk"])) if match["tk"] else tile,
        stages=int(stages) if stages else None,
        cluster=numbers(cluster) if cluster else None,
        split_k="splitK" in rest or None,
        epilogue=tuple(word for word in ("bias", "relu", "gelu") if word in rest),
        arch=match["sm"],
        stem=f"nvjet_{match['dt']}{'_tf32' if match['tf32'] else ''}_{match['tile']}",
    )


def _decode_legacy(match: re.Match[str]) -> KernelName:
    mma = match["mma"]
    words = [word for word in (match["out"], match["io"]) if word in _WORD_TYPES]
    letters = mma.rstrip("0123456789")
    dtype: str | None
    if words:
        # ampere_int32_i16832gemm_int8_..: the type after gemm is the operands', the type before it the result's.
        dtype = _WORD_TYPES[words[0]]
    elif mma[-1:].isdigit():
        # An MMA shape alone does not distinguish bf16 from fp16 or tf32, but half-precision accumulation does.
        dtype = {"h": "fp16", "d": "fp64", "i": "int8"}.get(letters)
    else:
        dtype = _MMA_TYPES.get(letters)
    middle = match["mid"].split("_")
    stages = middle[middle.index("stages") + 1].partition("x") if "stages" in middle[:-1] else None
    tile = numbers(match["tile"])
    return KernelName(
        family="gemm",
        library="cublas",
        dtype=dtype,
        layout=match["lay"],
        tensor_core=mma[-1:].isdigit(),
        tile=(*tile, int(stages[0])) if stages and stages[0].isdigit() else tile,
        stages=int(stages[2]) if stages and stages[2].isdigit() else None,
        split_k=any(word.startswith("splitK") for word in middle) or None,
        epilogue=tuple(word for word in ("relu", "bias") if word in middle),
        arch=ARCHITECTURES[match["arch"]],
        stem=match.string[: match.end("tile")],
    )


def _decode_xmma(match: re.Match[str]) -> KernelName:
    name = match.string
    if XMMA_SUM in name:
        return split_k_sum("cublas", match["arch"])
    dtype = xmma_dtype(match["a"], match["acc"])
    return KernelName(
        family="gemm",
        library="cublas",
        dtype=dtype,
        layout=match["lay"],
        tensor_core="ffma" not in name and "_dfma" not in name and dtype != "fp32" if dtype else None,
        tile=numbers(match["tile"]),
        stages=int(match["stages"]) if match["stages"] else None,
        cluster=numbers(match["cluster"]) if match["cluster"] else None,
        split_k=True if "splitK" in name else None,
        epilogue=tuple(word for word in ("relu", "bias") if f"_{word}_" in name),
        arch=match["arch"],
        stem=f"{match['arch']}_xmma_{match['tile']}",
    )


def _vector_dtype(text: Text) -> str | None:
    """Return the operand type of a gemv, dot or small GEMM.

    It follows from a letter of the name, from the tensors if they are named (the const ones are read), or from the
    arguments.
    """
    if letter := _LARGE_K.match(text.last):
        return _MMA_TYPES.get(letter["mma"])
    if text.mangled:
        args = text.args.removeprefix("ii").removeprefix("i")
        return mangled_dtype(args)
    tensors = list(_TENSOR.finditer(text.args[:900]))
    read = [match for match in tensors if match["const"]]
    if tensors:
        return common_dtype(dtype_of(match["type"]) for match in read or tensors)
    types = [dtype_of(word) for word in leading_types(text.args, 6) if word not in ("int", "long")]
    return common_dtype(types[:2]) if len(types) > 1 else first_dtype(text.args)


def _decode_vector(text: Text) -> KernelName:
    layout = _SMALL_LAYOUT.search(text.base)
    return KernelName(
        family="gemm",
        library="cublas",
        dtype=_vector_dtype(text),
        layout=layout["lay"].lower() if layout else None,
        tensor_core=False,
        stem="gemvx::kernel" if text.base.endswith("gemvx::kernel") else text.last,
    )


def _decode_named(base: str) -> KernelName | None:
    if match := _LEGACY.match(base):
        return _decode_legacy(match)
    if "xmma_" in base and (match := _XMMA.search(base)):
        return _decode_xmma(match)
    if match := _OLDEST.match(base):
        return KernelName(
            family="gemm",
            library="cublas",
            dtype=_MMA_TYPES.get(match["mma"]),
            layout=match["lay"].lower(),
            tensor_core=False,
            tile=numbers(match["tile"]),
            stem=base,
        )
    return None


def _helper(text: Text) -> str | None:
    if text.last in ("scal_kernel", "scale_kernel") and "cublas" not in text.args[:600]:
        return None
    return _HELPERS.get(text.last)


def decode(text: Text) -> KernelName | None:
    """Return the decoded name of a cuBLAS kernel; None for any other."""
    base = text.base
    if base.startswith("nvjet"):
        match = _NVJET.match(base)
        return (
            _decode_nvjet(match) if match else KernelName(family="gemm", library="cublas", tensor_core=True, stem=base)
        )
    if "gemm_" in base and (named := _decode_named(base)):
        return named
    if helper := _helper(text):
        family = "reduction" if "reduce" in helper else "pointwise"
        return KernelName(family=family, library="cublas", helper=helper, stem=text.last, tensor_core=False)
    if _LARGE_K.match(base) or (contains(base, _GEMV) and "magma" not in base and _is_cublas(text)):
        return _decode_vector(text)
    return None


def _is_cublas(text: Text) -> bool:
    """Return whether a gemv or dot is cuBLAS's, and not a function of the same name, by its template arguments."""
    return (
        text.mangled
        or "internal::gemvx" in text.base
        or "cublas" in text.args[:900]
        or "kernel_val" in text.base
        or (text.base == text.last and text.args.startswith("<"))
    )
