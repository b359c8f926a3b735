"""Operators as kernels: where the CPU is the device, a kernel is called ``aten::addmm``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pytest_torchprof.devices.cpu_operators import FAMILIES
from pytest_torchprof.kernels.names.kernelname import KernelName

if TYPE_CHECKING:
    from pytest_torchprof.kernels.names.text import Text

_SPACES: Final = (
    "aten::",
    "mkl::",
    "mkldnn::",
    "mkldnn_prepacked::",
    "onednn::",
    "quantized::",
    "sparse::",
    "torchvision::",
)
_FAMILY_OF: Final = {op: family for family, ops in FAMILIES.items() for op in ops.split()}


def canonical(op: str) -> str:
    """Return the operator that an in-place or private one, one with an overload, or one on lists is a variant of."""
    return op.partition(".")[0].removeprefix("_foreach").strip("_")


def decode(text: Text) -> KernelName | None:
    """Return what an operator computes, None for any name without an operator's namespace.

    Of an operator that is in no table, such as one of a newer torch, the family is not known; it is never guessed.
    """
    base = text.head
    if not base.startswith(_SPACES) or text.args:
        return None
    op = text.last.partition(".")[0]
    return KernelName(family=_FAMILY_OF.get(canonical(op)), library="aten", tensor_core=False, stem=op)
