"""One kernel as comparing sees it, and what such kernels are called."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pytest_torchprof.kernels.names import normal_name

STRUCTURAL: Final = ("gemm", "conv", "attention")
"""Families whose kernels are the same where dtype and layout are, whatever their names."""
NOUNS: Final = {
    "gemm": "GEMM",
    "conv": "convolution",
    "attention": "attention kernel",
    "pointwise": "pointwise",
    "reduction": "reduction",
    "copy": "copy",
    "communication": "collective",
    "triton": "Triton kernel",
    "other": "kernel",
}
"""What a kernel of a family is called."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One kernel of a compared step, as far as comparing needs it."""

    name: str
    short: str
    family: str
    dtype: str | None = None
    layout: str | None = None
    triton: str | None = None
    op: str | None = None

    @property
    def identity(self) -> tuple[str | None, ...]:
        """What makes it the same kernel: family, dtype and layout where it has them, else its normal name."""
        if self.family in STRUCTURAL and self.triton in (None, "user"):
            return (self.family, self.dtype, self.layout)
        return (normal_name(self.name),)

    @property
    def noun(self) -> str:
        """The key of the word for it."""
        if self.triton is not None and self.family not in STRUCTURAL:
            return "triton"
        return self.family if self.family in NOUNS else "other"
