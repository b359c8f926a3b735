"""What each number means, on traces small enough to count by hand."""

from __future__ import annotations

import pytest
from builder import AUTOGRAD, MAIN, TraceBuilder, own_recording

from pytest_torchprof import load
from pytest_torchprof.analysis.numbers import (
    BY_NAME,
    OF_STEP,
    OF_WINDOW,
    AllAttributes,
    NumberAttribute,
    Numbers,
    StepAttributes,
)
from pytest_torchprof.reasons.lost_work import LostKernels, UnplacedLaunches
from pytest_torchprof.reasons.own_steps import (
    LostSteps,
    NoGpuOperations,
    NoSentinel,
    SawNothingOfGpu,
    SentinelLaunchedNothing,
)
from pytest_torchprof.reasons.recordings import GpuNotRecorded, MadeWithoutGpu

pytestmark = pytest.mark.any_torch


def test_each_number_of_the_table_is_a_field_and_an_attribute_of_what_has_it():
    assert Numbers.__struct_fields__ == tuple(BY_NAME)
    attributes = {name for name, value in vars(AllAttributes).items() if isinstance(value, NumberAttribute)}
    of_steps = {name for name, value in vars(StepAttributes).items() if isinstance(value, NumberAttribute)}
    assert of_steps == {*OF_STEP} - {"kernels"}
    assert attributes == {*OF_WINDOW}


@pytest.fixture
def profile(tmp_path):
    return lambda builder: load(builder.write(tmp_path / "t.json"))


def stepped(count=1):
    builder = TraceBuilder()
    for number in range(count):
        builder.step(number, number * 1000, 900)
    return builder


def test_a_kernel_belongs_to_the_step_that_launched_it_wherever_it_ran(profile):
    builder = stepped(2)
    builder.launched("late", 800, wait=700)
    first, second = profile(builder).steps
    assert first.kernels.names == ["late"]
    assert len(second.kernels) == 0


def test_ranges_of_steps_are_half_open(profile):
    builder = TraceBuilder()
    builder.step(1, 0, 100)
    builder.step(2, 100, 100)
    builder.kernel("k", 150, 10, builder.launch(100))
    builder.kernel("too late", 250, 10, builder.launch(200))
    assert [step.kernels.names for step in profile(builder).steps] == [[], ["k"]]


def test_what_was_launched_between_steps_is_in_none(profile):
    builder = stepped(2)
    builder.launched("between", 950)
    assert [len(step.kernels) for step in profile(builder).steps] == [0, 0]


def test_launches_of_any_thread_count(profile):
    builder = stepped()
    builder.launched("forward", 100)
    builder.launched("backward", 200, tid=AUTOGRAD)
    step = profile(builder).steps[0]
    assert (step.launches, len(step.kernels)) == (2, 2)


def test_one_graph_launch_is_one_launch_of_many_kernels(profile):
    builder = stepped()
    correlation = builder.graph_launch(100)
    for place in range(5):
        builder.kernel(f"k{place}", 200 + place, 1, correlation)
    step = profile(builder).steps[0]
    assert (step.launches, step.graph_launches, len(step.kernels)) == (1, 1, 5)
    assert all(kernel.in_graph and kernel.launch == "cudaGraphLaunch" for kernel in step.kernels)
    assert step.kernels.names == ["k0", "k1", "k2", "k3", "k4"]


@pytest.mark.parametrize(
    "name",
    [
        *(
            "cudaLaunchKernel",
            "cudaLaunchKernelExC",
            "cudaLaunchCooperativeKernel",
            "cudaLaunchCooperativeKernelMultiDevice",
        ),
        *(
            "cuLaunchKernel",
            "cuLaunchKernelEx",
            "cuLaunchCooperativeKernel",
            "cudaLaunchKernel_ptsz",
            "cudaLaunchKernel_v7000",
        ),
        *("hipLaunchKernel", "hipModuleLaunchKernel", "hipExtModuleLaunchKernel", "hipExtLaunchKernel"),
        *("hipLaunchCooperativeKernel", "hipLaunchKernelExC", "hipModuleLaunchCooperativeKernel"),
    ],
)
def test_calls_that_launch(profile, name):
    builder = stepped()
    builder.kernel("k", 200, 1, builder.call(name, 100, driver=name.startswith("cu") and not name.startswith("cuda")))
    step = profile(builder).steps[0]
    assert (step.launches, step.graph_launches) == (1, 0)


