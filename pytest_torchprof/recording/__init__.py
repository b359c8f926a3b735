"""THE reader: a trace file of any torch into a Trace; and what is written into our own files."""

from __future__ import annotations

from pytest_torchprof.recording.reader import copy, read, write_metadata

__all__ = ["copy", "read", "write_metadata"]
