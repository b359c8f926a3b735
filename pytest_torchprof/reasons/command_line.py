"""Reasons that lie in how a command is called: an argument is unknown, missing, or has a value that it cannot have."""

from __future__ import annotations

from pytest_torchprof.reasons import decoding  # noqa: TC001 - msgspec reads the annotations
from pytest_torchprof.reasons.codes import Code
from pytest_torchprof.reasons.reason import Reason
from pytest_torchprof.reasons.statement import Phrase
from pytest_torchprof.text import all_of
from pytest_torchprof.text.suggestions import choice_advice


class WrongUsage(Reason, frozen=True):
    """A command cannot do what its arguments say; its help lists those that there are."""

    CODE = Code.BAD_USAGE
    FOR_THE_DOCTOR = False
    ADVICE = "do what the text says; the help lists all arguments"

    why: decoding.AnyReason
    command: str

    @property
    def sentence(self) -> str:
        return f"{self.why.text}; see {self.command} --help"


class WordOf(Phrase):
    """Of what there is no such word."""

    OPTION = "option", "unknown option {name!r}"
    COMMAND = "command", "there is no command {name!r}"
    EXPLANATION = "explanation", "nothing is known of {name!r}"


class UnknownWord(Reason, frozen=True):
    """A word on the command line is none of those that there are."""

    CODE = Code.BAD_USAGE
    FOR_THE_DOCTOR = False
    ADVICE = "write the nearest one, which the text has"

    what: WordOf
    name: str
    near: str | None
    """The word that is meant."""
    known: tuple[str, ...]
    """All that there are, where none is near."""

    @property
    def sentence(self) -> str:
        return f"{self.words(self.what.text)}; {choice_advice(self.near, self.known)}"


class ArgumentTooMany(Reason, frozen=True):
    """More arguments are given than the command takes."""

    CODE = Code.BAD_USAGE
    FOR_THE_DOCTOR = False
    ADVICE = "leave it out, or quote what is meant as one argument"
    SENTENCE = "{argument!r} is one argument too many"

    argument: str


class NameTooLong(Reason, frozen=True):
    """A path is longer than the system allows."""

    CODE = Code.BAD_USAGE
    FOR_THE_DOCTOR = False
    ADVICE = "name the file; a variable of the shell may hold its content"
    SENTENCE = "no file can be called {path:line}"

    path: str


class Needed(Phrase):
    """The options that a command cannot do without."""

    LIMIT = "limit", "at least one --limit NAME=VALUE"
    LIMIT_OR_CHANGED = "limit-or-changed", "--limit NAME=VALUE, or --changed"
    GOOD_COMMIT = "good-commit", "--good REF, a commit from before the change"
    PROGRAM = "program", "a SCRIPT.py to run, or -m MODULE"
    RUNS_TO_PRUNE = "runs-to-prune", "--before DATE, --keep N or --run RUN, one of them"


class NotGiven(Reason, frozen=True):
    """The command lacks an argument, or has several where it takes one."""

    CODE = Code.BAD_USAGE
    FOR_THE_DOCTOR = False
    SENTENCE = "expected {needed}"

    needed: Needed


class VerdictsOfNothing(Reason, frozen=True):
    """Verdicts are to be printed as JSON, and no limit is given."""

    CODE = Code.BAD_USAGE
    FOR_THE_DOCTOR = False
    SENTENCE = "--json prints verdicts on limits"
    REMEDY = "give at least one --limit"


class OwnKernelsAlone(Reason, frozen=True):
    """One's own kernels are declared, and nothing is limited."""

    CODE = Code.BAD_USAGE
    FOR_THE_DOCTOR = False
    SENTENCE = "own_kernels is no limit: it says what kernels are"
    REMEDY = "give one beside it"


class OptionsExclude(Reason, frozen=True):
    """Two options are given that do not go together."""

    CODE = Code.BAD_USAGE
    FOR_THE_DOCTOR = False
    ADVICE = "leave one of them out"

    option: str
    other: str
    fitting: tuple[str, ...] = ()
    """The options with which the first one goes, where they are few."""

    @property
    def sentence(self) -> str:
        if not self.fitting:
            return self.words("{option} does not go with {other}")
        return f"{self.option} goes with {all_of(self.fitting, len(self.fitting))}, not with {self.other}"


class SaysDevice(Phrase):
    """The files that say themselves which device was measured."""

    REPORT = "report", "a report"
    BASELINE = "baseline", "a baseline"


class DeviceNotAsked(Reason, frozen=True):
    """A device is named for a file that says itself what was measured."""

    CODE = Code.BAD_USAGE
    FOR_THE_DOCTOR = False
    ADVICE = "leave `--device` out"
    SENTENCE = "--device is for recordings; {source} says what was measured"

    source: SaysDevice


class OptionTakes(Phrase):
    """The values that an option takes."""

    JUDGED = "judged", "counts, times or counts,times"
    RUNS_KEPT = "runs-kept", "how many runs stay, 1 or more"
    SOME_TIME = "some-time", "more than nothing"
    PAGE_OR_ROWS = "page-or-rows", "a file that ends in .html or .jsonl"


class WrongOption(Reason, frozen=True):
    """An option has a value that it does not take."""

    CODE = Code.BAD_USAGE
    FOR_THE_DOCTOR = False
    SENTENCE = "{option} {value}: expected {expected}"

    option: str
    value: str
    expected: OptionTakes


class AllowedForNoReason(Reason, frozen=True):
    """A miss of a run is to be allowed, and no reason is given."""

    CODE = Code.BAD_USAGE
    FOR_THE_DOCTOR = False
    SENTENCE = "--reason says nothing: write why it may stay"


class NoSuchScript(Reason, frozen=True):
    """The program that is to be run is no file."""

    CODE = Code.BAD_USAGE
    FOR_THE_DOCTOR = False
    ADVICE = "check the path"
    SENTENCE = "there is no script {path:line}"

    path: str


class NothingToSave(Reason, frozen=True):
    """A program has left no recording that could be kept."""

    CODE = Code.RECORDING_NOT_WRITTEN
    FOR_THE_DOCTOR = False
    SENTENCE = "there is no recording to save"
    MEANING = "the program ended before there was one, or was not measured; what is printed before says why"
    ADVICE = "look at that reason"
