"""Findings about matrix products and convolutions: a row for each."""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003  (the types of fields, which msgspec looks up)
from typing import ClassVar, Literal

from pytest_torchprof.findings.finding import Finding, OfKernels


class SlowType(OfKernels, frozen=True, kw_only=True, tag="slow-type"):
    """Products or convolutions compute in a type for which there is a faster one."""

    _DTYPE: ClassVar[str]

    kernel_share: float
    families: tuple[Literal["gemm", "conv"], ...]
    peak_ratio: float
    """How many times faster the device is with the faster type."""
    peaks_known: bool = True
    """Whether the device's peaks say so; otherwise it is taken to be twice as fast."""
    flags: Mapping[str, bool | str | None]
    """The settings of torch that decide about the type."""

    @property
    def subject(self) -> str:
        """The kind of kernels that compute in it, in words."""
        words = {"gemm": "matrix multiplications", "conv": "convolutions"}
        return " and ".join(words[family] for family in self.families)

    @property
    def title(self) -> str:
        return f"{self.subject.capitalize()} in {self._DTYPE}"


class Fp32Products(SlowType, frozen=True, kw_only=True, tag="fp32-gemm"):
    """Products or convolutions compute in fp32."""

    TITLE = "Matrix multiplications in fp32"
    SENTENCE = "{subject} in fp32 took {time_us:us}, {kernel_share:percent} of the kernel time{assumed}"
    _ASSUMED: ClassVar[str] = (
        "; the peaks of this GPU are not known, so half of it counts as what a faster type could save"
    )
    REMEDY = "{tf32}autocast or a model in {faster}"
    ACTION = "autocast or a model in {half}"
    _DTYPE = "fp32"
    _FIRST_TF32: ClassVar[str] = "{first_setting}, then autocast in {half}"
    _SETTINGS: ClassVar[Mapping[str, str]] = {
        "gemm": 'torch.set_float32_matmul_precision("high")',
        "conv": "torch.backends.cudnn.allow_tf32 = True",
    }
    _TF32: ClassVar[str] = "allow TF32, which needs no change to the model ({settings:list}); faster still is "

    fast_bf16: bool
    """Whether the device has tensor or matrix cores for bf16; NVIDIA's before Ampere have them for fp16 alone."""
    may_use_tf32: tuple[Literal["gemm", "conv"], ...]
    """The families for which the device has TF32 and that do not use it yet."""

    @property
    def assumed(self) -> str:
        """The words for the basis of the saving; empty if the device's own peaks are known."""
        return "" if self.peaks_known else self._ASSUMED

    @property
    def half(self) -> str:
        """The type in which the device computes products faster."""
        return "bf16" if self.fast_bf16 else "fp16"

    @property
    def faster(self) -> str:
        """That type, and why it is not the usual one."""
        return self.half if self.fast_bf16 else f"{self.half} (the GPU is older than Ampere and slow in bf16)"

    @property
    def tf32(self) -> str:
        """The advice to allow TF32, which is the easiest; empty if the device has none or uses it already."""
        return self.words(self._TF32) if self.may_use_tf32 else ""

    @property
    def settings(self) -> tuple[str, ...]:
        """How TF32 is allowed."""
        return tuple(self._SETTINGS[family] for family in self.may_use_tf32)

    @property
    def first_setting(self) -> str:
        """Where there are two, that for products."""
        return self.settings[0]

    @property
    def action(self) -> str:
        return self.words(self._FIRST_TF32 if self.may_use_tf32 else self.ACTION)


class Tf32Products(SlowType, frozen=True, kw_only=True, tag="tf32-gemm"):
    """Products or convolutions compute in TF32."""

    TITLE = "Matrix multiplications in tf32"
    _DTYPE = "tf32"
    SENTENCE = "{subject} in tf32 took {time_us:us}, {kernel_share:percent} of the kernel time"
    REMEDY = (
        "fp32 operands run as TF32 (torch.set_float32_matmul_precision, torch.backends.cudnn.allow_tf32): autocast or "
        "a model in bf16 moves half of the bytes and computes twice as fast"
    )
    ACTION = "use autocast, or a model in bf16"


class UnaskedFp64(OfKernels, frozen=True, kw_only=True, tag="unasked-fp64"):
    """Kernels compute in fp64 in a program that computes in other types."""

    TITLE = "Work in fp64"
    SENTENCE = (
        "{named} computed in fp64 for {time_us:us}, {kernel_share:percent} of the kernel time, in a program of other "
        "types"
    )
    REMEDY = (
        "find where float64 comes in: numpy arrays and Python floats made to tensors without a dtype, .double(), "
        "torch.set_default_dtype"
    )
    ACTION = "find where float64 comes in"

    kernel_share: float

    @property
    def named(self) -> str:
        """The operators that compute, or the kernels where no operator is known."""
        shown = self.ops or self.kernels
        return ", ".join(shown[:3]) + (" and others" if len(shown) > 3 else "")


class MisalignedProducts(OfKernels, frozen=True, kw_only=True, tag="misaligned-gemm"):
    """Products on tensor cores have rows that do not start at multiples of 16 bytes."""

    TITLE = "Misaligned products"
    SENTENCE = (
        "{named}: rows that do not start at multiples of 16 bytes make slower kernels, {time_us:us} "
        "({product_share:percent} of the time of products)"
    )
    REMEDY = (
        "pad the size to a multiple of 8 for 16-bit types (4 for TF32, 16 for 8-bit types), the vocabulary of a "
        "language model to a multiple of 64"
    )
    ACTION = "pad the size to a multiple of 8 for 16-bit types"

    product_share: float
    sizes: tuple[str, ...]
    """Such as "N=30522", of the products that took the longest, at most five."""
    of_ops: tuple[str, ...]
    """The operator of each of these."""

    @property
    def named(self) -> str:
        """The operators with the sizes."""
        pairs = zip(self.of_ops[:3], self.sizes[:3], strict=True)
        return ", ".join(dict.fromkeys(f"{op} with {sizes}" for op, sizes in pairs))


class HiddenCopy(Finding, frozen=True, kw_only=True, tag="hidden-copy"):
    """Copies put the bias into a product's result before the product adds to it."""

    TITLE = "Hidden copies"
    SENTENCE = (
        "{copies:copy} on the device put the bias into the result of {ops:list} before the product "
        "({time_us:us}{moved}): the addition is not fused into the product"
    )
    REMEDY = (
        "a bias of one dimension, which the product adds by itself (nn.Linear), or a Triton product with the addition "
        'as epilogue (torch.compile(mode="max-autotune"))'
    )
    ACTION = "use a bias of one dimension, which the product adds by itself"
    _MOVED = ", {bytes:bytes}"

    time_us: float
    share: float
    copies: int
    bytes: int | None = None
    """None where a copy does not tell its size."""
    ops: tuple[str, ...]
    """The products."""

    @property
    def subjects(self) -> frozenset[str]:
        return frozenset(self.ops)

    @property
    def moved(self) -> str:
        """How much is copied, where it is known."""
        return self.words(self._MOVED) if self.bytes else ""
