"""cub, thrust, hipcub and rocprim: device-wide sorts, scans, selections."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pytest_torchprof.kernels.names.kernelname import KernelName
from pytest_torchprof.kernels.names.text import contains, word_list

if TYPE_CHECKING:
    from pytest_torchprof.kernels.names.text import Text

_SPACES: Final = ("cub::", "at_cuda_detail::cub::", "at_cuda_detail::CUB_", "rocprim::", "hipcub::", "thrust::", "CUB_")
# thrust runs for_each, fill and transform through cub's agents too: those are elementwise.
_ELEMENTWISE: Final = word_list(
    "parallel_for ParallelFor for_each static_kernel fill_functor uninitialized transform_kernel"
)


def decode(text: Text) -> KernelName | None:
    """Return the decoded name of a cub, thrust or rocprim kernel, None for any other."""
    base = text.base
    if not (base.startswith(_SPACES) or "::cub::" in base or "rocprim::" in base):
        return None
    where = f"{base} {text.args[:160]}"
    simple = contains(where, _ELEMENTWISE)
    return KernelName(family="pointwise" if simple else "sort", library="cub", tensor_core=False, stem=text.last)