@pytest.mark.parametrize("name", ["cudaGraphLaunch", "cuGraphLaunch", "hipGraphLaunch"])
def test_calls_that_launch_graphs(profile, name):
    builder = stepped()
    builder.kernel("k", 200, 1, builder.call(name, 100))
    step = profile(builder).steps[0]
    assert (step.launches, step.graph_launches) == (1, 1)


@pytest.mark.parametrize(
    "name", ["cudaLaunchHostFunc", "cudaFuncGetAttributes", "cudaGraphInstantiate", "cudaLaunch", "INVALID"]
)
def test_calls_that_launch_nothing(profile, name):
    builder = stepped()
    builder.call(name, 100)
    assert profile(builder).steps[0].launches == 0


BLOCKING = [
    *("cudaDeviceSynchronize", "cudaStreamSynchronize", "cudaEventSynchronize", "cudaMemcpy"),
    *("hipDeviceSynchronize", "hipStreamSynchronize", "hipEventSynchronize", "hipMemcpy", "hipMemcpyWithStream"),
]


@pytest.mark.parametrize("name", BLOCKING)
def test_calls_that_block_are_syncs_and_no_time_of_the_cpu(profile, name):
    builder = stepped()
    builder.call(name, 100, 300)
    builder.launched("k", 500)
    step = profile(builder).steps[0]
    assert (step.syncs, step.cpu_time_us) == (1, 600)


@pytest.mark.parametrize(
    "name", ["cudaMemcpyAsync", "hipMemcpyAsync", "cudaStreamWaitEvent", "cudaEventQuery", "cudaMemsetAsync"]
)
def test_calls_that_do_not_block_are_no_syncs(profile, name):
    builder = stepped()
    builder.call(name, 100, 300)
    builder.launched("k", 500)
    step = profile(builder).steps[0]
    assert (step.syncs, step.cpu_time_us) == (0, 900)


def test_only_the_steps_own_thread_spends_its_time(profile):
    builder = stepped()
    builder.sync(100, 300, what="stream sync", tid=AUTOGRAD)
    builder.sync(200, 50, what="stream sync", tid=MAIN)
    builder.sync(220, 100, what="stream sync", tid=MAIN)
    step = profile(builder).steps[0]
    assert (step.syncs, step.cpu_time_us) == (3, 900 - 120)


def test_the_profilers_flush_is_no_sync_but_is_waiting(profile):
    builder = stepped()
    builder.launched("k", 100)
    builder.sync(800, 300)
    step = profile(builder).steps[0]
    assert (step.syncs, step.cpu_time_us) == (0, 800)


def test_a_synchronization_before_more_work_is_no_flush(profile):
    builder = stepped()
    builder.sync(100, 300)
    builder.launched("k", 500)
    assert profile(builder).steps[0].syncs == 1


def test_a_launch_after_it_is_enough_for_a_synchronization_to_be_no_flush(profile):
    builder = stepped()
    builder.sync(100, 300)
    builder.kernel("k", 510, 5, builder.launch(500))
    assert profile(builder).steps[0].syncs == 1


def test_of_two_synchronizations_at_the_end_the_last_is_the_flush(profile):
    builder = stepped()
    builder.launched("k", 100)
    builder.sync(200, 100)
    builder.sync(400, 100)
    step = profile(builder).steps[0]
    assert (step.syncs, step.cpu_time_us) == (1, 700)


