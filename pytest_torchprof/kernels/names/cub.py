"""cub, thrust, hipcub and rocprim: device-wide sorts, scans, selections."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pytest_torchprof.kernels.names.kernelname import NO_PRODUCT, KernelName
from pytest_torchprof.kernels.names.text import first_meaning, word_list, word_table
from pytest_torchprof.text.expressions import contains

if TYPE_CHECKING:
    from pytest_torchprof.kernels.names.text import Text

_SPACES: Final = ("cub::", "at_cuda_detail::cub::", "at_cuda_detail::CUB_", "rocprim::", "hipcub::", "thrust::", "CUB_")
# thrust runs for_each, fill and transform through cub's agents too: these are elementwise.
_ELEMENTWISE: Final = word_list(
    "parallel_for ParallelFor for_each static_kernel fill_functor uninitialized transform_kernel"
)
# For the others the function's name decides; rocprim's is in the first template argument of its trampoline.
_WORDS: Final = word_table(
    """
    sort: Sort sort Onesweep onesweep
    reduction: Reduce reduce
    sort: Scan scan Select select Compact Partition partition Unique RunLength run_length Histogram histogram Merge
    sort: merge Search search adjacent lookback ScanBy
    copy: Copy copy
    """
)


def decode(text: Text) -> KernelName | None:
    """Return the decoded name of a cub, thrust or rocprim kernel; None for any other."""
    base = text.base
    if not (base.startswith(_SPACES) or "::cub::" in base or "rocprim::" in base):
        return None
    where = f"{base} {text.args[:160]}"
    simple = contains(where, _ELEMENTWISE)
    family = "pointwise" if simple else first_meaning(base, _WORDS) or first_meaning(where, _WORDS)
    never = frozenset() if family else NO_PRODUCT
    return KernelName(family=family, never=never, library="cub", tensor_core=False, stem=text.last)
