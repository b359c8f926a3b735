"""Reasons why an option of a run, on the command line or in the ini file, cannot be as it is."""

from __future__ import annotations

from pytest_torchprof.reasons import decoding  # noqa: TC001 - msgspec reads the annotations
from pytest_torchprof.reasons.codes import Code
from pytest_torchprof.reasons.reason import Reason


class OfOption(Reason, frozen=True):
    """An option does not have the value that it has."""

    CODE = Code.BAD_OPTION
    ADVICE = "do what the text says"

    option: str
    """Its name on the command line, or its key in the ini file."""
    in_ini_file: bool
    why: decoding.AnyReason
    got: str

    @property
    def sentence(self) -> str:
        where = " in the ini file" if self.in_ini_file else ""
        return f"{self.option}{where}: {self.why.text}, got {self.got}"


class OfSetting(Reason, frozen=True):
    """A reason that lies in an option, or in a key of the ini file, and has what of it is wrong."""

    CODE = Code.BAD_OPTION
    ADVICE = "do what the text says"

    option: str
    """Its name on the command line, or its key in the ini file."""
    why: decoding.AnyReason

    @property
    def sentence(self) -> str:
        return f"{self.option}: {self.why.text}"


class OfTolerance(Reason, frozen=True):
    """The tolerance in the ini file is none."""

    CODE = Code.BAD_OPTION
    ADVICE = "write it so"

    written: str
    why: decoding.AnyReason

    @property
    def sentence(self) -> str:
        return f"torchprof_tolerance = {self.written}: {self.why.text}; write e.g. time=0.10 kernels=1"


class OfSuite(Reason, frozen=True):
    """The rules of the suite cannot be used."""

    CODE = Code.BAD_OPTION
    ADVICE = "do what the text says"

    why: decoding.AnyReason

    @property
    def sentence(self) -> str:
        return self.why.text


class SaveAndReplay(Reason, frozen=True):
    """Recordings are to be kept, and kept ones judged."""

    CODE = Code.BAD_OPTION
    ADVICE = "leave one of them out"
    SENTENCE = "--torchprof-save and --torchprof-replay exclude each other: a replay records nothing"


class SaveIsFile(Reason, frozen=True):
    """The folder for recordings is a file, or would be below one."""

    CODE = Code.BAD_OPTION
    ADVICE = "name a folder"
    SENTENCE = "--torchprof-save: {file} is a file; name a folder for the recordings"

    file: str


class ReplayNoFolder(Reason, frozen=True):
    """The folder whose recordings are to be judged is not there."""

    CODE = Code.BAD_OPTION
    ADVICE = "name a folder that `--torchprof-save` has made"
    SENTENCE = "--torchprof-replay: {path} is no folder; name one made by --torchprof-save"

    path: str


class KeepWithoutSave(Reason, frozen=True):
    """Which recordings are kept is said, and not where."""

    CODE = Code.BAD_OPTION
    ADVICE = "name the folder too"
    SENTENCE = "--torchprof-keep={written} says what --torchprof-save=DIR keeps: name the folder too"

    written: str


class FolderAndHistory(Reason, frozen=True):
    """Baselines are to be read from a folder, and from a history."""

    CODE = Code.BAD_OPTION
    ADVICE = "leave one of them out"
    SENTENCE = "--torchprof-baseline-dir names a folder of files, and --torchprof-baseline a history: give one"


class HistoryOnlyRead(Reason, frozen=True):
    """A history is to be the baseline in a mode that writes."""

    CODE = Code.BAD_OPTION
    ADVICE = "leave the mode out, or add to the history with `--torchprof-history`"
    SENTENCE = (
        "--torchprof-baseline={written}: a history is only read, by compare or strict; runs with --torchprof-history "
        "add to it"
    )

    written: str
    """Without a password."""


class NoBranchOfHistory(Reason, frozen=True):
    """A history is to be the baseline, and its store or its branch is not named."""

    CODE = Code.BAD_OPTION
    ADVICE = "write it so"
    SENTENCE = (
        "--torchprof-baseline={written}: expected history:STORE@BRANCH, such as history:runs.db@main, or "
        "strict,history:STORE@BRANCH"
    )

    written: str
    """Without a password."""


class NoRankTimeout(Reason, frozen=True):
    """For how long ranks wait is no number of seconds."""

    CODE = Code.BAD_OPTION
    ADVICE = "write it so"
    SENTENCE = "torchprof_rank_timeout = {written}: expected seconds above 0, such as 60"

    written: str


class NoRanksScope(Reason, frozen=True):
    """Which tests share a job of ranks is none of the words for that."""

    CODE = Code.BAD_OPTION
    ADVICE = "write one of these"
    SENTENCE = "torchprof_ranks_scope = {written}: expected file or test"

    written: str


class ReportOfNoFormat(Reason, frozen=True):
    """A report is to be written to a file whose suffix is that of no report."""

    CODE = Code.BAD_OPTION
    ADVICE = "name the file with one of those"
    SENTENCE = "--torchprof-report={path}: no report has the suffix {suffix!r}; known are: {known:list}"

    path: str
    suffix: str
    known: tuple[str, ...]


class SuiteAgainstCommit(Reason, frozen=True):
    """A suite is to be measured under rules, and compared with a commit at once."""

    CODE = Code.BAD_OPTION
    FOR_THE_DOCTOR = False
    SENTENCE = "--torchprof-suite and --torchprof-against exclude each other: run pytest once for each"
    ADVICE = "run pytest once for each"


class OptionWithoutCommit(Reason, frozen=True):
    """An option says how to compare with a commit, and none is named."""

    CODE = Code.BAD_OPTION
    FOR_THE_DOCTOR = False
    SENTENCE = "{option} says how to compare with another commit: name it, with --torchprof-against=REF"
    ADVICE = "name the commit with `--torchprof-against`, or leave the option out"

    option: str
