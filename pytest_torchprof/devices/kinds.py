"""The kinds of devices that are known, and what a runtime call of any of them means."""

from __future__ import annotations

import re
from importlib import import_module

from pytest_torchprof.devices.base import CallKind, DeviceKind

# A recording that names no device is taken for the first kind's.
_FILES = (
    "cuda",
    "cpu",
)
KINDS: tuple[DeviceKind, ...] = tuple(import_module(f"pytest_torchprof.devices.{file}").KIND for file in _FILES)

_PATTERNS = [(call, pattern) for kind in KINDS for call, pattern in kind.calls]
_CALLS = re.compile("|".join(f"(?P<_{i}>{pattern})" for i, (_, pattern) in enumerate(_PATTERNS)))
# The tail names the per-thread default stream's or a versioned entry point of the same call.
_TAIL = re.compile(r"(?:_ptsz|_ptds|_v\d+|_spt)+$")


def kind_of(device: str | None) -> DeviceKind:
    """Return the kind of a device by its name, such as "cuda:0"."""
    name = (device or "").partition(":")[0]
    return next((kind for kind in KINDS if kind.name == name), KINDS[0])


def call_kind(name: str) -> CallKind:
    """Return what the call ``name`` means; unknown calls are OTHER."""
    match = _CALLS.fullmatch(_TAIL.sub("", name))
    return _PATTERNS[int(str(match.lastgroup)[1:])][0] if match else CallKind.OTHER
