"""The devices that can be measured: a new kind is a file like ``cuda.py`` and its line here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_torchprof.capture.devices.cpu import Cpu
from pytest_torchprof.capture.devices.cuda import Cuda
from pytest_torchprof.errors import TorchprofError
from pytest_torchprof.errors import hide_our_frames as __tracebackhide__  # noqa: F401  (read by pytest)

if TYPE_CHECKING:
    from pytest_torchprof.capture.devices.base import LiveDevice

# By torch's name, the first that is there for "auto".
_LIVE: dict[str, type[LiveDevice]] = {
    "cuda": Cuda,
    "cpu": Cpu,
}


def pick_device(wanted: str) -> str:
    """Return the device that "auto", "cpu", "cuda" or "cuda:N" stands for here: "cpu" or "cuda:N".

    ROCm devices are "cuda:N" too, as in torch. Raises TorchprofError for a device that is not there or whose
    recordings cannot be read.
    """
    kind, _, number = wanted.partition(":")
    if wanted == "auto":
        kind = next(name for name, live in _LIVE.items() if live.is_there())
    live = _LIVE.get(kind)
    if live is None or (number and not (live.numbered and number.isdecimal())):
        raise TorchprofError(f"unknown device {wanted!r}. Use 'auto', 'cpu', 'cuda' or 'cuda:N'.")
    return live.pick(number, wanted)


def live_device(name: str) -> LiveDevice:
    """Return the device of this name, as `pick_device` returns it."""
    return _LIVE[name.partition(":")[0]](name)
