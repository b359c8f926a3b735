"""How well the GPU was used: FLOP/s against the peak of the device, tensor cores, copies."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from pytest_torchprof.analysis.parts import copied_bytes, copy_direction
from pytest_torchprof.analysis.step_time import SilentTime, StepTime, step_time
from pytest_torchprof.reasons import decoding  # noqa: TC001  (msgspec reads it)
from pytest_torchprof.reasons.throughput import (
    FlopsNotRecorded,
    NothingCounted,
    NothingOnGpu,
    PeakOfTypeUnknown,
    PeakUnknown,
)
from pytest_torchprof.text.reprs import ShownFields
from pytest_torchprof.text.units import show_us

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_torchprof.analysis.gpu_work import GpuWork
    from pytest_torchprof.trace import Trace

_PRODUCTS = ("gemm", "conv")
_COUNTED = ("gemm", "conv", "attention")
"""The families whose FLOPs are counted: those that torch.utils.flop_counter knows."""


class Copies(ShownFields, frozen=True, kw_only=True):
    """The copies of one direction over all steps."""

    direction: str
    """``HtoD``, ``DtoH``, ``DtoD``, ``PtoP``."""
    count: int
    size: int | None
    """In bytes; None where one of them does not tell."""
    time_us: float
    gb_per_s: float | None
    """Bytes over the time they took, in 1e9 bytes per second; None where no time or no size is recorded."""


class Throughput(ShownFields, frozen=True, kw_only=True):
    """FLOP/s of the slowest step; where something is not known, the reason stands instead."""

    flops_per_step: int | None
    """As torch.utils.flop_counter counts a warm-up call: products, convolutions and attention, backward included."""
    tflops: float | None = None
    """1e12 operations per second, over the longer of the step's range on the CPU and its span on the GPU."""
    dtype: str | None = None
    """The fastest type that the kernels computed in, whose peak is taken: a share of it is never too large."""
    peak_tflops: float | None = None
    source: str | None = None
    """Where the peak is published."""
    mfu: float | None = None
    """Share of the peak of all devices that ran kernels, 0..1."""
    why_not: decoding.AnyReason | None = None
    """Why there is no share."""


class Efficiency(Struct, frozen=True, kw_only=True):
    """How well the GPU was used in the steps of a recording."""

    step_time: StepTime
    other: tuple[SilentTime, ...]
    """The parts of ``step_time.other``, the longest first."""
    tensor_core_share: float | None
    """Share of the time of products and convolutions that ran on tensor cores, where the kernels' names say so."""
    throughput: Throughput
    copies: tuple[Copies, ...]

    def __repr__(self) -> str:
        return f"<Efficiency: steps of {show_us(self.step_time.total)} on average>"


def efficiency_of(work: GpuWork) -> Efficiency:
    """Return the efficiency of a recording's steps."""
    launched = [part.gpu_ops for part in work.launching.parts]
    spent, silent = step_time(work.trace, launched, work.communication, work.cpu_blocks, work.unrecorded)
    return Efficiency(
        step_time=spent,
        other=silent,
        tensor_core_share=_tensor_core_share(work),
        throughput=throughput(work),
        copies=_copies_by_direction(work),
    )


def throughput(work: GpuWork) -> Throughput:
    """Return FLOP/s and the share of the peak of the slowest step."""
    flops = work.trace.metadata.flops_per_step if work.trace.metadata is not None else None
    if flops is None:
        return Throughput(flops_per_step=None, why_not=FlopsNotRecorded())
    if not flops:
        return Throughput(flops_per_step=0, why_not=NothingCounted())
    longest = max(_length_ns(work, step) for step in range(len(work.trace.steps)))
    if not work.trace.device_kind.has_launches or not work.kernels or not longest:
        return Throughput(flops_per_step=flops, why_not=NothingOnGpu())
    tflops = flops / longest / 1000
    peak, dtypes = peak_of_trace(work.trace), _dtypes(work)
    if peak is None:
        names = tuple(str(device.name) for device in work.trace.devices)
        return Throughput(flops_per_step=flops, tflops=tflops, why_not=PeakUnknown(names))
    known = {dtype: peak.tflops[dtype] for dtype in dtypes if dtype is not None and dtype in peak.tflops}
    unknown = [dtype for dtype in dtypes if dtype not in known]
    if unknown or not known:
        return Throughput(flops_per_step=flops, tflops=tflops, why_not=PeakOfTypeUnknown(tuple(unknown)))
    most, fastest = max((tops, dtype) for dtype, tops in known.items())
    return Throughput(
        flops_per_step=flops,
        tflops=tflops,
        dtype=fastest,
        peak_tflops=most,
        source=peak.source,
        mfu=tflops / most / len({work.trace.gpu.process[i] for i in work.kernels}),
    )


