"""The catalogues of reasons, of what limits see, and of their evidence: each kind as it reads and as it travels.

The sentences stand in messages.txt beside this file, of one and of several of what is counted; after a change
``python tests/test_messages.py`` writes it anew, and the pages of messages in docs/ below their introductions.
"""

from __future__ import annotations

import functools
import json
import operator
import re
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import get_args

import msgspec
import pytest

from pytest_torchprof import reasons, report
from pytest_torchprof.against import search_facts
from pytest_torchprof.against.search_facts import (
    AnyWhyAnswered,
    AnyWhyNotFound,
    CommitAnswer,
    KernelsDiffer,
    LimitJudged,
    MeasurementMissing,
    SameKernels,
)
from pytest_torchprof.analysis.rank_kernels import OtherCount, OtherStepCount
from pytest_torchprof.baseline.entry import KernelRecord
from pytest_torchprof.compare import Comparison, notes
from pytest_torchprof.compare.articles import articles as of_changes
from pytest_torchprof.compare.change import Change, Kind, LostFusion, Undecided
from pytest_torchprof.compare.change_words import CATALOGUE, change_words
from pytest_torchprof.compare.new_kernels import NewKernels, NewWork
from pytest_torchprof.findings.catalogue.costs import Hotspot
from pytest_torchprof.limits import HOLDS, MISSED, InWords, LineInWords, Verdict, evidence, seen
from pytest_torchprof.limits.evidence import AnyEvidence
from pytest_torchprof.limits.seen import AnySeen, NoFinding, NumberSeen
from pytest_torchprof.reasons import (
    articles,
    catalogue,
    collectives,
    commit_gaps,
    compiler_events,
    decoding,
    disturbances,
    fresh_processes,
    no_gpu,
    nvml_silence,
    skips,
    uncompiled,
    unreadable,
)
from pytest_torchprof.reasons.adopting import NoFileThere, NothingOfGpu, SignOfGpu
from pytest_torchprof.reasons.baseline_renames import NewNameTaken
from pytest_torchprof.reasons.baselines import StepsFlawed
from pytest_torchprof.reasons.capturing import NotReadBack, ProfilerRuns, ThreadOfProfiler
from pytest_torchprof.reasons.catalogue import AnyReason
from pytest_torchprof.reasons.chapters import PAGES
from pytest_torchprof.reasons.codes import Code
from pytest_torchprof.reasons.collectives import AnyRankDifference, Gap, OtherMessage, OtherOrder, RankDifference
from pytest_torchprof.reasons.command_line import (
    DeviceNotAsked,
    Needed,
    NotGiven,
    OptionTakes,
    SaysDevice,
    UnknownWord,
    WordOf,
    WrongOption,
)
from pytest_torchprof.reasons.command_line_fleet import NoQuantity, OtherRunThere, Quantity, RunPart
from pytest_torchprof.reasons.commit_gaps import AnyCommitGap, MeasuredNothing, TestFailed
from pytest_torchprof.reasons.commits_measured import BadNotAfterGood, Kinship
from pytest_torchprof.reasons.comparing import BaseUnmeasured, OtherSidesCode, SideName
from pytest_torchprof.reasons.compiler_events import AnyCompilerEvent, TorchSilent
from pytest_torchprof.reasons.compiling import CompileRecords, NoRecordsInTorch, Unobserved
from pytest_torchprof.reasons.composed import CuptiUser, OfRank
from pytest_torchprof.reasons.contradictions import (
    CommitFault,
    ImpossibleCommit,
    ImpossibleMeasurement,
    ImpossibleTimes,
    MeasurementFault,
    PartMissing,
    PartOfRecord,
    TimesFault,
)
from pytest_torchprof.reasons.disturbances import AnyDisturbance, Brake, SlowedDown
from pytest_torchprof.reasons.explained import EXPLAINED, Explained
from pytest_torchprof.reasons.explained_errors import ERRORS
from pytest_torchprof.reasons.fresh_processes import AnyFreshFailure, EndedSilently, NotDoneInTime
from pytest_torchprof.reasons.goal import Goal, RunPoint
from pytest_torchprof.reasons.gpu_trouble import (
    CuptiRefusal,
    DeviceTrouble,
    DeviceUnusable,
    LockHolder,
    NoKernelsRecorded,
)
from pytest_torchprof.reasons.lost_ranks import CacheProcess, RankDied, StoppedAt
from pytest_torchprof.reasons.lost_work import LostKernels, SharedGraphNumbers, StrayGraphNumbers
from pytest_torchprof.reasons.misuse import CallWithout, Takes, WrongArgument
from pytest_torchprof.reasons.no_gpu import AnyWhyNoGpu, CannotInitialize, GpuDriver, NoErrorReported
from pytest_torchprof.reasons.nvml_silence import AnyNvmlSilence, AskerNotListed, QuestionUnknown
from pytest_torchprof.reasons.other_ranks import RankElsewhere, RankProcess, RankTooLate
from pytest_torchprof.reasons.own_steps import EarlierWork, StepsOverlap
from pytest_torchprof.reasons.plugins import Brings, BringsSomethingElse, Lack, UnusableLimit, UnusableRule
from pytest_torchprof.reasons.ranks_started import NoRankGoesOn
from pytest_torchprof.reasons.reason import Reason, Verbatim
from pytest_torchprof.reasons.recordings import Absent, NoOperator, NumberNotRecorded
from pytest_torchprof.reasons.records import ContentInstead, OtherContent
from pytest_torchprof.reasons.skips import AnySkip, MeasuringIsOff, ReplayHasNoResult
from pytest_torchprof.reasons.starting import LeftOver
from pytest_torchprof.reasons.statement import Statement
from pytest_torchprof.reasons.step_flaws import StepFlaw
from pytest_torchprof.reasons.step_title import StepTitle
from pytest_torchprof.reasons.stores import StoreFails, StoreUse
from pytest_torchprof.reasons.testing import CallsOfRank, Trait
from pytest_torchprof.reasons.uncompiled import (
    AnySetting,
    AnyWhyUncompiled,
    CompilingDisabled,
    SettingInForce,
    SkippedAsTorchs,
    UnderMode,
)
from pytest_torchprof.reasons.unreadable import (
    AnyWhyUnreadable,
    EmptyFile,
    Excess,
    Expected,
    InsteadOfFile,
    JsonCutOff,
    JsonInvalid,
    NoSuchFile,
    OddEvent,
    Oddity,
    TooLarge,
    WrongEntry,
)
from pytest_torchprof.reasons.wrong_patterns import (
    NoPattern,
    NoPatternOfOwn,
    NotOnesOwn,
    NotSpelledSo,
    PartOf,
    PatternForm,
    Spelling,
    UnknownPart,
)
from pytest_torchprof.reasons.wrong_values import NameOf, UnknownName, ValueForm, WrongValue
from pytest_torchprof.report import Disuse, EntriesDisused, account, baseline_failure
from pytest_torchprof.report.account import AnyAccount, FromReport, OwnError, RankLost, ReportedByPytest
from pytest_torchprof.report.baseline_failure import ChangeOfCode, FixOrAccept, FixOrAllow, NoBaseline
from pytest_torchprof.testing import records_left
from pytest_torchprof.testing.records_left import RecordLost, RecordNotTaken, RecordWaits, SentBy
from pytest_torchprof.trace.caches import CacheUse, CacheUses

