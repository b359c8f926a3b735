"""Reasons of programs, scripts and blocks that are measured: the code that was to be measured does not run in them."""

from __future__ import annotations

from pytest_torchprof.reasons.codes import Code
from pytest_torchprof.reasons.no_gpu import AnyWhyNoGpu  # noqa: TC001 - msgspec reads the annotations
from pytest_torchprof.reasons.reason import Reason
from pytest_torchprof.reasons.signals import signal_name


class NothingMeasured(Reason, frozen=True):
    """There is no measurement, and the reason is not known."""

    CODE = Code.NOTHING_MEASURED
    SENTENCE = "nothing was measured"
    ADVICE = "call `torchprof(...)`, or use `torchprof.measure(...)`"


class OnlyMakesAnObject(Reason, frozen=True):
    """A call of a coroutine function or a generator function runs none of its code."""

    CODE = Code.NOTHING_MEASURED
    SENTENCE = "calling {function} only makes an object and runs none of its code"
    REMEDY = "measure what drives it"
    MEANING = "a coroutine or generator function runs when it is driven, not when it is called"

    function: str


class ReturnsWork(Reason, frozen=True):
    """Nothing ran, and the call returned work that is to be done later: a generator, a coroutine."""

    CODE = Code.NOTHING_MEASURED
    SENTENCE = "nothing ran: the measured call returned the {returned}, whose code runs only when somebody drives it"
    REMEDY = (
        "let the measured call run it to its end: list(...) drives a generator or a map, asyncio.run(...) a coroutine, "
        "`async for` an async generator"
    )
    MEANING = "what a generator, a coroutine, `map` or `filter` stands for runs after the measurement"

    returned: str
    """Its kind and the function that made it: "generator stream", "map object"."""


class StepsNotStarted(Reason, frozen=True):
    """The loop over the steps of a block was never started."""

    CODE = Code.NOT_RUN_TO_END
    SENTENCE = "m.steps() of {block} was never started"
    REMEDY = "run `for _ in m.steps():` to its end"

    block: str


class StepsLeft(Reason, frozen=True):
    """The loop over the steps of a block was left early."""

    CODE = Code.NOT_RUN_TO_END
    SENTENCE = "m.steps() of {block} was left after {calls:call}"
    REMEDY = "run `for _ in m.steps():` to its end"

    block: str
    calls: int


class NoGpuHere(Reason, frozen=True):
    """A GPU is needed, and torch sees none."""

    CODE = Code.NEEDS_GPU
    REMEDY = "device='cpu' measures the CPU as the device"

    because: AnyWhyNoGpu
    limits: tuple[str, ...] = ()
    """The limits that only a GPU can answer."""
    number: str | None = None
    """The number of a profile that was read, where no limit is asked for."""

    @property
    def sentence(self) -> str:
        asked = ", ".join(self.limits) if self.number is None else f"profile.{self.number}"
        return f"{asked}: torch sees no GPU: {self.because}"


class NoSuchModule(Reason, frozen=True):
    """Python finds no module of the name that can be run as a program."""

    CODE = Code.BAD_USAGE
    FOR_THE_DOCTOR = False
    SENTENCE = "there is no module {module:line} that can be run"
    ADVICE = "check the name, and the folder in which the command runs"

    module: str


class ProgramFailed(Reason, frozen=True):
    """A program failed by itself, so that what it did is not judged."""

    CODE = Code.NOT_RUN_TO_END
    FOR_THE_DOCTOR = False
    SENTENCE = "{program:line} itself ended with exit status {status}: nothing was judged"
    ADVICE = "mend the program: what it says itself stands above"

    program: str
    status: int


class ProgramEnded(Reason, frozen=True):
    """A program ended before its measurement did."""

    CODE = Code.NOT_RUN_TO_END
    MEANING = (
        "the program's process did not end as Python ends programs, or a signal ended it: out of memory, a time "
        "limit, a crash"
    )
    ADVICE = (
        "end it by `sys.exit` or by its last line; run it without `torchprof run` to see whether it ends there; of "
        "a daemon, measure in the foreground what it does"
    )

    program: str
    status: int
    """Its exit status; for a process that a signal has killed, the signal's number, negated."""

    @property
    def sentence(self) -> str:
        program = self.words("{program:line}")
        if self.status < 0:
            return f"{program} was killed by {signal_name(-self.status)}: nothing was judged"
        return (
            f"{program} ended with exit status {self.status} and has left nothing to judge: by os._exit, by exec, as "
            "the first process of a daemon, or after it removed what the profiler had written"
        )


class NoRecordingOfProgram(Reason, frozen=True):
    """A program ended without a recording."""

    CODE = Code.NOT_RUN_TO_END
    SENTENCE = "the program has left no recording"
    ADVICE = "report it with the output of `torchprof doctor`"
