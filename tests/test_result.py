"""A result is data: it goes between processes and into reports as JSON values, and comes back as it was."""

from __future__ import annotations

import json

import msgspec
import pytest
from msgspec.structs import replace

from pytest_torchprof.analysis.numbers import Numbers
from pytest_torchprof.baseline.entry import Times
from pytest_torchprof.baseline.form import EntryFields
from pytest_torchprof.compare import Change, Comparison
from pytest_torchprof.compare.time_comparison import TimeChange, TimeComparison
from pytest_torchprof.findings import OtherFinding
from pytest_torchprof.findings.catalogue.compiling import Break, GraphBroke
from pytest_torchprof.findings.catalogue.recordings import ProfilerGap
from pytest_torchprof.limits import MISSED, NOT_MEASURED, Failure, Verdict
from pytest_torchprof.limits.evidence import WorkRow
from pytest_torchprof.limits.seen import NumberSeen
from pytest_torchprof.reasons.lost_work import LostKernels
from pytest_torchprof.reasons.own_steps import StepsOverlap
from pytest_torchprof.reasons.timing import BudgetSpent
from pytest_torchprof.report.account import BodyFailed, Kept, LimitsNotHeld
from pytest_torchprof.report.result import (
    BaselineState,
    KernelCalls,
    Outcome,
    Result,
    Summary,
    as_reported,
    decode,
    encode,
    from_report,
)
from pytest_torchprof.trace.caches import CacheUse, CacheUses, CompileCaches
from pytest_torchprof.trace.metadata import Environment

pytestmark = pytest.mark.any_torch

MISSED_LIMIT = Verdict(
    limit="max_syncs",
    range="decode",
    expected="0",
    status=MISSED,
    number=3,
    seen=(NumberSeen("syncs", 3),),
    evidence=(WorkRow(count=3, name="cudaMemcpy", full="cudaMemcpy", line=("model.py", 4)),),
)
LOST = Verdict(limit="max_kernels", expected="9", status=NOT_MEASURED, reason=LostKernels(1, 3, in_each_step=False))
WHOLE = Result(
    nodeid="test_it.py::test_it[\udc80]",
    label="decode",
    rank=1,
    ranks=4,
    device="cuda:0",
    source="f3a1",
    of_rule=True,
    outcome=Outcome.FAILED,
    account=(BodyFailed("ValueError"),),
    for_ranks=True,
    reason=StepsOverlap("step 1", "step 2"),
    baseline_state=BaselineState.CHANGED,
    comparison=Comparison(
        verdict="changed",
        kernels_differ=True,
        changes=(Change(kind="number", what="kernels", old=2, new=3, direction="worse", gated=True),),
    ),
    baseline_fails=True,
    limits=(MISSED_LIMIT, LOST),
    summary=Summary(kernels=3, worst=Numbers(kernels=4)),
    environment=Environment(gpu="NVIDIA H100", torch="2.14"),
    findings=(
        ProfilerGap(time_us=2.0, share=0.5),
        OtherFinding(code="sines", title="Sines", message="2 sines", facts={"kernels": ["sin"]}, source="model.py:4"),
    ),
    telling={"max_syncs": OtherFinding(code="sines", title="Sines", message="2 sines", facts={}, remedy="wait less")},
    kernels=(KernelCalls(name="gemm", count=2, time_us=9.0, min_us=4.0, max_us=5.0, ops=("aten::mm",)),),
    recording="a.json.gz",
    structure="abc",
    entry=EntryFields(source="abc", environment={}, steps=((),), numbers={}, varying={}),
    time=Times(conditions={"clock": "gpu"}, samples=3, median_us=2.0, quantiles_us=(1.0, 2.0, 3.0)),
    time_share=0.1,
    compile_caches=CompileCaches(uses=CacheUses(triton=CacheUse(hits=2)), phase="warm"),
    compile_us={"tracing": 700},
    against_time=TimeComparison(
        verdict="worse",
        reason=BudgetSpent(9.5),
        step=TimeChange(base_us=1.0, here_us=2.0, share=1.0, low=0.9, high=1.1, floor=0.01, chance=0.001),
    ),
    location=("test_it.py", 3),
    culprit=("model.py", 4),
)


def test_a_whole_result_is_one():
    """Each field differs from what it is where nothing is known: what gets lost on the way is seen."""
    least = Result(nodeid="", outcome=Outcome.PASSED)
    same = [name for name in Result.__struct_fields__ if getattr(WHOLE, name) == getattr(least, name)]
    assert same == []


