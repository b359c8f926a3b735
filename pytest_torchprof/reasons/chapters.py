"""The pages of messages in docs/, those that most people meet first, the chapters of each, and the codes in these."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pytest_torchprof.reasons.codes import MISUSES, Code

if TYPE_CHECKING:
    from collections.abc import Mapping


CHAPTERS: Final[Mapping[str, tuple[str, ...]]] = {
    "usage-errors": (
        *MISUSES,
        Code.BAD_OPTION,
        Code.BAD_USAGE,
        Code.NO_GPU,
        Code.NO_SUCH_DEVICE,
        Code.NOT_IN_RECORDING,
    ),
    Code.LIMITS_MISSED: (Code.LINES_NOT_KNOWN,),
    Code.NOT_MEASURED: (),
    "measured-code": (
        Code.NOTHING_RAN,
        Code.NOTHING_MEASURED,
        Code.NOT_RUN_TO_END,
        Code.UNREPEATABLE_BODY,
        Code.LATE_MARKER,
        Code.OTHER_THREAD,
        Code.UNSEEN_WORK,
        Code.POLLED,
    ),
    "compiled-code": (
        Code.NO_COMPILE_EVIDENCE,
        Code.RAN_UNCOMPILED,
        Code.COMPILED_BEFORE,
        Code.COMPILER_RECORDS_CLEARED,
        Code.COMPILE_CACHE,
        Code.AOTINDUCTOR,
        Code.NOTHING_TO_FUSE,
    ),
    "not-known": (
        "not-judged-without-a-gpu",
        Code.NEEDS_GPU,
        Code.NOT_RECORDED,
        Code.MATCH_UNKNOWN,
        Code.FAMILY_UNKNOWN,
        Code.OPERATOR_UNKNOWN,
        Code.NO_SUCH_OPERATOR,
        Code.OWN_UNKNOWN,
        Code.NO_PEAK_MEMORY,
        Code.NO_VERDICT,
    ),
    "times": (Code.NO_TIMES, Code.LAUNCHES_WAIT, Code.CLOCKS_LOCKED, "ambiguous", "nobody-told"),
    "unreadable-recording": (
        Code.RECORDING_MISSING,
        Code.RECORDING_UNREADABLE,
        Code.RECORDING_CUT_OFF,
        Code.RECORDING_DAMAGED,
        Code.RECORDING_TOO_LARGE,
        Code.RECORDING_NEWER,
        Code.NO_RECORDING,
        Code.RECORDING_NOT_WRITTEN,
        Code.RECORDING_NOT_FETCHED,
        Code.PORT_IN_USE,
        Code.REPLAY_MISSING,
        Code.REPLAY_MISMATCH,
        Code.REPLAY_UNUSED,
    ),
    "unreadable-baseline": (
        Code.BASELINE_UNREADABLE,
        Code.BASELINE_DAMAGED,
        Code.BASELINE_MERGED,
        Code.BASELINE_NEWER,
        Code.BASELINE_NOT_WRITTEN,
        Code.BASELINE_ELSEWHERE,
        Code.BASELINE_INCOMPLETE,
    ),
    Code.REPORT_NOT_WRITTEN: (),
    "adopted-recordings": (
        Code.NO_RECORDING_LEFT,
        Code.OTHER_FILE_COUNT,
        Code.STALE_RECORDING,
        Code.UNFINISHED_RECORDING,
        Code.NO_SUCH_RANGE,
        Code.LOST_RECORDS,
    ),
    "several-ranks": (
        Code.NO_JOB,
        Code.MIXED_JOBS,
        Code.ONE_RANK,
        Code.NO_RANK,
        Code.SILENT_RANK,
        Code.OTHER_RANK,
        Code.RANK_LOST,
        Code.NO_COMMUNICATION,
        Code.DIFFERENT_COLLECTIVES,
    ),
    "another-commit": (
        Code.NO_REPOSITORY,
        Code.UNKNOWN_REF,
        Code.OBJECT_MISSING,
        Code.INSTALL_FAILED,
        Code.OTHER_CODE,
        Code.IGNORED_FILE,
        Code.BASE_NOT_MEASURED,
        Code.NOTHING_COMPARED,
        Code.NO_ANCESTOR,
        Code.NO_TEST,
    ),
    "history": (Code.BAD_RECORD, Code.NO_HISTORY, Code.UNUSABLE_STORE),
    "fleet": (
        Code.RECORDING_CHANGED,
        Code.WORKER_DIED,
        Code.TOOK_TOO_LONG,
        Code.OUT_OF_MEMORY,
        Code.JUDGING_FAILED,
    ),
}
"""The chapters in their order; a code that none of them names is in that of *not measured*."""

PAGES: Final[Mapping[str, tuple[str, ...]]] = {
    "messages-usage": ("usage-errors",),
    "messages-failures": (Code.LIMITS_MISSED, Code.NOT_MEASURED),
    "messages-code": ("measured-code", "compiled-code", "not-known", "times"),
    "messages-files": ("unreadable-recording", "unreadable-baseline", Code.REPORT_NOT_WRITTEN),
    "messages-ranks": ("adopted-recordings", "several-ranks"),
    "messages-against": ("another-commit",),
    "messages-history": ("history", "fleet"),
}
"""The pages in their order, each by who meets what its chapters hold."""