pytestmark = pytest.mark.any_torch

SENTENCES = Path(__file__).with_name("messages.txt")
DOCS = Path(__file__).parents[1] / "docs"
INDEX = DOCS / "messages.md"


def union_of(*kinds):
    """Return the type of a value of one of these kinds."""
    return functools.reduce(operator.or_, kinds)


# Those that speak of a result's limits or times are asked for where these are.
ACCOUNTS = tuple(kind for kind in account.KINDS if "text_of" not in vars(kind))
CATALOGUES = {
    "reasons": (catalogue.KINDS, AnyReason),
    "seen": (seen.KINDS, AnySeen),
    "evidence": (evidence.KINDS, AnyEvidence),
    "differences": (collectives.KINDS, AnyRankDifference),
    "no GPU": (no_gpu.KINDS, AnyWhyNoGpu),
    "uncompiled": (uncompiled.KINDS, AnyWhyUncompiled),
    "settings of torch.compile": (uncompiled.SETTINGS, AnySetting),
    "events of the compiler": (compiler_events.KINDS, AnyCompilerEvent),
    "fresh processes": (fresh_processes.KINDS, AnyFreshFailure),
    "commit gaps": (commit_gaps.KINDS, AnyCommitGap),
    "accounts": (ACCOUNTS, AnyAccount),
    "unreadable": (unreadable.KINDS, AnyWhyUnreadable),
    "answers for commits": (search_facts.ANSWERS, AnyWhyAnswered),
    "searches": (search_facts.KINDS, AnyWhyNotFound),
    "disturbances": (disturbances.KINDS, AnyDisturbance),
    "NVML": (nvml_silence.KINDS, AnyNvmlSilence),
    "skips": (skips.KINDS, AnySkip),
    "baseline failures": ((*baseline_failure.KINDS, NewKernels), union_of(*baseline_failure.KINDS, NewKernels)),
    "notes of comparisons": (notes.KINDS, union_of(*notes.KINDS)),
    "entries of no use": (report.KINDS, union_of(*report.KINDS)),
    "records left behind": (records_left.KINDS, union_of(*records_left.KINDS)),
}
OF_OTHERS = {Verbatim, InWords, LineInWords, FromReport, ReportedByPytest}
# A test of each of the thousand kinds would take longer than what it asks.
of_a_catalogue = pytest.mark.parametrize(
    ("kinds", "union"),
    [([kind for kind in kinds if kind not in OF_OTHERS], union) for kinds, union in CATALOGUES.values()],
    ids=CATALOGUES,
)

