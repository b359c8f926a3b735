"""Kernels over lists of tensors: fused optimizers, foreach operators, gradient norms (ATen, apex, DeepSpeed)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pytest_torchprof.kernels.names.kernelname import NO_PRODUCT, KernelName
from pytest_torchprof.kernels.names.text import dtype_of, word_list
from pytest_torchprof.text.expressions import Expression, contains

if TYPE_CHECKING:
    from pytest_torchprof.kernels.names.text import Text

_OPTIMIZERS: Final = word_list(
    "Adam SGD Sgd Adagrad LAMB Lamb NovoGrad Novograd LARS Lion Adadelta RMSprop MaximizeFunctor"
)
_FUNCTOR: Final = Expression(
    r"(?P<name>[A-Z]\w*?)(?:MathFunctor|OpListAlphaFunctor|OpScalarFunctor|OpFunctor|Functor)<(?P<type>[\w:]+)"
)
_ELEMENTWISE: Final = word_list("Scale Axpby Unary Binary Pointwise Lerp Zero")
_NAMED_OPTIMIZERS: Final = word_list(
    """
    adam_cuda_kernel adamw_kernel FusedAdam fused_adam kOptimizer kPreconditionOptimizer cautious_adam lamb_cuda
    fused_sgd sgd_kernel adagrad_update lion_update
    """
)


def decode(text: Text) -> KernelName | None:
    """Return the decoded name of a kernel over tensor lists or of an optimizer; None for any other."""
    last = text.last
    if not last.startswith("multi_tensor_apply"):
        if contains(text.base, _NAMED_OPTIMIZERS):
            return KernelName(family="optimizer", library="other", tensor_core=False, stem=last)
        return None
    aten = text.base.startswith("at::")
    match = _FUNCTOR.search(text.args[:700])
    functor = match["name"] if match else ""
    where = text.args[:700]
    family: str | None
    if contains(where, _OPTIMIZERS):
        family = "optimizer"
    elif "LpNorm" in where or "L2Norm" in where or "LpMax" in where:
        family = "reduction"
    elif "Copy" in functor or "Copy<" in where:
        family = "copy"
    else:
        # For apex and others only the functors that every foreach operator has are known.
        known = aten and not (text.is_cut and not functor)
        family = "pointwise" if known or contains(functor, _ELEMENTWISE) else None
    return KernelName(
        family=family,
        never=NO_PRODUCT if family is None else frozenset(),
        library="aten" if aten else "other",
        dtype=dtype_of(match["type"]) if match and family != "copy" else None,
        tensor_core=False,
        stem=f"multi_tensor {functor}" if functor else last,
    )
