"""The decoded form of a kernel name."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelName:
    """What a kernel's raw name tells; None where it does not say."""

    family: str = "other"
    library: str = "other"
    dtype: str | None = None
    layout: str | None = None
    tensor_core: bool | None = None
    triton: str | None = None
    short: str = ""
    tile: tuple[int, ...] | None = None
    stages: int | None = None
    cluster: tuple[int, ...] | None = None
    split_k: bool | None = None
    epilogue: tuple[str, ...] = ()
    arch: str | None = None
    alignment: int | None = None
    triton_ops: tuple[str, ...] = ()
    triton_index: int | None = None
    collective: str | None = None
    helper: str | None = None
    """What this kernel does for another one ("split-k reduce", "bias copy"), None if it stands for itself."""