def _length_ns(work: GpuWork, step: int) -> int:
    """Return how long a step took: a GPU that runs behind takes longer than the range on the CPU."""
    cpu_range, part = work.trace.steps[step], work.launching.parts[step]
    start, end = work.trace.gpu.start, work.trace.gpu.end
    span = max(end[i] for i in part.gpu_ops) - min(start[i] for i in part.gpu_ops) if part.gpu_ops else 0
    return max(cpu_range.end_ns - cpu_range.start_ns, span)


def _dtypes(work: GpuWork) -> list[str | None]:
    """Return the types that products, convolutions and attention compute in; None for one that no name tells."""
    groups = [group for group in work.of_family(*_COUNTED) if not work.named[group.name].helper]
    return sorted({work.decoded(group).dtype for group in groups}, key=str)


def _tensor_core_share(work: GpuWork) -> float | None:
    spent = {True: 0, False: 0}
    for group in work.of_family(*_PRODUCTS):
        on_tensor_cores = work.decoded(group).tensor_core
        if on_tensor_cores is not None:
            spent[on_tensor_cores] += group.time_ns
    whole = sum(spent.values())
    return spent[True] / whole if whole else None


def _copies_by_direction(work: GpuWork) -> tuple[Copies, ...]:
    gpu, names = work.trace.gpu, work.trace.names
    called = {
        name: copy_direction(names[name]) or names[name].removeprefix("Memcpy ").partition(" ")[0]
        for name in {gpu.name[i] for i in work.copies}
    }
    by_direction: dict[str, list[int]] = defaultdict(list)
    for i in work.copies:
        by_direction[called[gpu.name[i]]].append(i)
    rows = []
    for direction, members in by_direction.items():
        size, spent = copied_bytes(work.trace, members), sum([gpu.end[i] - gpu.start[i] for i in members])
        rows.append(
            Copies(
                direction=direction,
                count=len(members),
                size=size,
                time_us=spent / 1000,
                gb_per_s=size / spent if size and spent else None,
            )
        )
    return tuple(sorted(rows, key=lambda row: -row.time_us))


TF32_FROM = 8
"""The compute capability (Ampere) from which on fp32 operands may be multiplied as TF32."""
_WITH_TF32 = r"ampere|hopper|tf32|sm_?(?:[89]|1[0-2])\d"
_BEFORE_TF32 = r"maxwell|volta|turing|sm_?[5-7]\d"
"""The GPU generations for which kernels were made, as their names show them."""


_OTHERS = frozenset({"MIG", "LAPTOP", "TI", "SUPER", "D", "SXM3"})
"""Words in a name that make another device of it, with other peaks; a slice of one (MIG) has a part of them."""


class Peak(Struct, frozen=True, kw_only=True):
    """A device's peak performance in TFLOP/s (TOP/s for int8): dense matrix products, from its data sheet.

    Tables that count structured sparsity are halved here: products of ordinary matrices do not have it. A device or a
    type that is not in the table has no known peak, and nothing that needs one is measured on it: for the RTX 3090, the
    H200 NVL and the V100 SXM3 no figures were found that agree.
    """

    names: tuple[tuple[str, ...], ...]
    """The device's name has all words of one of these."""
    tflops: Mapping[str, float]
    gb_per_s: float | None = None
    """The most that its memory delivers, in 1e9 bytes per second; None if the published figures disagree."""
    source: str
    """The page from which the figures are."""


