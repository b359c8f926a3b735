"""What torch.compile did, read from a recording: regions in the trace, and the evidence under its own key."""

from __future__ import annotations

from pytest_torchprof.analysis.compilation.evidence import NOT_USED, Compile, read, unprofiled

__all__ = ["NOT_USED", "Compile", "read", "unprofiled"]
