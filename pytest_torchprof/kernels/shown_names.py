"""The names that tables might give a kernel of which not all is known.

For a pattern that matches only such a name it is not known whether it means the kernel.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from msgspec.structs import replace

from pytest_torchprof.kernels.names.kernelname import COLLECTIVES, DTYPES, FAMILIES, LAYOUTS
from pytest_torchprof.kernels.reply import NOT_KNOWN, YES, Reply, every, some
from pytest_torchprof.kernels.selectors import of_dtype

if TYPE_CHECKING:
    import re
    from collections.abc import Iterator

    from pytest_torchprof.kernels.kernel import Kernel
    from pytest_torchprof.kernels.names import KernelName


def might_be_called(kernel: Kernel, expression: re.Pattern[str]) -> Reply:
    """Return whether the name matches that tables would show if all facts of the kernel were known.

    YES if every such name does.
    """
    matching = _matching_dtypes(expression, kernel.decoded)
    return some(every((reply, of_dtype(kernel, dtype))) for dtype, reply in matching)


@lru_cache(maxsize=16384)
def _matching_dtypes(expression: re.Pattern[str], decoded: KernelName) -> tuple[tuple[str, Reply], ...]:
    """Return the types with which a kernel's displayed name matches: YES if it matches regardless of other unknowns."""
    matching = []
    for dtype, names in _possible_titles(decoded):
        hits = {any(map(expression.search, titles)) for titles in names}
        if True in hits:
            matching.append((dtype, NOT_KNOWN if False in hits else YES))
    return tuple(matching)


# They are alike for each pattern, and to make them takes longer than to search them.
@lru_cache(maxsize=1024)
def _possible_titles(decoded: KernelName) -> list[tuple[str, list[tuple[str, str]]]]:
    """Return each type that the kernel may have, with the names that it may have then."""
    dtypes = (decoded.dtype,) if decoded.dtype else DTYPES
    return [(dtype, [possible.titles for possible in _possible(replace(decoded, dtype=dtype))]) for dtype in dtypes]


def _possible(decoded: KernelName) -> Iterator[KernelName]:
    """Yield the names that the kernel may have, by its family, a product's layout, and the collective."""
    for family in (decoded.family,) if decoded.family else FAMILIES:
        if family in decoded.never:
            continue
        of_family = replace(decoded, family=family)
        yield of_family
        if family == "gemm" and decoded.layout is None:
            yield from (replace(of_family, layout=layout) for layout in LAYOUTS)
        elif family == "communication" and decoded.collective is None:
            yield from (replace(of_family, collective=collective) for collective in COLLECTIVES)
