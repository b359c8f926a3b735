"""What a recording alone says about torch.compile: regions, compilations, graph launches; foreign ones too."""

from __future__ import annotations

import json
from functools import partial

import pytest
from facts import misses, says, why_not, why_refused

from pytest_torchprof.analysis.validity import unprofiled
from pytest_torchprof.limits.evidence import SkippedGraph
from pytest_torchprof.limits.seen import FallbackKernels, GraphReplays, NoGraphLaunched, OutsideGraphs
from pytest_torchprof.profiles import load
from pytest_torchprof.reasons.catalogue import from_plain
from pytest_torchprof.reasons.compiler_events import RegionInside, TorchSilent
from pytest_torchprof.reasons.compiling import (
    GivenUpBefore,
    NoEvidence,
    NoFittingCode,
    RanUncompiled,
    ReplayedWithoutCode,
    Unobserved,
)
from pytest_torchprof.reasons.composed import SkippedGraphsUnknown
from pytest_torchprof.reasons.errors import LimitsMissed, NotMeasured
from pytest_torchprof.reasons.recordings import NeedsGpu
from pytest_torchprof.reasons.uncompiled import OnlyRun, SettingInForce, UnderMode
from pytest_torchprof.reasons.wrong_values import ValueForm, WrongValue

pytestmark = pytest.mark.any_torch


@pytest.fixture
def recorded(tmp_path):
    """Return the Profile of a recording with these events; `x` makes one, in us."""

    def build(*events, compiled=None, device="cuda:0"):
        ours = {"schema": 1, "device": device, "steps": 1, "compile": compiled}
        key = {} if compiled is None else {"torchprof": ours}
        path = tmp_path / "recording.json"
        # Our own recordings begin with a kernel that must be in them, and each measured call has its range.
        first = [x("torchprof::sentinel", -20, 5, cat="user_annotation"), *launch("sentinel", "aten::add_", -19, 99)]
        first.append(x("ProfilerStep#0", -10, 1000, cat="user_annotation"))
        path.write_text(json.dumps({"traceEvents": [*(first if key else ()), *events], **key}))
        return load(path)

    return build


def x(name, start, dur, *, cat="cpu_op", tid=1, **args):
    return {"ph": "X", "cat": cat, "name": name, "pid": 7, "tid": tid, "ts": start, "dur": dur, "args": args}


def region(identity, start, dur, tid=1):
    name = f"Torch-Compiled Region: {identity}" if identity else "Torch-Compiled Region"
    return x(name, start, dur, tid=tid)


def lookup(start, tid=1):
    return x("TorchDynamo Cache Lookup", start, 1, tid=tid)


def kernel(name, start, correlation, dur=2):
    return {
        "ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": 7, "ts": start, "dur": dur,
        "args": {"device": 0, "stream": 7, "correlation": correlation},
    }  # fmt: skip


def call(name, start, correlation):
    return x(name, start, 1, cat="cuda_runtime", correlation=correlation)


def launch(name, op, start, correlation):
    """Return an operator, its launch and its kernel."""
    return [x(op, start, 3), call("cudaLaunchKernel", start + 1, correlation), kernel(name, start + 5, correlation)]


def replay(start, correlation, kernels):
    """Return a graph launch and its kernels."""
    ran = [kernel(f"k{i}", start + 3 + 2 * i, correlation) for i in range(kernels)]
    return [call("cudaGraphLaunch", start, correlation), *ran]


def test_siblings_are_no_break_but_prove_nothing(recorded):
    profile = recorded(region("0/0", 0, 10), region("1/0", 20, 10))
    assert (profile.compile.regions, profile.compile.nested_regions) == (2, 0)
    assert profile.graph_breaks is None
    assert says(why_not(lambda: profile.expect(max_graph_breaks=0)), NoEvidence)


@pytest.mark.parametrize("ids", [("0/0", "1/0"), (None, None), ("Unknown", "Unknown")])
def test_a_region_in_another_is_a_break_whatever_torch_calls_it(recorded, ids):
    profile = recorded(region(ids[0], 0, 100), region(ids[1], 20, 10))
    assert profile.graph_breaks == 1
    assert misses(profile, max_graph_breaks=0).number == 1


def test_as_many_breaks_as_are_allowed_may_not_be_all_there_are(recorded):
    profile = recorded(region("0/0", 0, 100), region("1/0", 20, 10))
    with pytest.raises(NotMeasured):
        profile.expect(max_graph_breaks=1)


