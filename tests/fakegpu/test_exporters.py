"""torch 2.15's exporter in Python, with real torch: what it moves is read from where it was."""

from __future__ import annotations

import pytest
import torch
from fakegpu.recording import BOTH, captured
from torch.profiler import profile

from pytest_torchprof import load

pytestmark = [
    pytest.mark.simulated_gpu,
    pytest.mark.skipif(torch.__version__ < (2, 15), reason="has no graph_lanes"),
]


def work_of(path):
    trace = load(path).trace
    gpu = trace.gpu
    streams = [trace.streams[stream] for stream in gpu.stream]
    return sorted(zip(gpu.start, [trace.names[name] for name in gpu.name], streams, strict=True))


def test_kernels_of_graphs_are_on_the_streams_on_which_they_ran(tmp_path):
    x = torch.ones(8, device="cuda")
    with profile(activities=BOTH):
        pass
    graph = captured(lambda: x.add_(1).sin_())
    with profile(activities=BOTH) as prof:
        graph.replay()
        x.mul_(2)
        torch.cuda.synchronize()
    plain, moved = str(tmp_path / "plain.json"), str(tmp_path / "moved.json")
    prof.export_chrome_trace(plain, use_python_export=True)
    nodes = {node: [{"name": "mine"}] for node in load(plain).trace.gpu.node if node}
    assert len(nodes) == 2
    prof.export_chrome_trace(moved, cuda_graph_annotations=nodes, graph_lanes="all", default_stream=99)
    assert '"original_stream"' in (tmp_path / "moved.json").read_text()
    assert work_of(moved) == work_of(plain)
    assert 99 not in {stream for _, _, stream in work_of(moved)}