HOTSPOT = Hotspot(subject="<subject>", time_us=1500.0, share=0.5, kernel_share=0.75, kernels=(), ops=(), count=2)
MISSED_VERDICT = Verdict(limit="max_kernels", expected="2", status=MISSED, seen=(NumberSeen("kernels", 3),))
VERDICT = Verdict(limit="max_kernels", expected="2", status=HOLDS, seen=(NumberSeen("kernels", 1),))
# A value for each type of a field, where there is one of something, and where there are several.
FEW = {
    "int": 1,
    "float": 1.5,
    "bool": False,
    "str": "<{name}>",
    "int | None": None,
    "float | None": None,
    "str | None": None,
    "tuple[float, float] | None": None,
    "tuple[str, int] | None": None,
    "tuple[tuple[int, Gap], ...]": ((1, Gap.NO_TIME),),
    "Gap": Gap.NO_TIME,
    "Trait": Trait.ASYNC,
    "tuple[tuple[int, str], ...]": ((1, "<name>"),),
    "tuple[tuple[int, int], ...]": (),
    "AnyRankDifference": OtherOrder(1, 1, 0, ("one",), ()),
    "CacheUses": CacheUses(inductor=CacheUse(hits=1, misses=0, bypasses=0)),
    "decoding.AnyReason": NoOperator(),
    "tuple[AnySeen, ...]": (NoFinding(),),
    "decoding.AnyReason | None": None,
    "AnyFinding": HOTSPOT,
    "OtherCount | OtherStepCount": OtherStepCount(3, 2),
    "tuple[str, ...]": ("one",),
    "tuple[int, ...]": (1,),
    "tuple[str | None, ...]": (),
    "tuple[decoding.AnyReason, ...]": (NoOperator(),),
    "StepTitle": StepTitle(step=1, steps=5),
    "StepTitle | None": None,
    "StepTitle | str | None": None,
    "SideName": SideName(),
    "RankProcess": RankProcess(4711, "<host>"),
    "RankProcess | None": None,
    "tuple[CallsOfRank, ...]": (CallsOfRank(1, 5, times=False), CallsOfRank(0, 5, times=True)),
    "tuple[tuple[str, int | None], ...]": (("<file>", 2), ("<file>", None)),
    "tuple[tuple[str, str | int], ...]": (("<name>", 1),),
    "tuple[tuple[str, str], ...]": (("<variable>", "<value>"),),
    "GpuDriver | None": None,
    "AnyWhyNoGpu": NoErrorReported(),
    "AnyWhyNoGpu | None": None,
    "AnySkip": MeasuringIsOff(),
    "tuple[CompileRecords, ...] | str": (CompileRecords.METRICS,),
    "AnyWhyUncompiled | str": SettingInForce(UnderMode("<mode>")),
    "AnyFreshFailure | str | None": None,
    "AnySetting | str": CompilingDisabled(),
    "AnyCompilerEvent | str": TorchSilent(),
    "Unobserved": Unobserved.NO_CALL,
    "tuple[CuptiUser, ...]": (CuptiUser.PROTON,),
    "tuple[LockHolder, ...] | str": (LockHolder(4711, "python", "<test>"),),
    "AnyWhyUnreadable": EmptyFile(),
    "AnyNvmlSilence": AskerNotListed(),
    "AnyCommitGap": MeasuredNothing(),
    "AnyWhyAnswered": SameKernels(),
    "CommitAnswer": CommitAnswer.GOOD,
    "tuple[Brake, ...]": (),
    "AnyCommitGap | str": MeasuredNothing(),
    "AnyCommitGap | str | None": None,
    "AnyWhyNotStarted": Verbatim("<problem>", Code.NO_TEST),
    "Goal | str": Goal(RunPoint.STEP, 1),
    "Goal | str | None": None,
    "decoding.AnyReason | str": "<explanation>",
    "tuple[OwnError, ...]": (OwnError(NoOperator()),),
    "CacheProcess | None": None,
    "StoppedAt | str": StoppedAt(),
}
MANY = {
    "int": 3000,
    "float": 2500.0,
    "bool": True,
    "str": "<{name}>",
    "int | None": 7,
    "float | None": 2400.0,
    "tuple[float, float] | None": (30.0, 20.0),
    "tuple[str, int] | None": ("model.py", 7),
    "tuple[tuple[int, str], ...]": ((2, "model.py:7"), (1, "model.py:9")),
    "tuple[tuple[int, int], ...]": ((0, 2), (1, 2)),
    "tuple[tuple[int, Gap], ...]": ((3000, Gap.NO_TIME), (1, Gap.BATCHED)),
    "Gap": Gap.NO_GROUP_SIZE,
    "Trait": Trait.HYPOTHESIS,
    "AnyRankDifference": OtherMessage(1, 2, 0, "<collective>", 8, "fp32", 5000, None),
    "CacheUses": CacheUses(inductor=CacheUse(hits=2, misses=1, bypasses=3)),
    "str | None": "<{name}>",
    "decoding.AnyReason": EarlierWork(2),
    "decoding.AnyReason | None": EarlierWork(2),
    "OtherCount | OtherStepCount": OtherCount(-2, "<kernel>", "<types>", 7),
    "AnyFinding": HOTSPOT,
    "tuple[AnySeen, ...]": (NumberSeen("kernels", 7),),
    "tuple[str, ...]": ("one", "two"),
    "tuple[int, ...]": (1, 2),
    "tuple[str | None, ...]": ("one", None),
    "tuple[decoding.AnyReason, ...]": (NoOperator(), EarlierWork(2)),
    "StepTitle": StepTitle(step=2, steps=5, name="<name>", occurrence=17, occurrences=24, place="model.py:7"),
    "StepTitle | None": StepTitle(step=3, steps=5),
    "StepTitle | str | None": StepTitle(step=3, steps=5),
    "SideName": SideName("<commit>"),
    "RankProcess": RankProcess(4711, "<host>"),
    "RankProcess | None": RankProcess(4711, "<host>"),
    "tuple[CallsOfRank, ...]": (CallsOfRank(3, 5, times=False), CallsOfRank(3, 6, times=False)),
    "tuple[tuple[str, int | None], ...]": (("<file>", 2), ("<file>", 3)),
    "tuple[tuple[str, str | int], ...]": (("<name>", 1), ("<name>", "<value>")),
    "tuple[tuple[str, str], ...]": (("<variable>", ""), ("<variable>", "<value>")),
    "GpuDriver | None": GpuDriver.NVIDIA,
    "AnyWhyNoGpu": CannotInitialize("<error>"),
    "AnyWhyNoGpu | None": CannotInitialize("<error>"),
    "AnySkip": ReplayHasNoResult(),
    "tuple[CompileRecords, ...] | str": tuple(CompileRecords),
    "AnyWhyUncompiled | str": SkippedAsTorchs("<function>", "<file>", 7),
    "AnyFreshFailure | str | None": EndedSilently(-9),
    "AnySetting | str": UnderMode("<mode>"),
    "AnyCompilerEvent | str": "<why>",
    "Unobserved": Unobserved.TOOLS_TAKEN,
    "tuple[CuptiUser, ...]": (CuptiUser.JAX, CuptiUser.DAEMON),
    "tuple[LockHolder, ...] | str": (LockHolder(4711, None, None), LockHolder(4712, "python", "<test>")),
    "AnyWhyUnreadable": NoSuchFile("<path>"),
    "AnyNvmlSilence": QuestionUnknown("<function>"),
    "AnyCommitGap": TestFailed("<error>"),
    "AnyWhyAnswered": MeasurementMissing(TestFailed("<error>"), "<name>"),
    "CommitAnswer": CommitAnswer.SKIPPED,
    "tuple[Brake, ...]": (Brake.BOARD_LIMIT, Brake.RELIABILITY_LIMIT),
    "AnyCommitGap | str": TestFailed("<error>"),
    "AnyCommitGap | str | None": TestFailed("<error>"),
    "AnyWhyNotStarted": LeftOver("<path>"),
    "Goal | str": Goal(RunPoint.FIXTURE, "<fixture>", "<label>"),
    "Goal | str | None": Goal(RunPoint.START_OF_MEASUREMENT, label="<label>"),
    "decoding.AnyReason | str": EarlierWork(2),
    "tuple[OwnError, ...]": (OwnError(not_held=(MISSED_VERDICT,)), OwnError(EarlierWork(2), announced=True)),
    "CacheProcess | None": CacheProcess.WARM,
    "StoppedAt | str": StoppedAt("<line>", "<collective>"),
}


