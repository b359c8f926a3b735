"""Which recordings are believed, and which are refused before anything is measured in them."""

from __future__ import annotations

import pytest
import torch
from builder import MAIN, TraceBuilder, own_recording
from facts import says, why_not, why_unreadable

from pytest_torchprof import NotMeasured, capture, load
from pytest_torchprof.cli import main
from pytest_torchprof.reasons.codes import Code
from pytest_torchprof.reasons.lost_work import LossNoted, LostGraphKernels, LostKernels, RanBeforeLaunch, UntimedKernels
from pytest_torchprof.reasons.own_steps import EarlierWork, OtherSteps, StepsOverlap, StepsOverlapOnThreads
from pytest_torchprof.reasons.recordings import Absent, NoLaunches, NumberNotRecorded, UnknownWork
from pytest_torchprof.reasons.unreadable import WrongEntry


@pytest.fixture
def profile(tmp_path):
    def read(builder):
        return load(builder.write(tmp_path / "t.json"))

    return read


def why_not_judged(found, **limits):
    """Return why nothing is judged in a recording, which is why it is not believed."""
    with pytest.raises(NotMeasured) as raised:
        found.expect(**limits)
    assert raised.value.reason == found.doubt
    return found.doubt


def test_step_ranges_inside_the_measured_code_neither_split_nor_add_steps(profile):
    """A schedule of the measured code's marks steps of its own, which may reach into the next call."""
    builder = own_recording({"k": 3}, steps=2)
    builder.step(0, 5, 100)
    builder.step(1, 105, 1200)
    builder.step(1, 1500, 100)
    found = profile(builder)
    assert found.why_not is None
    assert [(step.name, step.kernels.count) for step in found.steps] == [("ProfilerStep#0", 3), ("ProfilerStep#1", 3)]


def test_step_ranges_of_other_threads_are_no_steps(profile):
    builder = own_recording({"k": 3}, steps=2)
    builder.step(0, -2000, 5000, tid=77)
    builder.step(1, 2500, 100, tid=77)
    found = profile(builder)
    assert found.why_not is None
    assert [step.kernels.count for step in found.steps] == [3, 3]


def test_more_step_ranges_than_measured_calls_are_not_measured(profile):
    builder = own_recording({"k": 1}, steps=2)
    builder.step(2, 2500, 100)
    assert profile(builder).doubt == OtherSteps(found=3, measured=2)


def test_step_ranges_of_other_numbers_are_not_measured(profile):
    builder = own_recording({"k": 1}, steps=2)
    for event in builder.events:
        event["name"] = event["name"].replace("ProfilerStep#1", "ProfilerStep#7")
    assert profile(builder).doubt.code is Code.ANOTHER_PROFILER


def test_a_schedule_that_never_records_inside_the_measured_code_changes_nothing(tmp_path):
    """With real torch: such a profiler starts nothing, it only marks its steps."""
    never = torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], schedule=lambda _: torch.profiler.ProfilerAction.NONE
    )
    plan = capture.Plan(device="cpu", warmup=1, steps=3, record=frozenset(), nodeid="test", label=None)
    x, path = torch.ones(4), tmp_path / "recording.json"
    with never:
        for _ in capture.iterations(plan, path, lambda _path: None):
            x.add(x)
            never.step()
            x.mul(x)
    found = load(path)
    assert found.why_not is None
    assert [step.kernels.names for step in found.steps] == [["aten::add", "aten::mul"]] * 3


@pytest.mark.parametrize("value", [None, True, -1, 2.0, "2"])
def test_a_key_without_a_number_of_steps_is_refused(tmp_path, capsys, value):
    refused(own_recording({"k": 1}), tmp_path, capsys, "steps", value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("peak_memory_bytes", True),
        ("peak_memory_bytes", -1),
        ("peak_memory_bytes", "1GiB"),
        ("problems", "none"),
        ("problems", [1]),
        ("device", 0),
        ("graph_replays", {}),
        ("graph_replays", [3, "3"]),
        ("devices_used", 1),
        ("devices_used", ["cuda:0"]),
        ("environment", []),
        ("nodeid", 7),
        ("compile", "no"),
    ],
)
def test_a_key_with_an_entry_of_a_wrong_type_is_refused(tmp_path, capsys, name, value):
    refused(own_recording({"k": 1}), tmp_path, capsys, name, value)


def refused(builder, tmp_path, capsys, name, value):
    builder.torchprof[name] = value
    path = builder.write(tmp_path / "t.json")
    cause = why_unreadable(lambda: load(path))
    assert isinstance(cause, WrongEntry)
    assert cause.name == name
    assert main(["check", str(path), "--limit", "max_kernels=5"]) == 2
    assert "Traceback" not in capsys.readouterr().err


