"""Flame graphs for other tools: folded stacks, and speedscope's files."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from pytest_torchprof.text import printable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_torchprof.analysis.stacks import StackTree

WEIGHTS = {"gpu": "time on the GPU", "cpu": "time on the CPU"}
_SCHEMA = "https://www.speedscope.app/file-format-schema.json"


def collapsed(tree: StackTree, weight: str) -> str:
    """Return a line for each stack: its frames with semicolons between them, and its own time in ns."""
    return "".join(f"{';'.join(map(_folded, frames))} {ns}\n" for frames, ns in _stacks(tree, weight))


def speedscope(tree: StackTree, title: str) -> str:
    """Return a file for speedscope, with the GPU's time and the CPU's, as far as there is any."""
    frames: dict[str, int] = {}
    profiles = []
    for weight, name in WEIGHTS.items():
        stacks = list(_stacks(tree, weight))
        if stacks:
            profiles.append(_profile(name, stacks, frames))
    document: dict[str, Any] = {
        "$schema": _SCHEMA,
        "name": printable(title),
        "exporter": "torchprof",
        "activeProfileIndex": 0,
        "shared": {"frames": [{"name": printable(name)} for name in frames]},
        "profiles": profiles,
    }
    return json.dumps(document, separators=(",", ":"), allow_nan=False) + "\n"


def _profile(name: str, stacks: list[tuple[list[str], int]], frames: dict[str, int]) -> dict[str, Any]:
    return {
        "type": "sampled",
        "name": name,
        "unit": "nanoseconds",
        "startValue": 0,
        "endValue": sum(ns for _, ns in stacks),
        "samples": [[frames.setdefault(frame, len(frames)) for frame in stack] for stack, _ in stacks],
        "weights": [ns for _, ns in stacks],
    }


def _stacks(tree: StackTree, weight: str) -> Iterator[tuple[list[str], int]]:
    """Yield each stack that took time of its own, outermost frame first, with its ns."""
    times = tree.gpu_ns if weight == "gpu" else tree.cpu_ns
    for path, ns in zip(tree.paths(), times, strict=True):
        if ns > 0:
            yield [tree.names[node] for node in path], ns


def _folded(name: str) -> str:
    """Return a frame's name without the characters that end a frame in this format."""
    return printable(name).replace(";", ",")
