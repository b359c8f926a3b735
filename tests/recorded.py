"""Recordings that torch.profiler makes of one call on the CPU, in the form of this plugin's own."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import torch
from torch.profiler import ProfilerActivity, profile, record_function

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def record_call(path: Path, code: Callable[[], object], **settings: Any) -> profile:
    """Write a recording of one call as a step behind the sentinel; return torch's profiler, with these settings."""
    with profile(activities=[ProfilerActivity.CPU], **settings) as profiler:
        with record_function("torchprof::sentinel"):
            torch.ones(1)
        with record_function("ProfilerStep#0"):
            code()
    profiler.export_chrome_trace(str(path))
    ours = {"schema": 1, "device": "cpu", "steps": 1, "problems": []}
    path.write_text(json.dumps(json.loads(path.read_text()) | {"torchprof": ours}))
    return profiler
