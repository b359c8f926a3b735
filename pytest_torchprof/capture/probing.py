"""Whether a fresh process records kernels where this one does not, and what CUPTI says there."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

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
        failure=None if counted else _last_line(done.stderr) or _ended(done.returncode),
    )


def _refusals(log: str) -> tuple[Refusal, ...]:
    found: dict[str, Refusal] = {}
    for call, given, error, _ in _REFUSAL.findall(log):
        found.setdefault(error, Refusal(call=f"{call}({given.strip()})", error=error))
    return tuple(found.values())


def _ended(status: int) -> str:
    if status >= 0:
        return f"it ended with exit status {status}"
    with suppress(ValueError):
        return f"it was ended by {signal.Signals(-status).name}"
    return f"it was ended by signal {-status}"


def _last_line(log: str) -> str | None:
    """Return what a traceback ends with: its last line that is not the explanation of an error of CUDA."""
    lines = [line for line in log.splitlines() if re.match(r"[\w.]+(Error|Exception|Interrupt|Warning)\b", line)]
    return lines[-1] if lines else None
