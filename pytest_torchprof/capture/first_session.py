"""The process's first profiler session: CPU and GPU together, with a real kernel that must be seen."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from pytest_torchprof.capture import reasons
from pytest_torchprof.capture.devices import why_unusable
from pytest_torchprof.capture.processes import only_measurement
from pytest_torchprof.capture.session import Session, refuse_second_profiler
from pytest_torchprof.capture.torch_profiler import this_process
from pytest_torchprof.devices.kinds import kind_of
from pytest_torchprof.errors import NotMeasured
from pytest_torchprof.errors import hide_our_frames as __tracebackhide__  # noqa: F401  (read by pytest)
from pytest_torchprof.recording.reader import read

if TYPE_CHECKING:
    from collections.abc import Mapping

# The sentinel of each is twice as long as that of the one before, if that lost kernels.
_ATTEMPTS = 4
# torch alone: what a fresh process does must not depend on this one, nor on us. The number is looked for among what
# others print; a first session may lose kernels.
_PROGRAM = """
import sys
import torch
from torch.profiler import ProfilerActivity, profile

x = torch.zeros(1, device=sys.argv[1])
torch.cuda.synchronize(sys.argv[1])
with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
    for _ in range(int(sys.argv[2])):
        x.add_(1)
    torch.cuda.synchronize(sys.argv[1])
print("kernels", sum(event.device_type.name == "CUDA" for event in profiler.events()))
"""
_LAUNCHED = 64
# A fresh process imports torch and begins CUDA, which takes half a minute on a slow file system.
_LIMIT_S = 120.0
# Calls of a class of kineto's own are named by their object: "function cbapi.getCuptiStatus() failed ...".
_REFUSAL = re.compile(r"function ([\w.]+)\(([^)]*)\) failed with error (\w+)(?: \((\d+)\))?")
_VERSIONS = re.compile(r"CUDA versions\. (CUPTI: .*)")
_OF_THE_DEVICE = re.compile(r"CUDA error|HIP error|AcceleratorError|CUDA driver error|OutOfMemoryError")


def arm(device: str) -> None:
    """Make sure that this process records kernels of `device`; the first call opens a session, later ones are free.

    kineto registers with the GPU's tracing library once, with what the first session asks for, so the earlier the
    better; and only the kernels of CUDA graphs that are captured after it are counted. Raises NotMeasured when another
    profiler runs, when the kernels that were launched are not in the recording, and with whatever the device raises.
    """
    if not kind_of(device).has_launches:
        return
    refuse_second_profiler()
    try:
        reason = why_unusable(device)
        if reason is None:
            with only_measurement(device):
                reason = _probe(device)
    except NotMeasured:
        raise
    except Exception as error:  # noqa: BLE001 - a test that does not measure must not suffer from the device
        raise NotMeasured(reasons.of_device(device, error)) from None
    if reason:
        raise NotMeasured(reason)


@cache
def _probe(device: str) -> str | None:
    if any(_sees_the_sentinel(device) for _ in range(_ATTEMPTS)):
        return None
    return why_no_kernels(device, fresh_process(device))


def _sees_the_sentinel(device: str) -> bool:
    with TemporaryDirectory() as folder, Session(device) as session:
        session.finish()
        if not session.exportable:
            return False
        recording = Path(folder) / "probe.json"
        session.export(recording)
        return look_for_losses(recording)


def look_for_losses(recording: Path) -> bool:
    """Return whether a recording has anything of the GPU; where a kernel is missing, the next sentinel is longer."""
    trace = read(recording)
    if trace.links.lost or not len(trace.gpu):
        this_process().lost_kernels()
    return bool(trace.devices)


def why_no_kernels(device: str, fresh: FreshProcess) -> str:
    """Return why torch.profiler records no kernels in this process, from what a fresh one saw."""
    seen = f"torch.profiler records no kernels on {device} in this process, though some were launched"
    if fresh.kernels:
        return (
            f"{seen}. A fresh process records them, so that it is something in this one: most often a profiler session "
            "with the CPU only that ran earlier (in a conftest, a plugin or an import)"
        )
    if fresh.refusals:
        said = "; ".join(map(str, fresh.refusals))
        advice = [text for refusal in fresh.refusals if (text := reasons.of_cupti(refusal.error))]
        return f"{seen}, nor does a fresh process, in which CUPTI says {': '.join([said, *advice])}"
    if fresh.failure:
        return f"{seen}; a fresh process, which was to tell whether it is this one, failed: {fresh.failure}"
    return f"{seen}, nor does a fresh process, and CUPTI says nothing. Usual causes: {'; '.join(_usual_causes())}"


def _usual_causes() -> list[str]:
    tools = [name for name in ("NSYS_PROFILING_SESSION_ID", "CUDA_INJECTION64_PATH") if os.environ.get(name)]
    attached = [f"another profiling tool is attached ({', '.join(tools)} is set); run without it"] if tools else []
    return [*attached, "torch was built or installed without CUPTI (libcupti), or loads another CUDA's"]


@dataclass(frozen=True, slots=True)
class Refusal:
    """A call of CUPTI that failed."""

    call: str
    error: str
    """Its name, such as CUPTI_ERROR_INSUFFICIENT_PRIVILEGES."""

    def __str__(self) -> str:
        return f"{self.error} to {self.call}"


@dataclass(frozen=True, slots=True, kw_only=True)
class FreshProcess:
    """What a process of its own saw of the kernels that it launched."""

    launched: int
    kernels: int | None = None
    """How many its profiler recorded; None where it did not come that far."""
    refusals: tuple[Refusal, ...] = ()
    """What CUPTI refused, each error once, in the order in which they came."""
    versions: str | None = None
    """As kineto tells them: "CUPTI: 130001; Runtime: 13000; Driver: 13000"."""
    failure: str | None = None
    """Why it did not come to an end."""

    @property
    def device_failed(self) -> bool:
        """Whether it was the GPU that failed, and not its profiler."""
        return self.failure is not None and _OF_THE_DEVICE.search(self.failure) is not None


def without_filters(environ: Mapping[str, str]) -> dict[str, str]:
    """Return an environment in which no warning of torch's ends a process whose own warnings nobody asked about."""
    return {name: value for name, value in environ.items() if name != "PYTHONWARNINGS"}


