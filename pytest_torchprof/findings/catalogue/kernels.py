"""Findings about kernels that could be faster or fewer: a row for each."""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003  (the types of fields, which msgspec looks up)
from typing import ClassVar, Final, Literal

from pytest_torchprof.findings.finding import Finding, OfKernels
from pytest_torchprof.text import cut, first_of, show_rate

_KERNEL_SHARE: Final = "{time_us:us} ({kernel_share:percent} of the kernel time)"


class SmallGrid(OfKernels, frozen=True, kw_only=True, tag="small-grid"):
    """Kernels have fewer blocks than the GPU has multiprocessors."""

    TITLE = "Grids smaller than the GPU"
    SENTENCE = (
        f"{{count:kernel}} with fewer blocks than the GPU has multiprocessors took {_KERNEL_SHARE}, most {{longest}}"
    )
    REMEDY = "larger batches or sequences; several small products as one batched one; streams side by side"
    ACTION = "larger batches or sequences"

    kernel_share: float
    unused_us: float
    """The time of the multiprocessors that have no block, as time of the whole GPU."""


class LowOccupancy(OfKernels, frozen=True, kw_only=True, tag="low-occupancy"):
    """Kernels fill all multiprocessors with few warps each."""

    TITLE = "Low occupancy"
    SENTENCE = (
        f"{{count:kernel}} ran with {{occupancy:percent}} of the warps that fit, {_KERNEL_SHARE}, most {{longest}}"
    )
    REMEDY = "fewer registers or less shared memory per block, larger blocks; in Triton block sizes and num_warps"
    ACTION = "fewer registers or less shared memory per block, larger blocks"

    kernel_share: float
    occupancy: float


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
        """What computes in it."""
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
    """Those of the families for which the device has TF32, and which do not use it yet."""

    @property
    def assumed(self) -> str:
        """By what the saving is reckoned, where the device does not tell."""
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
        """What is easiest on a device with TF32, where it is not in use yet."""
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
        """What computes: the operators, or kernels where no operator is known."""
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


class BelowRoofline(OfKernels, frozen=True, kw_only=True, tag="below-roofline"):
    """Kernels take many times what the peaks of the GPU allow."""

    TITLE = "Far below the roofline"
    SENTENCE = (
        "{kernel} of {op} ({operands}) takes {mean_us:us} ({rates}), and would take {bound_us:us} at the GPU's peaks; "
        f"{{count:such kernel}} took {_KERNEL_SHARE}"
    )
    REMEDY = "contiguous operands: what is transposed, sliced or expanded is read in pieces; torch.compile to fuse it"
    ACTION = "make its operands contiguous, or let torch.compile fuse it"
    _REMEDIES: ClassVar[Mapping[str, str]] = {
        "conv": "channels_last, a type that tensor cores take, torch.backends.cudnn.benchmark = True; few input "
        "channels padded to 4 or 8, a patch embedding written as reshape and product",
        "gemm": "larger sizes where one of M, N, K is small (several products as one), contiguous operands, another "
        'kernel (torch.compile(mode="max-autotune"), torch.backends.cuda.preferred_blas_library)',
        "attention": "another backend (torch.nn.attention.sdpa_kernel); longer sequences or larger batches",
    }
    _ACTIONS: ClassVar[Mapping[str, str]] = {
        "conv": "channels_last, and a type that tensor cores take",
        "gemm": "larger sizes where one of M, N, K is small",
        "attention": "another backend (torch.nn.attention.sdpa_kernel)",
    }

    kernel_share: float
    kernel: str
    """The kernel that wastes most; the fields below are about it."""
    op: str
    family: str | None = None
    shapes: tuple[str, ...]
    mean_us: float
    bound_us: float
    flops: float | None = None
    bytes: float | None = None

    @property
    def operands(self) -> str:
        """The shapes of the operands."""
        return cut(", ".join(self.shapes), 80)

    @property
    def rates(self) -> str:
        """What that kernel reaches."""
        tflops = [f"{show_rate(self.flops / self.mean_us / 1e6)} TFLOP/s"] if self.flops else []
        return " and ".join(tflops + ([f"{show_rate(self.bytes / self.mean_us / 1e3)} GB/s"] if self.bytes else []))

    @property
    def remedy(self) -> str:
        return self._REMEDIES.get(self.family or "", self.REMEDY)

    @property
    def action(self) -> str:
        return self._ACTIONS.get(self.family or "", self.ACTION)


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
    bytes: int
    ops: tuple[str, ...]
    """The products."""

    @property
    def subjects(self) -> frozenset[str]:
        return frozenset(self.ops)

    @property
    def moved(self) -> str:
        """How much is copied, where it is known."""
        return self.words(self._MOVED) if self.bytes else ""


class UnfusedPointwise(OfKernels, frozen=True, kw_only=True, tag="unfused-pointwise"):
    """Pointwise kernels run one after the other on as many elements each."""

    TITLE = "Unfused pointwise kernels"
    SENTENCE = (
        "{chains:chain} of pointwise kernels on the same sizes took {time_us:us}, of which fusing could save "
        "{saved_us:us}; the costliest is {costliest}"
    )
    REMEDY = "torch.compile around this code writes one kernel for each chain"

    saved_us: float
    chains: int
    chain: tuple[str, ...]
    """What the kernels of the costliest one do."""

    @property
    def costliest(self) -> str:
        """What the kernels of the costliest one do, at most five of them."""
        return first_of(self.chain)