WHICH = {RunPoint.WARM_UP_CALL: 3, RunPoint.STEP: 2, RunPoint.FIXTURE: "<fixture>"}
"""The points of which a run has several."""

# Where a value of the type alone is none of the field.
EXAMPLES = {
    NumberSeen: (
        NumberSeen("kernels", 1),
        NumberSeen("gpu_busy_us", 1_500_000, beyond=1_499_999),
        NumberSeen("gpu_busy_us", 2.5, on_gpu=False),
        NumberSeen("peak_memory_bytes", 2**30 + 5, beyond=2**30),
        NumberSeen("cpu_gpu_ratio", 1.5, beyond=1, parts_us=(30, 20)),
    ),
    **{
        kind: (kind(*ones), *(kind(*several, cupti=version) for version in (None, 28, 130001, 130101)))
        for kind, ones, several in (
            (SharedGraphNumbers, (1, 1), (3000, 3000)),
            (StrayGraphNumbers, (1, 1, 1), (3000, 3000, 3000)),
        )
    },
    DeviceUnusable: tuple(DeviceUnusable("<device>", "<error>", cause) for cause in (None, *DeviceTrouble)),
    NewNameTaken: (
        NewNameTaken("<new>", (("<file>", "<name>"),)),
        NewNameTaken("<new>", (("<file>", "<name>"), ("<other>", "<name>"))),
    ),
    NoFileThere: tuple(NoFileThere("<file>", instead) for instead in InsteadOfFile),
    NoKernelsRecorded: (
        NoKernelsRecorded("<device>"),
        NoKernelsRecorded("<device>", fresh_kernels=0),
        NoKernelsRecorded("<device>", fresh_kernels=0, tools=("<variable>",)),
        NoKernelsRecorded("<device>", fresh_kernels=64),
        NoKernelsRecorded("<device>", error="<error>"),
        NoKernelsRecorded("<device>", error=NotDoneInTime(60.0)),
        *(
            NoKernelsRecorded("<device>", refusals=(CuptiRefusal(call="<call>", error=error),))
            for error in ("<error>", "CUPTI_ERROR_INSUFFICIENT_PRIVILEGES", "CUPTI_ERROR_NOT_INITIALIZED")
        ),
    ),
    NothingOfGpu: (
        NothingOfGpu("<file>", SignOfGpu.ASKED, "<device>"),
        *(NothingOfGpu("<file>", sign) for sign in SignOfGpu if sign is not SignOfGpu.ASKED),
    ),
    NumberNotRecorded: tuple(NumberNotRecorded("<number>", absent) for absent in (None, *Absent)),
    OtherSidesCode: (
        OtherSidesCode(SideName(), "<module>", "<file>"),
        OtherSidesCode(SideName("<commit>"), "", "<file>"),
        OtherSidesCode(SideName("<commit>"), "<module>", "<file>", root="<root>"),
        OtherSidesCode(SideName("<commit>"), "<module>", "<file>", differing="<differing>"),
    ),
    ProfilerRuns: tuple(map(ProfilerRuns, ThreadOfProfiler)),
    RankElsewhere: (
        RankElsewhere(1, 30.0, RankProcess(4711, "<host>"), None),
        RankElsewhere(1, 30.0, RankProcess(4711, "<host>"), None, "<label>"),
        RankElsewhere(1, 30.0, RankProcess(4711, "<host>"), "<test>"),
        RankElsewhere(1, 30.0, RankProcess(4711, "<host>"), "<test>", not_collected="<test>"),
    ),
    RankLost: (
        RankLost(RankDied(7), rank=1, ranks=2),
        RankLost(RankDied(3), CacheProcess.WARM, 0, 1),
        RankLost(NoRankGoesOn(60.0, (0,), (RankDied(1),))),
    ),
    RankTooLate: (
        *(RankTooLate(1, Goal(point, WHICH.get(point)), 1.5, None) for point in RunPoint),
        RankTooLate(3000, Goal(RunPoint.STEP, 2, "<label>"), 2500.0, RankProcess(4711, "<host>")),
    ),
    NotReadBack: tuple(NotReadBack(cause, cause.CODE) for cause in (JsonInvalid("<error>"), JsonCutOff())),
    BringsSomethingElse: tuple(BringsSomethingElse(expected, "<got>") for expected in Brings),
    UnusableLimit: (UnusableLimit("<limit>", Lack.NAME), UnusableLimit("<limit>", Lack.FUNCTIONS)),
    UnusableRule: tuple(UnusableRule("<finding>", lack) for lack in (Lack.CODE, Lack.FUNCTION, Lack.NEEDS)),
    CallWithout: (
        *(CallWithout("<call>", takes, "<got>") for takes in Takes),
        CallWithout("<call>", Takes.PROFILE, "<got>", Code.BAD_VALUE),
    ),
    NoPattern: (*(NoPattern(expected, "<got>") for expected in PatternForm), NoPattern(PatternForm.OWN_KERNEL)),
    NoPatternOfOwn: tuple(NoPatternOfOwn("<pattern>", why) for why in NotOnesOwn),
    NotSpelledSo: (
        *(NotSpelledSo("<written>", False, how, ("<name>",), "<number>") for how in Spelling),
        *(NotSpelledSo("<written>", True, how, ("one", "two")) for how in (Spelling.SEVERAL, Spelling.READS)),
    ),
    UnknownName: (
        *(UnknownName(what, "<name>", "<near>", ()) for what in NameOf),
        UnknownName(NameOf.FINDING, "<name>", None, ("one", "two")),
    ),
    UnknownPart: (
        *(UnknownPart(what, "<name>", "<near>", (), of="<of>") for what in PartOf),
        UnknownPart(PartOf.SELECTOR, "<name>", None, ("one", "two")),
    ),
    WrongArgument: (WrongArgument("<call>", "<argument>", ValueForm.TEXT, "<got>"),),
    WrongValue: (
        *(WrongValue(expected, "<got>") for expected in ValueForm),
        WrongValue(ValueForm.WHOLE_NUMBER, least=0),
    ),
    DeviceNotAsked: tuple(map(DeviceNotAsked, SaysDevice)),
    NoQuantity: tuple(NoQuantity("<option>", quantity, "<example>", "<got>") for quantity in Quantity),
    NotGiven: tuple(map(NotGiven, Needed)),
    OtherRunThere: (
        *(OtherRunThere("<folder>", part) for part in RunPart),
        OtherRunThere("<folder>", RunPart.VERSION, is_retry=True),
    ),
    UnknownWord: (
        *(UnknownWord(what, "<name>", "<near>", ()) for what in WordOf),
        UnknownWord(WordOf.OPTION, "<name>", None, ("one", "two")),
    ),
    WrongOption: tuple(WrongOption("<option>", "<value>", expected) for expected in OptionTakes),
    NewKernels: (
        NewKernels(1, None),
        NewKernels(3000, "gemm"),
        *(NewKernels(3000, "pointwise", work) for work in NewWork),
    ),
    ChangeOfCode: (
        ChangeOfCode(),
        ChangeOfCode(new=NewKernels(1, "gemm")),
        ChangeOfCode(new=NewKernels(1, "gemm"), location=("model.py", 7), elsewhere=True),
        ChangeOfCode(breaks=1, location=("model.py", 7)),
        ChangeOfCode(breaks=3, location=("model.py", 7)),
    ),
    NoBaseline: (NoBaseline("<file>"), NoBaseline("<file>", ("<name>",))),
    FixOrAccept: (FixOrAccept(ChangeOfCode()),),
    FixOrAllow: (
        FixOrAllow(ChangeOfCode()),
        FixOrAllow(ChangeOfCode(), (("kernels", 2.0), ("launches", 1.5))),
    ),
    EntriesDisused: (
        *(EntriesDisused(why, ("<name>",)) for why in Disuse),
        EntriesDisused(Disuse.RENAMED, ("<old>",), ("<new>",)),
        EntriesDisused(Disuse.RENAMED, ("<old>",), ("<new>",), unclear=True),
    ),
    RecordWaits: tuple(RecordWaits("<folder>", sent_by) for sent_by in SentBy),
    RecordNotTaken: (
        RecordNotTaken("<history>", NoOperator(), RecordWaits("<folder>", SentBy.PUSH)),
        RecordNotTaken("<history>", NoOperator(), RecordLost("<folder>", NoOperator())),
    ),
    KernelsDiffer: tuple(KernelsDiffer(Comparison(verdict="worse"), name) for name in (None, "<name>")),
    LimitJudged: tuple(LimitJudged(VERDICT, name) for name in (None, "<name>")),
    StepsFlawed: (
        *(StepsFlawed("<path>", "<name>", flaw, 3000) for flaw in StepFlaw if flaw is not StepFlaw.NOT_IN_ORDER),
        StepsFlawed("<path>", "<name>", StepFlaw.NOT_IN_ORDER, written="<written>"),
    ),
    SlowedDown: tuple(map(SlowedDown, Brake)),
    TooLarge: tuple(TooLarge(excess, 3000) for excess in Excess),
    OddEvent: tuple(OddEvent("<key>", 7, oddity, "<value>") for oddity in Oddity),
    BadNotAfterGood: tuple(BadNotAfterGood("<good>", "<bad>", kinship, "<commit>") for kinship in Kinship),
    ImpossibleCommit: tuple(ImpossibleCommit("<commit>", fault) for fault in CommitFault),
    ImpossibleMeasurement: tuple(ImpossibleMeasurement("<test>", fault) for fault in MeasurementFault),
    ImpossibleTimes: tuple(map(ImpossibleTimes, TimesFault)),
    OtherContent: tuple(map(OtherContent, ContentInstead)),
    PartMissing: tuple(PartMissing("<test>", part) for part in PartOfRecord),
    StoreFails: tuple(StoreFails(use, "<error>") for use in StoreUse),
    WrongEntry: tuple(WrongEntry("<name>", expected) for expected in Expected),
}


