"""The process's first profiler session: CPU and GPU together, with a real kernel that must be seen."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from pytest_torchprof.capture.graphs import watched
from pytest_torchprof.capture.session import Session, refuse_second_profiler
from pytest_torchprof.errors import NotMeasured
from pytest_torchprof.errors import hide_our_frames as __tracebackhide__  # noqa: F401  (read by pytest)
from pytest_torchprof.recording import read

_ATTEMPTS = 2


def arm(device: str) -> None:
    """Make sure that this process records kernels of `device`; the first call opens a session, later ones are free.

    kineto registers with the GPU's tracing library once, with what the first session asks for, so the earlier the
    better. Raises NotMeasured when another profiler runs or when the kernel that was launched is not in the recording.
    """
    if device == "cpu":
        return
    refuse_second_profiler()  # pragma: needs gpu
    # A graph that is captured from here on has its kernels counted.
    watched()  # pragma: needs gpu
    reason = _probe(device)  # pragma: needs gpu
    if reason:  # pragma: needs gpu
        raise NotMeasured(reason)


@cache
def _probe(device: str) -> str | None:  # pragma: needs gpu
    if any(_sees_the_sentinel(device) for _ in range(_ATTEMPTS)):
        return None
    return (
        f"torch.profiler records no kernels on {device} in this process, though some were launched. Usual causes: "
        + "; ".join(_usual_causes())
    )


def _sees_the_sentinel(device: str) -> bool:  # pragma: needs gpu
    with TemporaryDirectory() as folder, Session(device) as session:
        session.finish()
        if not session.exportable:
            return False
        recording = Path(folder) / "probe.json"
        session.export(recording)
        return bool(read(recording).devices)


def _usual_causes() -> list[str]:  # pragma: needs gpu
    tools = [name for name in ("NSYS_PROFILING_SESSION_ID", "CUDA_INJECTION64_PATH") if os.environ.get(name)]
    attached = [f"another profiling tool is attached ({', '.join(tools)} is set); run without it"] if tools else []
    return [
        *attached,
        "a profiler session with the CPU only ran earlier in this process (in a conftest or an earlier test)",
        "CUPTI is missing or the driver refuses it to this user (see the profiler's warnings on stderr)",
    ]
