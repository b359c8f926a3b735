"""Reasons of comparing the working tree with a commit: one side has run, or read, what is not its own."""

from __future__ import annotations

from msgspec import Struct

from pytest_torchprof.reasons.codes import Code
from pytest_torchprof.reasons.commit_gaps import AnyCommitGap  # noqa: TC001 - msgspec reads the annotations
from pytest_torchprof.reasons.reason import Reason
from pytest_torchprof.text import first_of

_INSTALL = "--torchprof-against-install=COMMAND"


class SideName(Struct, frozen=True):
    """One side of a comparison with a commit."""

    commit: str | None = None
    """The commit, as it was asked for and with its hash; None for the working tree."""

    def __str__(self) -> str:
        """Return where something was: "at main (abc1234)", "in the working tree"."""
        return "in the working tree" if self.commit is None else f"at {self.commit}"


class OtherSidesFile(Reason, frozen=True):
    """A file that differs was read from the other side."""

    CODE = Code.OTHER_CODE
    SENTENCE = "{side} the file {name} was read from {file}, which is the other side's and differs"
    REMEDY = f"let no absolute path, link or variable of the environment lead there, or use {_INSTALL}"

    side: SideName
    name: str
    file: str


class SharedModule(Reason, frozen=True):
    """Both sides have run the same code, which differs, as it counts as a test."""

    CODE = Code.OTHER_CODE
    SENTENCE = (
        "{side} {name} was run, which differs from the commit's: both sides run the working tree's, as testpaths "
        "takes its folder for tests alone"
    )
    REMEDY = "name a folder of tests alone, or use --torchprof-against-tests=own"

    side: SideName
    name: str


class IgnoredFileRead(Reason, frozen=True):
    """The commit cannot have a file that was read, since git ignores it."""

    CODE = Code.IGNORED_FILE
    SENTENCE = "in the working tree {name} was read, which git ignores, so that {commit} is without it"
    REMEDY = f"let {_INSTALL} make it on both sides, or let git track it"

    name: str
    commit: str


class OtherSidesCode(Reason, frozen=True):
    """A module or library was loaded from where it is not this side's."""

    CODE = Code.OTHER_CODE
    REMEDY = f"{_INSTALL} installs each side's code in an environment of its own"

    side: SideName
    module: str
    """Empty for a library that no module names."""
    file: str
    root: str | None = None
    """The root of this side's files, where it has the module too."""
    differing: str | None = None
    """A file of the module's package in which the sides differ, where the module is from neither of them."""

    @property
    def sentence(self) -> str:
        loaded = f"the module {self.module} was imported" if self.module else "a library was loaded"
        return f"{self.side} {loaded} from {self.file}, {self._whose}"

    @property
    def _whose(self) -> str:
        if self.differing is not None:
            return f"not from either side, which differ in {self.differing}"
        if self.root is not None:
            return f"and not from {self.root}, which has it"
        return "which is the other side's"

    @property
    def remedy(self) -> str:
        if self.differing is None:
            return self.REMEDY
        return f"pytest's setting pythonpath names the folder that it is in, or {self.REMEDY}"


class BaseUnmeasured(Reason, frozen=True):
    """The commit has no measurement to compare with."""

    CODE = Code.BASE_NOT_MEASURED
    MEANING = "the commit has the test, and there it failed, was skipped, or could not be collected or measured"
    ADVICE = (
        "look at the reason; where the working tree's test needs something that the commit lacks, "
        "`--torchprof-against-tests=own` runs the commit's own; `baseline=False` in the marker leaves the test out"
    )

    commit: str
    because: AnyCommitGap | str
    """In reports of earlier versions a text."""
    of_working_tree: bool = False
    """Whether the working tree's tests ran there, and its own might measure it."""

    @property
    def sentence(self) -> str:
        return f"at {self.commit} {self.because}"

    @property
    def remedy(self) -> str:
        return "--torchprof-against-tests=own runs at each side the tests that it has" if self.of_working_tree else ""


class TimesMeanNothing(Reason, frozen=True):
    """A setting makes each launch wait, and times are compared."""

    CODE = Code.LAUNCHES_WAIT
    SENTENCE = "{setting} makes every launch wait, so that times mean nothing"

    setting: str


class NoSamplesHere(Reason, frozen=True):
    """A recording says that it has samples of times, and has none that can be compared."""

    CODE = Code.NO_TIMES
    SENTENCE = "the recording holds no samples, or does not say on which machine they were taken"
    REMEDY = "record it again"