ADD, GELU = (
    KernelRecord(name=f"aten::{op}", family="pointwise", dtype="fp32", op=f"aten::{op}") for op in ("add", "gelu")
)
GEMM, WIDER = (
    KernelRecord(name=f"nvjet_tst_{tile}_64x6_2x1_v_bz_TNT", family="gemm", dtype="bf16", layout="tn", op="aten::mm")
    for tile in ("128x64", "128x128")
)
SGEMM = KernelRecord(name="ampere_sgemm_128x64_nn", family="gemm", dtype="fp32", layout="nn", op="aten::mm")
OWN, OF_OTHERS_TYPE = (KernelRecord(name="own", family="other", operands=of) for of in (None, "bf16 int64"))
FUSED = KernelRecord(name="triton_poi_fused_add_gelu_0", family="pointwise")
COPIES = tuple(KernelRecord(name=f"copy_{number}", family="copy", op="aten::copy_") for number in range(6))
LOST = LostFusion(ops=("add", "gelu"), kernels=2)
CHANGES = (
    Change(kind="added", what="add", after=(ADD,)),
    Change(kind="added", what="fused", after=(FUSED,), times=3, replayed=True),
    Change(kind="removed", what="fused", before=(FUSED,), lost_fusion=LOST),
    Change(kind="count", what="add", old=1, new=2, after=(ADD,)),
    Change(kind="changed", what="gemm", before=(GEMM,), after=(SGEMM,)),
    Change(kind="changed", what="own", before=(OWN,), after=(OF_OTHERS_TYPE,)),
    Change(kind="changed", what="gelu", before=(FUSED,), after=(GELU,), lost_fusion=LOST),
    Change(kind="renamed", what="gemm", before=(GEMM,), after=(WIDER,)),
    Change(kind="replaced", what="fused", before=(ADD, GELU), after=(FUSED,), times=24),
    Change(kind="replaced", what="gemm", before=(GEMM,), after=(WIDER,)),
    Change(kind="replaced", what="gemm", before=(GEMM,), after=(SGEMM,)),
    Change(kind="replaced", what="copy", after=COPIES),
    Change(kind="replaced", what="fused", before=(FUSED, GEMM, ADD, *COPIES), replayed=True),
    Change(kind="reordered", what="pointwise add", times=2),
    Change(kind="number", what="syncs", old=1, new=2),
    Change(kind="number", what="kernels", old=30, new=60),
    Change(kind="number", what="gpu_busy_us", old=1200.0, new=None),
    Change(kind="number", what="time", old=1200.0, new=1500.0),
    *(
        Change(kind="number", what="time", old=old, new=1500.0, undecided=undecided)
        for old, undecided in (
            (None, Undecided(why="no samples")),
            (1200.0, Undecided(why="not confirmed")),
            (1200.0, Undecided(why="close samples")),
            (1200.0, Undecided(why="other conditions", conditions=(("threads", 4, 8), ("clock", "cpu", None)))),
        )
    ),
)
"""Changes of each kind that read differently."""