def test_regions_on_two_threads_are_not_nested(recorded):
    assert recorded(region("0/0", 0, 100), region("1/0", 20, 10, tid=2)).compile.nested_regions == 0


def test_breaks_are_those_of_the_worst_step_and_regions_those_of_all(recorded):
    steps = [x(f"ProfilerStep#{i}", 100 * i, 90, cat="user_annotation") for i in range(3)]
    ran = [region("0/0", 100 * i, 80) for i in range(3)]
    inner = [region("1/0", 110, 5), region("2/0", 120, 5), region("1/0", 210, 5)]
    profile = recorded(*steps, *ran, *inner, region("9/0", 500, 5))
    assert (profile.compile.regions, profile.compile.nested_regions, profile.graph_breaks) == (6, 3, 2)


def test_a_look_up_without_a_region_after_it_is_counted(recorded):
    found = recorded(lookup(0), region("0/0", 1, 5), lookup(10), lookup(20), region("0/0", 21, 5), lookup(30))
    assert found.compile.lookups_without_region == 2


def test_a_look_up_that_a_compilation_follows_found_what_it_needs(recorded):
    timed = x("_compile.compile_inner (dynamo_timed)", 2, 50)
    found = recorded(lookup(0), timed, region("0/1", 60, 5)).compile
    assert (found.lookups_without_region, found.compiled_in_window) == (0, True)


def test_a_second_attempt_inside_the_window_is_a_recompile_if_the_first_ran_there(recorded):
    data = x("entire_frame_compile_data: fn_name=_compile.compile_inner, compile_id=0/1", 20, 0, cat="user_annotation")
    timed = x("_compile.compile_inner (dynamo_timed)", 12, 50)
    profile = recorded(region("0/0", 0, 5), timed, data, region("0/1", 70, 5))
    assert profile.recompiles == 1
    assert misses(profile, max_recompiles=0).number == 1
    assert recorded(timed, data, region("0/1", 70, 5)).recompiles is None


EVIDENCE = {"dynamo": True, "unknown": {}, "compiled": True, "entries": {"0/0": [], "1/0": []}}


def _found(line, *, file="/user/model.py", at=None, inferred=False):
    return {
        "reason": "why", "file": file, "line": line, "function": "f", "at": at or f"{file}:{line}", "inferred": inferred,
    }  # fmt: skip


def test_a_nested_region_whose_code_is_known_is_no_further_break(recorded):
    evidence = {**EVIDENCE, "entries": {"0/0": [_found(3)], "1/0": []}}
    profile = recorded(region("0/0", 0, 100), region("1/0", 20, 10), compiled=evidence)
    assert [one.line for one in profile.compile.graph_breaks] == [3]


def test_a_nested_region_in_unknown_code_is_a_break_without_a_line(recorded):
    (one,) = recorded(region("5/0", 0, 100), region("1/0", 20, 10), compiled=EVIDENCE).compile.graph_breaks
    inside = RegionInside("Torch-Compiled Region: 1/0", "Torch-Compiled Region: 5/0")
    assert (one.line, one.why) == (None, inside)


def test_breaks_of_code_that_did_not_run_do_not_count(recorded):
    evidence = {**EVIDENCE, "entries": {"0/0": [], "7/0": [_found(3)]}}
    recorded(region("0/0", 0, 10), compiled=evidence).expect(max_graph_breaks=0)


def test_one_line_is_one_break_and_counts_the_graphs_that_end_there(recorded):
    evidence = {**EVIDENCE, "breaks": [_found(3), _found(3)], "entries": {"0/0": [_found(3)]}}
    (one,) = recorded(region("0/0", 0, 10), compiled=evidence).compile.graph_breaks
    assert one.count == 2


def test_a_break_inside_torch_goes_to_the_users_line_that_is_known_for_it(recorded):
    inside = "/torch/optim.py:79"
    evidence = {
        **EVIDENCE,
        "breaks": [_found(132, at=inside), _found(134, at=inside, inferred=True), _found(79, file="/torch/optim.py")],
    }
    (one,) = recorded(region("0/0", 0, 10), compiled=evidence).compile.graph_breaks
    assert (one.line, one.count) == (132, 3)