def test_what_a_key_does_not_know_may_be_null(profile):
    builder = own_recording({"k": 1})
    builder.torchprof.update(peak_memory_bytes=None, label=None, environment=None, compile=None)
    assert profile(builder).why_not is None


@pytest.mark.parametrize("own", [True, False])
@pytest.mark.parametrize("odd", [{"dur": -50}, {"dur": None}])
def test_a_gpu_operation_without_a_duration_that_can_be_one_is_not_measured(tmp_path, capsys, own, odd):
    """Busy time is never negative, and a limit on it never holds."""
    builder = own_recording({"k": 2}) if own else TraceBuilder()
    builder.launched("odd", 500)
    builder.events[-1].update(odd)
    if odd["dur"] is None:
        del builder.events[-1]["dur"]
    path = builder.write(tmp_path / "t.json")
    found = load(path)
    assert found.doubt == UntimedKernels(1)
    assert found.median.gpu_busy_us >= 0
    assert found.median.kernel_time_us >= 0
    assert main(["check", str(path), "--limit", "max_gpu_time=1"]) == 3
    assert str(UntimedKernels(1)) in capsys.readouterr().out


@pytest.mark.parametrize("own", [True, False])
@pytest.mark.parametrize("early_us", [40, 1_000_000])
def test_an_operation_that_began_before_its_launch_is_not_measured(tmp_path, own, early_us):
    """Such a time contradicts the CPU's clock, and with it each idle time and each share of the window."""
    builder = own_recording({"k": 2}) if own else TraceBuilder()
    builder.launched("early", 500, wait=-early_us - 7)
    path = builder.write(tmp_path / "t.json")
    reason = why_not_judged(load(path), min_gpu_utilization=0.0)
    assert (type(reason), reason.operations, reason.first) == (RanBeforeLaunch, 1, "early")
    assert reason.early_us >= early_us
    assert main(["check", str(path), "--limit", "min_gpu_utilization=0.9"]) == 3


def test_clocks_that_are_a_few_microseconds_apart_are_believed(tmp_path):
    builder = own_recording({"k": 2})
    builder.launched("early", 500, wait=-20)
    found = load(builder.write(tmp_path / "t.json"))
    assert found.doubt is None


def test_steps_of_two_processes_in_one_file_are_not_measured(profile):
    builder = TraceBuilder()
    for tid in (MAIN, MAIN + 5):
        builder.step(0, 0 if tid == MAIN else 10, 100, tid=tid)
        builder.launched("k", 20, tid=tid)
    assert why_not_judged(profile(builder), max_kernels=5) == StepsOverlap("ProfilerStep#0", "ProfilerStep#0")


PREFETCHER = 77
"""A thread that launches all the time, whatever is measured."""


def test_what_another_thread_launches_after_the_last_step_may_be_lost(profile):
    builder = own_recording({"k": 3}, steps=2)
    builder.launch(2095, tid=PREFETCHER)
    builder.launch(2160, tid=PREFETCHER)
    found = profile(builder)
    assert found.why_not is None
    assert found.trace.lost_kernels == 2
    assert "lost-kernels" not in {finding.code for finding in found.findings}


@pytest.mark.parametrize("at", [-899, 500, 950, 1899])
def test_what_another_thread_launches_before_the_end_of_the_last_step_may_not(profile, at):
    builder = own_recording({"k": 3}, steps=2)
    builder.launch(2095, tid=PREFETCHER)
    builder.launch(at, tid=PREFETCHER)
    found = profile(builder)
    assert found.doubt == LostKernels(lost=1, launches=7, in_each_step=False)
    assert "lost-kernels" in {finding.code for finding in found.findings}


def test_the_sentinel_is_there_for_other_threads_losses_too(profile):
    """The profiler loses the head of a session, whoever launched it."""
    builder = own_recording({"k": 3}, steps=2)
    builder.launch(-995, tid=PREFETCHER)
    assert profile(builder).why_not is None


def test_work_of_before_that_ended_when_the_sentinel_did_disturbs_nothing(profile):
    builder = own_recording({"k": 3}, steps=2)
    builder.kernel("prefetched", -1100, 50, 7, stream=9)
    builder.kernel("prefetched", -1020, 119, 8, stream=9)
    found = profile(builder)
    assert found.why_not is None
    assert found.trace.orphans == 2
    assert [step.kernels.count for step in found.steps] == [3, 3]


@pytest.mark.parametrize("dur", [150, 1200])
def test_work_of_before_that_still_ran_afterwards_does(profile, dur):
    builder = own_recording({"k": 3}, steps=2)
    builder.kernel("prefetched", -1020, 119, 8, stream=9)
    builder.kernel("prefetched", -1020, dur, 9, stream=9)
    assert profile(builder).doubt == EarlierWork(1)


