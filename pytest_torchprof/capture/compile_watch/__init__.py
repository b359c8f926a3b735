"""What torch.compile does while code is measured, as plain data for the recording; imports torch only when it runs."""

from __future__ import annotations

from pytest_torchprof.capture.compile_watch.history import compile_history
from pytest_torchprof.capture.compile_watch.watch import CompileWatch

__all__ = ["CompileWatch", "compile_history"]