def test_what_cannot_be_known_is_not_measured_unless_more_is_known_than_allowed(recorded):
    evidence = {**EVIDENCE, "unknown": {"graph_breaks": "it rained", "recompiles": "it rained"}}
    profile = recorded(region("0/0", 0, 10), compiled=evidence)
    assert (profile.graph_breaks, profile.recompiles) == (None, None)
    for limit in ("max_graph_breaks", "max_recompiles"):
        assert str(why_not(partial(profile.expect, **{limit: 3}))).startswith("it rained")
    with pytest.raises(LimitsMissed):
        recorded(region("0/0", 0, 10), compiled={**evidence, "breaks": [_found(3)]}).expect(max_graph_breaks=0)


GRAPH = [region("0/0", 0, 60), x("CompiledFunction", 1, 58)]


def test_a_step_whose_compiled_kernels_all_run_in_a_graph_holds(recorded):
    profile = recorded(
        *GRAPH,
        *launch("fill", "aten::fill_", 2, 1),
        *replay(20, 2, 9),
        *launch("sum", "aten::sum", 100, 3),
        compiled=EVIDENCE,
    )
    profile.expect(cuda_graph=True)
    profile.expect(cuda_graph=0.8)
    assert (profile.compile.cuda_graphs.launches, profile.compile.cuda_graphs.owned) == (1, 1)
    verdict = misses(profile, cuda_graph="all")
    assert verdict.seen == (GraphReplays(9, 11, 1, share=pytest.approx(9 / 11)),)
    assert ("sum", 1, ("aten::sum",)) in [(row.name, row.count, row.ops) for row in verdict.rows]
    assert misses(profile, cuda_graph=0.9).seen == verdict.seen


@pytest.mark.parametrize("key", [None, {"schema": 1, "device": "cuda:0", "steps": 1}])
def test_without_compile_evidence_a_skipped_graph_cannot_be_excluded(tmp_path, recorded, key):
    profile = recorded(*GRAPH, *replay(20, 2, 9), compiled=EVIDENCE)
    document = json.loads((tmp_path / "recording.json").read_text())
    del document["torchprof"]
    (tmp_path / "recording.json").write_text(json.dumps(document | ({"torchprof": key} if key else {})))
    profile = load(tmp_path / "recording.json")
    reason = why_not(lambda: profile.expect(cuda_graph=True))
    assert says(reason, SkippedGraphsUnknown)
    assert says(reason, NoEvidence, has_key=key is not None)
    assert says(why_not(lambda: profile.expect(max_graph_breaks=0)), NoEvidence, has_key=key is not None)
    profile.expect(cuda_graph="all")
    profile.expect(cuda_graph=0.5)


@pytest.mark.parametrize(
    "damaged",
    [
        {"breaks": [{"reason": "r", "file": "f.py", "line": "3"}]},
        {"breaks": [{"reason": None, "file": "f.py", "line": 3}, {"reason": "r", "file": "f.py", "line": 4}]},
        {"recompiles": [{"function": 1}]},
        {"fx_graphs": "none"},
    ],
)
def test_evidence_that_is_damaged_is_no_evidence_of_nothing(recorded, damaged):
    profile = recorded(region("0/0", 0, 10), compiled={**EVIDENCE, **damaged})
    for limit in ({"max_graph_breaks": 0}, {"max_recompiles": 0}):
        with pytest.raises(NotMeasured):
            profile.expect(**limit)


OF_EARLIER_VERSIONS = {
    "breaks": [{"reason": "no reason given", "file": "f.py", "line": 3, "function": "f", "at": "f.py:3"}],
    "recompiles": [{"reason": "no reason given", "file": "f.py", "line": 3, "function": "f"}],
}


def test_texts_of_earlier_versions_read_as_what_is_recorded_now(recorded):
    """They wrote words of their own where torch gives none."""
    silent = {"cause": "torch-silent"}
    now = {name: [{**event, "reason": silent} for event in events] for name, events in OF_EARLIER_VERSIONS.items()}
    before, after = (
        recorded(region("0/0", 0, 10), compiled={**EVIDENCE, **evidence}) for evidence in (OF_EARLIER_VERSIONS, now)
    )
    assert after.compile.graph_breaks[0].why == after.compile.recompiles[0].why == TorchSilent()
    for limit in ("max_graph_breaks", "max_recompiles"):
        told = [[str(line) for line in misses(profile, **{limit: 0}).evidence] for profile in (before, after)]
        assert told[0] == told[1] != []


