"""What Inductor's graphs are, as plain data for the recording."""

from __future__ import annotations

from pytest_torchprof.capture import torch_private


def graphs(*, cpu: bool) -> list[dict[str, object]]:
    """Return every graph that is alive: the recording's ranges tell later which of them ran."""
    return [
        {
            "hash": graph.key,
            "code_hash": graph.code_hash,
            "code_path": graph.code_path,
            "cudagraph_skip": graph.cudagraph_skip,
            "aten_calls": torch_private.aten_calls(graph),
            "unprofiled": cpu and torch_private.has_unprofiled_cpu_kernels(graph),
        }
        for graph in torch_private.inductor_graphs()
    ]
