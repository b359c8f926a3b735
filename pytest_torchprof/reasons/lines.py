"""Reasons why a repeat with stacks shows no lines: the verdict is valid, and where its work comes from is not known."""

from __future__ import annotations

from pytest_torchprof.reasons.codes import Code
from pytest_torchprof.reasons.reason import Reason
from pytest_torchprof.text import counted, printable_line

_RECORD_THEM = 'record the stacks in the measurement: `record="stacks"`'
_LONGEST_KERNEL = 60


class RepeatRaised(Reason, frozen=True):
    """The measured code raised when it was called once more."""

    CODE = Code.LINES_NOT_KNOWN
    SENTENCE = "the repeat with stacks raised {error}"
    MEANING = "the code works only a certain number of times, or counts its calls"
    ADVICE = f"let it be called once more, or {_RECORD_THEM}"

    error: str
    """In Python's words, "ValueError: no more batches"."""


class RepeatRanOthers(Reason, frozen=True):
    """The repeat ran other kernels than the measurement."""

    CODE = Code.LINES_NOT_KNOWN
    MEANING = "a call depends on those before it; lines of other kernels would mislead"
    ADVICE = f"let each call do the same, or {_RECORD_THEM}"

    kernel: str
    more: int
    """How many more of it there are; negative where there are fewer."""

    @property
    def sentence(self) -> str:
        word = "more" if self.more > 0 else "fewer"
        shown = f"{abs(self.more)} {word} x {printable_line(self.kernel, _LONGEST_KERNEL)}"
        return f"the repeat with stacks ran other kernels ({shown})"


class RepeatWentElsewhere(Reason, frozen=True):
    """The work that a limit has exceptions for happened more or less often in the repeat, or somewhere else."""

    CODE = Code.LINES_NOT_KNOWN
    SENTENCE = (
        "the repeat with stacks went another way: it had more or fewer of them, or worked in another order, or in "
        "other ranges or operators"
    )
    ADVICE = f"let each call do the same, or {_RECORD_THEM}"


class RepeatEnteredOtherwise(Reason, frozen=True):
    """The repeat entered a range more or less often."""

    CODE = Code.LINES_NOT_KNOWN
    ADVICE = f"let each call do the same, or {_RECORD_THEM}"

    name: str
    times: int
    measured: int

    @property
    def sentence(self) -> str:
        times = f"{counted(self.times, 'time')} and not {self.measured}"
        return f'the repeat with stacks entered "{printable_line(self.name)}" {times}'


class CalledOnceByRule(Reason, frozen=True):
    """Only a rule of the suite measures the test, which is called once, and never for its lines."""

    CODE = Code.LINES_NOT_KNOWN
    SENTENCE = "under a rule the call is recorded without them"
    ACTION = 'for the lines, write record = ["stacks"] into the rule'
    MEANING = "a test that only a rule measures is called once, at as little cost as the rule's limits allow"
    ADVICE = 'write `record = ["stacks"]` into the rule, for the run that is to name them'


class LoopOver(Reason, frozen=True):
    """The loop around the measured code has ended before the repeat."""

    CODE = Code.LINES_NOT_KNOWN
    SENTENCE = "the code could not be called again: its loop was over"
    MEANING = "the loop over `m.steps()` ends by itself, such as `zip(m.steps(), batches)`"
    ADVICE = "give it one more batch"


class BlockOver(Reason, frozen=True):
    """The measured code cannot be called any more."""

    CODE = Code.LINES_NOT_KNOWN
    SENTENCE = "the code cannot be called again: its block is over"
    MEANING = "`m.profile.expect(...)` stands behind the block"
    ADVICE = "give the limit to `torchprof.measure(...)`"


class InsideAnother(Reason, frozen=True):
    """The limits of one measurement are asked for inside another one."""

    CODE = Code.LINES_NOT_KNOWN
    SENTENCE = "the code cannot be called again inside another measurement"
    ADVICE = "call `expect` after the block"


class OthersTakeNoPart(Reason, frozen=True):
    """The ranks of a job do not measure in step."""

    CODE = Code.LINES_NOT_KNOWN
    SENTENCE = "the code runs on {ranks:rank}, and the others would not take part in one more call"
    MEANING = (
        "the ranks cannot reach each other ([in step](ranks.md#in-step)), and one alone would wait for ever in a "
        "collective"
    )
    ADVICE = 'record the stacks in the measurement, on all ranks: `record="stacks"`'

    ranks: int


class AskedOnOneRank(Reason, frozen=True):
    """One rank alone asks for a limit in its test."""

    CODE = Code.LINES_NOT_KNOWN
    SENTENCE = "other ranks take no part in one more call for what this one alone asks for in its test"
    ADVICE = 'ask for it on all ranks, or record the stacks in the measurement: `record="stacks"`'


class RepeatFailed(Reason, frozen=True):
    """The profiler could not record the repeat."""

    CODE = Code.LINES_NOT_KNOWN
    SENTENCE = "the repeat with stacks failed: {problem}"
    MEANING = "the profiler raised an error"
    ADVICE = _RECORD_THEM

    problem: str
    """In Python's words."""


class TooManyLines(Reason, frozen=True):
    """A step reaches more lines and modules than are marked."""

    CODE = Code.LINES_NOT_KNOWN
    SENTENCE = "a step reaches more than {most:grouped} lines and modules"
    ADVICE = "measure a smaller part of it"

    most: int


class TraceFunctionReplaced(Reason, frozen=True):
    """The measured code put another trace function in the place of the one that sees lines."""

    CODE = Code.LINES_NOT_KNOWN
    SENTENCE = "the code calls sys.settrace itself"
    MEANING = "lines are seen by a trace function, and the code, or a debugger in it, put another one in its place"
    ADVICE = _RECORD_THEM


class LinesNotRecorded(Reason, frozen=True):
    """The recording was made without stacks."""

    CODE = Code.LINES_NOT_KNOWN
    SENTENCE = "the recording holds no lines of the user's code"
    ADVICE = 'record it with `record="stacks"`'


class FunctionsWithoutLines(Reason, frozen=True):
    """The recording has the stacks of another profiler, which name functions."""

    CODE = Code.LINES_NOT_KNOWN
    SENTENCE = "the recording names the functions and not their lines"
    ADVICE = "allow a function, an operator or a range"


class FileNotFound(Reason, frozen=True):
    """The recording has the end of a path that does not exist here."""

    CODE = Code.LINES_NOT_KNOWN
    SENTENCE = "the recording holds no more of the file's path than {file:line}, and no such file is found here"
    ADVICE = "judge the recording where the file is"

    file: str


class DestinationUnknown(Reason, frozen=True):
    """The recording has copies without a direction."""

    CODE = Code.NOT_RECORDED
    SENTENCE = "the recording does not say where these copies go"


class CallerUnknown(Reason, frozen=True):
    """The recording has no calls or operators around what a limit has exceptions for."""

    CODE = Code.NOT_RECORDED
    SENTENCE = "the recording does not say by which call and in which operators it was done"