def test_copies_by_direction_and_bytes(profile):
    builder = stepped()
    for place, kind in enumerate(["HtoD", "HtoD", "DtoH", "DtoD", "PtoP"]):
        builder.memcpy(kind, 200 + place, 1, builder.call("copy", 100 + place), size=10) if kind != "PtoP" else None
    builder.event(
        "gpu_memcpy",
        "Memcpy PtoP (Device -> Device)",
        300,
        1,
        pid=0,
        tid=7,
        correlation=builder.call("copy", 150),
        bytes=10,
    )
    builder.memset(400, 2, builder.call("fill", 160))
    step = profile(builder).steps[0]
    assert (step.memcpys, step.memcpys_h2d, step.memcpys_d2h, step.memcpys_d2d, step.memcpy_bytes) == (5, 2, 1, 1, 50)
    assert (step.memsets, len(step.kernels), step.kernel_time_us, step.gpu_time_us) == (1, 0, 0, 7)


def test_busy_time_counts_overlapping_kernels_of_a_device_once(profile):
    builder = stepped()
    for start, device, stream in ((100, 0, 7), (150, 0, 8), (120, 1, 7)):
        builder.kernel("k", start, 100, builder.launch(50), device=device, stream=stream)
    step = profile(builder).steps[0]
    assert (step.kernel_time_us, step.gpu_busy_us, step.gpu_span_us) == (300, 250, 150)


def test_the_ratio_is_absent_without_gpu_work(profile):
    step = profile(stepped()).steps[0]
    assert (step.cpu_gpu_ratio, step.gpu_busy_us, step.gpu_span_us, step.cpu_time_us) == (None, 0, 0, 900)


def test_annotations_and_syncs_on_the_gpus_rows_are_no_gpu_work(profile):
    builder = stepped()
    builder.event("gpu_user_annotation", "ProfilerStep#0", 10, 500, pid=0, tid=7)
    builder.event("cuda_sync", "Stream Sync", 10, 500, pid=0, tid=7, correlation=1)
    found = profile(builder)
    assert (found.gpu_time_us, len(found.kernels), found.trace.devices) == (0, 0, ())


def test_without_step_ranges_the_whole_trace_is_the_step(profile):
    builder = TraceBuilder()
    builder.annotation("mine", 100, 50)
    builder.launched("k", 200, dur=500)
    builder.event("python_function", "main.py(1): <module>", 0, 5000)
    builder.event("overhead", "Buffer Flush", 2000, 10, pid=-1, tid=0)
    builder.sync(300, 700)
    (step,) = profile(builder).steps
    assert step.name is None
    assert (len(step.kernels), step.launches, step.syncs, step.cpu_time_us) == (1, 1, 0, 108)
    assert step.part.ranges[0].tid == MAIN


def test_window_numbers_follow_kinetos_formulas(profile):
    builder = TraceBuilder()
    builder.step(0, 0, 100)
    builder.kernel("half", 50, 100, builder.launch(10), blocks_per_sm=0.5, occupancy=20)
    builder.kernel("full", 150, 50, builder.launch(20), blocks_per_sm=7.0, occupancy=80)
    found = profile(builder)
    assert found.gpu_utilization == pytest.approx(150 / 200)
    assert found.sm_efficiency == pytest.approx((100 * 0.5 + 50) / 200)
    assert found.achieved_occupancy == pytest.approx((100 * 0.2 + 50 * 0.8) / 150)


def test_blocks_of_overlapping_kernels_fill_an_sm_together_but_no_more_than_it(profile):
    builder = TraceBuilder()
    builder.step(0, 0, 100)
    for start, blocks in ((0, 0.5), (25, 0.25), (50, 7.0)):
        builder.kernel("k", start, 50, builder.launch(1), blocks_per_sm=blocks, stream=start)
    assert profile(builder).sm_efficiency == pytest.approx((25 * 0.5 + 25 * 0.75 + 25 + 25) / 100)