def fresh_process(device: str, *, limit_s: float = _LIMIT_S) -> FreshProcess:
    """Launch a few kernels on `device` under torch.profiler in a process of its own, with kineto's log."""
    # -P: no module of the current folder, such as a checkout of torch, may take the place of an installed one.
    command = [sys.executable, "-P", "-c", _PROGRAM, device, str(_LAUNCHED)]
    environment = {**without_filters(os.environ), "KINETO_LOG_LEVEL": "1"}
    try:
        done = subprocess.run(  # noqa: S603 - Python itself, with the program above
            command, env=environment, capture_output=True, text=True, errors="replace", timeout=limit_s, check=False
        )
    except subprocess.TimeoutExpired:
        return FreshProcess(launched=_LAUNCHED, failure=f"it did not end within {limit_s:.0f} s")
    except OSError as error:
        return FreshProcess(launched=_LAUNCHED, failure=f"it could not be started: {error.strerror or error}")
    counted = re.search(r"^kernels (\d+)$", done.stdout, re.MULTILINE)
    versions = _VERSIONS.search(done.stderr)
    return FreshProcess(
        launched=_LAUNCHED,
        kernels=int(counted[1]) if counted else None,
        refusals=_refusals(done.stderr),
        versions=versions[1].strip() if versions else None,
        failure=None if counted else _last_line(done.stderr) or f"it {how_it_ended(done.returncode)}",
    )


def _refusals(log: str) -> tuple[Refusal, ...]:
    found: dict[str, Refusal] = {}
    for call, given, error, _ in _REFUSAL.findall(log):
        found.setdefault(error, Refusal(call=f"{call}({given.strip()})", error=error))
    return tuple(found.values())


def how_it_ended(status: int) -> str:
    """Return how a process with this exit status ended, in words that follow on it."""
    if status >= 0:
        return f"ended with exit status {status}"
    with suppress(ValueError):
        return f"was ended by {signal.Signals(-status).name}"
    return f"was ended by signal {-status}"


def _last_line(log: str) -> str | None:
    """Return what a traceback ends with: its last line that is not the explanation of an error of CUDA."""
    lines = [line for line in log.splitlines() if re.match(r"[\w.]+(Error|Exception|Interrupt|Warning)\b", line)]
    return lines[-1] if lines else None
