"""The decoded form of a kernel name."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from pytest_torchprof.kernels.names.text import word_list

FAMILIES: Final = word_list(
    "gemm conv attention pointwise reduction normalization softmax optimizer copy index sort rng communication other"
)
LIBRARIES: Final = word_list("cublas cutlass cudnn flash triton aten cub nccl tensile ck miopen other")
DTYPES: Final = word_list("fp32 tf32 bf16 fp16 fp8 fp4 fp64 complex64 complex128 int64 int32 int16 int8 uint8 bool")
LAYOUTS: Final = ("tn", "nn", "nt", "tt")
FLASH_VERSIONS: Final = (2, 3, 4)
TRITON_CATEGORIES: Final = ("poi", "per", "red", "tem", "for", "spl", "unk", "user")
COLLECTIVES: Final = word_list(
    "all_reduce all_gather reduce_scatter broadcast reduce all_to_all send_recv gather scatter barrier"
)

SHORT_LENGTH: Final = 60


def shortened(text: str, length: int = SHORT_LENGTH) -> str:
    """Return ``text`` with its middle left out where it is longer than ``length`` characters."""
    if len(text) <= length:
        return text
    tail = length // 3
    return f"{text[: length - tail - 3]}...{text[-tail:]}"


class KernelName(Struct, frozen=True, kw_only=True):
    """What a kernel's raw name tells; None where it does not say."""

    family: str = "other"
    library: str = "other"
    dtype: str | None = None
    layout: str | None = None
    tensor_core: bool | None = None
    triton: str | None = None
    version: int | None = None
    """Of FlashAttention: 2, 3 or 4; 0 for attention that surely is none."""
    stem: str = ""
    """The kernel's own name without what its other fields say: ``ampere_sgemm_128x64``, ``gelu``."""
    tile: tuple[int, ...] | None = None
    stages: int | None = None
    cluster: tuple[int, ...] | None = None
    split_k: bool | None = None
    epilogue: tuple[str, ...] = ()
    """What the epilogue can do ("relu", "bias"); a capability, not proof that it ran."""
    arch: str | None = None
    """The generation the code was written for ("sm80", "gfx942"), which is not the GPU's."""
    alignment: int | None = None
    triton_ops: tuple[str, ...] = ()
    triton_index: int | None = None
    collective: str | None = None
    helper: str | None = None
    """What this kernel does for another one ("split-k reduce", "bias copy"), None if it stands for itself."""
    operands: str | None = None
    """What its operator was given where dtype or layout leave that open ("bf16 int64"); no name tells it."""

    @property
    def short(self) -> str:
        """A display name of at most 60 characters that a person recognises: ``gemm bf16 tn nvjet_tst_128x64``."""
        if self.triton not in (None, "user"):
            return shortened(self.stem)
        words = [self.family] if self.family != "other" else []
        if self.family in ("gemm", "conv", "attention"):
            words += [word for word in (self.dtype, self.layout) if word]
        if self.collective:
            words.append(self.collective)
        lead = " ".join(words)
        return f"{lead} {shortened(self.stem, SHORT_LENGTH - len(lead) - 1)}" if lead else shortened(self.stem)