class UnfusedAttention(Finding, frozen=True, kw_only=True, tag="unfused-attention"):
    """Attention is computed as a product, a softmax and a product."""

    TITLE = "Unfused attention"
    SENTENCE = (
        "attention runs {count:time} as product, softmax and product{how}: {time_us:us}, {between_us:us} of it in "
        "what is no product and lies between the two"
    )
    REMEDY = (
        "torch.nn.functional.scaled_dot_product_attention in bf16 or fp16, without weights asked for "
        "(need_weights=False) and with masks that a fused kernel takes"
    )
    ACTION = "torch.nn.functional.scaled_dot_product_attention in bf16 or fp16"
    _MATH = " (aten::_scaled_dot_product_attention_math: no fused kernel takes these operands)"

    time_us: float
    share: float
    count: int
    kernels: tuple[str, ...]
    """The kernels of the first occurrence, from product to product."""
    ops: tuple[str, ...]
    """What was called, at most three names."""
    between_us: float
    """Of what lies between the two products, without other products, such as those of relative positions."""
    by_math: bool
    """Whether torch's own fallback computes it."""

    @property
    def subjects(self) -> frozenset[str]:
        return frozenset((*self.kernels, *self.ops))

    @property
    def how(self) -> str:
        """Who computes it, where that says why."""
        return self._MATH if self.by_math else ""


class WrittenOut(OfKernels, frozen=True, kw_only=True, tag="written-out"):
    """A part of a model is computed by a kernel for each of its operators."""

    chain: tuple[str, ...]
    """The operators of the first one, in the order of their launch."""
    kernel_share: float

    @property
    def subjects(self) -> frozenset[str]:
        return frozenset((*self.kernels, *self.ops, *self.chain))

    @property
    def each(self) -> int:
        """How many kernels the first one consists of."""
        return len(self.chain)


class UnfusedNorm(WrittenOut, frozen=True, kw_only=True, tag="unfused-norm"):
    """RMSNorm is computed by a kernel for each of its operators."""

    TITLE = "Unfused normalization"
    SENTENCE = (
        "RMSNorm runs {norms:time}, each as {each:kernel} ({chain:list}): {time_us:us}, {kernel_share:percent} of the "
        "kernel time"
    )
    REMEDY = (
        "use torch.compile, which fuses them, or torch.nn.RMSNorm (torch.nn.functional.rms_norm), which recent "
        "versions of torch compute in one kernel on GPUs"
    )
    ACTION = "use torch.compile, which fuses them, or torch.nn.RMSNorm"

    norms: int
    """How many of them there are."""


class UnfusedRotary(WrittenOut, frozen=True, kw_only=True, tag="unfused-rotary"):
    """The rotary embedding of positions is computed by a kernel for each of its operators."""

    TITLE = "Unfused rotary embedding"
    SENTENCE = (
        "queries and keys were turned {embeddings:time}, each as {each:kernel} ({chain:list}): {time_us:us}, "
        "{kernel_share:percent} of the kernel time"
    )
    REMEDY = "use torch.compile, which fuses them, or a kernel that does it at once, such as Liger's or flash-attn's"
    ACTION = "use torch.compile, which fuses them"

    embeddings: int
    """How many of them there are."""


class LayoutConversion(OfKernels, frozen=True, kw_only=True, tag="layout-conversion"):
    """Kernels only change the layout of images for convolutions."""

    TITLE = "Layout conversions"
    SENTENCE = f"{{count:kernel}} that only {{count:changes|change}} a layout took {_KERNEL_SHARE}"
    REMEDY = "model and images in channels_last (.to(memory_format=torch.channels_last)), which tensor cores want"
    ACTION = "model and images in channels_last"

    kernel_share: float


class OptimizerOfSingleTensors(OfKernels, frozen=True, kw_only=True, tag="single-tensor-optimizer"):
    """An optimizer's step launches pointwise kernels for one parameter after the other."""

    TITLE = "The optimizer updates tensors one at a time"
    SENTENCE = (
        "{optimizer} launches {kernels_per_step:pointwise kernel} per step ({gpu_step_us:us} on the GPU, "
        "{cpu_step_us:us} on the CPU)"
    )
    REMEDY = "foreach=True or, where it exists, fused=True for the optimizer{gradients}"
    ACTION = "give the optimizer foreach=True or fused=True"
    _GRADIENTS = "; zero_grad(set_to_none=True), which spares {zeroing:kernel} per step"

    optimizer: str
    kernels_per_step: int
    cpu_us: float
    steps_taken: int
    """Of the optimizer."""
    zeroing: int = 0
    """How many kernels per step set gradients to zero."""

    @property
    def gradients(self) -> str:
        """What to do about gradients that are set to zero, where kernels do it."""
        return self.words(self._GRADIENTS) if self.zeroing else ""

    @property
    def gpu_step_us(self) -> float:
        """How long the kernels of a step take."""
        return self.time_us / self.steps_taken

    @property
    def cpu_step_us(self) -> float:
        """How long a step takes on the CPU."""
        return self.cpu_us / self.steps_taken
