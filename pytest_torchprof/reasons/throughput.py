"""Reasons of throughput: why a recording does not tell FLOP/s, or their share of the peak."""

from __future__ import annotations

from pytest_torchprof.reasons.codes import Code
from pytest_torchprof.reasons.reason import Reason


class PeakUnknown(Reason, frozen=True):
    """The peak of the GPUs is not known."""

    CODE = Code.NOT_RECORDED

    gpus: tuple[str, ...]

    @property
    def sentence(self) -> str:
        return f"the peak of {', '.join(self.gpus)} is not known"


class FlopsNotRecorded(Reason, frozen=True):
    """No step has its floating-point operations counted."""

    CODE = Code.NOT_RECORDED
    SENTENCE = "the recording does not hold the floating-point operations of a step"


class NothingCounted(Reason, frozen=True):
    """A step has no work whose floating-point operations are counted."""

    CODE = Code.NOT_RECORDED
    SENTENCE = "the step has no FLOPs that are counted: no product, convolution or attention"


class NothingOnGpu(Reason, frozen=True):
    """A step has work, and none of it on a GPU."""

    CODE = Code.NOT_RECORDED
    SENTENCE = "nothing ran on a GPU"


class PeakOfTypeUnknown(Reason, frozen=True):
    """The kernels compute in a type of which the GPU's peak is not known."""

    CODE = Code.NOT_RECORDED

    dtypes: tuple[str | None, ...]
    """None for a type that no name says; empty where none of the kernels is counted."""

    @property
    def sentence(self) -> str:
        named = (dtype or "a type that no name tells" for dtype in self.dtypes)
        which = ", ".join(named) or "no product, convolution or attention"
        return f"the kernels compute in {which}, whose peak is not known"