def is_reason(annotation):
    """Return whether a field with this type holds a reason, or several."""
    return "decoding.AnyReason" in annotation


def examples(kind):
    """Return messages of a kind whose fields have these values by their types."""
    return EXAMPLES.get(kind) or tuple(dict.fromkeys(articles.example(kind, values) for values in (FEW, MANY)))


def written():
    lines = []
    for title, (kinds, _) in CATALOGUES.items():
        lines += [f"# {title}"]
        for kind in sorted({*kinds} - OF_OTHERS, key=lambda kind: kind.__struct_config__.tag):
            texts = dict.fromkeys(map(str, examples(kind)))
            lines += [kind.__struct_config__.tag, *(f"  {line}" for text in texts for line in text.split("\n"))]
    lines += ["# changes"]
    for kind in get_args(Kind):
        lines += [kind, *(f"  {change_words(change)}" for change in CHANGES if change.kind == kind)]
    return "\n".join(lines) + "\n"


@functools.cache
def pages():
    """Return the pages of messages by their files: what the catalogue explains, below the introduction of each."""
    below = {INDEX: index(), **{DOCS / f"{page}.md": of_page(page) for page in PAGES}}
    return {file: f"{introduction(file)}{text.rstrip()}\n" for file, text in below.items()}


def introduction(file):
    return re.split(r"^(?=## )", file.read_text(), maxsplit=1, flags=re.MULTILINE)[0]


