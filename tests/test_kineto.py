"""GPU utilization, SM efficiency and occupancy are those of kineto's TensorBoard plugin, done again from the file.

Two things differ on purpose. The plugin takes each step for itself and then the whole; here only the whole window is
asked for. And the plugin's window ends with the last step, lengthened to the end of what that launched; here with the last
GPU operation, which is another one only where an orphan runs longer.
"""

from __future__ import annotations

import gzip
import json

import pytest

from pytest_torchprof import load

pytestmark = pytest.mark.any_torch

# Recordings with steps whose kernels say how many blocks and warps they have.
RECORDINGS = (
    "a100_cuda_sync_events",
    "a100_graphs_nccl_orphans",
    "a100_megatron_tp8_rank0",
    "h100_transformer_three_steps",
    "rtx3060_compile_steps",
    "rtx3060_cudagraph_steps",
    "v100_dlrm_rank0",
    "v100_resnet50_steps",
)


def by_the_plugin(path):
    """Return utilization, SM efficiency and occupancy by the plugin's formulas, from the file's own numbers."""
    events = [
        event for event in json.loads(gzip.decompress(path.read_bytes()))["traceEvents"] if event.get("ph") == "X"
    ]
    gpu = [
        event for event in events if event["cat"].lower() in {"kernel", "gpu_memcpy", "gpu_memset", "memcpy", "memset"}
    ]
    steps = [event for event in events if event["name"].startswith("ProfilerStep#") and "gpu" not in event["cat"]]
    begin = min(step["ts"] for step in steps)
    end = max(event["ts"] + event["dur"] for event in [*steps, *gpu])
    # Every kernel counts with what of it lies in the window.
    kernels = [
        (max(event["ts"], begin), min(event["ts"] + event["dur"], end), event["args"])
        for event in gpu
        if event["cat"].lower() == "kernel" and event["ts"] + event["dur"] > begin
    ]
    moments = sorted(
        [(start, 1, args["blocks per SM"]) for start, _, args in kernels]
        + [(until, -1, args["blocks per SM"]) for _, until, args in kernels]
    )
    busy = filled = 0.0
    running, blocks, since = 0, 0.0, begin
    for moment, change, of_it in moments:
        busy += (moment - since) * (running > 0)
        filled += (moment - since) * min(blocks, 1.0) * (running > 0)
        running, blocks, since = running + change, blocks + change * of_it, moment
    spent = sum(until - start for start, until, _ in kernels)
    occupied = sum((until - start) * args["est. achieved occupancy %"] for start, until, args in kernels)
    return busy / (end - begin), filled / (end - begin), occupied / spent / 100


@pytest.mark.parametrize("recording", RECORDINGS)
def test_the_three_formulas(recording, shared_trace):
    path = shared_trace(recording)
    profile = load(path)
    ours = (profile.gpu_utilization, profile.sm_efficiency, profile.achieved_occupancy)
    assert ours == pytest.approx(by_the_plugin(path), rel=1e-4)
