"""Reasons why a command cannot do with the files that it is given what it is asked."""

from __future__ import annotations

from pytest_torchprof.reasons.codes import Code
from pytest_torchprof.reasons.reason import Reason
from pytest_torchprof.reasons.unreadable import InsteadOfFile
from pytest_torchprof.text import all_of, enumerated, first_of


class FileNotRead(Reason, frozen=True):
    """The system does not let a file be read of which it is not known yet whether it is a recording."""

    FOR_THE_DOCTOR = False
    SENTENCE = "{path}: cannot be read: {error}"

    path: str
    error: str
    is_missing: bool = False

    @property
    def code(self) -> Code:
        return Code.RECORDING_MISSING if self.is_missing else Code.RECORDING_UNREADABLE


class NoRegularFile(Reason, frozen=True):
    """A pipe, a socket or a device is named where a file is expected."""

    CODE = Code.RECORDING_UNREADABLE
    FOR_THE_DOCTOR = False
    ADVICE = "write what comes out of it to a file, and name that"
    SENTENCE = f"{{path}}: cannot be read: {InsteadOfFile.SPECIAL}"

    path: str


class SeveralRecordings(Reason, frozen=True):
    """A folder is named where one recording is judged."""

    CODE = Code.BAD_USAGE
    FOR_THE_DOCTOR = False
    SENTENCE = "{path} is a folder of {recordings:recording}"
    REMEDY = "check one file at a time"
    ADVICE = "check one file at a time, or those of a job's ranks together, with `--ranks`"

    path: str
    recordings: int


class RanksOfNoFolder(Reason, frozen=True):
    """The recordings of a job's ranks are asked for, and no folder is named."""

    CODE = Code.BAD_USAGE
    FOR_THE_DOCTOR = False
    SENTENCE = "--ranks takes a folder with the recordings of a job's ranks, not {path}"

    path: str


class FolderAndFile(Reason, frozen=True):
    """A folder is to be compared with a file."""

    CODE = Code.BAD_USAGE
    FOR_THE_DOCTOR = False
    SENTENCE = "{folder} is a folder and the other is not: expected two of a kind"

    folder: str


class RanksOnOneSide(Reason, frozen=True):
    """Of two jobs that are to be compared, one has ranks that the other has not."""

    CODE = Code.BAD_USAGE
    FOR_THE_DOCTOR = False
    REMEDY = "compare jobs of the same ranks"

    ranks: tuple[int, ...]
    """The ranks of one of them only."""

    @property
    def sentence(self) -> str:
        several = len(self.ranks) > 1
        ranks = all_of(tuple(map(str, self.ranks)), len(self.ranks))
        return f"{'ranks' if several else 'rank'} {ranks} {'are' if several else 'is'} in one of the folders only"


class NoEntryOfRecording(Reason, frozen=True):
    """A baseline file has no entry of the test of which a recording is."""

    CODE = Code.BAD_USAGE
    FOR_THE_DOCTOR = False
    ADVICE = "compare it with the baseline of its own test file"

    recording: str
    """Its path."""
    test: str | None
    """The test that it names, with its label; None if it names none."""
    file: str
    tests: tuple[str, ...]
    """The tests of which the file has entries."""

    @property
    def sentence(self) -> str:
        test = "no test that it names" if self.test is None else self.test
        return f"{self.recording} is of {test}, and {self.file} has entries of {first_of(self.tests) or 'no test'}"


class RecordedTwice(Reason, frozen=True):
    """A folder has two recordings of the same measurement."""

    CODE = Code.BAD_USAGE
    FOR_THE_DOCTOR = False
    SENTENCE = "{path} and {other} are both of {test}"
    REMEDY = "compare jobs of several ranks with --ranks"
    ADVICE = f"{REMEDY}; otherwise keep one of them in the folder"

    path: str
    other: str
    """The path of the other one."""
    test: str


class StacksNotRecorded(Reason, frozen=True):
    """A flame graph is to be drawn by what the recording does not hold."""

    CODE = Code.BAD_USAGE
    FOR_THE_DOCTOR = False

    asked: str
    recorded: tuple[str, ...]

    @property
    def sentence(self) -> str:
        return f"--by {self.asked}: that is not in the recording; expected {enumerated(self.recorded)}"


class NoGpuWorkToDraw(Reason, frozen=True):
    """A flame graph is to be drawn by time on the GPU, and nothing ran there."""

    CODE = Code.NOT_IN_RECORDING
    FOR_THE_DOCTOR = False
    SENTENCE = "--weight gpu: nothing in the steps ran on a GPU"
    REMEDY = "use --weight cpu"


class NobodyAsked(Reason, frozen=True):
    """Perfetto's page has not asked for the recording in time."""

    CODE = Code.RECORDING_NOT_FETCHED
    FOR_THE_DOCTOR = False
    ADVICE = "open the link in a browser on the same machine, or wait longer"
    SENTENCE = "nobody asked for {path} within {waited_s} s: open the link in a browser here, or raise --wait"

    path: str
    waited_s: int


class PortTaken(Reason, frozen=True):
    """The port from which Perfetto's page reads cannot be used."""

    CODE = Code.PORT_IN_USE
    FOR_THE_DOCTOR = False
    ADVICE = "end the program that uses it"
    SENTENCE = (
        "127.0.0.1:{port} cannot be used ({error}), and Perfetto's page reads from no other address. End the program "
        "that uses it, such as trace_processor --httpd or another torchprof open."
    )

    port: int
    error: str


class NoBaselineBelow(Reason, frozen=True):
    """A folder has no baseline below it."""

    CODE = Code.BAD_USAGE
    FOR_THE_DOCTOR = False
    SENTENCE = "{path}: no baseline below it"
    REMEDY = "record some with pytest --torchprof-baseline=update"
    ADVICE = "record some with `pytest --torchprof-baseline=update`"

    path: str


class RenamedUnlike(Reason, frozen=True):
    """A test is to become a test file, or the other way round."""

    CODE = Code.BAD_USAGE
    FOR_THE_DOCTOR = False
    SENTENCE = "rename takes two tests or two files, not one of each"


class RenamedToItself(Reason, frozen=True):
    """The old name is the new one."""

    CODE = Code.BAD_USAGE
    FOR_THE_DOCTOR = False
    SENTENCE = "rename takes two names, and these are the same"


class NoTestFileYet(Reason, frozen=True):
    """The test file with the new name is not there."""

    CODE = Code.BAD_USAGE
    FOR_THE_DOCTOR = False
    SENTENCE = "there is no test file {file}: rename it first"

    file: str


class NeitherTestNorFile(Reason, frozen=True):
    """The name to rename has neither the form of a test's id nor that of a file."""

    CODE = Code.BAD_USAGE
    FOR_THE_DOCTOR = False
    SENTENCE = "{written!r} is neither a test id nor a test file"
    ADVICE = "write it as `tests/test_mlp.py::test_block`, or as `tests/test_mlp.py`"

    written: str
