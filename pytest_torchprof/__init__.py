"""Assert what the GPU really did in a test: kernels, launches, copies, graph breaks."""

from __future__ import annotations
