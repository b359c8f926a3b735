"""What torch.compile did, read from a recording: regions in the trace, and the evidence under its own key."""

from __future__ import annotations

from pytest_torchprof.compiled.breaks import GraphBreak
from pytest_torchprof.compiled.model import NOT_USED, Compile, Recompile, read, unprofiled

__all__ = ["NOT_USED", "Compile", "GraphBreak", "Recompile", "read", "unprofiled"]
