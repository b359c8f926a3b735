"""Tensile and hipBLASLt (rocBLAS): ``Cijk_Alik_Bljk_..``."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from pytest_torchprof.kernels.names.kernelname import KernelName
from pytest_torchprof.kernels.names.text import common_dtype, numbers
from pytest_torchprof.text.expressions import Expression

if TYPE_CHECKING:
    from pytest_torchprof.kernels.names.text import Text

_NAME: Final = Expression(
    r"(?:Custom_)?C(?P<c>[ijklm]{2,5})_A(?P<a>[ijklm]{2,5})_B(?P<b>[ijklm]{2,5})_(?P<types>[A-Z0-9]\w*)"
)
_HELPER: Final = Expression(
    r"(?:Custom_)?C[ijklm]{2,5}_(?P<types>[A-Z0-9_]*?)_?(?P<what>PostGSU|GB|Bias|Reduction|BetaOnly)\w*$"
)
_TILE: Final = Expression(r"_MT(?P<mt>\d+x\d+x\d+)")
_MFMA: Final = Expression(r"_MI\d")
_ISA: Final = Expression(r"_ISA(?P<isa>[0-9a-f]{3,4})")
_SPLIT: Final = Expression(r"_GSU(?P<gsu>\d+)(?:_|$)")

# Types are written A (B if it differs) D compute: BBS, F8B8HS, F8NH_HHS. F8 and B8 are the two kinds of fp8.
_CODE: Final = Expression(r"4xi8|[FB]8N?|F4|I8|[A-Z]")
_TYPES: Final = {
    "B": "bf16",
    "H": "fp16",
    "S": "fp32",
    "D": "fp64",
    "C": "complex64",
    "I8": "int8",
    "4xi8": "int8",
    "X": "tf32",
    "F8": "fp8",
    "F8N": "fp8",
    "B8": "fp8",
    "B8N": "fp8",
    "F4": "fp4",
}


def _dtype(types: str) -> str | None:
    """Return the operand dtype; None for two different operands (S_MX is fp32 computed as XF32)."""
    if types.startswith(("S_MX", "SX")):
        return "tf32"
    token, _, rest = types.partition("_")
    codes = _CODE.findall(token[:12])
    if not codes:
        return None
    # A separate pair comes before the triple: F8NH_HHS multiplies fp8 by fp16.
    if len(codes) == 2 and re.match(r"[A-Z0-9]{2,5}S_", rest):
        return common_dtype(_TYPES.get(code) for code in codes)
    return _TYPES.get(codes[0])


def decode(text: Text) -> KernelName | None:
    """Return the decoded name of a Tensile kernel; None for any other."""
    head = text.head
    if not head.startswith(("Cij", "Custom_Cij", "Ci")):
        return None
    if match := _NAME.match(head):
        return _decode_gemm(match)
    if _HELPER.match(head):
        return KernelName(
            family="reduction", library="tensile", helper="split-k reduce", stem=head[:40], tensor_core=False
        )
    return None


def _decode_gemm(match: re.Match[str]) -> KernelName:
    name = match.string
    tile = _TILE.search(name)
    mfma = _MFMA.search(name)
    isa = _ISA.search(name)
    split = _SPLIT.search(name)
    a, b = match["a"], match["b"]
    layout = None
    if "l" in a and "i" in a and "l" in b and "j" in b:
        layout = ("n" if a.index("i") < a.index("l") else "t") + ("n" if b.index("l") < b.index("j") else "t")
    return KernelName(
        family="gemm",
        library="tensile",
        dtype=_dtype(match["types"]),
        layout=layout,
        tensor_core=mfma is not None if tile else None,
        tile=numbers(tile["mt"]) if tile else None,
        split_k=True if split and int(split["gsu"][:4]) > 1 else None,
        epilogue=("bias",) if "_Bias_" in name else (),
        arch=f"gfx{isa['isa']}" if isa else None,
        stem=f"Cijk_A{a}_B{b}" + (f" {tile['mt']}" if tile else ""),
    )