class WorkersShareDevice(Reason, frozen=True):
    """Workers of pytest-xdist measure side by side."""

    CODE = Code.NO_TIMES
    SENTENCE = "{workers} workers of pytest-xdist share the device, and times taken beside other tests mean nothing"
    REMEDY = "run the tests with a time tolerance by themselves, with -n 0"

    workers: int


class AdoptedWithoutTimes(Reason, frozen=True):
    """Another process made the recording, and it took no samples."""

    CODE = Code.NO_TIMES
    SENTENCE = "the recording of another process has no samples of times"
    REMEDY = "measure them here"


class RecordedWithoutTimes(Reason, frozen=True):
    """A recording has no samples of times."""

    CODE = Code.NO_TIMES
    SENTENCE = "the recording has no samples of times"
    REMEDY = "record it again with this tolerance"
    MEANING = "it was recorded without the time tolerance by which it is judged"


class BaselineElsewhere(Reason, frozen=True):
    """The baseline of a test is in a file of another root directory."""

    CODE = Code.BASELINE_ELSEWHERE
    SENTENCE = "there is none in {file}, but one in {other}, of no test file below {root}"
    REMEDY = (
        "run pytest with the same root directory as then (--rootdir), move the file, or write it anew with "
        "--torchprof-baseline=update"
    )
    MEANING = (
        "a baseline was written with another root directory, and `--torchprof-baseline-dir` mirrors the paths below "
        "it; or the test file has moved"
    )

    file: str
    other: str
    root: str


class NumberLost(Reason, frozen=True):
    """A number of the baseline is not in the measurement."""

    CODE = Code.NOT_RECORDED
    SENTENCE = "{numbers:list}: compared with the baseline, and this measurement does not have it"
    MEANING = "the baseline has a number that was not measured this time"
    ADVICE = "measure as for the baseline, or record its entry again with `--torchprof-baseline=update`"

    numbers: tuple[str, ...]


class SameKernelsUnknown(Reason, frozen=True):
    """Whether kernels are those of the baseline cannot be told."""

    CODE = Code.NOT_RECORDED
    MEANING = (
        "products, convolutions or attention kernels have other names than in the baseline, or names that stand for "
        "several types, and [what they work on](baselines.md#what-a-name-does-not-say) is not told on both sides, "
        "as in a CUDA graph or in a recording without operands"
    )

    kernels: tuple[str, ...]
    of_file: bool = True
    """Whether the baseline is a file, and not a run of a branch."""

    @property
    def remedy(self) -> str:
        return "after a look at them, " + _renewed("the entry", of_file=self.of_file)

    @property
    def sentence(self) -> str:
        untold = "neither their names nor their operators say on both sides what they work on"
        return (
            f"whether these kernels are those of the baseline cannot be told, since {untold}: {first_of(self.kernels)}"
        )


class TypesUnknown(Reason, frozen=True):
    """On which types kernels work cannot be told."""

    CODE = Code.NOT_RECORDED
    REMEDY = "record it again with this version"
    MEANING = (
        "operators of the CPU were given lists of tensors (`cat`, `stack`, a fused optimizer), and the recording, "
        "which an earlier version or another program made, does not tell of which types: an entry of theirs would "
        "stay the same in any type"
    )

    kernels: tuple[str, ...]

    @property
    def sentence(self) -> str:
        untold = "the recording does not say what is in the lists of tensors that they were given"
        return f"on which types these kernels work cannot be told, since {untold}: {first_of(self.kernels)}"


class EntryIncomplete(Reason, frozen=True):
    """An entry of the baseline lacks what is to be compared."""

    CODE = Code.BASELINE_INCOMPLETE
    SENTENCE = (
        "{lacking:list}: the entry in the baseline {file} lacks what is to be compared (edited by hand, written by an "
        "earlier version, or recorded where it was not known)"
    )
    MEANING = (
        "the entry does not have this number: it was edited by hand, merged, or recorded where the number was not "
        "known; or it does not say [on what types](baselines.md#what-a-name-does-not-say) kernels work"
    )

    lacking: tuple[str, ...]
    file: str
    of_file: bool = True
    """Whether the baseline is a file, and not a run of a branch."""

    @property
    def remedy(self) -> str:
        return _renewed("it", of_file=self.of_file)


def _renewed(entry: str, *, of_file: bool) -> str:
    if of_file:
        return f"record {entry} again with --torchprof-baseline=update"
    return "measure the branch again, with --torchprof-history"