_H100_SXM: Mapping[str, float] = {
    "fp64": 66.9,
    "fp32": 66.9,
    "tf32": 494.7,
    "bf16": 989.4,
    "fp16": 989.4,
    "fp8": 1978.9,
    "int8": 1978.9,
}
_A100: Mapping[str, float] = {"fp64": 19.5, "fp32": 19.5, "tf32": 156.0, "bf16": 312.0, "fp16": 312.0, "int8": 624.0}

_NVIDIA = "https://www.nvidia.com/en-us/data-center"
_SHEETS = "https://www.nvidia.com/content/dam/en-zz/Solutions/Data-Center"

# The first entry whose words are all in the name holds, so that the special stands before the general.
PEAKS: tuple[Peak, ...] = (
    Peak(
        names=(("H100", "PCIE"),),
        tflops={"fp64": 51.0, "fp32": 51.0, "tf32": 378.0, "bf16": 756.0, "fp16": 756.0, "fp8": 1513.0, "int8": 1513.0},
        gb_per_s=2000.0,
        source="https://resources.nvidia.com/en-us-tensor-core/nvidia-tensor-core-gpu-datasheet (H100 PCIe)",
    ),
    Peak(
        names=(("H100", "HBM3"), ("H100", "SXM5")),
        tflops=_H100_SXM,
        gb_per_s=3350.0,
        source="https://resources.nvidia.com/en-us-tensor-core/nvidia-tensor-core-gpu-datasheet (H100 SXM5)",
    ),
    Peak(
        # Of this one only the figure of 16-bit types was found.
        names=(("H100", "NVL"),),
        tflops={"bf16": 835.0, "fp16": 835.0},
        source=f"{_NVIDIA}/h100/ (H100 NVL)",
    ),
    Peak(
        names=(("H200",),),
        tflops=_H100_SXM,
        gb_per_s=4800.0,
        source=f"{_NVIDIA}/h200/ (H200 SXM; the same processor as H100 SXM5)",
    ),
    Peak(
        names=(("B200",),),
        tflops={"tf32": 1100.0, "bf16": 2250.0, "fp16": 2250.0, "fp8": 4500.0, "int8": 4500.0, "fp4": 9000.0},
        source="https://nvdam.widen.net/s/wwnsxrhm2w/blackwell-datasheet-3384703 (HGX B200, per GPU)",
    ),
    Peak(
        names=(("A100", "SXM4", "80GB"),),
        tflops=_A100,
        gb_per_s=2039.0,
        source=f"{_SHEETS}/a100/pdf/nvidia-a100-datasheet-us-nvidia-1758950-r4-web.pdf (80 GB SXM)",
    ),
    Peak(
        names=(("A100", "PCIE", "80GB"),),
        tflops=_A100,
        gb_per_s=1935.0,
        source=f"{_SHEETS}/a100/pdf/nvidia-a100-datasheet-us-nvidia-1758950-r4-web.pdf (80 GB PCIe)",
    ),
    Peak(
        names=(("A100", "40GB"),),
        tflops=_A100,
        gb_per_s=1555.0,
        source=f"{_SHEETS}/a100/pdf/nvidia-ampere-architecture-whitepaper.pdf (A100 40 GB)",
    ),
    Peak(
        names=(("A100",),),
        tflops=_A100,
        source=f"{_SHEETS}/a100/pdf/nvidia-a100-datasheet-us-nvidia-1758950-r4-web.pdf",
    ),
    Peak(
        names=(("V100", "SXM2"),),
        tflops={"fp64": 7.8, "fp32": 15.7, "fp16": 125.0},
        gb_per_s=900.0,
        source="https://images.nvidia.com/content/technologies/volta/pdf/volta-v100-datasheet-update-us-1165301-r5.pdf",
    ),
    Peak(
        names=(("V100", "PCIE"),),
        tflops={"fp64": 7.0, "fp32": 14.0, "fp16": 112.0},
        gb_per_s=900.0,
        source="https://images.nvidia.com/content/technologies/volta/pdf/volta-v100-datasheet-update-us-1165301-r5.pdf "
        "(PCIe)",
    ),
    Peak(
        names=(("T4",),),
        tflops={"fp32": 8.1, "fp16": 65.0, "int8": 130.0},
        source=f"{_SHEETS}/tesla-t4/t4-tensor-core-datasheet-951643.pdf",
    ),
    Peak(
        names=(("L40S",),),
        tflops={"fp32": 91.6, "tf32": 183.0, "bf16": 362.05, "fp16": 362.05, "fp8": 733.0, "int8": 733.0},
        gb_per_s=864.0,
        source="https://resources.nvidia.com/en-us-l40s/l40s-datasheet-28413",
    ),
    Peak(
        # 16-bit products with fp32 accumulation, as torch asks for them.
        names=(("RTX", "4090"),),
        tflops={"fp32": 82.6, "tf32": 82.6, "bf16": 165.2, "fp16": 165.2, "int8": 660.6},
        gb_per_s=1008.0,
        source="https://github.com/Quentin-Anthony/torch-profiler-tutorial (from NVIDIA's Ada white paper)",
    ),
    Peak(
        names=(("MI300X",),),
        tflops={"fp64": 163.4, "fp32": 163.4, "bf16": 1307.4, "fp16": 1307.4, "fp8": 2614.9, "int8": 2614.9},
        gb_per_s=5300.0,
        source="https://www.amd.com/en/products/accelerators/instinct/mi300/mi300x.html",
    ),
    Peak(
        names=(("MI210",),),
        tflops={"fp64": 45.3, "fp32": 45.3, "fp16": 181.0, "int8": 181.0},
        gb_per_s=1600.0,
        source="https://www.anandtech.com/show/17326/amd-releases-instinct-mi210-accelerator-cdna-2-on-a-pcie-card",
    ),
)


