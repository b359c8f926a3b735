"""Reasons why a test does not run: its marker cannot be read, or it has no GPU where one is required."""

from __future__ import annotations

from pytest_torchprof.reasons import decoding  # noqa: TC001 - msgspec reads the annotations
from pytest_torchprof.reasons.codes import Code
from pytest_torchprof.reasons.no_gpu import AnyWhyNoGpu  # noqa: TC001 - msgspec reads the annotations
from pytest_torchprof.reasons.reason import KnownAsItsCause, Reason
from pytest_torchprof.text import counted


class OfMarker(KnownAsItsCause, Reason, frozen=True):
    """A reason that lies in the marker of a test."""

    FOR_THE_DOCTOR = False

    test: str
    why: decoding.AnyReason

    @property
    def text(self) -> str:
        return f"{self.test}: torchprof marker: {self.why.text}"


class NotMeasurable(KnownAsItsCause, Reason, frozen=True):
    """A GPU is required, and the device of a test cannot be measured."""

    FOR_THE_DOCTOR = False

    test: str
    why: decoding.AnyReason

    @property
    def text(self) -> str:
        return f"--torchprof-require-gpu: {self.test} cannot be measured: {self.why.text}"


class CpuForWantOfGpu(Reason, frozen=True):
    """A GPU is required, and a test would be measured on the CPU, since torch sees no GPU."""

    CODE = Code.NO_GPU
    ADVICE = "do what it says behind the test, or leave the option out on this machine"
    SENTENCE = "--torchprof-require-gpu: {test} would be measured on the cpu (torch sees no GPU: {why})"

    test: str
    why: AnyWhyNoGpu


class CpuAsAsked(Reason, frozen=True):
    """A GPU is required, and a test asks for the CPU."""

    CODE = Code.NO_GPU
    ADVICE = "deselect the test, or leave the option out"
    SENTENCE = "--torchprof-require-gpu: {test} would be measured on the cpu (its device is {device!r})"

    test: str
    device: str


class TooFewGpus(Reason, frozen=True):
    """The machine has fewer GPUs than a test has ranks."""

    CODE = Code.NO_GPU
    ADVICE = "run it on a machine with that many GPUs"

    ranks: int
    gpus: int

    @property
    def sentence(self) -> str:
        seen = counted(self.gpus, "GPU") if self.gpus else "none"
        return f"ranks={self.ranks} takes a GPU for each, and torch sees {seen}"