def test_window_numbers_clip_kernels_from_before_the_window(profile):
    builder = TraceBuilder()
    builder.step(0, 100, 100)
    builder.kernel("before", 0, 50, 7, occupancy=0)
    builder.kernel("into", 50, 100, 8, blocks_per_sm=1.0, occupancy=100)
    found = profile(builder)
    assert (found.gpu_utilization, found.sm_efficiency, found.achieved_occupancy) == (0.5, 0.5, 1.0)


def test_utilization_is_the_mean_over_devices_that_ran_kernels(profile):
    builder = TraceBuilder()
    builder.step(0, 0, 100)
    builder.kernel("k", 0, 100, builder.launch(1), device=0)
    builder.kernel("k", 0, 50, builder.launch(2), device=1)
    builder.memset(0, 50, builder.call("fill", 3), device=2)
    assert profile(builder).gpu_utilization == 0.75


def test_numbers_of_several_steps_have_a_median_and_a_worst(profile):
    builder = stepped(3)
    for step, kernels in enumerate((1, 5, 2)):
        for place in range(kernels):
            builder.launched("k", step * 1000 + 100 + 20 * place, dur=1)
    found = profile(builder)
    assert (found.median.kernels, found.worst.kernels, len(found.kernels)) == (2, 5, 5)
    assert (found.launches, found.kernel_time_us) == (5, 5)


def test_the_median_of_two_steps_is_between_them(profile):
    builder = stepped(2)
    builder.launched("k", 100)
    assert profile(builder).median.kernels == 0.5


def test_steps_without_a_ratio_do_not_enter_its_median(profile):
    builder = stepped(2)
    builder.launched("k", 100, dur=9)
    found = profile(builder)
    assert found.median.cpu_gpu_ratio == found.worst.cpu_gpu_ratio == 100


class TestOrphansAndLostKernels:
    def test_an_orphan_is_in_no_step_and_is_reported(self, profile):
        builder = stepped()
        builder.kernel("from before", 50, 10, 3)
        builder.launched("k", 100)
        found = profile(builder)
        assert (found.trace.orphans, len(found.kernels), found.steps[0].gpu_time_us) == (1, 1, 10)
        assert found.why_not is None

    def test_any_call_with_the_correlation_makes_it_no_orphan(self, profile):
        builder = stepped()
        builder.kernel("k", 150, 10, builder.call("INVALID", 100))
        found = profile(builder)
        assert (found.trace.orphans, len(found.kernels), found.launches) == (0, 1, None)

    def test_a_launch_without_its_kernel_is_lost(self, profile):
        builder = stepped()
        builder.launched("k", 100)
        builder.launch(300)
        found = profile(builder)
        assert found.trace.lost_kernels == 1
        assert found.doubt == LostKernels(lost=1, launches=2, in_each_step=False)
        assert found.launches == 2

    def test_launches_inside_a_capture_have_no_kernel_and_are_not_lost(self, profile):
        builder = stepped()
        builder.launched("k", 10)
        builder.capture(100, 200)
        builder.launch(110)
        builder.launch(150, tid=AUTOGRAD)
        found = profile(builder)
        assert (found.trace.lost_kernels, found.launches, found.why_not) == (0, 3, None)

    def test_a_capture_that_began_before_the_window_or_ends_after_it_is_one(self, profile):
        builder = stepped()
        builder.launched("k", 400)
        builder.launch(100)
        builder.call("end", 200)
        builder.call("begin", 600)
        builder.launch(700)
        assert profile(builder).trace.lost_kernels == 0

    def test_launches_and_no_gpu_operation_at_all_are_not_measured(self, profile):
        builder = stepped()
        builder.launch(100)
        found = profile(builder)
        assert (found.trace.lost_kernels, found.launches, found.measured) == (0, 1, False)
        assert found.doubt == NoGpuOperations(1)

    def test_a_trace_of_the_cpu_alone_says_nothing_of_the_gpu(self, profile):
        builder = stepped()
        builder.op("aten::mul", 10, 10)
        found = profile(builder)
        assert (found.measured, len(found.kernels), found.gpu_utilization) == (False, 0, None)
        # The machine has a GPU, of which nothing is recorded.
        assert found.doubt == GpuNotRecorded("Test GPU")
        builder.metadata["deviceProperties"] = []
        assert profile(builder).doubt == MadeWithoutGpu()

    def test_copies_alone_leave_the_gpu_unused(self, profile):
        builder = stepped()
        builder.memcpy("HtoD", 100, 500, builder.call("copy", 10))
        found = profile(builder)
        assert (found.gpu_utilization, found.sm_efficiency, found.achieved_occupancy) == (0, None, None)

    def test_frames_of_python_alone_say_nothing_of_the_cpus_time(self, profile):
        builder = TraceBuilder()
        builder.event("python_function", "train.py(12): step", 0, 900)
        assert profile(builder).median.cpu_time_us is None
        builder.op("aten::mul", 10, 100)
        assert profile(builder).median.cpu_time_us == 100