@pytest.mark.parametrize("begin", [100, -950])
def test_work_of_a_launch_that_was_under_way_as_the_recording_began_belongs_to_no_step(profile, begin):
    """The wait of the sentinel, from -1000 to -900, did not reach what another thread was about to queue."""
    builder = own_recording({"k": 3}, steps=2)
    builder.kernel("prefetched", begin, 1200, 8, stream=9)
    found = profile(builder)
    assert (found.why_not, found.trace.orphans) == (None, 1)
    assert [step.kernels.count for step in found.steps] == [3, 3]


def test_in_anybody_elses_recording_each_lost_launch_counts(profile):
    builder = TraceBuilder()
    builder.step(0, 0, 100)
    builder.launched("k", 20)
    builder.launch(150, tid=PREFETCHER)
    assert profile(builder).doubt == LostKernels(lost=1, launches=2, in_each_step=False)


GRAPH = 3
BODY = 4


def replaying(*replays, own=True, graphs=None, **noted):
    """Return a recording with one step for each replay, which is the nodes that it has; graph 3 but as said."""
    builder = TraceBuilder()
    if own:
        builder.own(steps=len(replays), **noted)
    for number, nodes in enumerate(replays):
        builder.step(number, 1000 * number, 900)
        replay(builder, 1000 * number + 10, nodes, (graphs or [GRAPH] * len(replays))[number])
    return builder


def lost_in(step, *, steps, found, whole, others=0):
    """Return the reason that a replay of graph 3 in this step has too few operations."""
    return LostGraphKernels(graph=GRAPH, step=step, steps=steps, found=found, whole=whole, others=others)


def replay(builder, at, nodes, graph=GRAPH):
    launch = builder.graph_launch(at)
    for place, node in enumerate(nodes):
        ids = {"graph id": graph, "graph node id": node if node >> 32 else (graph << 32) + node}
        builder.kernel("k", at + 20 + 10 * place, 5, launch, device=place % 2, **ids)


@pytest.mark.parametrize("own", [True, False])
def test_a_replay_that_lost_a_kernel_which_another_one_has_is_not_measured(profile, own):
    assert profile(replaying([0, 1, 2], [0, 1, 2], own=own)).why_not is None
    assert profile(replaying([0, 1, 2], [0, 2], [0, 1, 2], own=own)).doubt == lost_in(2, steps=3, found=2, whole=3)


def test_replays_that_each_lost_another_kernel_are_all_told(profile):
    assert profile(replaying([1, 2], [0, 1], [0, 2])).doubt == lost_in(1, steps=3, found=2, whole=3, others=2)


def test_a_lost_copy_of_a_replay_is_lost_too(profile):
    builder = replaying([0], [0])
    launch = next(event["args"]["correlation"] for event in builder.events if event["name"] == "cudaGraphLaunch")
    builder.memcpy("DtoD", 60, 5, launch)
    builder.events[-1]["args"] |= {"graph id": GRAPH, "graph node id": (GRAPH << 32) + 1}
    assert profile(builder).doubt == lost_in(2, steps=2, found=1, whole=2)


def test_graphs_of_different_sizes_are_whole(profile):
    assert profile(replaying([0, 1], [0, 1, 2], graphs=[3, 5])).why_not is None


def test_a_replay_that_did_not_enter_the_body_of_a_condition_is_whole(profile):
    inside = (BODY << 32) + 0
    assert profile(replaying([0, 1, inside], [0, 1], [0, 1, inside, inside])).why_not is None
    assert profile(replaying([0, 1, inside], [0, 1], [0, inside])).doubt == lost_in(3, steps=3, found=1, whole=2)


@pytest.mark.parametrize(
    "call", ["cudaGraphExecUpdate", "cudaGraphNodeSetEnabled", "cuGraphExecKernelNodeSetParams_v2"]
)
def test_a_graph_that_was_changed_between_its_replays_may_run_less(profile, call):
    builder = replaying([0, 1, 2], [0, 1])
    builder.call(call, 950)
    assert profile(builder).why_not is None


def test_a_replay_outside_of_the_steps_may_be_cut_off(profile):
    builder = replaying([0, 1, 2], [0, 1, 2])
    replay(builder, 1950, [0, 1])
    builder.kernel("k", -1020, 50, 7, **{"graph id": GRAPH, "graph node id": (GRAPH << 32) + 2})
    assert profile(builder).why_not is None


def test_a_kernel_that_every_replay_lost_is_missed_where_the_capture_was_seen(profile):
    """torch tells how many kernels a graph has when it is instantiated; the recording keeps it for each replay."""
    assert profile(replaying([0, 2], [0, 2], graph_replays=[2, 2])).why_not is None
    lost = profile(replaying([0, 2], [0, 2], graph_replays=[3, 3])).doubt
    assert lost == lost_in(1, steps=2, found=2, whole=3, others=1)


