"""Reasons why the device that is asked for cannot be measured in this process."""

from __future__ import annotations

from pytest_torchprof.reasons.codes import Code
from pytest_torchprof.reasons.no_gpu import AnyWhyNoGpu  # noqa: TC001 - msgspec reads the annotations
from pytest_torchprof.reasons.reason import Reason
from pytest_torchprof.text import counted


class NoGpuSeen(Reason, frozen=True):
    """A GPU is asked for, and torch sees none."""

    CODE = Code.NO_GPU
    ADVICE = "use 'auto' or 'cpu', or run where there is a GPU"

    asked: str
    version: str
    """torch's."""
    why: AnyWhyNoGpu

    @property
    def sentence(self) -> str:
        return (
            f"device {self.asked!r} was asked for, but torch {self.version} sees no GPU (CUDA or ROCm): {self.why}. "
            "Use 'auto' or 'cpu', or run where there is a GPU."
        )


class NoGpuOfNumber(Reason, frozen=True):
    """The machine has fewer GPUs."""

    CODE = Code.NO_SUCH_DEVICE
    ADVICE = "name one that torch sees"

    asked: str
    gpus: int

    @property
    def sentence(self) -> str:
        seen = counted(self.gpus, "device")
        return f"device {self.asked!r} was asked for, but torch sees {seen}, from 'cuda:0'."


class UnknownDevice(Reason, frozen=True):
    """No device that can be measured is called so."""

    CODE = Code.NO_SUCH_DEVICE
    ADVICE = "name one of those in the text"

    asked: str
    names: tuple[str, ...]

    @property
    def sentence(self) -> str:
        *forms, last = map(repr, self.names)
        return f"unknown device {self.asked!r}. Use {', '.join(forms)} or {last}."