def index():
    """Return a place for each code, where links to the page that once held all of them land, and its link."""
    rows = [
        f"- {link(chapter)}" + (": " if below else "") + ", ".join(map(link, below)) for chapter, below in chapters()
    ]
    return "\n".join(["## All codes", "", *rows])


@functools.cache
def chapters():
    """Return each chapter of the pages with the articles that have a heading of their own in it."""
    return [*articles.chapters(), (next(of_changes()), ())]


def link(article):
    return f'<a id="{article.word}"></a>[{article.word}]({article.page}.md#{article.word})'


def of_page(page):
    on_page = [(chapter, below) for chapter, below in chapters() if chapter.page == page]
    text = "\n".join(part for chapter, below in on_page for part in section("##", chapter, below))
    page_of = {article.word: article.page for article in articles.articles()}

    def lead(target):
        return target[0] if page_of[target[1]] == page else f"]({page_of[target[1]]}.md#{target[1]})"

    return re.sub(r"\]\(#([\w-]+)\)", lead, text)


def section(level, article, below=()):
    return [f"{level} {article.word}", *article.lines, "", *(line for part in below for line in section("###", part))]


def test_each_page_holds_what_the_catalogue_explains():
    assert pages() == {file: file.read_text() for file in pages()}, "python tests/test_messages.py writes them"
    assert {*pages()} == {*DOCS.glob("messages*.md")}


def test_no_page_of_messages_is_longer_than_somebody_leafs_through():
    lengths = {file.name: len(file.read_text().splitlines()) for file in pages()}
    assert max(lengths.values()) < 300, lengths


def test_the_first_of_them_leads_to_each_other_and_to_the_place_of_each_code():
    text = INDEX.read_text()
    assert re.findall(r"\| \[[^\]]+\]\(([\w-]+)\.md\) \|$", text, re.MULTILINE) == [*PAGES]
    headings = {
        (page, heading)
        for page in PAGES
        for heading in re.findall(r"^##+ (.*)$", (DOCS / f"{page}.md").read_text(), re.MULTILINE)
    }
    places = re.findall(r'<a id="([\w-]+)"></a>\[\1\]\(([\w-]+)\.md#\1\)', text)
    assert {(page, word) for word, page in places} == headings
    assert len(places) == len(headings)


def test_each_kind_of_change_has_its_words_and_is_explained_with_an_example():
    assert {*get_args(Kind)} == {*CATALOGUE}
    chapter, *kinds = of_changes()
    assert (chapter.word, [article.word for article in kinds]) == ("changes", [*CATALOGUE, "fusion-lost"])
    assert all(row.meaning and row.remedy for row in CATALOGUE.values())


def test_each_reason_says_what_to_do():
    explained = {**EXPLAINED, **ERRORS}
    for kind in (kind for kind in catalogue.KINDS if "CODE" in vars(kind)):
        in_general = explained.get(kind.CODE, Explained()).remedy
        assert kind.REMEDY or kind.ADVICE or examples(kind)[0].remedy or in_general, (kind, "needs a REMEDY, or ADVICE")


def test_each_message_reads_as_it_is_written_down():
    assert written().splitlines() == SENTENCES.read_text().splitlines()


@of_a_catalogue
def test_a_message_is_the_same_after_it_has_travelled_as_json(kinds, union):
    for message in (message for kind in kinds for message in examples(kind)):
        assert msgspec.convert(json.loads(json.dumps(message.to_plain())), union) == message


@pytest.mark.parametrize("words", [Verbatim("it rained"), Verbatim("it rained", Code.NOT_RECORDED)])
def test_words_from_elsewhere_travel_too(words):
    assert catalogue.from_plain(json.loads(json.dumps(words.to_plain()))) == words


HOLDING = [kind for kind in catalogue.KINDS if any(map(is_reason, vars(kind).get("__annotations__", {}).values()))]
"""Kinds of reasons that hold others."""


@pytest.mark.parametrize("kind", HOLDING)
def test_a_reason_that_only_another_plugin_knows_travels_in_its_words_within_any_kind(kind):
    class Flooded(Reason, frozen=True):
        CODE = Code.NOT_RECORDED
        SENTENCE = "it rained"

    foreign = {"decoding.AnyReason": Flooded(), "tuple[decoding.AnyReason, ...]": (Flooded(), NoOperator())}
    reason = articles.example(kind, {**FEW, **foreign, "decoding.AnyReason | str": Flooded()})
    arrived = catalogue.from_plain(json.loads(json.dumps(decoding.portable(reason).to_plain())))
    assert (type(arrived), str(arrived)) == (kind, str(reason))


