"""Operators as kernels: if the CPU is the device, a kernel is called ``aten::addmm``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pytest_torchprof.devices.cpu_operators import FAMILIES as OPERATORS
from pytest_torchprof.devices.cpu_operators import SEVERAL
from pytest_torchprof.kernels.names.kernelname import NEVER_AMONG_SEVERAL, KernelName

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
_FAMILY_OF: Final = {op: family for family, ops in OPERATORS.items() for op in ops.split()}
_SEVERAL: Final = frozenset(SEVERAL.split())


def canonical(op: str) -> str:
    """Return the operator of which an in-place, private or foreach operator, or an overload, is a variant."""
    return op.partition(".")[0].removeprefix("_foreach").strip("_")


def decode(text: Text) -> KernelName | None:
    """Return the decoded name of an operator; None for any name without an operator's namespace.

    The family of an operator that is in no table, such as one of a newer torch, is not known; it is never guessed. Nor
    is the family of an operator with several tasks, such as the products and gates of a recurrent layer: it may count
    as any of these families, and surely belongs to no other.
    """
    base = text.head
    if not base.startswith(_SPACES) or text.args:
        return None
    op = text.last.partition(".")[0]
    plain = canonical(op)
    never = NEVER_AMONG_SEVERAL if plain in _SEVERAL else frozenset[str]()
    return KernelName(family=_FAMILY_OF.get(plain), never=never, library="aten", tensor_core=False, stem=op)