def test_replays_whose_number_is_another_than_that_of_the_launches_are_held_against_nothing(profile):
    """Someone else launched graphs too: which of them is which is not known."""
    assert profile(replaying([0, 2], [0, 2], graph_replays=[3])).why_not is None
    assert profile(replaying([0, 2], [0, 2], graph_replays=[None, None])).why_not is None


def adopted(*ranges: tuple[float, float, int]) -> TraceBuilder:
    """Return anybody's recording that was adopted with the range "decode" as step, with a kernel in each."""
    builder = TraceBuilder()
    builder.torchprof = {"schema": 1, "adopted": {"nodeid": "t.py::test", "step": "decode"}}
    for start, dur, tid in ranges:
        builder.annotation("decode", start, dur, tid=tid)
        builder.launched("k", start + 5, tid=tid)
    builder.launched("k", 5000)
    return builder


def test_the_outermost_occurrences_of_an_adopted_step_are_the_steps_on_any_thread(profile):
    found = profile(adopted((0, 100, MAIN), (20, 50, MAIN), (200, 100, MAIN + 5)))
    assert [(step.name, step.kernels.count) for step in found.steps] == [("decode#0", 2), ("decode#1", 1)]
    assert found.why_not is None


def test_occurrences_of_the_step_on_two_threads_at_once_are_not_measured(profile):
    found = profile(adopted((0, 100, MAIN), (50, 100, MAIN + 5)))
    assert why_not_judged(found, max_kernels=5) == StepsOverlapOnThreads("decode#0", "decode#1")


@pytest.mark.parametrize("log", ["ERROR", "WARNING", "INFO"])
@pytest.mark.parametrize(
    ("line", "loses"),
    [
        ("WARNING: CuptiActivityApi.cpp:1] Dropped 3 activity records", True),
        ("WARNING: CuptiActivityApi.cpp:1] Exceeded max GPU buffer count (33 > 32) - terminating tracing", True),
        ("INFO: CuptiActivityProfiler.cpp:294] Record counts: Out-of-range = 9, CUPTI stopped early? = 1", True),
        ("INFO: CuptiActivityProfiler.cpp:294] Record counts: Out-of-range = 9, CUPTI stopped early? = 0", False),
        ("INFO: CuptiActivityProfiler.cpp:835] Enabling GPU tracing", False),
    ],
)
def test_a_loss_that_the_profiler_itself_has_noted_is_not_measured(profile, log, line, loses):
    builder = TraceBuilder()
    builder.launched("k", 10)
    builder.metadata[log] = [line]
    assert isinstance(profile(builder).doubt, LossNoted) == loses


def stripped(builder, *categories):
    builder.events[:] = [event for event in builder.events if event["cat"] not in categories]
    return builder


def foreign_recording():
    builder = TraceBuilder()
    builder.step(0, 0, 900)
    for place in range(3):
        builder.launched("k", 10 + 20 * place)
    builder.sync(200, 50)
    return builder


def test_launches_of_a_recording_without_calls_are_not_known(profile):
    found = profile(stripped(foreign_recording(), "cuda_runtime"))
    found.expect(max_kernels=3)
    assert says(why_not(lambda: found.expect(max_launches=0)), NumberNotRecorded, absent=Absent.LAUNCHES)


def test_launches_of_a_recording_without_correlations_and_launches_are_not_known(profile):
    builder = foreign_recording()
    builder.events[:] = [event for event in builder.events if event["name"] != builder.words["launch"]]
    for event in builder.events:
        event.get("args", {}).pop("correlation", None)
    reason = why_not(lambda: profile(builder).expect(max_launches=0))
    assert says(reason, NumberNotRecorded, absent=Absent.LAUNCHES)


def test_a_recording_whose_launches_are_all_gone_is_not_measured(profile):
    builder = foreign_recording()
    builder.events[:] = [event for event in builder.events if event["name"] != builder.words["launch"]]
    for place, event in enumerate(event for event in builder.events if event["cat"] == "kernel"):
        event["ts"] += 5000 * place  # after the last step too
    assert why_not_judged(profile(builder), max_kernels=3) == NoLaunches(3)


def test_work_on_a_stream_of_a_category_that_nobody_knows_is_not_measured(profile):
    builder = foreign_recording()
    builder.event("gpu_task", "gemm", 210, 5, stream=7, correlation=99)
    assert why_not_judged(profile(builder), max_kernels=9) == UnknownWork(1, "gpu_task")


@pytest.mark.parametrize("category", ["cuda_sync", "gpu_user_annotation", "my_tool"])
def test_other_events_of_other_categories_change_nothing(profile, category):
    builder = foreign_recording()
    builder.event(category, "context sync", 210, 5, **({} if category == "my_tool" else {"stream": 7}))
    profile(builder).expect(max_kernels=3)