@pytest.mark.parametrize("result", [WHOLE, Result(nodeid="t", outcome=Outcome.NOT_MEASURED)], ids=["whole", "least"])
def test_a_result_is_the_same_after_it_has_travelled(result):
    assert decode(json.loads(json.dumps(encode([result])))) == (result,)


def test_a_result_is_the_same_after_it_was_reported():
    (there,) = decode([from_report(json.loads(json.dumps(as_reported(WHOLE))))])
    assert there.message == WHOLE.message == f"rank 1 of 4: {BodyFailed('ValueError')}"
    assert replace(there, account=WHOLE.account, for_ranks=True, entry=WHOLE.entry) == WHOLE


def test_a_failure_travels_as_facts_and_is_put_into_words_where_somebody_reads_it():
    not_held = LimitsNotHeld(failure=Failure(steps=5), judged=1, kept=Kept(recording="kept/a.json.gz"))
    failed = replace(WHOLE, for_ranks=False, account=(not_held,))
    assert MISSED_LIMIT.text not in json.dumps(encode([failed])[0]["account"])
    (there,) = decode(json.loads(json.dumps(encode([failed]))))
    assert there.message == failed.message
    assert there.message.startswith("decode: 1 limit missed")
    assert there.message.endswith("kept/a.json.gz")


def test_what_only_warns_is_no_part_of_a_failure_and_the_other_way_round():
    not_held = LimitsNotHeld(failure=Failure(steps=5), judged=1)
    failed, warned = (replace(WHOLE, account=(replace(not_held, warns=warns),)) for warns in (False, True))
    assert (MISSED_LIMIT.written in failed.message, LOST.written in failed.message) == (True, False)
    assert (MISSED_LIMIT.written in warned.message, LOST.written in warned.message) == (False, True)


def test_a_report_has_the_words_for_what_a_limit_saw():
    missed, lost = as_reported(WHOLE)["limits"]
    assert (missed["name"], missed["measured"], missed["message"]) == ("max_syncs", 3, MISSED_LIMIT.text)
    assert (lost["measured"], lost["reason"]["reason"]) == (None, "lost-kernels")


def test_a_report_says_what_to_do_by_the_finding_that_tells_it_better():
    broke = GraphBroke(breaks=(Break(reason="print"),), nested_regions=0)
    missed = replace(MISSED_LIMIT, limit="max_kernels")
    (told,) = as_reported(replace(WHOLE, limits=(missed,), telling={"max_kernels": broke}))["limits"]
    (plain,) = as_reported(replace(WHOLE, limits=(missed,), telling={}))["limits"]
    assert told["remedy"] == broke.remedy != plain["remedy"]


def test_what_is_no_result_is_refused():
    with pytest.raises(msgspec.ValidationError):
        decode([{"nodeid": "t", "outcome": "fine"}])


ONE_MORE = Comparison(
    verdict="worse",
    kernels_differ=True,
    changes=(Change(kind="number", what="kernels", old=2, new=3, direction="worse", gated=True),),
)


@pytest.mark.parametrize(
    ("state", "comparison", "shown"),
    [
        (None, None, None),
        (BaselineState.NEW, None, "new"),
        (BaselineState.UNKNOWN, None, "unknown"),
        (BaselineState.WRITTEN, None, "written"),
        (BaselineState.WRITTEN, ONE_MORE, "written (worse (+1 kernel))"),
        (BaselineState.NOT_WRITTEN, ONE_MORE, "not written"),
        (BaselineState.WORSE, ONE_MORE, "worse (+1 kernel)"),
    ],
)
def test_a_table_says_how_a_result_compares_by_its_state_and_its_comparison(state, comparison, shown):
    result = Result(nodeid="t", outcome=Outcome.PASSED, baseline_state=state, comparison=comparison)
    assert result.baseline == shown


@pytest.mark.parametrize(
    ("state", "fails", "lines"),
    [
        (BaselineState.WORSE, True, 0),
        (BaselineState.WORSE, False, 1),
        (BaselineState.WRITTEN, False, 0),
        (BaselineState.NOT_WRITTEN, False, 0),
    ],
)
def test_what_differs_is_listed_unless_a_failure_shows_it_or_it_was_accepted(state, fails, lines):
    result = Result(nodeid="t", outcome=Outcome.FAILED, baseline_state=state, baseline_fails=fails, comparison=ONE_MORE)
    assert len(result.change_lines) == lines
    assert as_reported(result)["changes"] == list(result.change_lines)
