"""The question about CUDA graphs: the numbers of their launches and of their kernels."""

from __future__ import annotations

import os
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from events import number
from sessions import record_asked

if TYPE_CHECKING:
    from questions import Said
    from sessions import Recording

_KERNELS = 3


def graph_numbers(_: str, *, quick: bool) -> Said:
    """Replay graphs that were captured before the first session, in it, and after it.

    NVIDIA's release notes say of CUPTI before 13.1 Update 1: wrong correlation ids of cudaGraphLaunch in sessions
    after the first.
    """
    x = torch.ones(64, device="cuda")
    captured = {"before the first session": _capture(x)}
    sessions, inside = count(1), list[torch.cuda.CUDAGraph]()
    for _round in range(2 if quick else 4):
        for when, graph in captured.items():
            number = next(sessions)
            yield _judged(f"session {number}, a graph captured {when}", _replayed(x, graph, _kept(number)))
        if len(captured) == 1:
            record_asked(lambda: inside.append(_capture(x)))
            captured |= {f"in session {next(sessions)}": inside[0], "between sessions": _capture(x)}


def _capture(x: torch.Tensor) -> torch.cuda.CUDAGraph:
    x.sin()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        x.sin()
        x.cos()
        x.add_(1)
    return graph


def _kept(session: int) -> Path | None:
    folder = os.environ.get("DAY_FILES")
    return Path(folder, f"graph_numbers_{session}.json") if folder else None


def _replayed(x: torch.Tensor, graph: torch.cuda.CUDAGraph, keep: Path | None) -> Recording:
    def code() -> None:
        x.mul_(2)
        graph.replay()
        x.mul_(2)
        graph.replay()
        graph.replay()
        x.mul_(2)

    return record_asked(code, keep=keep)


def _judged(session: str, recording: Recording) -> tuple[str, dict[str, Any]]:
    launches = recording.launches("GraphLaunch")
    found = [len(recording.of(launch)) for launch in launches]
    called = {number(call): call["name"] for call in recording.calls}
    nodes = [one for one in recording.gpu if one["args"].get("graph node id")]
    strays = [one for one in nodes if "GraphLaunch" not in called.get(number(one), "")]
    figures = {
        "calls": [[number(call), call["name"]] for call in recording.calls],
        "operations": [
            [number(one), one["args"].get("graph id"), one["args"].get("graph node id"), one["name"][:40]]
            for one in recording.gpu
        ],
    }
    if found == [_KERNELS] * 3 and not strays:
        return f"{session}: right, {_KERNELS} kernels under each of 3 launches", figures
    whose = sorted({called.get(number(one), "no call") for one in strays})
    apart = sorted({number(one) - number(launch) for one in strays for launch in launches}, key=abs)[:4]
    said = f"{session}: wrong, {found} kernels under {len(launches)} launches instead of {[_KERNELS] * 3}"
    if strays:
        said += f"; {len(strays)} kernels of graphs have the number of {', '.join(whose)}, {apart} from a launch's"
    return said, figures