def peak_of_device(name: str | None) -> Peak | None:
    """Return the peaks of a device by its name, None for one that is not known."""
    parts = set((name or "").upper().replace("-", " ").split())
    if parts & _OTHERS or {"H200", "NVL"} <= parts:
        return None
    return next((peak for peak in PEAKS if any(parts.issuperset(way) for way in peak.names)), None)


def peak_of_trace(trace: Trace) -> Peak | None:
    """Return the peaks of the device that the recording was made on, None where it is not known or they differ."""
    names = {device.name for device in trace.devices}
    if names <= {None} and trace.environment.gpu is not None:
        names = {trace.environment.gpu}
    peaks = {peak.source: peak for name in names if (peak := peak_of_device(name)) is not None}
    return next(iter(peaks.values())) if len(peaks) == 1 and len(names) == 1 else None


def peak_ratio(trace: Trace, faster: str, slower: str) -> float | None:
    """Return how many times as fast one type is at its peak as another, None where one of them is not known."""
    peak = peak_of_trace(trace)
    if peak is None or faster not in peak.tflops or slower not in peak.tflops:
        return None
    return peak.tflops[faster] / peak.tflops[slower]


def has_tf32(trace: Trace) -> bool:
    """Return whether the recording's device can multiply fp32 operands as TF32.

    Where the device is not recorded, its kernels tell: libraries write for which GPUs a kernel was made. AMD's GPUs
    count their architectures otherwise, and have no TF32 that torch's flag would choose.
    """
    if trace.rocm:
        return False
    listed: Any = trace.header.get("deviceProperties")
    majors = [item.get("computeMajor") for item in listed if isinstance(item, dict)] if isinstance(listed, list) else []
    known = [major for major in majors if isinstance(major, int)]
    if known:
        return max(known) >= TF32_FROM
    named = [trace.names[name] for name in set(trace.gpu.name)]
    # Newer GPUs run older ones' kernels too.
    return any(re.search(_WITH_TF32, name) for name in named) or not any(
        re.search(_BEFORE_TF32, name) for name in named
    )
