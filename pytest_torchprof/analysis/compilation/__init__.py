"""What torch.compile did, read from a recording: regions in the trace, and the evidence under its own key."""

from __future__ import annotations

from pytest_torchprof.analysis.compilation.evidence import NOT_USED, Compile, Recompile, read, unprofiled
from pytest_torchprof.analysis.compilation.graph_breaks import GraphBreak

__all__ = ["NOT_USED", "Compile", "GraphBreak", "Recompile", "read", "unprofiled"]
