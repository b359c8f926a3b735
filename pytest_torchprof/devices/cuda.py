"""GPUs of CUDA and of ROCm, for which torch has the same name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_torchprof.devices.kinds import CallKind, DeviceKind

if TYPE_CHECKING:
    from collections.abc import Iterable

_KERNEL_LAUNCH = (
    r"cuda(?:LaunchKernel(?:ExC)?|LaunchCooperativeKernel\w*)|cuLaunch(?:Kernel(?:Ex)?|CooperativeKernel)"
    r"|hip(?:Ext|Hcc)?(?:Module)?Launch(?:Cooperative)?Kernel(?:ExC|MultiDevice)?"
    r"|hipExtLaunchMultiKernelMultiDevice|hipLaunchByPtr"
)
# kineto does not record cuGraphLaunch and cuLaunchCooperativeKernel yet; they are listed for the day when it does.
_CALLS = (
    (CallKind.GRAPH_LAUNCH, r"(?:cuda|cu|hip)GraphLaunch"),
    (CallKind.LAUNCH, _KERNEL_LAUNCH),
    (CallKind.DEVICE_SYNC, r"(?:cuda|hip)DeviceSynchronize"),
    (CallKind.BLOCKING, r"(?:cuda|hip)(?:Stream|Event)Synchronize"),
    # hipMemcpyWithStream is what .item() is on ROCm.
    (CallKind.BLOCKING_COPY, r"(?:cuda|hip)Memcpy(?:2D|3D)?(?:(?:To|From)(?:Symbol|Array))?|hipMemcpyWithStream"),
    (CallKind.COPY, r"(?:cuda|cu|hip)Memcpy\w*"),
    (CallKind.FILL, r"(?:cuda|cu|hip)Memset\w*"),
    (CallKind.CAPTURE_BEGIN, r"(?:cuda|cu|hip)StreamBeginCapture\w*"),
    (CallKind.CAPTURE_END, r"(?:cuda|cu|hip)StreamEndCapture\w*"),
    # cudaFreeAsync, like any return to a pool of the runtime's, does not wait.
    (CallKind.FREE, r"(?:cuda|hip)Free(?:Host|Array|MipmappedArray)?|hipHostFree"),
    (CallKind.QUERY, r"(?:cuda|hip)(?:Event|Stream)Query"),
    (CallKind.ERROR_TEXT, r"(?:cuda|hip)GetError(?:String|Name)"),
)

KIND = DeviceKind(
    name="cuda",
    calls=_CALLS,
    environment=(
        "gpu",
        "compute_capability",
        "torch",
        "triton",
        "cuda",
        "rocm",
        "cudnn",
        "driver",
        "tf32_matmul",
        "tf32_cudnn",
        "matmul_precision",
    ),
)


def is_rocm(calls: Iterable[str]) -> bool:
    """Return whether calls of the runtime, given by name, are ROCm's."""
    return any(name.startswith("hip") for name in calls)
