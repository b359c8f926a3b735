"""The meaning of a kernel's name: family, library, dtype, layout."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, lru_cache
from importlib import import_module
from typing import Final

from pytest_torchprof.kernels.names.kernelname import KernelName
from pytest_torchprof.kernels.names.text import Text, parse
from pytest_torchprof.text.expressions import Expression, contains

__all__ = ["KernelName", "decode", "normal_name", "without_index"]

Decoder = Callable[[Text], KernelName | None]

# The first module that knows a name decides. ATen's own kernels and those that Inductor generates are recognised by how
# their names start, and are most of any recording. Communication, attention and convolutions come before GEMMs: they
# are built from GEMM parts and say so in their names. Tables of words (quantizing, gemms, engines, handwritten) come
# late: a word proves less than a grammar.
LIBRARIES: Final = (
    "inductor",
    "operators",
    "foreach",
    "oneapi",
    "aten",
    "communication",
    "tensile",
    "miopen",
    "attention",
    "cudnn",
    "cublas",
    "cutlass",
    "quantizing",
    "ck",
    "cub",
    "gemms",
    "engines",
    "handwritten",
)

_INDEX: Final = Expression(r"(?:\w{0,80}_)?(?:triton|cpp)_\w*?(?P<index>_\d+)$")
_GRAPH: Final = Expression(r"graph_\d+_(?=cpp_)")
# Kernels whose template arguments name a functor: without it every elementwise kernel of ATen would look the same.
_FUNCTOR_KERNELS: Final = ("elementwise_kernel", "reduce_kernel", "multi_tensor_apply")


@cache
def _decoders() -> tuple[Decoder, ...]:
    """Return the decoder of each library; they are loaded with the first name, which many runs never ask about."""
    return tuple(import_module(f"{__name__}.{library}").decode for library in LIBRARIES)


@lru_cache(maxsize=16384)
def decode(name: str) -> KernelName:
    """Return the meaning of ``name``; a field about which it says nothing is None, never guessed.

    Never raises, and the time is bounded whatever the length: only the front of a name is looked at.
    """
    text = parse(name)
    if not text.base.isascii():
        # Compilers mangle all characters that are not ASCII, so none of the tables is about this kernel.
        return KernelName(stem=text.last)
    for decoder in _decoders():
        kernel_name = decoder(text)
        if kernel_name is not None:
            return kernel_name
    return KernelName(stem=text.last or name[:200])


def without_index(name: str) -> str:
    """Return ``name`` without the counter that Inductor appends to its kernels."""
    if "triton_" not in name and "cpp_" not in name:
        return name
    match = _INDEX.match(name)
    bare = name[: match.start("index")] if match else name
    graph = _GRAPH.match(bare)
    return bare[graph.end() :] if graph else bare


def normal_name(name: str) -> str:
    """Return ``name`` without Triton's trailing index and without template arguments and parameters.

    If the arguments decide what the kernel does (an elementwise or reduction functor), the functor's short name stays.
    """
    text = parse(name)
    if not text.args:
        return without_index(text.base) or name
    if contains(text.last, _FUNCTOR_KERNELS) or text.base.startswith("cutlass"):
        stem = decode(name).stem
        return f"{text.base}<{stem}>" if stem != text.last else text.base
    return text.base or name
