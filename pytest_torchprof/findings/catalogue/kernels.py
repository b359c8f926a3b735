"""Findings about kernels that could be faster: a row for each."""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003  (the types of fields, which msgspec looks up)
from typing import ClassVar, Final

from pytest_torchprof.findings.finding import OfKernels
from pytest_torchprof.text.cutting import cut
from pytest_torchprof.text.units import show_rate

KERNEL_SHARE: Final = "{time_us:us} ({kernel_share:percent} of the kernel time)"


class SmallGrid(OfKernels, frozen=True, kw_only=True, tag="small-grid"):
    """Kernels have fewer blocks than the GPU has multiprocessors."""

    TITLE = "Grids smaller than the GPU"
    SENTENCE = (
        f"{{count:kernel}} with fewer blocks than the GPU has multiprocessors took {KERNEL_SHARE}, most {{longest}}"
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
        f"{{count:kernel}} ran with {{occupancy:percent}} of the warps that fit, {KERNEL_SHARE}, most {{longest}}"
    )
    REMEDY = "fewer registers or less shared memory per block, larger blocks; in Triton block sizes and num_warps"
    ACTION = "fewer registers or less shared memory per block, larger blocks"

    kernel_share: float
    occupancy: float


class BelowRoofline(OfKernels, frozen=True, kw_only=True, tag="below-roofline"):
    """Kernels take many times what the peaks of the GPU allow."""

    TITLE = "Far below the roofline"
    SENTENCE = (
        "{kernel} of {op} ({operands}) takes {mean_us:us} ({rates}), and would take {bound_us:us} at the GPU's peaks; "
        f"{{count:such kernel}} took {KERNEL_SHARE}"
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
        """The rates that the kernel reaches, in words."""
        tflops = [f"{show_rate(self.flops / self.mean_us / 1e6)} TFLOP/s"] if self.flops else []
        return " and ".join(tflops + ([f"{show_rate(self.bytes / self.mean_us / 1e3)} GB/s"] if self.bytes else []))

    @property
    def remedy(self) -> str:
        return self._REMEDIES.get(self.family or "", self.REMEDY)

    @property
    def action(self) -> str:
        return self._ACTIONS.get(self.family or "", self.ACTION)