@pytest.mark.parametrize("limit", ["max_graph_breaks", "max_recompiles"])
def test_a_setting_that_earlier_versions_wrote_as_a_text_reads_as_before(recorded, limit):
    settings = [str(UnderMode("Mode"))], [UnderMode("Mode").to_plain()]
    whys = [
        why_not(
            partial(recorded(region("0/0", 0, 10), compiled={**EVIDENCE, "eager_under": under}).expect, **{limit: 0})
        )
        for under in settings
    ]
    assert says(whys[1], RanUncompiled, under=UnderMode("Mode"))
    assert str(whys[0]) == str(whys[1])


@pytest.mark.parametrize("kind", [RanUncompiled, NoFittingCode])
def test_a_reason_with_a_text_of_an_earlier_version_is_read(kind):
    facts = {"calls": 2} if kind is NoFittingCode else {}
    reason = kind(**facts, under=OnlyRun())
    earlier = from_plain({**reason.to_plain(), "under": str(OnlyRun())})
    assert isinstance(earlier, kind)
    assert str(earlier) == str(reason)
    assert from_plain(reason.to_plain()) == reason


@pytest.mark.parametrize("blind", Unobserved)
def test_why_nothing_was_observed_is_the_same_in_words_of_earlier_versions(blind):
    reason = GivenUpBefore(2, "f.py:3", blind)
    assert from_plain({**reason.to_plain(), "because": str(blind)}) == reason


def test_kinds_of_a_later_version_are_told_by_their_names(recorded):
    """The rest of the evidence is read all the same."""
    later = {"cause": "of-tomorrow", "count": 2}
    evidence = {
        "breaks": [{"reason": later, "file": "f.py", "line": 3}],
        "recompiles": [{"reason": later, "file": "f.py", "line": 3}],
        "seen_instead": [later, {"cause": "setting-in-force", "setting": {"setting": "tomorrow"}}],
        "entered_under": [{"setting": "tomorrow", "since": "today"}],
    }
    compiled = recorded(region("0/0", 0, 10), compiled={**EVIDENCE, **evidence}).compile
    for event in (*compiled.graph_breaks, *compiled.recompiles):
        assert "of-tomorrow (count: 2)" in event.reason
        assert event.line == 3
    kept = recorded(region("0/0", 0, 10), compiled={**EVIDENCE, **evidence}).trace.metadata.compile
    assert [isinstance(seen, SettingInForce) for seen in kept.seen_instead] == [False, True]
    assert "tomorrow (since: today)" in kept.entered_under[0]


def test_a_compiled_kernel_outside_the_graph_is_named(recorded):
    profile = recorded(*GRAPH, *launch("gemm", "aten::mm", 2, 1), *replay(20, 2, 3))
    verdict = misses(profile, cuda_graph=True)
    assert verdict.seen == (OutsideGraphs(1),)
    assert [(row.name, row.count, row.ops) for row in verdict.rows] == [("gemm gemm", 1, ("aten::mm",))]


def test_a_step_without_a_graph_launch_misses(recorded):
    assert misses(recorded(*launch("gemm", "aten::mm", 2, 1)), cuda_graph=True).seen == (NoGraphLaunched(),)


def test_a_graph_that_inductor_skipped_misses_and_says_why(recorded):
    evidence = {**EVIDENCE, "cudagraph_skips": {"count": 1, "reasons": ["skipping cudagraphs due to cpu device"]}}
    profile = recorded(*GRAPH, *replay(20, 2, 3), compiled=evidence)
    assert profile.compile.cuda_graphs.skips == ("skipping cudagraphs due to cpu device",)
    assert SkippedGraph("skipping cudagraphs due to cpu device") in misses(profile, cuda_graph=True).evidence
    quiet = {**EVIDENCE, "cudagraph_skips": {"count": 1, "reasons": []}}
    (skip,) = recorded(*GRAPH, compiled=quiet).compile.cuda_graphs.skips
    assert isinstance(skip, str)  # Users look for words in it.


def test_a_graph_of_the_users_own_needs_no_torch_compile(recorded):
    recorded(x("aten::zeros", 0, 1), *replay(20, 2, 3)).expect(cuda_graph="all")


def test_the_cpu_has_no_cuda_graphs(recorded):
    on_cpu = recorded(x("aten::add", 0, 1), compiled=EVIDENCE, device="cpu")
    assert why_not(lambda: on_cpu.expect(cuda_graph=True)) == NeedsGpu("cpu", "CUDA graphs")


