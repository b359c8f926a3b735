"""Reasons about torch.compile: what it did is not known, or not recorded."""

from __future__ import annotations

from pytest_torchprof.codes import Code
from pytest_torchprof.reasons.reason import Reason


class NoOperators(Reason, frozen=True):
    """Which kernels Inductor's graphs call cannot be seen without operators."""

    CODE = Code.NO_COMPILE_EVIDENCE
    SENTENCE = "the recording holds no operators"


class ReplayedWithoutCode(Reason, frozen=True):
    """A CUDA graph replays kernels of a graph whose generated code is not in the recording."""

    CODE = Code.NO_COMPILE_EVIDENCE
    SENTENCE = "a CUDA graph replays the kernels, and the recording does not hold the generated code"


class CompiledCodeOnOtherThread(Reason, frozen=True):
    """Compiled code was called where torch.profiler records nothing."""

    CODE = Code.OTHER_THREAD
    SENTENCE = "compiled code was called on another thread, of which torch.profiler records nothing"
    REMEDY = "call it on the test's own thread"


class NoEvidence(Reason, frozen=True):
    """The recording does not tell what torch.compile did."""

    CODE = Code.NO_COMPILE_EVIDENCE

    has_key: bool
    """Whether this plugin wrote the recording."""

    @property
    def sentence(self) -> str:
        lacking = "has no `compile`" if self.has_key else "is missing"
        return f"the recording holds no compile evidence (its key `torchprof` {lacking})"


class RanElsewhere(Reason, frozen=True):
    """Code was compiled, and none of it ran in the steps."""

    CODE = Code.RAN_UNCOMPILED
    SENTENCE = "code was compiled, but no compiled code ran in the measured steps on the thread of the test"


class RanUncompiled(Reason, frozen=True):
    """Compiled functions were called, and ran as they are."""

    CODE = Code.RAN_UNCOMPILED
    SENTENCE = "compiled functions were called, and ran uncompiled: {under}"

    under: str
    """What made them run so."""


class NoFittingCode(Reason, frozen=True):
    """Calls of compiled functions found no code that fits."""

    CODE = Code.RAN_UNCOMPILED
    SENTENCE = "{calls:call} found no compiled code that fits, and ran uncompiled: {under}"

    calls: int
    under: str