class TestAttributionByTime:
    def test_without_correlation_ids_kernels_count_where_they_ran(self, profile):
        builder = stepped(2)
        for start in (100, 1100, 1200):
            builder.call("launch", start, correlation=0)
            builder.kernel("k", start + 10, 5, None)
        found = profile(builder)
        assert found.trace.attribution == "time"
        assert [len(step.kernels) for step in found.steps] == [1, 2]
        assert [step.launches for step in found.steps] == [1, 2]
        assert (found.trace.orphans, found.trace.lost_kernels, found.why_not) == (0, 0, None)

    def test_without_calls_kernels_count_where_they_ran(self, profile):
        builder = stepped()
        builder.kernel("k", 10, 5, 3)
        found = profile(builder)
        assert (found.trace.attribution, len(found.kernels), found.trace.orphans) == ("time", 1, 0)

    def test_a_trace_with_links_is_attributed_by_launch(self, profile):
        builder = stepped()
        builder.launched("k", 10)
        assert profile(builder).trace.attribution == "launch"


class TestCompilation:
    def test_what_a_compilation_runs_is_never_counted(self, profile):
        builder = stepped()
        builder.op("CachingAutotuner.benchmark_all_configs (dynamo_timed)", 100, 300)
        builder.launched("tried out", 150)
        builder.sync(350, 20, what="stream sync")
        builder.launched("k", 500)
        step = profile(builder).steps[0]
        assert (step.kernels.names, step.launches, step.syncs) == (["k"], 1, 0)

    def test_what_another_thread_runs_meanwhile_counts(self, profile):
        builder = stepped()
        builder.op("backend_compile (dynamo_timed)", 100, 300, tid=AUTOGRAD)
        builder.launched("k", 150)
        assert profile(builder).steps[0].launches == 1

    @pytest.mark.parametrize(
        "name", ["CUDAGraphNode.record (dynamo_timed)", "cudagraphify.get_container (dynamo_timed)"]
    )
    def test_recording_a_cuda_graph_is_no_compilation(self, profile, name):
        builder = stepped()
        builder.op(name, 100, 300)
        builder.launched("k", 150)
        assert profile(builder).steps[0].launches == 1


