"""The codes of errors and reasons: short words that stay, which ``torchprof explain`` knows.

They stand in brackets at the end of a text: "max_kernels=-1: expected a whole number from 0, got -1 [bad-value]".
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class Code(StrEnum):
    """One kind of error or reason; each has an article (`reasons.articles`)."""

    # What a marker, a fixture or an option asks for.
    UNKNOWN_KEYWORD = "unknown-keyword"
    BAD_VALUE = "bad-value"
    BAD_PATTERN = "bad-pattern"
    POSITIONAL_ARGUMENT = "positional-argument"
    CONTRADICTION = "contradiction"
    LONE_SETTING = "lone-setting"
    FIXTURE_MISUSE = "fixture-misuse"
    BAD_OPTION = "bad-option"
    BAD_USAGE = "bad-usage"
    NO_GPU = "no-gpu"
    NO_SUCH_DEVICE = "no-such-device"
    NOT_IN_RECORDING = "not-in-recording"
    # Recordings.
    RECORDING_MISSING = "recording-missing"
    RECORDING_UNREADABLE = "recording-unreadable"
    RECORDING_CUT_OFF = "recording-cut-off"
    RECORDING_DAMAGED = "recording-damaged"
    RECORDING_TOO_LARGE = "recording-too-large"
    RECORDING_NEWER = "recording-newer"
    NO_RECORDING = "no-recording"
    RECORDING_NOT_WRITTEN = "recording-not-written"
    RECORDING_NOT_FETCHED = "recording-not-fetched"
    PORT_IN_USE = "port-in-use"
    REPLAY_MISSING = "replay-missing"
    REPLAY_MISMATCH = "replay-mismatch"
    REPLAY_UNUSED = "replay-unused"
    # Baselines and reports.
    BASELINE_UNREADABLE = "baseline-unreadable"
    BASELINE_DAMAGED = "baseline-damaged"
    BASELINE_MERGED = "baseline-merged"
    BASELINE_NEWER = "baseline-newer"
    BASELINE_NOT_WRITTEN = "baseline-not-written"
    REPORT_NOT_WRITTEN = "report-not-written"
    # The history of runs.
    BAD_RECORD = "bad-record"
    NO_HISTORY = "no-history"
    UNUSABLE_STORE = "unusable-store"
    # Many recordings together.
    RECORDING_CHANGED = "recording-changed"
    WORKER_DIED = "worker-died"
    TOOK_TOO_LONG = "took-too-long"
    OUT_OF_MEMORY = "out-of-memory"
    JUDGING_FAILED = "judging-failed"
    # What came of limits.
    LIMITS_MISSED = "limits-missed"
    NOT_MEASURED = "not-measured"
    LINES_NOT_KNOWN = "lines-not-known"
    # Why something is not measured: the profiler and the device.
    LOST_KERNELS = "lost-kernels"
    LOST_GRAPH_KERNELS = "lost-graph-kernels"
    WRONG_GRAPH_NUMBERS = "wrong-graph-numbers"
    LOST_LAUNCHES = "lost-launches"
    LOST_COPIES = "lost-copies"
    EARLIER_WORK = "earlier-work"
    LOST_STEPS = "lost-steps"
    LOST_SENTINEL = "lost-sentinel"
    NO_GPU_SIDE = "no-gpu-side"
    UNPLACED_LAUNCHES = "unplaced-launches"
    UNTIMED_KERNELS = "untimed-kernels"
    CLOCKS_DIFFER = "clocks-differ"
    UNKNOWN_LAUNCH = "unknown-launch"
    UNKNOWN_WORK = "unknown-work"
    OVERLAPPING_STEPS = "overlapping-steps"
    ANOTHER_PROFILER = "another-profiler"
    NO_KERNELS_RECORDED = "no-kernels-recorded"
    GPU_UNUSABLE = "gpu-unusable"
    GPU_FAILED = "gpu-failed"
    GPU_IN_USE = "gpu-in-use"
    FORKS = "forks"
    MEASUREMENT_FAILED = "measurement-failed"
    # Recordings of other processes.
    NO_RECORDING_LEFT = "no-recording-left"
    OTHER_FILE_COUNT = "other-file-count"
    STALE_RECORDING = "stale-recording"
    UNFINISHED_RECORDING = "unfinished-recording"
    NO_SUCH_RANGE = "no-such-range"
    MIXED_JOBS = "mixed-jobs"
    LOST_RECORDS = "lost-records"
    # The measured code.
    NOTHING_RAN = "nothing-ran"
    NOTHING_MEASURED = "nothing-measured"
    NOT_RUN_TO_END = "not-run-to-end"
    UNREPEATABLE_BODY = "unrepeatable-body"
    LATE_MARKER = "late-marker"
    OTHER_THREAD = "other-thread"
    UNSEEN_WORK = "unseen-work"
    AOTINDUCTOR = "aotinductor"
    COMPILED_BEFORE = "compiled-before"
    RAN_UNCOMPILED = "ran-uncompiled"
    COMPILER_RECORDS_CLEARED = "compiler-records-cleared"
    COMPILE_CACHE = "compile-cache"
    # What cannot be known here.
    NEEDS_GPU = "needs-gpu"
    LAUNCHES_WAIT = "launches-wait"
    CLOCKS_LOCKED = "clocks-locked"
    POLLED = "polled"
    NO_VERDICT = "no-verdict"
    NO_TIMES = "no-times"
    NO_PEAK_MEMORY = "no-peak-memory"
    NO_COMPILE_EVIDENCE = "no-compile-evidence"
    NOT_RECORDED = "not-recorded"
    MATCH_UNKNOWN = "match-unknown"
    FAMILY_UNKNOWN = "family-unknown"
    OPERATOR_UNKNOWN = "operator-unknown"
    NO_SUCH_OPERATOR = "no-such-operator"
    OWN_UNKNOWN = "own-unknown"
    NOTHING_TO_FUSE = "nothing-to-fuse"
    NO_COMMUNICATION = "no-communication"
    ONE_RANK = "one-rank"
    NO_RANK = "no-rank"
    SILENT_RANK = "silent-rank"
    OTHER_RANK = "other-rank"
    DIFFERENT_COLLECTIVES = "different-collectives"
    RANK_LOST = "rank-lost"
    NO_JOB = "no-job"
    BASELINE_ELSEWHERE = "baseline-elsewhere"
    BASELINE_INCOMPLETE = "baseline-incomplete"
    # What is compared with another commit.
    NO_REPOSITORY = "no-repository"
    UNKNOWN_REF = "unknown-ref"
    OBJECT_MISSING = "object-missing"
    INSTALL_FAILED = "install-failed"
    OTHER_CODE = "other-code"
    IGNORED_FILE = "ignored-file"
    BASE_NOT_MEASURED = "base-not-measured"
    NOTHING_COMPARED = "nothing-compared"
    NO_ANCESTOR = "no-ancestor"
    NO_TEST = "no-test"


MISUSES: Final = (
    Code.UNKNOWN_KEYWORD,
    Code.BAD_VALUE,
    Code.BAD_PATTERN,
    Code.POSITIONAL_ARGUMENT,
    Code.CONTRADICTION,
    Code.LONE_SETTING,
    Code.FIXTURE_MISUSE,
)
"""The codes of what the code of a test asks wrongly."""


def coded(text: str, code: str) -> str:
    """Return the text with its code at the end."""
    return f"{text} [{code}]"