def test_a_reason_of_known_kinds_is_portable_as_it_is():
    reason = OfRank(1, NoOperator())
    assert decoding.portable(reason) is reason


def test_records_that_an_earlier_version_named_in_a_text_are_read_in_its_words():
    plain = {"reason": "no-records-in-torch", "missing": "compilation metrics"}
    assert catalogue.from_plain(plain).text == NoRecordsInTorch((CompileRecords.METRICS,)).text


def test_a_cause_that_an_earlier_version_gave_in_words_is_read_in_these():
    reason = NotReadBack(JsonCutOff(), Code.RECORDING_CUT_OFF)
    plain = {"reason": "not-read-back", "cause": str(reason.cause), "known_as": "recording-cut-off"}
    assert str(catalogue.from_plain(plain)) == str(reason)


def test_a_gap_of_the_commit_that_an_earlier_version_gave_in_words_is_read_in_these():
    reason = BaseUnmeasured("main", MeasuredNothing())
    plain = {"reason": "base-unmeasured", "commit": "main", "because": str(MeasuredNothing())}
    assert str(catalogue.from_plain(plain)) == str(reason)


def test_a_point_of_the_run_that_an_earlier_version_gave_in_words_is_read_in_these():
    reason = RankTooLate(1, Goal(RunPoint.WARM_UP_CALL, 2), 60.0, None)
    assert str(catalogue.from_plain({**reason.to_plain(), "goal": str(reason.goal)})) == str(reason)


def test_a_text_of_an_earlier_version_is_read_as_it_stands():
    assert str(decoding.from_stored("records went missing [lost-kernels]")) == "records went missing [lost-kernels]"


@pytest.mark.parametrize(
    "plain",
    [
        {"reason": "of-a-later-version", "found": 2},
        {"reason": "lost-steps", "found": 2},
        {"reason": "lost-steps", "found": "two", "measured": [3]},
        {"reason": "of-rank", "rank": 1, "why": {"reason": "of-a-later-version"}},
        {"reason": ["lost-steps"]},
        {"reason": "several", "whys": []},
        {},
    ],
)
def test_a_reason_that_this_version_does_not_know_is_one_all_the_same(plain):
    assert "for a reason that this version does not know" in str(catalogue.from_plain(plain))


def test_a_reason_in_the_form_of_another_version_keeps_its_code_and_its_facts_without_their_json():
    reason = catalogue.from_plain({"reason": "lost-steps", "found": "two", "lost_names": "decode#1"})
    assert reason.code == Code.LOST_STEPS
    assert "lost-steps (found: two; lost names: decode#1)" in reason.text
    assert str(reason).endswith("[lost-steps]")


@of_a_catalogue
def test_each_kind_says_what_it_is_and_all_its_fields_stand_in_its_words_or_decide_them(kinds, union):
    for kind in kinds:
        assert re.fullmatch(r"\S.*\.( [A-Z].*\.)*", (kind.__doc__ or "").partition("\n")[0]), kind
        sentences = (kind.SENTENCE if "SENTENCE" in vars(kind) else "") + getattr(kind, "REMEDY", "")
        # What kinds have in common is a class of its own beside those of reasons.
        holders = [kind, *(base for base in kind.__mro__ if not issubclass(base, Statement))]
        own = [name for name in ("sentence", "remedy", "text", "code") if any(name in vars(one) for one in holders)]
        assert own or set(re.findall(r"\{(\w+)", sentences)) == set(kind.__struct_fields__), kind


def test_all_kinds_are_in_a_catalogue():
    for module in iter_modules(reasons.__path__, f"{reasons.__name__}."):
        import_module(module.name)

    def below(kind):
        return {kind, *(one for sub in kind.__subclasses__() for one in below(sub))}

    parts = {
        Statement,
        Reason,
        seen.Seen,
        evidence.Evidence,
        RankDifference,
        no_gpu.WhyNoGpu,
        uncompiled.WhyUncompiled,
        uncompiled.CompileSetting,
        compiler_events.CompilerEvent,
        fresh_processes.FreshFailure,
        unreadable.WhyUnreadable,
        unreadable.OfPath,
        commit_gaps.CommitGap,
        disturbances.Disturbance,
        search_facts.WhyAnswered,
        search_facts.WhyNotFound,
        nvml_silence.NvmlSilence,
        skips.Skip,
        account.Account,
        *set(account.KINDS).difference(ACCOUNTS),
    }
    # Those of plugins, which other tests in this process have made, are in none.
    ours = {kind for kind in below(Statement) if kind.__module__.startswith("pytest_torchprof.")}
    assert ours - parts == {kind for kinds, _ in CATALOGUES.values() for kind in kinds}


def test_what_to_do_stands_behind_the_sentence_and_the_code_behind_both():
    overlap = StepsOverlap("decode#0", "decode#1")
    assert str(overlap) == f"{overlap.sentence}; {overlap.remedy} [overlapping-steps]"


def test_a_reason_of_another_rank_names_it_and_is_for_that_ranks_own_doctor():
    other = OfRank(3, LostKernels(1, 3, in_each_step=False))
    assert str(other).startswith("rank 3: 1 of 3 launches")
    assert other.code == Code.LOST_KERNELS
    assert not other.for_the_doctor


if __name__ == "__main__":
    SENTENCES.write_text(written())
    for file, text in pages().items():
        file.write_text(text)