class TestOwnRecordings:
    def test_an_own_recording_is_believed(self, profile):
        found = profile(own_recording({"a": 2, "b": 1}))
        assert found.why_not is None
        assert [step.kernels.names for step in found.steps] == [["a", "b"]] * 2

    @staticmethod
    def with_unrecorded_launches(*, ran_at, waits=False):
        """Two steps, each with a recorded launch and then one that leaves no event, whose two kernels run then."""
        builder = TraceBuilder()
        builder.own(steps=2)
        for number in range(2):
            builder.step(number, 1000 * number, 900)
            builder.launched("a", 1000 * number + 10)
            call = builder.unrecorded()
            for place in range(2):
                builder.kernel("of an unrecorded call", ran_at[number] + 10 * place, 5, call)
            if waits:
                builder.sync(1000 * number + 800, 50)
        builder.sync(3000, 50)
        return builder

    @pytest.mark.parametrize("ran_at", [(100, 1100), (100, 2500), (850, 2900)])
    def test_what_an_unrecorded_call_launched_counts_in_its_step_wherever_it_ran(self, profile, ran_at):
        found = profile(self.with_unrecorded_launches(ran_at=ran_at, waits=True))
        assert (found.trace.unrecorded_launches, found.trace.orphans, found.why_not) == (4, 0, None)
        assert [len(step.kernels) for step in found.steps] == [3, 3]
        assert [step.launches for step in found.steps] == [2, 2]

    def test_an_unrecorded_call_that_may_have_been_made_in_one_step_or_the_next_is_not_measured(self, profile):
        found = profile(self.with_unrecorded_launches(ran_at=(1500, 2500)))
        assert found.doubt == UnplacedLaunches(2)

    def test_work_that_ran_in_the_step_cannot_have_been_launched_in_a_later_one(self, profile):
        assert profile(self.with_unrecorded_launches(ran_at=(500, 1500))).why_not is None

    def test_a_foreign_trace_has_no_unrecorded_launches(self, profile):
        builder = own_recording({"a": 1})
        builder.kernel("k", 1500, 5, 999)
        builder.torchprof = None
        found = profile(builder)
        assert (found.trace.unrecorded_launches, found.trace.orphans) == (0, 1)

    def test_a_lost_kernel_makes_it_unbelievable(self, profile):
        builder = own_recording({"a": 1})
        builder.launch(500)
        assert profile(builder).doubt == LostKernels(lost=1, launches=3, in_each_step=False)

    def test_a_kernel_of_the_sentinel_may_be_lost_if_another_is_there(self, profile):
        builder = own_recording({"a": 1})
        builder.launch(-970)
        assert profile(builder).why_not is None

    def test_the_whole_sentinel_must_not_be_lost(self, profile):
        builder = TraceBuilder()
        builder.own(steps=1, sentinel_kernel=False)
        builder.step(0, 0, 900)
        builder.launched("k", 100)
        assert profile(builder).doubt == SentinelLaunchedNothing()

    def test_the_sentinels_range_must_be_there(self, profile):
        builder = own_recording({"a": 1})
        builder.events = [event for event in builder.events if "sentinel" not in event["name"]]
        assert profile(builder).doubt == NoSentinel("torchprof::sentinel")

    def test_all_steps_must_be_there(self, profile):
        builder = own_recording({"a": 1})
        builder.torchprof["steps"] = 3
        assert profile(builder).doubt == LostSteps(found=2, measured=3)

    def test_a_problem_that_capture_saw_comes_first(self, profile):
        builder = own_recording({"a": 1})
        builder.torchprof["problems"] = ["it rained", "and more"]
        assert profile(builder).why_not == "it rained"

    def test_a_recording_in_which_nothing_was_launched_is_not_believed(self, profile):
        builder = own_recording({})
        builder.events = [event for event in builder.events if event["cat"] == "user_annotation"]
        assert profile(builder).doubt == SawNothingOfGpu()

    def test_peak_memory_is_the_recordings(self, profile):
        builder = own_recording({"a": 1})
        assert profile(builder).peak_memory_bytes is None
        builder.torchprof["peak_memory_bytes"] = 1024
        assert profile(builder).peak_memory_bytes == profile(builder).median.peak_memory_bytes == 1024


def test_operators_nested_as_deep_as_python_calls_can_be_are_read(profile):
    builder = stepped()
    for depth in range(1000):
        builder.op("aten::deep", 100 + depth / 100, 500 - depth / 50)
    builder.launched("k", 200, op=None)
    assert len(profile(builder).kernels[0].op_chain) == 1000
