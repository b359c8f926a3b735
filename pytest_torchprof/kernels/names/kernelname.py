"""The decoded form of a kernel name."""

from __future__ import annotations

from typing import Final

from pytest_torchprof.kernels.names.text import word_list
from pytest_torchprof.kernels.reply import NO, NOT_KNOWN, Reply, known
from pytest_torchprof.text.reprs import ShownFields

FAMILIES: Final = word_list(
    "gemm conv attention pointwise reduction normalization softmax optimizer copy index sort rng communication other"
)
"""The families of kernels. ``other`` is a kernel that surely belongs to none of the other families, such as a
transform. An unknown kernel has no family.
"""
PRODUCTS: Final = frozenset({"gemm", "conv", "attention"})
NO_PRODUCT: Final = PRODUCTS | {"communication"}
"""The families that a kernel surely does not belong to if it moves or changes values one by one or in rows."""
NEVER_AMONG_SEVERAL: Final = frozenset(FAMILIES) - {"gemm", "pointwise", "other"}
"""The families that a kernel with several tasks, such as the products and gates of a recurrent layer, is surely not of.
"""
LAYOUT_CONVERSION: Final = "layout conversion"
"""The task of a kernel that only changes the layout of a convolution's images."""
SPLIT_K_REDUCE: Final = "split-k reduce"
"""The task of a kernel that only adds up the parts of a product or convolution whose sum over K is divided."""
CONVOLUTION_WORKSPACE: Final = "convolution workspace"
"""The task of a kernel that only prepares the memory in which a convolution counts or adds up its parts."""
CONVOLUTION_OFFSETS: Final = "convolution offsets"
"""The task of a kernel that only computes where a convolution's operands lie, in 32-bit integers."""
FAMILY_NOT_KNOWN: Final = "not known"
"""The text in tables in place of a family that is not known."""
LIBRARIES: Final = word_list("cublas cutlass cudnn flash triton aten cub nccl tensile ck miopen other")
DTYPES: Final = word_list("fp32 tf32 bf16 fp16 fp8 fp4 fp64 complex64 complex128 int64 int32 int16 int8 uint8 bool")
TORCHS_DTYPES: Final = {"float": "fp32", "half": "fp16", "double": "fp64", "bfloat16": "bf16", "long": "int64"} | {
    f"float{bits}": f"fp{bits}" for bits in (16, 32, 64)
}
"""The types by torch's names."""
LAYOUTS: Final = ("tn", "nn", "nt", "tt")
FLASH_VERSIONS: Final = (2, 3, 4)
TRITON_CATEGORIES: Final = ("poi", "per", "red", "tem", "for", "spl", "unk", "user")
COLLECTIVES: Final = word_list(
    "all_reduce all_gather reduce_scatter broadcast reduce all_to_all send_recv gather scatter barrier"
)

SHORT_LENGTH: Final = 60


def shortened(text: str, length: int = SHORT_LENGTH) -> str:
    """Return ``text`` with its middle left out if it is longer than ``length`` characters."""
    if len(text) <= length:
        return text
    tail = length // 3
    return f"{text[: length - tail - 3]}...{text[-tail:]}"


class KernelName(ShownFields, frozen=True, kw_only=True):
    """The meaning of a kernel's raw name; a field about which it says nothing is None."""

    family: str | None = None
    """The kind of its work, one of FAMILIES; None if it is not known."""
    never: frozenset[str] = frozenset()
    """If its family is not known, the families to which it surely does not belong."""
    by_word: bool = False
    """Whether only words in the name show it, and no library's grammar: the user's declarations then count for more."""
    library: str = "other"
    dtype: str | None = None
    layout: str | None = None
    tensor_core: bool | None = None
    triton: str | None = None
    version: int | None = None
    """The version of FlashAttention: 2, 3 or 4; 0 for attention that surely is not FlashAttention."""
    stem: str = ""
    """The kernel's own name without the facts in its other fields: ``ampere_sgemm_128x64``, ``gelu``."""
    tile: tuple[int, ...] | None = None
    stages: int | None = None
    cluster: tuple[int, ...] | None = None
    split_k: bool | None = None
    epilogue: tuple[str, ...] = ()
    """The operations that the epilogue can do ("relu", "bias"); capabilities, not proof that they ran."""
    arch: str | None = None
    """The GPU generation that the code was written for ("sm80", "gfx942"), which need not be the GPU's own."""
    alignment: int | None = None
    triton_ops: tuple[str, ...] = ()
    triton_index: int | None = None
    collective: str | None = None
    helper: str | None = None
    """The task that it does for another kernel ("split-k reduce", "bias copy"); None if it is no helper."""
    operands: str | None = None
    """Its operator's operands, if dtype or layout leave them open ("bf16 int64"); no name shows them."""

    def is_of(self, *families: str) -> Reply:
        """Return whether it belongs to one of the families."""
        if self.family is not None:
            return known(holds=self.family in families)
        return NO if self.never.issuperset(families) else NOT_KNOWN

    @property
    def family_shown(self) -> str:
        """The family as tables show it."""
        return self.family or FAMILY_NOT_KNOWN

    @property
    def short(self) -> str:
        """A display name of at most 60 characters that a person recognises: ``gemm bf16 tn nvjet_tst_128x64``."""
        return " ".join([*self._lead, self._short_stem])

    @property
    def short_with_facts(self) -> str:
        """The display name, preceded by all known facts."""
        return self._with_facts(self._short_stem.rstrip())

    @property
    def titles(self) -> tuple[str, str]:
        """Its names in tables, uncut: the display name, and the name preceded by all known facts."""
        return " ".join([*self._lead, self.stem]), self._with_facts(self.stem)

    @property
    def _short_stem(self) -> str:
        before = sum(len(word) + 1 for word in self._lead)
        return shortened(self.stem, SHORT_LENGTH - before)

    def _with_facts(self, stem: str) -> str:
        family = [self.family] if self.family not in (None, "other") else []
        others = [word for word in self._lead if word not in family]
        facts = [fact for fact in (self.dtype, self.layout) if fact and fact not in (*others, *stem.split())]
        return " ".join([*family, *facts, *others, stem])

    @property
    def _lead(self) -> list[str]:
        """The words of the display name before the kernel's own name."""
        if self.triton not in (None, "user"):
            return []
        words = [self.family] if self.family not in (None, "other") else []
        if self.family in ("gemm", "conv", "attention"):
            words += [word for word in (self.dtype, self.layout) if word]
        if self.collective:
            words.append(self.collective)
        return words


def split_k_sum(library: str, arch: str) -> KernelName:
    """Return the name of xmma's kernel that only adds up the parts of a product or convolution."""
    return KernelName(
        family="reduction",
        library=library,
        tensor_core=False,
        arch=arch,
        helper=SPLIT_K_REDUCE,
        stem=f"{arch}_xmma_split_k",
    )