@pytest.mark.parametrize("value", [False, "most", 2, -1, None])
def test_other_values_of_cuda_graph_are_refused(recorded, value):
    why = why_refused(lambda: recorded().expect(cuda_graph=value))
    assert says(why, WrongValue, expected=ValueForm.GRAPH_SHARE, got=repr(value))


FX = [x("## Call CompiledFxGraph fabc ##", 2, 56)]


def test_aten_kernels_inside_a_graph_of_inductors_are_fallbacks_and_what_they_call_is_not(recorded):
    ops = [x("aten::sort", 5, 20), x("aten::copy_", 8, 5), x("aten::empty", 30, 1), x("aten::as_strided", 32, 1)]
    profile = recorded(*GRAPH, *FX, *ops, *launch("k", "triton_poi_fused_add_0", 40, 1), x("aten::mm", 100, 5))
    assert [(one.op, one.count) for one in profile.compile.fallbacks] == [("aten::sort", 1)]
    assert misses(profile, max_fallbacks=0).seen == (FallbackKernels(1),)


def test_under_a_graph_replay_the_generated_code_tells_the_fallbacks(recorded):
    # The copies before the replay are torch's, not the generated code's.
    ran = (*GRAPH, *FX, *launch("copy", "aten::_foreach_copy_", 5, 1), *replay(20, 2, 3))
    assert says(why_not(lambda: recorded(*ran).expect(max_fallbacks=5)), ReplayedWithoutCode)
    graph = {"hash": "fabc", "code_path": "/cache/code.py", "aten_calls": {"aten::mm": 2}}
    profile = recorded(*ran, compiled={**EVIDENCE, "fx_graphs": [graph]})
    assert [(one.op, one.count) for one in profile.compile.fallbacks] == [("aten::mm", 2)]
    assert [(one.hash, one.code_path, one.calls) for one in profile.compile.fx_graphs] == [
        ("fabc", "/cache/code.py", 1)
    ]
    profile.expect(max_fallbacks=2)


def test_where_calls_of_graphs_leave_no_range_any_hidden_graph_may_have_run(recorded):
    hidden = {"hash": "fabc", "code_path": "/cache/code.py", "unprofiled": True}
    for marked, ran, reason in [
        (False, GRAPH, True),
        (False, [], False),
        (True, GRAPH, False),
        (True, [*GRAPH, *FX], True),
    ]:
        evidence = {**EVIDENCE, "fx_graphs": [hidden], "graphs_are_marked": marked}
        found = unprofiled(recorded(*ran, compiled=evidence, device="cpu").trace)
        assert (found is not None) == reason


def test_evidence_of_a_wrong_shape_is_neither_a_crash_nor_evidence(recorded):
    wrong = {
        "dynamo": True,
        "entries": [1],
        "breaks": "x",
        "recompiles": {},
        "fx_graphs": [3],
        "time_us": 4,
        "unknown": 5,
    }
    found = recorded(region("0/0", 0, 10), compiled=wrong).compile
    assert (found.graph_breaks, found.recompiles, found.time_us) == (None, None, None)


@pytest.mark.parametrize(
    ("name", "regions", "launches"),
    [("rtx3060_cudagraph_steps", 5, 10), ("rtx3060_compile_steps", 5, 0), ("a100_megatron_tp8_rank0", 120, 0)],
)
def test_real_recordings_show_their_regions_and_graph_launches(shared_trace, name, regions, launches):
    found = load(shared_trace(name)).compile
    assert (found.regions, found.nested_regions, found.cuda_graphs.launches) == (regions, 0, launches)


def test_a_real_training_step_with_graphs_holds_as_far_as_can_be_told_and_one_without_misses(shared_trace):
    """They are not ours: whether Inductor skipped a graph is not in them, what was launched outside of one is."""
    profile = load(shared_trace("rtx3060_cudagraph_steps"))
    assert says(why_not(lambda: profile.expect(cuda_graph=True)), SkippedGraphsUnknown)
    load(shared_trace("rtx3060_cudagraph_steps")).expect(cuda_graph=0.5)
    with pytest.raises(LimitsMissed):
        load(shared_trace("rtx3060_cudagraph_steps")).expect(cuda_graph="all")
    with pytest.raises(LimitsMissed):
        load(shared_trace("rtx3060_compile_steps")).expect(cuda_graph=True)
