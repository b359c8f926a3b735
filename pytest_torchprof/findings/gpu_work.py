"""Findings about GPU work that is missing from the recording, or does not belong to it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_torchprof.findings.finding import Finding, Rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_torchprof.profile import Profile


def _no_gpu_work(profile: Profile) -> Iterator[Finding]:
    if profile.trace.on_cpu or any(step.kernels or step.memcpys or step.memsets for step in profile.steps):
        return
    launches = sum(step.launches or 0 for step in profile.steps)
    cause = (
        f"{launches} launches have no GPU operation: the GPU side of the recording is missing"
        if launches
        else "nothing was launched: the code ran on another device, or a compiler removed results that nobody uses"
    )
    yield Finding(
        code="no-gpu-work",
        title="No GPU work",
        message=cause,
        evidence={"launches": launches},
        remedy="check that model and inputs are on the GPU, and return what the code computes",
    )


def _lost_kernels(profile: Profile) -> Iterator[Finding]:
    if profile.trace.lost_kernels:
        yield Finding(
            code="lost-kernels",
            title="Lost kernels",
            message=f"{profile.trace.lost_kernels} launches have no kernel in the recording",
            evidence={"lost_kernels": profile.trace.lost_kernels},
            remedy="synchronize every device before the profiler stops; look for a second profiler (nsys, ncu, DCGM)",
        )


def _in_flight_kernels(profile: Profile) -> Iterator[Finding]:
    if profile.trace.orphans:
        yield Finding(
            code="in-flight-kernels",
            title="Kernels in flight",
            message=f"{profile.trace.orphans} GPU operations were launched before the recording began; "
            "they belong to no step",
            evidence={"orphans": profile.trace.orphans},
            remedy="synchronize every device before the profiler starts",
        )


NO_GPU_WORK = Rule(code="no-gpu-work", find=_no_gpu_work)
LOST_KERNELS = Rule(code="lost-kernels", find=_lost_kernels)
IN_FLIGHT_KERNELS = Rule(code="in-flight-kernels", find=_in_flight_kernels)
