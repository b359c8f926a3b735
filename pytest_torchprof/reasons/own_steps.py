"""Reasons that the steps of a measurement are not in its recording as they were run."""

from __future__ import annotations

from pytest_torchprof.reasons.codes import Code
from pytest_torchprof.reasons.reason import Reason


class StepsOverlapOnThreads(Reason, frozen=True):
    """Two occurrences of the range that is the step overlap on two threads."""

    CODE = Code.OVERLAPPING_STEPS
    SENTENCE = "{first} and {second} overlap on two threads, so that what was launched belongs to neither"
    MEANING = "the range that is to be the step was entered on two threads at once"
    ADVICE = "name a range that one thread enters at a time"

    first: str
    second: str


class StepsOverlap(Reason, frozen=True):
    """Two steps overlap, which those of one profiler cannot."""

    CODE = Code.OVERLAPPING_STEPS
    SENTENCE = "{first} and {second} overlap: the recording holds the work of several processes or profilers"
    REMEDY = "read the recording of each by itself"
    MEANING = "the file holds the work of several processes or profilers, so that launches belong to no single step"

    first: str
    second: str


class NoSentinel(Reason, frozen=True):
    """The range with which our recordings begin is missing."""

    CODE = Code.LOST_SENTINEL
    SENTENCE = (
        "the range {name} with which our recordings begin is missing: another profiler took the events, or they were "
        "lost"
    )
    MEANING = "another profiler took this one's events"
    ADVICE = "run one profiler at a time"

    name: str


class SentinelLaunchedNothing(Reason, frozen=True):
    """No kernel of the sentinel is in the recording."""

    CODE = Code.LOST_SENTINEL
    SENTENCE = "no kernel of the sentinel is in the recording (the profiler lost its beginning)"
    MEANING = "the profiler lost its first events; the measurement was tried three times"
    ADVICE = "as for [lost-kernels](#lost-kernels)"


class LostSteps(Reason, frozen=True):
    """The recording holds fewer steps than were measured."""

    CODE = Code.LOST_STEPS
    SENTENCE = "{found} of {measured:step} {found:is|are} in the recording (the profiler lost events)"
    ADVICE = "as for [lost-kernels](#lost-kernels)"

    found: int
    measured: int


class OtherSteps(Reason, frozen=True):
    """The steps of the recording are those of another profiler's schedule."""

    CODE = Code.ANOTHER_PROFILER
    SENTENCE = (
        "{found:step range} in the recording, and {measured} {measured:was|were} measured (another profiler's schedule "
        "ran)"
    )
    MEANING = "another profiler's schedule marked steps of its own around the measured calls"
    ADVICE = "take it out of the test"

    found: int
    measured: int


class SawNothingOfGpu(Reason, frozen=True):
    """Not even the sentinel's launch is in the recording."""

    CODE = Code.NO_GPU_SIDE
    SENTENCE = "no launch is in the recording, not even the sentinel's (the profiler saw nothing of the GPU)"
    ADVICE = "see [no-kernels-recorded](#no-kernels-recorded)"


class NoGpuOperations(Reason, frozen=True):
    """Launches are in the recording, and nothing that they launched."""

    CODE = Code.NO_GPU_SIDE
    SENTENCE = "{launches:launch} and no GPU operation in the recording (the GPU's side is missing)"
    ADVICE = "see [no-kernels-recorded](#no-kernels-recorded)"

    launches: int


class EarlierWork(Reason, frozen=True):
    """Work that was launched before the recording began still ran in the steps."""

    CODE = Code.EARLIER_WORK
    SENTENCE = (
        "{operations:GPU operation} {operations:was|were} launched before the recording began and still ran in the "
        "measured steps"
    )
    MEANING = "the wait at the recording's beginning did not reach them"
    ADVICE = "synchronize where they are queued"

    operations: int
