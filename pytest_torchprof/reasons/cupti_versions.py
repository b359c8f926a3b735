"""CUPTI's versions: how they are called, and which of them are known for what."""

from __future__ import annotations

from typing import Final

# cuptiGetVersion's numbers before CUDA 13, as cupti_version.h lists them; from there on 130100 is 13.1.
_CUDA: Final = {
    18: "11.8",
    19: "12.0",
    20: "12.2",
    21: "12.3",
    22: "12.4",
    23: "12.5",
    24: "12.6",
    26: "12.8",
    27: "12.9",
    28: "12.9.1",
}
LOSES_FIRST_KERNELS: Final = range(24, 130100)
"""From CUDA 12.6 Update 2 on, until NVIDIA mended it in 13.1 (pytorch#192021). 24 is every 12.6."""
NUMBERS_GRAPHS_WRONGLY: Final = range(130101)
"""Before CUDA 13.1 Update 1; since when, NVIDIA's release notes do not say."""


def name_of(version: int) -> str:
    """Return the name of a version, by its number: "CUDA 13.0 (API 130000)", "API 29" where CUDA's is not known."""
    release = f"{version // 10000}.{version // 100 % 100}" if version >= 130000 else _CUDA.get(version)
    return f"CUDA {release} (API {version})" if release else f"API {version}"
