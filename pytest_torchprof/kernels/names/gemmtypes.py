"""What the type codes inside GEMM and convolution names mean."""

from __future__ import annotations

from typing import Final

ARCHITECTURES: Final = {
    "maxwell": "sm50",
    "pascal": "sm60",
    "volta": "sm70",
    "turing": "sm75",
    "ampere": "sm80",
    "ada": "sm89",
    "hopper": "sm90",
    "blackwell": "sm100",
}

# xmma and cutlass 3 write the types of A and B together: bf16bf16, f32f32, e4m3e5m2.
_XMMA: Final = (
    ("tf32", "tf32"),
    ("bf16", "bf16"),
    ("e4m3", "fp8"),
    ("e5m2", "fp8"),
    ("e2m1", "fp4"),
    ("f16", "fp16"),
    ("f32", "fp32"),
    ("f64", "fp64"),
    ("cf32", "complex64"),
    ("i8", "int8"),
    ("s8", "int8"),
)


def xmma_pair(code: str) -> str | None:
    """Return the dtype of a pair such as ``bf16bf16``; None where the two differ or are unknown."""
    for first, dtype in _XMMA:
        if code.startswith(first):
            rest = code[len(first) :]
            same = [word for word, other in _XMMA if other == dtype and rest == word]
            return dtype if same or not rest else None
    return None


def xmma_dtype(operands: str, math: str) -> str | None:
    """Return the operand dtype from ``<A><B>`` and ``<math><accumulate>``: fp32 in tf32 math is tf32."""
    if "tf32" in operands or math.startswith("tf32"):
        return "tf32"
    return xmma_pair(operands)


def numbers(text: str) -> tuple[int, ...]:
    """Return the sizes in ``128x64x32``."""
    return tuple(int(part[:9]) for part in text.split("x"))
