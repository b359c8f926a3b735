"""The private names of the helpers by which torch makes a test of each parameter, or of each device.

Run with torch 2.13.0 and 2.15.0. Where they have other names, the markers of a parameter are taken for its function's.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import CodeType

_FOLDER: Final = f"{os.sep}torch{os.sep}testing{os.sep}"
_WRAPPERS: Final = ("test_wrapper", "instantiated_test")
"""What ``parametrize``, ``ops`` and ``instantiate_..._tests`` put around a function before they decorate the result."""


def written_function(test: Callable[..., object]) -> Callable[..., object]:
    """Return the function, with its own decorators, of which torch has made a test; any other test itself."""
    written = layer = test
    while (inner := getattr(layer, "__wrapped__", None)) is not None:
        if _is_of_torch(getattr(layer, "__code__", None)):
            written = inner
        layer = inner
    return written


def _is_of_torch(code: CodeType | None) -> bool:
    return code is not None and code.co_name in _WRAPPERS and _FOLDER in code.co_filename
