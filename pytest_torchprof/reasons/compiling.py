"""Reasons about torch.compile: what it did is not known, or not recorded."""

from __future__ import annotations

from pytest_torchprof.reasons.codes import Code
from pytest_torchprof.reasons.reason import Reason
from pytest_torchprof.reasons.statement import OncePhrase, Phrase
from pytest_torchprof.reasons.uncompiled import AnySetting  # noqa: TC001 - msgspec reads the annotations


class NoOperators(Reason, frozen=True):
    """Which kernels Inductor's graphs call cannot be seen without operators."""

    CODE = Code.NO_COMPILE_EVIDENCE
    SENTENCE = "the recording holds no operators"


class ReplayedWithoutCode(Reason, frozen=True):
    """A CUDA graph replays kernels of a graph whose generated code is not in the recording."""

    CODE = Code.NO_COMPILE_EVIDENCE
    SENTENCE = "a CUDA graph replays the kernels, and the recording does not hold the generated code"
    MEANING = "what the limit is read from is missing there"
    ADVICE = "use another version of torch, or a limit that does not need it"


class CompiledCodeOnOtherThread(Reason, frozen=True):
    """Compiled code was called where torch.profiler records nothing."""

    CODE = Code.OTHER_THREAD
    SENTENCE = "compiled code was called on another thread, of which torch.profiler records nothing"
    REMEDY = "call it on the test's own thread"
    MEANING = "whether its graph breaks and recompiles are seen depends on what earlier tests have compiled"


class NoEvidence(Reason, frozen=True):
    """The recording does not tell what torch.compile did."""

    CODE = Code.NO_COMPILE_EVIDENCE
    MEANING = "it was made without this plugin, which adds what Dynamo said"
    ADVICE = "record it with the plugin"

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
    MEANING = "the steps call something else, or call it on another thread"
    ADVICE = "call what `torch.compile` returned, in each step"


class RanUncompiled(Reason, frozen=True):
    """Compiled functions were called, and ran as they are."""

    CODE = Code.RAN_UNCOMPILED
    SENTENCE = "compiled functions were called, and ran uncompiled: {under}"

    under: AnySetting | str
    """The setting that made them run uncompiled; in recordings of earlier versions a text."""


class NoFittingCode(Reason, frozen=True):
    """Calls of compiled functions found no code that fits."""

    CODE = Code.RAN_UNCOMPILED
    SENTENCE = "{calls:call} found no compiled code that fits, and ran uncompiled: {under}"

    calls: int
    under: AnySetting | str
    """In recordings of earlier versions a text."""


class RecordsCleared(Reason, frozen=True):
    """The measured code removes the records that tell what torch.compile did."""

    CODE = Code.COMPILER_RECORDS_CLEARED
    SENTENCE = (
        "the measured code removes the records of torch.compile that this is read from "
        "(torch._dynamo.utils.clear_compilation_metrics)"
    )
    REMEDY = "take that out of it"
    MEANING = "graph breaks and recompiles are read from them"


class BegunUnseen(Reason, frozen=True):
    """torch.compile was used for the first time in a call that was recorded without regard to it."""

    CODE = Code.NO_COMPILE_EVIDENCE
    SENTENCE = "torch.compile was first used inside of the measured call, and nothing asked what it did"
    MEANING = "a call that a rule of the suite alone measures is recorded for the rule's limits, as cheaply as can be"
    ADVICE = "give the rule a limit such as max_graph_breaks, or mark the test"


class CompileRecords(Phrase):
    """Records of Dynamo's that graph breaks and recompiles are read from."""

    METRICS = "metrics", "compilation metrics"
    BREAK_REASONS = "break-reasons", "graph break reasons"
    SEEN_CODE = "seen-code", "list of the code that Dynamo has seen"


class NoRecordsInTorch(Reason, frozen=True):
    """This version of torch keeps no records of what it compiles."""

    CODE = Code.NO_COMPILE_EVIDENCE
    MEANING = "what the limit is read from is missing there"
    ADVICE = "use another version of torch, or a limit that does not need it"

    missing: tuple[CompileRecords, ...] | str
    """In recordings of earlier versions a text."""

    @property
    def sentence(self) -> str:
        missing = self.missing if isinstance(self.missing, str) else ", ".join(map(str, self.missing))
        return f"this version of torch has no {missing}: not available"


class Unobserved(OncePhrase):
    """Why it could not be observed which code runs."""

    NO_CALL = "no-call", "no call of the code was observed"
    PYTHON_PROFILER = (
        "python-profiler",
        "a profiler of Python code is running (cProfile, or torch's for stacks if there is no warm-up)",
    )
    TOOLS_TAKEN = "tools-taken", "all of Python's monitoring tools are taken"


class GivenUpBefore(Reason, frozen=True):
    """Whether a frame runs that torch.compile gave up earlier is not known."""

    CODE = Code.RAN_UNCOMPILED
    SENTENCE = (
        "torch.compile gave up frames earlier in this process ({frames}, the first at {first}), and whether one of "
        "them runs here is not known: {because}"
    )
    MEANING = "the code was left uncompiled before the measurement, and the records of that are gone"
    ADVICE = "run this test in a process of its own"

    frames: int
    first: str
    because: Unobserved


class LeftAlone(Reason, frozen=True):
    """A function ran uncompiled, and torch does not say why."""

    CODE = Code.RAN_UNCOMPILED
    MEANING = (
        "the code was left uncompiled before: Dynamo first met it while it was disabled or in a dispatch mode "
        "(`FlopCounterMode`), or gave up, and the records of that are gone"
    )
    ADVICE = "call `torch._dynamo.reset()` before the measurement, or run the test in a process of its own"

    function: str
    line: str
    forgotten: bool
    """Whether so many frames were compiled before that torch may have forgotten it."""

    @property
    def sentence(self) -> str:
        forgotten = "more than 64 frames were compiled before the measurement"
        never = (
            "torch.compile was disabled when it first ran, or a mode such as FlopCounterMode was in force "
            "(torch._dynamo.reset() lets it be compiled)"
        )
        because = forgotten if self.forgotten else never
        return f"{self.function} ({self.line}) ran uncompiled, and torch does not say why: {because}"
