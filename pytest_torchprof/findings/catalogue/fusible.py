"""Findings about kernels that others could be fused into: a row for each."""

from __future__ import annotations

from pytest_torchprof.findings.catalogue.kernels import KERNEL_SHARE
from pytest_torchprof.findings.finding import Finding, NamesKernels, OfKernels
from pytest_torchprof.text import first_of


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
    """The operations of the costliest one's kernels."""

    @property
    def costliest(self) -> str:
        """The operations of the costliest chain's kernels, at most five of them."""
        return first_of(self.chain)


class UnfusedAttention(NamesKernels, Finding, frozen=True, kw_only=True, tag="unfused-attention"):
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
    """The names of the operators that were called, at most three."""
    between_us: float
    """The time between the two products, without other products, such as those of relative positions."""
    by_math: bool
    """Whether torch's own fallback computes it."""

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
    SENTENCE = f"{{count:kernel}} that only {{count:changes|change}} a layout took {KERNEL_SHARE}"
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
    """How many steps the optimizer took."""
    zeroing: int = 0
    """How many kernels per step set gradients to zero."""

    @property
    def gradients(self) -> str:
        """The remedy for gradients that are set to zero, where kernels do it."""
        return self.words(self._GRADIENTS) if self.zeroing else ""

    @property
    def gpu_step_us(self) -> float:
        """How long the kernels of a step take."""
        return self.time_us / self.steps_taken

    @property
    def cpu_step_us(self) -> float:
        """How long a step takes on the CPU."""
        return self.cpu_us / self.steps_taken
