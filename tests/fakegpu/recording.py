"""What the tests of the simulated device read out of torch's recordings."""

from __future__ import annotations

import json

import torch
from torch.profiler import ProfilerActivity

BOTH = [ProfilerActivity.CPU, ProfilerActivity.CUDA]
CALLS = ("cuda_runtime", "cuda_driver")


def events_of(prof, folder, *categories):
    path = folder / "trace.json"
    prof.export_chrome_trace(str(path))
    return [event for event in json.loads(path.read_text())["traceEvents"] if event.get("cat") in categories]


def kernels(events):
    return [event for event in events if event["cat"] == "kernel"]


def launches(events):
    return [event for event in events if event["cat"] in CALLS and "Launch" in event["name"]]


def captured(step):
    """Return a CUDA graph of the step."""
    with torch.cuda.stream(torch.cuda.Stream()):
        step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph
