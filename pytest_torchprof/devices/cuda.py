"""GPUs of CUDA and of ROCm, for which torch has the same name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_torchprof.devices.kinds import CallKind, DeviceKind
from pytest_torchprof.text.expressions import Expression

if TYPE_CHECKING:
    from collections.abc import Iterable

_KERNEL_LAUNCH = (
    r"cuda(?:LaunchKernel(?:ExC)?|LaunchCooperativeKernel\w*)|cuLaunch(?:Kernel(?:Ex)?|CooperativeKernel)"
    r"|hip(?:Ext|Hcc)?(?:Module)?Launch(?:Cooperative)?Kernel(?:ExC|MultiDevice)?"
    r"|hipExtLaunchMultiKernelMultiDevice|hipLaunchByPtr"
)
_BLOCKING_COPY = r"(?:cuda|hip)Memcpy(?:2D|3D)?(?:(?:To|From)(?:Symbol|Array))?|hipMemcpyWithStream"
# kineto does not record cuGraphLaunch and cuLaunchCooperativeKernel yet; they are listed for the day when it does.
_CALLS = (
    (CallKind.GRAPH_LAUNCH, Expression(r"(?:cuda|cu|hip)GraphLaunch", words="GraphLaunch")),
    (CallKind.LAUNCH, Expression(_KERNEL_LAUNCH, words="Launch")),
    (CallKind.DEVICE_SYNC, Expression(r"(?:cuda|hip)DeviceSynchronize", words="DeviceSynchronize")),
    (CallKind.BLOCKING, Expression(r"(?:cuda|hip)(?:Stream|Event)Synchronize", words="Synchronize")),
    # hipMemcpyWithStream is what .item() is on ROCm.
    (CallKind.BLOCKING_COPY, Expression(_BLOCKING_COPY, words="Memcpy")),
    (CallKind.COPY, Expression(r"(?:cuda|cu|hip)Memcpy\w*", words="Memcpy")),
    (CallKind.FILL, Expression(r"(?:cuda|cu|hip)Memset\w*", words="Memset")),
    (CallKind.CAPTURE_BEGIN, Expression(r"(?:cuda|cu|hip)StreamBeginCapture\w*", words="BeginCapture")),
    (CallKind.CAPTURE_END, Expression(r"(?:cuda|cu|hip)StreamEndCapture\w*", words="EndCapture")),
    # cudaFreeAsync, like any return to a pool of the runtime's, does not wait.
    (CallKind.FREE, Expression(r"(?:cuda|hip)Free(?:Host|Array|MipmappedArray)?|hipHostFree", words="Free")),
    (CallKind.QUERY, Expression(r"(?:cuda|hip)(?:Event|Stream)Query", words="Query")),
    (CallKind.ERROR_TEXT, Expression(r"(?:cuda|hip)GetError(?:String|Name)", words="GetError")),
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
