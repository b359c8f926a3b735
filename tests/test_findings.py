"""Each finding on a trace built for it: there where it should be, and not where it should not."""

from __future__ import annotations

import pytest
from builder import AUTOGRAD, MAIN, TraceBuilder
from facts import why_not

from pytest_torchprof import NotMeasured, load
from pytest_torchprof.findings import RULES, OtherFinding, find, ranked

pytestmark = pytest.mark.any_torch

GEMM = "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn"
SGEMM = "ampere_sgemm_128x64_tn"
MUL = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::BinaryFunctor<float, float, float, "
    "at::native::binary_internal::MulFunctor<float> >, std::array<char*, 3ul> >(int, ...)"
)
MEAN = (
    "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::MeanOps<float, float, float, float>, "
    "unsigned int, float, 4> >(at::native::ReduceOp<float, at::native::MeanOps<float, float, float, float>, unsigned int, "
    "float, 4>)"
)
SOFTMAX = (
    "void (anonymous namespace)::softmax_warp_forward<float, float, float, 10, false, false>(float*, float const*)"
)
CAT = "void at::native::(anonymous namespace)::CatArrayBatchedCopy<at::native::(anonymous namespace)::OpaqueType<2u>, unsigned int, 4, 64, 64>(x)"
COPY = "void at::native::elementwise_kernel<128, 4, at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)>(x)"
NCCL = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


def operand(*shape, dtype="c10::BFloat16"):
    strides = [1]
    for size in reversed(shape[1:]):
        strides.insert(0, strides[0] * size)
    return list(shape), strides, dtype


@pytest.fixture
def findings(tmp_path):
    """Return a function that gives a built trace's findings by code."""

    def look(builder):
        return {finding.code: finding for finding in load(builder.write(tmp_path / "trace.json")).findings}

    return look


@pytest.fixture
def all_findings(tmp_path):
    """Return a function that gives all of them, those too whose cause another one tells."""

    def look(builder):
        return {finding.code: finding for finding in find(load(builder.write(tmp_path / "trace.json")))}

    return look


def steps(count=1, length=1000):
    builder = TraceBuilder()
    for number in range(count):
        builder.step(number, number * length, length)
    return builder


def test_small_work_launched_late_is_overhead_and_its_gaps_are_told_once(findings, all_findings):
    builder = steps()
    for at in range(0, 900, 100):
        builder.launched(MUL, at, dur=5)
    found = findings(builder)
    assert found["overhead-bound"].evidence["late_launches"] == 1
    # An operator lies around each launch; what is recorded nowhere is not counted as launching.
    assert found["overhead-bound"].launch_ratio == pytest.approx(found["overhead-bound"].launching_us / 45)
    # From the end of the kernel before to the end of the launch, which returns 3 us before the kernel begins; and up
    # to the end of the first launch.
    assert found["overhead-bound"].time_us == 5 + 8 * 92
    assert "launch-gaps" not in found
    assert all_findings(builder)["launch-gaps"].evidence["host_wait_us"] == 8 * 95
    assert "compute-bound" not in found


def test_the_time_between_the_sentinel_and_the_first_step_is_not_the_users(findings):
    """The sentinel's kernel ran 980 us before the step: nobody waited for the launch but in its first 50 us."""
    builder = steps()
    builder.own(steps=1)
    builder.launched(MUL, 42, dur=940)
    found = findings(builder)
    assert found["compute-bound"].evidence["share"] == pytest.approx(0.94)
    assert "launch-gaps" not in found
    builder.events[-1].update(dur=600)
    shorter = findings(builder)
    assert "launch-gaps" not in shorter


def test_the_first_launch_of_a_step_that_comes_late_is_the_users(all_findings):
    builder = steps()
    builder.own(steps=1)
    builder.launched(MUL, 742, dur=250)
    found = all_findings(builder)["launch-gaps"]
    assert found.evidence["share"] == pytest.approx(0.747)
    assert found.evidence["host_wait_us"] == 750


def test_work_queued_ahead_is_compute(findings):
    builder = steps()
    for number in range(9):
        builder.kernel(GEMM, 10 + number * 110, 110, builder.launch(number * 10))
    found = findings(builder)
    assert found["compute-bound"].severity == "information"
    assert not {"overhead-bound", "launch-gaps"} & set(found)


def test_a_gpu_that_only_communicates_is_not_computing(findings):
    builder = steps()
    builder.kernel(NCCL, 10, 990, builder.launch(0))
    found = findings(builder)
    assert "compute-bound" not in found
    assert found["exposed-communication"].evidence["time_us"] == 990


@pytest.mark.parametrize(
    ("lasts", "sized", "beyond"),
    [
        ((100, 100, 100, 500), True, 400),
        ((100, 100, 100, 500), False, 0),
        ((100, 110, 120, 130), True, 60),
        ((100, 100, 500, 500, 500, 600, 700, 800), True, 3000),
        ((100, 500), True, 0),
    ],
)
def test_what_takes_longer_than_its_like_looks_like_a_late_rank(lasts, sized, beyond, findings):
    builder = steps(length=5000)
    communicate(builder, lasts, sized=sized)
    found = findings(builder)["exposed-communication"]
    assert found.beyond_usual_us == beyond
    assert found.is_late == (2 * beyond >= sum(lasts))
    assert found.remedy.startswith("first find") == found.is_late


@pytest.mark.parametrize("held", [False, True])
def test_a_late_rank_is_looked_for_among_all_ranks_and_where_this_one_is_held_up_on_their_cores(held, findings):
    builder = held_up() if held else steps(length=100_000)
    communicate(builder, (500, 500, 500, 20_000), at=91_000)
    found = findings(builder)["exposed-communication"]
    assert (found.is_late, found.cpu_held_up) == (True, held)
    assert ("cpu-held-up" in found.remedy) == held
    assert "--ranks" in found.remedy
    assert "--ranks" in found.action


def test_communication_under_computation_is_not_exposed(findings):
    builder = steps()
    builder.kernel(NCCL, 10, 500, builder.launch(0), stream=20)
    builder.kernel(GEMM, 10, 900, builder.launch(5))
    assert "exposed-communication" not in findings(builder)


def test_idle_time_of_the_profiler_itself_is_no_gap_of_the_program(all_findings):
    builder = steps()
    builder.kernel(MUL, 10, 10, builder.launch(0))
    builder.kernel(MUL, 500, 10, builder.launch(490))
    assert all_findings(builder)["launch-gaps"].evidence["host_wait_us"] == 480
    builder.event("overhead", "Activity Buffer Request", 25, 470, pid=-1, tid=0)
    found = all_findings(builder)
    assert found["profiler-gap"].evidence["time_us"] == 470
    assert "launch-gaps" not in found


def test_a_first_kernel_that_comes_late_is_a_delay(findings):
    builder = steps(length=10_000)
    builder.kernel(MUL, 3000, 10, builder.launch(0))
    for at in range(4000, 9000, 500):
        builder.kernel(MUL, at + 10, 10, builder.launch(at))
    assert findings(builder)["launch-delay"].evidence["first_us"] == 3000


def test_a_wait_for_little_work_is_told_from_one_for_much(findings):
    builder = steps()
    builder.kernel(MUL, 10, 5, builder.launch(0))
    builder.sync(20, 500)
    builder.op("aten::add", 900, 10)
    assert findings(builder)["sync-over-little-work"].evidence["time_us"] == 500
    builder.kernel(GEMM, 20, 490, builder.launch(15))
    assert "sync-over-little-work" not in findings(builder)


def test_a_synchronization_inside_an_operator_is_hidden(findings):
    builder = steps()
    builder.launched(MUL, 0)
    builder.sync(100, 20)
    assert "implicit-sync" not in findings(builder)
    builder.op("aten::item", 200, 50)
    builder.op("aten::_local_scalar_dense", 201, 48)
    builder.memcpy("DtoH", 210, 2, builder.call("copy", 202))
    builder.sync(210, 30, what="stream sync")
    builder.op("aten::add", 900, 10)
    assert findings(builder)["implicit-sync"].evidence["ops"] == {"aten::item": 1}


@pytest.mark.parametrize(
    ("operator", "cause"),
    [("aten::item", "value"), ("aten::index", "masks"), ("aten::nonzero", "masks"), ("aten::to", "copies")],
)
def test_a_hidden_synchronization_is_answered_by_what_its_operator_can_do_without(operator, cause, findings):
    builder = steps()
    builder.op(operator, 200, 50)
    builder.sync(210, 30, what="stream sync")
    found = findings(builder)["implicit-sync"]
    assert (found.causes, found.remedy) == ((cause,), found._WAYS[cause])


@pytest.mark.parametrize(
    ("directions", "advised"),
    [(["HtoD"], {"to_gpu"}), (["DtoH"], {"to_cpu"}), (["HtoD", "DtoH", "DtoH"], {"to_gpu", "to_cpu"})],
)
def test_a_copy_that_waits_is_answered_by_where_it_goes(directions, advised, findings):
    builder = steps()
    for number, direction in enumerate(directions):
        builder.op("aten::to", 200 * number, 90)
        builder.memcpy(direction, 200 * number + 10, 20, builder.call("copy", 200 * number + 5))
        builder.sync(200 * number + 12, 30, what="stream sync")
    found = findings(builder)["implicit-sync"]
    causes = ["to_gpu" if direction == "HtoD" else "to_cpu" for direction in directions]
    assert found.causes_us == {cause: 30 * causes.count(cause) for cause in causes}
    assert {*found.causes} == advised
    assert {cause for cause in ("to_gpu", "to_cpu") if found._WAYS[cause] in found.remedy} == advised


@pytest.mark.parametrize("name", ["cudaMemcpy", "hipMemcpyWithStream"])
@pytest.mark.parametrize("within", [False, True], ids=["alone", "with a wait in it"])
def test_a_copy_that_blocks_and_a_wait_within_it_are_one_wait(name, within, tmp_path):
    builder = TraceBuilder(rocm=name.startswith("hip"))
    builder.own(steps=1)
    builder.step(0, 0, 1000)
    builder.launched(MUL, 0, dur=700)
    builder.op("aten::item", 90, 800)
    builder.memcpy("DtoH", 720, 2, builder.call(name, 100, 750))
    if within:
        builder.sync(110, 700, what="stream sync")
    profile = load(builder.write(tmp_path / "t.json"))
    (found,) = [finding for finding in profile.findings if finding.code == "implicit-sync"]
    assert (found.syncs, found.time_us, found.ops) == (1, 750, {"aten::item": 1})
    assert sum(found.causes_us.values()) == 750


def test_while_two_threads_wait_at_once_the_gpu_idles_only_once(findings):
    builder = TraceBuilder()
    builder.launched(MUL, 0, dur=292)
    for tid, start in ((MAIN, 100), (AUTOGRAD, 200)):
        builder.op("aten::item", start - 10, 820, tid=tid)
        builder.sync(start, 800, what="stream sync", tid=tid)
    found = findings(builder)["implicit-sync"]
    assert (found.time_us, found.idle_us, found.causes_idle_us) == (1600, 700, {"value": 1300})


def test_where_no_device_has_worked_the_gpu_has_idled_while_the_cpu_waited(findings):
    builder = TraceBuilder()
    for start in (100, 1100, 2100):
        builder.op("aten::item", start, 820)
        builder.sync(start + 5, 800, what="stream sync")
    found = findings(builder)["implicit-sync"]
    assert (found.time_us, found.idle_us, found.causes_idle_us) == (2400, 2400, {"value": 2400})


def test_the_profilers_own_wait_is_no_finding(findings):
    builder = steps()
    builder.launched(MUL, 0)
    builder.sync(1100, 900)
    assert not {"implicit-sync", "sync-over-little-work"} & set(findings(builder))


def test_one_kernel_of_many_can_be_a_hotspot(findings):
    builder = steps()
    for at, (name, dur) in enumerate([(GEMM, 400), (MUL, 20), (SOFTMAX, 30)]):
        builder.launched(name, at * 10, dur=dur, wait=10 + at * 400)
    assert findings(builder)["hotspot"].evidence["kernel_share"] == pytest.approx(400 / 450)


def test_many_small_kernels_of_one_operator_are_found(findings):
    builder = steps(length=10_000)
    for number in range(100):
        builder.launched(MUL, number * 50, dur=3)
    assert findings(builder)["many-small-calls"].evidence["ops"] == {"aten::mul": 100}
    large = steps(length=10_000)
    for number in range(100):
        large.launched(MUL, number * 50, dur=30)
    assert "many-small-calls" not in findings(large)


def test_where_no_steps_are_marked_calls_are_counted_in_the_recording(findings):
    marked, whole = steps(length=10_000), TraceBuilder()
    for builder in (marked, whole):
        for number in range(100):
            builder.launched(MUL, number * 50, dur=3)
    assert "step" in findings(marked)["many-small-calls"].message
    assert "step" not in findings(whole)["many-small-calls"].message


@pytest.mark.parametrize("launch_us", [2, 12])
def test_what_a_launch_costs_is_told_and_not_that_it_is_more_than_the_kernel(launch_us, findings):
    builder = steps(length=20_000)
    for i in range(150):
        builder.op("aten::mul", 100 * i, launch_us + 4)
        builder.kernel(MUL, 100 * i + launch_us + 10, 8, builder.launch(100 * i + 2, launch_us))
    found = findings(builder)["many-small-calls"]
    assert found.launch_us == launch_us
    assert "of 8.00 us each" in found.message
    assert f" {launch_us:#.3g} us in " in found.message


def test_what_a_library_launches_for_each_moment_of_a_sequence_cannot_be_batched(findings):
    def remedy(op):
        builder = steps()
        for number in range(100):
            builder.launched(MUL, number * 8, op=op, dur=2)
        return findings(builder)["many-small-calls"].remedy

    assert "_foreach_" in remedy("aten::mul")
    assert "_foreach_" not in remedy("aten::_cudnn_rnn")


def test_an_operator_that_only_calls_others_is_named_with_them(findings):
    builder = steps()
    builder.op("aten::linear", 0, 200)
    builder.op("aten::addmm", 10, 190)
    assert findings(builder)["costly-children"].evidence["ops"] == ["aten::linear", "aten::addmm"]
    builder.op("aten::sort", 300, 690)
    assert "costly-children" not in findings(builder)


def test_a_first_step_that_is_much_longer_is_cold(findings):
    builder = TraceBuilder()
    builder.step(0, 0, 5000)
    for number in range(1, 4):
        builder.step(number, 4000 + number * 1000, 900)
    assert findings(builder)["cold-start"].evidence["first_step_us"] == 4100
    assert "cold-start" not in findings(steps(4))


def first_step_of(us, *, functions=0):
    """Build a first step that is this much longer than the other three, of 300 us; each function is called twice."""
    builder = TraceBuilder()
    builder.step(0, 0, 300 + us)
    for number in range(functions):
        for at in (0, 5):
            builder.event("python_function", f"model.py({number}): forward", 10 + number * 10 + at, 4)
    for number in range(1, 4):
        builder.step(number, us + number * 300, 300)
    return builder


@pytest.mark.parametrize(("longer_us", "cold"), [(163, False), (360, False), (990, False), (1010, True)])
def test_a_warm_process_is_slower_at_first_under_a_profiler_but_not_by_a_millisecond(longer_us, cold, findings):
    assert ("cold-start" in findings(first_step_of(longer_us))) == cold


@pytest.mark.parametrize(("longer_us", "cold"), [(2900, False), (3100, True)])
def test_of_a_first_step_the_time_to_record_each_new_python_function_is_not_cold(longer_us, cold, findings):
    assert ("cold-start" in findings(first_step_of(longer_us, functions=100))) == cold
    assert "cold-start" in findings(first_step_of(longer_us))


def test_a_late_first_operator_in_a_users_range_is_cold(findings):
    builder = steps(4)
    for number, gap in enumerate([228, 6, 5, 5]):
        builder.annotation("matmul_add", number * 1000, 500)
        builder.op("aten::matmul", number * 1000 + gap, 20)
    found = findings(builder)["cold-start"]
    assert found.evidence["first_call_us"] == 223
    assert found.entered == "matmul_add"


def test_a_launch_that_loads_code_is_cold_and_one_behind_a_full_queue_is_not(findings):
    builder = steps(length=20_000)
    builder.kernel(MUL, 5010, 10, builder.launch(0, 5000))
    assert findings(builder)["cold-start"].evidence["setup_us"] == 5000
    queued = steps(length=20_000)
    queued.kernel(MUL, 15_000, 10, queued.launch(0, 5000))
    assert "cold-start" not in findings(queued)


def test_a_later_launch_of_the_same_kernel_loads_no_code(findings):
    builder = steps(length=20_000)
    builder.launched(MUL, 0)
    builder.kernel(MUL, 8010, 10, builder.launch(3000, 5000))
    assert "cold-start" not in findings(builder)


@pytest.mark.parametrize(
    ("call", "setup"),
    [
        (lambda builder, at: builder.op("aten::empty", at, 3000), {"first aten::empty": 1}),
        (lambda builder, at: builder.call("cudaFuncSetAttribute", at, 3000), {"first cudaFuncSetAttribute": 1}),
        (lambda builder, at: builder.op("aten::view", at, 3000), None),
    ],
    ids=["allocation", "call of the driver", "view"],
)
def test_a_first_call_that_takes_a_millisecond_is_cold(call, setup, findings):
    def found(*, before):
        builder = steps(length=20_000)
        builder.launched(MUL, 0)
        for at in range(100, 100 * before + 100, 100):
            builder.op("aten::empty", at, 5)
            builder.call("cudaFuncSetAttribute", at + 50, 1)
        call(builder, 5000)
        return findings(builder).get("cold-start")

    assert getattr(found(before=0), "setup", None) == setup
    assert found(before=1) is None


def test_an_operator_that_runs_python_when_first_called_is_not_cold(findings):
    builder = steps(length=20_000)
    builder.launched(MUL, 0)
    builder.op("aten::empty", 5000, 3000)
    assert "cold-start" in findings(builder)
    builder.event("python_function", "model.py(1): forward", 5100, 2800)
    assert "cold-start" not in findings(builder)


def test_what_is_first_done_while_the_gpu_works_is_not_waited_for(findings):
    builder = steps(length=20_000)
    builder.launched(MUL, 0, dur=15_000)
    builder.op("aten::empty", 5000, 3000)
    assert "cold-start" not in findings(builder)


def test_a_call_that_captures_a_graph_is_cold_as_a_whole(findings):
    builder = steps()
    builder.launched(MUL, 0)
    builder.op("CompiledFunction", 100, 700)
    builder.capture(500, 600)
    found = findings(builder)["cold-start"]
    assert found.setup == {"call that captures a graph": 1, "graph capture": 1}
    assert found.setup_us == 700


@pytest.mark.parametrize(
    ("replayed", "second", "kernel", "takes", "again"),
    [
        (True, "aten::mm", MUL, 300, 2),
        (True, "aten::mm", MUL, 190, 1),
        (False, "aten::mm", MUL, 300, 0),
        (True, "aten::sin", MUL, 300, 0),
        (True, "aten::mm", GEMM, 300, 0),
        (True, "aten::mm", None, 300, 0),
    ],
    ids=[
        "replayed in between",
        "the first was colder",
        "equal layers",
        "other operators",
        "another graph",
        "kernels not in the file",
    ],
)
def test_a_graph_that_is_captured_again_is_no_cold_start(replayed, second, kernel, takes, again, all_findings):
    builder = steps()
    for at, held, own, us in ((0, "aten::mm", MUL, 300), (400, second, kernel, takes)):
        builder.op("CompiledFunction", at + 10, us)
        builder.op(held, at + 20, 10)
        builder.capture(at + 60, at + 120)
        if own is not None:
            builder.kernel(own, at + 160, 10, builder.graph_launch(at + 150))
        if replayed:
            builder.kernel(MUL, at + 330, 10, builder.graph_launch(at + 320))
    found = all_findings(builder)
    assert ("cold-start" in found) == (again < 2)
    if again < 2:
        assert found["cold-start"].setup["call that captures a graph"] == 2 - again
        assert found["cold-start"].setup_us == 300 * (2 - again)
    assert ("graph-recaptured" in found) == bool(again)
    if again:
        assert (found["graph-recaptured"].count, found["graph-recaptured"].time_us) == (again, takes * again)
        assert "mark_step_begin" in found["graph-recaptured"].remedy
        # A kernel of 10 us ran in each of the calls.
        assert found["graph-recaptured"].saves_us == pytest.approx((takes - 10) * again, abs=5)
        assert found["graph-recaptured"].idle_us == found["graph-recaptured"].saves_us


HELD = (
    ("aten::view", 3000),
    ("aten::expand", 2000),
    ("aten::t", 2500),
    ("aten::empty", 4000),
    ("cudaEventRecord", 3500),
)


def held_up(*, usual=5, slow=HELD, first=False, busy=90_000):
    builder = steps(length=100_000)
    builder.launched(MUL, 0, dur=busy)
    for at, (name, took) in enumerate(slow):
        add = builder.call if name.startswith("cuda") else builder.op
        for place in range(0 if first else 3):
            add(name, 100 + 1000 * at + 100 * place, usual)
        add(name, 10_000 + 10_000 * at, took)
    return builder


def test_calls_of_all_kinds_that_stand_still_show_a_cpu_that_is_held_up(findings):
    found = findings(held_up())["cpu-held-up"]
    assert (found.count, found.views, found.time_us, found.share) == (5, 3, 15_000, 0.15)
    assert (found.longest, found.longest_us, found.usual_us) == ("aten::empty", 4000, 5)
    # Gaps and waits of the recording may follow from it.
    assert found.severity == "recording"
    # The GPU computed all that time but for the first 5 us and the last 10 ms.
    assert found.saves_us == pytest.approx(10_000, abs=10)


@pytest.mark.parametrize(("busy", "said"), [(90_000, False), (99_000, True)])
def test_a_cpu_that_is_held_up_beside_a_busy_gpu_is_said_to_cost_little(busy, said, findings):
    found = findings(held_up(busy=busy))["cpu-held-up"]
    assert (found.words("{idle_us:us}") + " only" in found.message) == said
    assert found.severity == ("warning" if said else "recording")


@pytest.mark.parametrize(
    "builder",
    [
        held_up(usual=100),
        held_up(slow=HELD[:4]),
        held_up(slow=[*HELD[:2], ("aten::empty", 4000), ("aten::empty_like", 4000), ("cudaEventRecord", 3500)]),
        held_up(slow=[(name, 900) for name, _ in HELD]),
        held_up(slow=[("aten::view", 3000)] * 3 + [("cudaStreamSynchronize", 9000)] * 2),
    ],
    ids=["usually long", "four times", "two views", "less than a millisecond", "waits"],
)
def test_what_may_be_slow_for_a_reason_of_its_own_shows_no_cpu_that_is_held_up(builder, findings):
    assert "cpu-held-up" not in findings(builder)


def test_time_without_any_event_is_told_with_how_to_see_more(findings):
    def builder():
        made = steps()
        made.launched(MUL, 0)
        made.launched(MUL, 600, dur=380)
        return made

    found = findings(builder())["nothing-recorded"]
    # The first kernel ends at 18, the next operator begins at 600; the last kernel ends at 988.
    assert (found.time_us, found.gaps, found.longest_us, found.stacks) == (594, 2, 582, False)
    assert "with_stack" in found.remedy
    assert (found.few, found.few_us, found.few_least_us) == (1, 582, 582)
    # Both are of the same name: the first one launched at 0, the second at 600.
    assert (found.after, found.before) == ("aten::mul", "aten::mul")
    framed = builder()
    framed.event("python_function", "model.py(3): forward", 0, 300)
    shown = findings(framed)["nothing-recorded"]
    assert (shown.longest_us, shown.stacks) == (300, True)
    assert "with_stack" not in shown.remedy
    noted = builder()
    noted.annotation("preparing", 15, 560)
    assert "nothing-recorded" not in findings(noted)


@pytest.mark.parametrize(("short", "said"), [(2, False), (30, True)])
def test_few_gaps_that_are_most_of_the_time_without_events_are_said(short, said, findings):
    builder = steps(length=20_000)
    for number in range(short):
        builder.op("aten::add", 100 * number, 90)
    builder.op("aten::cat", 100 * short, 90)
    builder.launched(MUL, 19_000, dur=900)
    found = findings(builder)["nothing-recorded"]
    assert (found.after, found.before, found.few) == ("aten::cat", "aten::mul", 1)
    assert (found.words("{few_us:us}") + " of it" in found.message) == said


@pytest.mark.parametrize(("apart", "said"), [(10, False), (90, True)])
def test_a_host_that_is_nearly_as_busy_as_the_gpu_is_said_to_be(apart, said, findings):
    builder = steps()
    for number in range(10):
        builder.op("aten::mul", number * 95, apart)
        builder.kernel(GEMM, 8 + number * 98, 98, builder.launch(number * 95 + 1))
    found = findings(builder)["compute-bound"]
    assert (found.launch_ratio >= 0.75) == said
    assert ("spare launches" in found.message) == said


@pytest.mark.parametrize("stacks", [False, True])
def test_a_recording_with_stacks_says_that_they_slow_the_cpu(stacks, all_findings):
    builder = steps()
    for number in range(10):
        builder.launched(GEMM, number * 95, dur=5)
    if stacks:
        builder.event("python_function", "train.py(12): step", 0, 950)
    found = all_findings(builder)
    for code in ("launch-gaps", "overhead-bound"):
        assert found[code].stacks == stacks
        assert ("stacks" in found[code].message) == stacks


@pytest.mark.parametrize(
    ("forward", "backward", "named"),
    [
        (0, 0, (None, None)),
        (4, 3, ("forward", "backward")),
        (3, 4, ("backward", "forward")),
        (3, 1, (None, None)),
        (7, 1, ("forward", None)),
    ],
)
def test_late_launches_are_placed_in_one_range_or_in_two_with_half_of_them(forward, backward, named, all_findings):
    builder = steps(length=1200)
    for number in range(12):
        builder.launched(GEMM, number * 95, dur=5)
    for name, begins, lasts in (("forward", 0, forward), ("backward", 7, backward)):
        if lasts:
            builder.annotation(name, 95 * begins, 95 * lasts)
    found = all_findings(builder)
    for code in ("launch-gaps", "overhead-bound"):
        assert (found[code].within, found[code].within_too) == named
        assert [name for name in ("forward", "backward") if name in found[code].message] == sorted(
            filter(None, named), reverse=True
        )
        assert found[code].at == found[code].in_range or found[code].at.startswith(", spread over 12 waits for ")
        assert bool(found[code].in_range) == (named[0] is not None)
    assert "in 12 waits for " in found["launch-gaps"].message


@pytest.mark.parametrize("computes", [0, 150])
def test_set_up_beside_a_gpu_that_computes_could_save_what_it_idled(computes, findings):
    builder = steps()
    builder.kernel(GEMM, 100, 300, builder.launch(5))
    builder.call("cudaMalloc", 200, 600)
    if computes:
        builder.kernel(GEMM, 400, computes, builder.launch(150))
    found = findings(builder)["cold-start"]
    assert (found.setup_us, found.setup_idle_us, found.saves_us) == (600, 400 - computes, 400 - computes)
    assert found.words("{setup_idle_us:us}") in found.message


@pytest.mark.parametrize(("others", "place"), [(1, ("aten::cat", "aten::mul")), (8, None)])
def test_gaps_without_events_are_placed_if_most_lie_between_the_same_operators(others, place, all_findings):
    builder = steps(length=10_900)
    at = 0
    for number in range(9):
        builder.op("aten::cat" if number >= others else f"aten::op{number}", at, 50)
        builder.launched(MUL, at + 1050, dur=10)
        at += 1200
    found = all_findings(builder)["launch-gaps"]
    assert (found.silent_after, found.silent_before) == (place or (None, None))
    assert (place is not None) == ("between aten::cat" in found.remedy)


@pytest.mark.parametrize(("loads", "first"), [(100, False), (600, True)])
def test_loading_data_comes_first_where_it_is_most_of_the_waiting(loads, first, findings):
    builder = steps()
    builder.launched(GEMM, 0, dur=10)
    builder.annotation("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 20, loads)
    builder.launched(GEMM, 900, dur=10)
    found = findings(builder)["launch-gaps"]
    assert found.loads_long
    assert found.remedy.startswith("load data") == first
    assert found.is_for_data == first
    assert found.saves_us == (loads if first else found.time_us)
    assert "num_workers" in found.remedy


def test_one_cause_stands_out_once(findings, tmp_path):
    """A copy waits for a kernel that was launched and does not start: three findings, of which the first tells it all."""
    builder = steps(length=10_000)
    late = builder.launch(0)
    builder.op("aten::copy_", 10, 8990)
    copy = builder.call("copy", 20, 8970)
    builder.sync(30, 8960, what="stream sync")
    builder.kernel(MUL, 8900, 5, late)
    builder.memcpy("DtoH", 8910, 2, copy)
    assert {"implicit-sync", "sync-over-little-work"}.isdisjoint(findings(builder))
    profile = load(builder.write(tmp_path / "t.json"))
    for code in ("queued-work-waits", "implicit-sync", "sync-over-little-work"):
        with pytest.raises(AssertionError, match=code):
            profile.expect(forbid=code)


def test_a_wait_in_an_operator_is_told_once(findings):
    builder = steps()
    builder.launched(MUL, 0)
    builder.op("aten::item", 100, 500)
    builder.sync(110, 480, what="stream sync")
    builder.op("aten::add", 900, 10)
    found = findings(builder)
    assert "implicit-sync" in found
    assert "sync-over-little-work" not in found
    builder.sync(700, 190)
    assert "sync-over-little-work" in findings(builder)


def test_the_hotspot_of_a_gpu_that_idles_stands_behind_what_takes_the_time(findings):
    builder = steps()
    for at, name in ((0, GEMM), (300, SOFTMAX), (600, COPY)):
        builder.launched(name, at, dur=40 if name is GEMM else 5)
    builder.op("aten::sort", 700, 200)
    builder.op("aten::index_select", 701, 198)
    order = list(findings(builder))
    assert order.index("costly-children") < order.index("hotspot")


def test_communication_that_is_exposed_is_no_hotspot_beside_it(findings):
    builder = steps()
    builder.kernel(NCCL, 10, 500, builder.launch(0))
    for at, name in ((600, GEMM), (700, SOFTMAX)):
        builder.launched(name, at, dur=50)
    found = findings(builder)
    assert "exposed-communication" in found
    assert "hotspot" not in found


def test_kernels_that_are_slow_in_one_step_are_an_outlier(findings):
    def builder(durations):
        made = steps(len(durations))
        for number, dur in enumerate(durations):
            made.launched(GEMM, number * 1000, op="aten::mm", dur=dur)
        return made

    found = findings(builder([100, 100, 300, 100, 100]))["kernel-time-varies"]
    assert (found.evidence["kind"], found.evidence["steps"]) == ("outlier", ["ProfilerStep#2"])
    assert found.evidence["time_us"] == 200
    assert "kernel-time-varies" not in findings(builder([100, 102, 110, 100, 98]))


def test_communication_that_varies_waits_for_others(findings):
    builder = steps(5)
    for number, dur in enumerate([100, 100, 300, 100, 100]):
        builder.launched(NCCL, number * 1000, op="record_param_comms", dur=dur)
    assert "kernel-time-varies" not in findings(builder)


@pytest.mark.parametrize(
    ("kernel", "code"),
    [
        (SGEMM, "fp32-gemm"),
        ("cutlass::Kernel<cutlass_80_tensorop_s1688gemm_128x128_16x5_tn_align4>(Params)", "tf32-gemm"),
        (GEMM, None),
    ],
)
def test_products_are_told_by_their_type(kernel, code, findings):
    dtype = "c10::BFloat16" if kernel is GEMM else "float"
    builder = steps()
    operands = [operand(256, 256, dtype=dtype), operand(256, 256, dtype=dtype)]
    builder.launched(kernel, 0, op="aten::mm", inputs=operands)
    assert {"fp32-gemm", "tf32-gemm"} & set(findings(builder)) == ({code} if code else set())


@pytest.mark.parametrize(
    ("rows", "inner", "columns", "sizes"),
    [(63, 64, 64, None), (64, 63, 64, ["K=63"]), (64, 64, 30522, ["N=30522"]), (1, 64, 63, None)],
)
def test_only_sizes_that_are_distances_between_rows_are_misaligned(rows, inner, columns, sizes, findings):
    builder = steps()
    builder.launched(GEMM, 0, op="aten::mm", inputs=[operand(rows, inner), operand(inner, columns)])
    found = findings(builder).get("misaligned-gemm")
    assert (found.evidence["sizes"] if found else None) == sizes


def test_a_copy_that_puts_the_bias_into_a_products_result_is_hidden(findings):
    builder = steps()
    builder.op("aten::addmm", 0, 100)
    builder.memcpy("DtoD", 20, 30, builder.call("copy", 5), size=2**20)
    builder.kernel(GEMM, 60, 500, builder.launch(10))
    found = findings(builder)["hidden-copy"]
    assert (found.evidence["copies"], found.evidence["bytes"]) == (1, 2**20)
    plain = steps()
    plain.op("aten::copy_", 0, 9)
    plain.memcpy("DtoD", 20, 30, plain.call("copy", 5))
    plain.launched(GEMM, 50, op="aten::addmm")
    assert "hidden-copy" not in findings(plain)


def test_a_bias_that_is_copied_like_any_other_tensor_is_hidden_all_the_same(findings):
    builder = steps()
    builder.launched(COPY, 0, op="aten::copy_", inputs=[operand(64)])
    builder.op("aten::addmm", 40, 100)
    builder.launched(COPY, 50, op="aten::copy_", inputs=[operand(64)])
    builder.kernel(GEMM, 90, 500, builder.launch(80))
    assert findings(builder)["hidden-copy"].evidence["copies"] == 1


def test_pointwise_kernels_in_a_row_on_one_size_could_be_one(findings):
    def builder(sizes):
        made = steps()
        for number, size in enumerate(sizes):
            made.launched(MUL, number * 20, inputs=[operand(size, 64)])
        return made

    found = findings(builder([64, 64, 64]))["unfused-pointwise"]
    assert (found.evidence["count"], found.evidence["saved_us"]) == (3, 20)
    assert "unfused-pointwise" not in findings(builder([64, 128, 64]))


def test_attention_in_three_kernels_is_unfused_if_the_sizes_fit(findings):
    def builder(taken):
        made = steps()
        made.launched(GEMM, 0, op="aten::bmm", inputs=[operand(8, 128, 64), operand(8, 64, 128)])
        made.launched(SOFTMAX, 20, op="aten::_softmax", inputs=[operand(8, 128, 128)])
        made.launched(GEMM, 40, op="aten::bmm", inputs=[operand(*taken), operand(8, 128, 64)])
        return made

    assert findings(builder((8, 128, 128)))["unfused-attention"].evidence["count"] == 1
    assert "unfused-attention" not in findings(builder((8, 32, 128)))


def rms_norm(*, before=(), cast=True, rows=64, apart=20, length=1000):
    """Build a step with RMSNorm as transformers writes it, beside a product."""
    builder, wide, narrow = steps(length=length), operand(rows, 128), operand(rows, 1)
    ops = [*before, "copy_", "pow", "mean", "add", "rsqrt", "mul", "copy_", "mul"]
    ops = ops if cast else [op for op in ops if op != "copy_"]
    for at, op in enumerate(ops):
        name = MEAN if op == "mean" else COPY if op == "copy_" else MUL
        size = [narrow] if op in ("add", "rsqrt") else [wide]
        builder.launched(name, at * apart, op=f"aten::{op}", inputs=size, dur=10)
    builder.launched(GEMM, 20 * apart, op="aten::mm", dur=100)
    return builder


@pytest.mark.parametrize(("apart", "tells"), [(20, False), (200, True)])
def test_a_norm_whose_kernels_the_gpu_waits_for_stands_out_however_short_they_are(apart, tells, findings, all_findings):
    builder = rms_norm(apart=apart, length=20_000)
    assert all_findings(builder)["unfused-norm"].share < 0.01
    assert ("unfused-norm" in findings(builder)) == tells


@pytest.mark.parametrize(("cast", "kernels"), [(True, 8), (False, 6)], ids=["bf16", "fp32"])
def test_a_norm_of_single_operators_is_unfused(cast, kernels, findings):
    found = findings(rms_norm(cast=cast))["unfused-norm"]
    assert (found.norms, found.count, found.time_us) == (1, kernels, 10 * kernels)
    assert (found.each, found.saves_us) == (kernels, 10 * kernels - 10)


def test_what_only_resembles_the_norm_is_none(findings):
    assert "unfused-norm" not in findings(rms_norm(before=["sub"], cast=False))
    narrow = rms_norm(cast=False)
    halved = [event for event in narrow.events if event["name"] == "aten::mul"][:1]
    for event in halved:
        event["args"]["Input Dims"] = [[32, 128]]
    assert "unfused-norm" not in findings(narrow)  # Another tensor than the squared one is multiplied.
    other = rms_norm()
    other.events = [
        {**event, "name": "aten::sqrt"} if event["name"] == "aten::rsqrt" else event for event in other.events
    ]
    assert "unfused-norm" not in findings(other)


def rotary(*, turned="neg", last="add", times=1):
    """Build a step that turns queries as transformers does, beside a product."""
    builder = steps(length=5000)
    for number in range(times):
        for at, op in enumerate(["mul", turned, "cat", "mul", last]):
            size = operand(32, 128) if op == turned else operand(64, 128)
            at_us = 200 * number + 20 * at
            builder.launched(CAT if op == "cat" else MUL, at_us, op=f"aten::{op}", inputs=[size], dur=10)
    builder.launched(GEMM, 4000, op="aten::mm", dur=100)
    return builder


@pytest.mark.parametrize("times", [1, 2])
def test_a_rotary_embedding_of_single_operators_is_unfused(times, findings):
    found = findings(rotary(times=times))["unfused-rotary"]
    assert (found.embeddings, found.each, found.count, found.time_us) == (times, 5, 5 * times, 50 * times)
    assert found.saves_us == 40 * times


@pytest.mark.parametrize("other", [{"turned": "sin"}, {"last": "sub"}], ids=["not negated", "not added"])
def test_what_only_resembles_a_rotary_embedding_is_none(other, findings):
    assert "unfused-rotary" not in findings(rotary(**other))


def test_a_rotary_embedding_may_hide_in_a_cuda_graph(tmp_path):
    alone = steps()
    alone.kernel(CAT, 600, 30, alone.graph_launch(550))
    alone.launched(GEMM, 700, op="aten::mm")
    with pytest.raises(NotMeasured):
        load(alone.write(tmp_path / "a.json")).expect(forbid="unfused-rotary")


def test_the_pointwise_chains_of_a_rotary_embedding_stand_out_as_that(tmp_path):
    builder = steps(length=5000)
    for at, op in enumerate(["mul", "neg", "cat", "mul", "add"] * 2 + ["mul"]):
        builder.launched(CAT if op == "cat" else MUL, 20 * at, op=f"aten::{op}", inputs=[operand(64, 128)], dur=10)
    builder.launched(GEMM, 4000, op="aten::mm", dur=100)
    profile = load(builder.write(tmp_path / "t.json"))
    assert "unfused-rotary" in {finding.code for finding in profile.findings}
    assert "unfused-pointwise" not in {finding.code for finding in profile.findings}
    with pytest.raises(AssertionError, match="unfused-pointwise"):
        profile.expect(forbid="unfused-pointwise")


def test_casts_of_a_norm_are_not_to_be_saved_twice(findings):
    builder = rms_norm()
    builder.launched(COPY, 600, op="aten::copy_", inputs=[operand(64, 128)], dur=50)
    found = findings(builder)["copy-kernels"]
    assert (found.time_us, found.of_norms_us, found.saves_us) == (70, 20, 50)


def test_a_norm_may_hide_in_a_cuda_graph(tmp_path):
    builder = rms_norm()
    builder.kernel(MEAN, 600, 30, builder.graph_launch(550))
    profile = load(builder.write(tmp_path / "t.json"))
    with pytest.raises(AssertionError, match="unfused-norm"):
        profile.expect(forbid="unfused-norm")
    alone = steps()
    alone.kernel(MEAN, 600, 30, alone.graph_launch(550))
    alone.launched(GEMM, 700, op="aten::mm")
    with pytest.raises(NotMeasured):
        load(alone.write(tmp_path / "a.json")).expect(forbid="unfused-norm")


def test_an_optimizer_that_takes_tensors_one_by_one_is_found(findings):
    builder = steps()
    builder.annotation("Optimizer.step#SGD.step", 0, 900)
    for number in range(40):
        builder.launched(MUL, number * 20, op="aten::mul_", dur=2)
    assert findings(builder)["single-tensor-optimizer"].evidence["kernels_per_step"] == 40
    foreach = steps()
    foreach.annotation("Optimizer.step#SGD.step", 0, 900)
    foreach.launched("void at::native::(anonymous namespace)::multi_tensor_apply_kernel<...>()", 0)
    assert "single-tensor-optimizer" not in findings(foreach)


def test_gradients_that_are_set_to_zero_by_kernels_need_not_be(findings):
    def remedy(zeroing):
        builder = steps()
        builder.annotation("Optimizer.step#SGD.step", 0, 800)
        builder.annotation("Optimizer.zero_grad#SGD.zero_grad", 800, 200)
        for number in range(40 + zeroing):
            builder.launched(MUL, number * 20, op="aten::mul_", dur=2)
        finding = findings(builder)["single-tensor-optimizer"]
        assert (finding.kernels_per_step, finding.zeroing) == (40, zeroing)
        return finding.remedy

    assert "set_to_none=True" in remedy(5)
    assert "set_to_none" not in remedy(0)


@pytest.mark.parametrize("optimizers", [True, False])
def test_small_calls_that_are_an_optimizers_are_told_with_it(optimizers, findings, all_findings):
    builder = steps(length=40_000)
    builder.annotation("Optimizer.step#SGD.step", 0, 6000)
    for number in range(500):
        builder.launched(MUL, number * 20 + (0 if optimizers or number < 200 else 6000), op="aten::mul_", dur=2)
    assert "many-small-calls" in all_findings(builder)
    assert "single-tensor-optimizer" in all_findings(builder)
    assert ("many-small-calls" in findings(builder)) == (not optimizers)


@pytest.mark.parametrize("longest", [SGEMM, GEMM])
def test_products_in_fp32_are_no_hotspot_beside_what_is_said_of_them(longest, findings, all_findings):
    builder = steps()
    for number, name in enumerate((SGEMM, GEMM)):
        builder.launched(name, number * 450, op="aten::mm", dur=400 if name == longest else 150)
    for number, name in enumerate((SOFTMAX, MUL)):
        builder.launched(name, 900 + 20 * number, op="aten::other", dur=5)
    assert {"hotspot", "fp32-gemm"} <= set(all_findings(builder))
    assert ("hotspot" in findings(builder)) == (longest == GEMM)


def test_grids_that_leave_multiprocessors_empty_are_small(findings):
    builder = steps()
    builder.launched(GEMM, 0, dur=100, blocks_per_sm=0.25)
    assert findings(builder)["small-grid"].evidence["unused_us"] == 75
    filled = steps()
    filled.launched(GEMM, 0, dur=100, blocks_per_sm=1.0)
    assert "small-grid" not in findings(filled)
    nearly = steps()
    nearly.launched(GEMM, 0, dur=100, blocks_per_sm=128 / 132)
    assert "small-grid" not in findings(nearly)


def test_low_occupancy_is_not_the_grids_fault_and_not_a_products(findings):
    builder = steps()
    builder.launched(MUL, 0, blocks_per_sm=64.0, occupancy=12)
    assert findings(builder)["low-occupancy"].evidence["occupancy"] == pytest.approx(0.12)
    others = steps()
    others.launched(MUL, 0, blocks_per_sm=2.0, occupancy=6)
    others.launched(GEMM, 20, blocks_per_sm=64.0, occupancy=12)
    assert "low-occupancy" not in findings(others)


def test_a_layout_conversion_around_convolutions_is_found(findings):
    builder = steps()
    builder.launched("void cudnn::ops::nchwToNhwcKernel<float, float, float, false, true>(...)", 0, op="aten::conv2d")
    assert "layout-conversion" in findings(builder)
    plain = steps()
    plain.launched(MUL, 0)
    assert "layout-conversion" not in findings(plain)


def test_copies_before_a_graph_launch_fill_its_inputs(findings):
    def builder(copied_at):
        made = steps()
        made.op("CompiledFunction", 0, 200)
        made.op("aten::copy_", copied_at, 10)
        made.memcpy("DtoD", 300, 20, made.call("copy", copied_at + 2))
        graph = made.graph_launch(100)
        made.kernel(GEMM, 330, 100, graph)
        return made

    assert findings(builder(20))["cudagraph-input-copy"].evidence["count"] == 1
    assert "cudagraph-input-copy" not in findings(builder(150))


def test_skipped_cuda_graphs_are_told_with_their_reason(findings):
    skips = {"count": 1, "reasons": ["mutated inputs (1 instances)"]}
    builder = steps()
    builder.own(steps=1, compile={"dynamo": True, "compiled": True, "cudagraph_skips": skips})
    assert findings(builder)["cuda-graph-skipped"].reasons == ("mutated inputs (1 instances)",)
    builder.torchprof["compile"]["cudagraph_skips"] = {"count": 0, "reasons": []}
    assert "cuda-graph-skipped" not in findings(builder)


def test_nothing_lost_and_nothing_at_all_are_told_apart(findings):
    nothing = steps()
    nothing.op("aten::mul", 0, 10)
    assert set(findings(nothing)) & {"no-gpu-work", "lost-kernels"} == {"no-gpu-work"}
    lost = steps()
    lost.launched(MUL, 0)
    lost.launch(50)
    assert set(findings(lost)) & {"no-gpu-work", "lost-kernels"} == {"lost-kernels"}
    in_flight = steps()
    in_flight.launched(MUL, 0)
    in_flight.kernel(MUL, 1, 2, 7)
    found = findings(in_flight)
    assert found["in-flight-kernels"].evidence["orphans"] == 1
    assert not {"no-gpu-work", "lost-kernels"} & set(found)


@pytest.mark.parametrize("called", [False, True])
def test_a_recording_without_any_call_to_a_gpu_is_one_of_the_cpu(called, findings):
    builder = steps()
    builder.op("aten::mul", 0, 10)
    if called:
        builder.call("cudaGetDevice", 20)
    found = findings(builder)["no-gpu-work"]
    assert found.calls_recorded == called
    assert ("a compiler removed" in found.message, "--device cpu" in found.remedy) == (called, not called)


def test_findings_stand_in_the_order_of_what_they_could_save():
    def finding(code, severity, saves_us):
        return OtherFinding(code=code, title="", message="", severity=severity, saves_us=saves_us)

    given = [finding("a", "information", 9), finding("b", "warning", 1), finding("c", "warning", 5)]
    assert [one.code for one in ranked([*given, finding("d", "recording", 0)])] == ["d", "c", "b", "a"]


@pytest.mark.parametrize(
    ("lengths", "source"), [((60, 40), "first (a.py:1)"), ((40, 60), "second (a.py:9)"), ((40, 60, 60), None)]
)
def test_a_line_is_named_that_has_half_of_the_time(lengths, source, findings):
    builder = steps()
    for at, (length, name) in enumerate(zip(lengths, ("first", "second", "third"), strict=False)):
        builder.event("python_function", f"a.py({1 + 8 * at}): {name}", 200 * at, 150)
        builder.op("aten::mm", 200 * at, 100)
        builder.kernel(SGEMM, 200 * at + 20, length, builder.launch(200 * at + 5))
    assert findings(builder)["fp32-gemm"].source == source


def communicate(builder, lasts, *, at=20, sized=True):
    """Let collectives run one after the other, for so many us each."""
    for us in lasts:
        size = {"dtype": "Float", "In msg nelems": 250, "Out msg nelems": 250} if sized else {}
        asked = {"Collective name": "allreduce", "Group size": 2, **size}
        builder.event("cpu_op", "c10d::allreduce_", at - 16, 15)
        builder.event("cpu_op", "record_param_comms", at - 15, 13, **asked)
        builder.kernel(NCCL, at, us, builder.launch(at - 10), **asked)
        at += us + 20


@pytest.mark.parametrize(("computes", "saves"), [(0, 0), (200, 200), (900, 400)])
def test_no_more_communication_can_be_hidden_than_there_is_to_compute(computes, saves, findings):
    builder = steps(length=2000)
    communicate(builder, [100] * 4)
    if computes:
        builder.launched(GEMM, 700, dur=computes)
    assert findings(builder)["exposed-communication"].saves_us == saves


def test_where_little_can_be_overlapped_the_ranks_come_first(findings):
    builder = steps(length=2000)
    communicate(builder, [300])
    builder.launched(GEMM, 700, dur=100)
    found = findings(builder)["exposed-communication"]
    assert found.computing_us == 100
    assert not found.remedy.startswith(found.ACTION)
    builder.launched(GEMM, 900, dur=200)
    found = findings(builder)["exposed-communication"]
    assert found.remedy.startswith(found.ACTION)


def test_advice_is_about_what_the_gpu_idles_for(findings):
    builder = steps()
    builder.kernel(MUL, 10, 480, builder.launch(0))
    for at, op, took in ((20, "aten::nonzero", 460), (600, "aten::item", 200)):
        builder.op(op, at, took)
        builder.sync(at + 5, took - 10, what="stream sync")
    builder.launched(MUL, 900)
    found = findings(builder)["implicit-sync"]
    assert list(found.causes_us) == ["masks", "value"]
    assert found.causes_idle_us["masks"] == 0 < found.causes_idle_us["value"]
    assert found.causes == ("value",)


@pytest.mark.parametrize("sized", [True, False], ids=["too few alike", "of unknown size"])
def test_what_cannot_be_compared_may_all_be_waiting(sized, findings):
    builder = steps(length=2000)
    communicate(builder, [300] if sized else [100] * 4, sized=sized)
    found = findings(builder)["exposed-communication"]
    assert (found.beyond_usual_us, found.saves_us) == (0, found.time_us)


def test_the_line_is_that_of_the_users_code(findings):
    builder = steps()
    builder.event("python_function", "train.py(12): step", 0, 900)
    builder.event("python_function", "torch/nn/modules/linear.py(130): forward", 1, 800)
    builder.op("aten::item", 200, 50)
    builder.sync(210, 30, what="stream sync")
    builder.launched(MUL, 400)
    assert findings(builder)["implicit-sync"].evidence["source"] == "step (train.py:12)"


# ----------------------------------------------------------------------------------------------------------------------
# Several GPUs, AMD's, and what comes behind the launch

ADD = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, x>(int)"


def test_idle_time_of_several_gpus_is_their_mean_and_never_more_than_the_time(all_findings):
    builder = TraceBuilder()
    for i in range(20):
        for device in range(4):
            builder.launched(ADD, 100 * i + 20 * device, device=device, wait=0, dur=5)
    found = all_findings(builder)["launch-gaps"]
    assert 0.5 < found.evidence["share"] < 1
    assert found.evidence["host_wait_us"] == pytest.approx(4 * found.evidence["time_us"], rel=0.1)


def test_kernels_of_two_gpus_are_no_chain(findings):
    operands = [([1 << 20], [1], "float")] * 2

    def chain(devices):
        builder = TraceBuilder()
        for i in range(30):
            builder.launched(ADD, 20 * i, device=devices[i % len(devices)], inputs=operands, dur=10)
        return findings(builder)

    assert "unfused-pointwise" in chain([0])
    assert "unfused-pointwise" not in chain([0, 1])


def test_what_an_operation_waits_for_after_its_launch_is_not_the_hosts_doing(all_findings):
    def waiting(call_us, wait):
        builder = TraceBuilder()
        for i in range(5):
            builder.op("aten::add", 1000 * i, call_us + 4)
            builder.kernel(ADD, 1000 * i + call_us + wait, 10, builder.launch(1000 * i + 2, call_us))
        return all_findings(builder)

    assert waiting(900, 5)["launch-gaps"].evidence["share"] > 0.8
    assert "launch-gaps" not in waiting(5, 900)


@pytest.mark.parametrize(
    ("began", "lasted", "after_waits_us"),
    [(5, 20, 397), (30, 20, 0), (None, 0, 0)],
    ids=["while the GPU worked", "while it was idle", "never"],
)
def test_only_synchronization_that_made_a_gap_is_advised_against(began, lasted, after_waits_us, findings):
    builder = steps()
    builder.kernel(MUL, 5, 10, builder.launch(2))
    if began is not None:
        builder.sync(began, lasted)
    builder.kernel(MUL, 420, 500, builder.launch(410))
    found = findings(builder)["launch-gaps"]
    assert found.after_waits_us == pytest.approx(after_waits_us)
    assert ("synchronization" in found.remedy) == bool(after_waits_us)


def test_a_gap_in_a_call_that_captures_a_graph_is_a_first_calls(all_findings):
    def gap(*, captures):
        builder = steps()
        builder.op("CompiledFunction", 0, 500)
        builder.kernel(MUL, 5, 10, builder.launch(2))
        if captures:
            builder.capture(300, 400)
        builder.kernel(MUL, 460, 140, (builder.graph_launch if captures else builder.launch)(450))
        builder.kernel(MUL, 800, 100, builder.launch(798))
        return all_findings(builder)["launch-gaps"]

    eager, first = gap(captures=False), gap(captures=True)
    assert (eager.capturing_us, eager.graphs) == (0, False)
    # Up to the end of the launch at 4, from 15 to that of the one at 452, and from 600 to that of the one at 800.
    assert (first.capturing_us, first.time_us, first.saves_us) == (441, 641, 200)
    assert first.graphs
    assert ("warm up" in eager.remedy, "warm up" in first.remedy) == (False, True)


def test_a_copy_to_pageable_memory_waits_in_its_own_call(findings):
    builder = TraceBuilder()
    builder.launched(ADD, 0, dur=8000)
    builder.op("aten::to", 10, 8100)
    builder.memcpy("DtoH", 8010, 5, builder.call("copy", 20, 8000))
    builder.sync(8030, 10, what="stream sync")
    found = findings(builder)["implicit-sync"]
    assert (found.evidence["time_us"], found.evidence["ops"]) == (8010, {"aten::to": 1})


def test_tf32_is_no_advice_for_amds_gpus(findings):
    known = []
    for rocm in (False, True):
        builder = TraceBuilder(rocm=rocm)
        builder.metadata["deviceProperties"] = [{"id": 0, "name": "GPU", "numSms": 100, "computeMajor": 9}]
        operands = [([512, 512], [512, 1], "float")] * 2
        name = "Cijk_Ailk_Bljk_SB_MT64x64x16_MI32x32x2x1" if rocm else "ampere_sgemm_128x64_tn"
        for i in range(5):
            builder.launched(name, 100 * i, op="aten::mm", inputs=operands, dur=500)
        known.append(findings(builder)["fp32-gemm"].may_use_tf32)
    assert known == [("gemm",), ()]


TF32 = "cutlass::Kernel<cutlass_80_tensorop_s1688gemm_128x128_16x5_tn_align4>(Params)"
TO_NHWC = "void cudnn::ops::nchwToNhwcKernel<float, float, float, false, true>(...)"


def products(*kernels, op="aten::mm"):
    builder = TraceBuilder()
    builder.metadata["deviceProperties"] = [{"id": 0, "name": "GPU", "numSms": 100, "computeMajor": 9}]
    builder.step(0, 0, 9000)
    for number, name in enumerate(kernels):
        builder.launched(name, 1000 * number, op=op, inputs=[([512, 512], [512, 1], "float")] * 2, dur=500)
    return builder


def test_tf32_is_no_advice_where_it_is_in_use(findings):
    assert findings(products(SGEMM))["fp32-gemm"].may_use_tf32 == ("gemm",)
    assert findings(products(SGEMM, TF32))["fp32-gemm"].may_use_tf32 == ()


@pytest.mark.parametrize(("major", "first"), [(7, False), (8, True), (9, True)])
def test_tf32_is_the_first_advice_where_the_gpu_has_it(major, first, findings):
    builder = products(SGEMM)
    builder.metadata["deviceProperties"][0]["computeMajor"] = major
    found = findings(builder)["fp32-gemm"]
    assert found.action.startswith("torch.set_float32_matmul_precision") == first
    assert (found.remedy.find("TF32") >= 0) == first
    assert found.remedy.find("TF32") < found.remedy.index("autocast")
    assert "autocast" in found.action


@pytest.mark.parametrize(
    ("kernels", "may_use"),
    [
        (["volta_sgemm_128x64_tn"], ()),
        (["volta_sgemm_128x64_tn", "ampere_sgemm_128x64_tn"], ("gemm",)),
        (["void gemmSN_NN_kernel<float, 128, 2, 4, 8, 3, 4, false>(float const*)"], ("gemm",)),
    ],
)
def test_what_a_kernel_was_made_for_tells_whether_a_gpu_that_nobody_names_has_tf32(kernels, may_use, findings):
    builder = products(*kernels)
    del builder.metadata["deviceProperties"]
    assert findings(builder)["fp32-gemm"].may_use_tf32 == may_use


@pytest.mark.parametrize(("major", "faster"), [(6, "fp16"), (7, "fp16"), (8, "bf16"), (9, "bf16")])
def test_products_are_sent_to_a_type_that_the_gpu_is_fast_in(major, faster, findings):
    builder = products(SGEMM)
    builder.metadata["deviceProperties"][0]["computeMajor"] = major
    assert f"a model in {faster}" in findings(builder)["fp32-gemm"].remedy


def test_a_conversion_of_the_layout_is_no_product(findings):
    found = findings(products(SGEMM, TO_NHWC, TO_NHWC))["fp32-gemm"]
    assert not found.peaks_known
    assert found.saves_us == found.time_us / 2
    assert (found.time_us, found.count) == (500, 1)
    assert "fp32-gemm" not in findings(products(TO_NHWC, MUL))


def shared_gpu(*blocks, op="aten::mm"):
    """Return kernels of so many blocks per multiprocessor that run at the same time on streams of their own."""
    builder = steps()
    for number, one in enumerate(blocks):
        correlation = builder.launch(number)
        builder.kernel(GEMM, 100, 500, correlation, stream=7 + number, blocks_per_sm=one)
    return builder


def test_kernels_that_share_the_gpu_fill_it_together(findings):
    assert findings(shared_gpu(112 / 132))["small-grid"].unused_us == pytest.approx(500 * 20 / 132)
    assert "small-grid" not in findings(shared_gpu(112 / 132, 20 / 132))
    both = findings(shared_gpu(0.25, 0.25))["small-grid"]
    assert (both.count, both.time_us, both.unused_us, both.share) == (2, 1000, 250, pytest.approx(0.5))


def test_only_the_time_in_which_a_grid_does_not_fill_the_gpu_counts(findings):
    builder = steps()
    builder.kernel(GEMM, 100, 500, builder.launch(0), stream=7, blocks_per_sm=0.25)
    builder.kernel(GEMM, 300, 500, builder.launch(5), stream=8, blocks_per_sm=1.0)
    assert findings(builder)["small-grid"].time_us == 200


def waiting_work(*, other_stream=False, collective=False, graph=False, other_gpu=False):
    builder = steps()
    builder.kernel(GEMM, 10, 20, builder.launch(0))
    builder.kernel(GEMM, 600, 100, builder.graph_launch(40) if graph else builder.launch(40))
    if other_stream:
        builder.kernel(GEMM, 610, 20, builder.launch(50), stream=20)
    if collective:
        builder.kernel(NCCL, 720, 20, builder.launch(60))
    if other_gpu:
        builder.kernel(GEMM, 50, 549, builder.launch(45), device=1)
    return builder


@pytest.mark.parametrize(
    ("seen", "cause"),
    [
        ({}, None),
        # That other streams or ranks are there is no evidence that one of them was waited for.
        ({"other_stream": True}, None),
        ({"collective": True}, None),
        ({"graph": True}, "CUDA graph"),
        ({"other_gpu": True}, "another GPU"),
    ],
    ids=["nothing", "another stream", "a collective", "a graph", "another GPU"],
)
def test_launched_work_waits_for_what_the_recording_shows(seen, cause, findings):
    found = findings(waiting_work(**seen))["queued-work-waits"]
    assert (found.graph_starts_us > 0, found.after_other_gpu) == (cause == "CUDA graph", cause == "another GPU")
    named = [word for word in ("another GPU", "CUDA graph", "before the recording") if word in found.remedy]
    assert named == ([cause] if cause else [])


def test_a_graph_that_waits_in_each_step_waits_for_no_upload(findings):
    builder = steps(3)
    for number in range(3):
        builder.kernel(GEMM, 1000 * number + 10, 20, builder.launch(1000 * number))
        builder.kernel(GEMM, 1000 * number + 600, 100, builder.graph_launch(1000 * number + 40))
    found = findings(builder)["queued-work-waits"]
    assert found.graphs_again_us == pytest.approx(2 / 3 * found.graph_starts_us)
    assert "CUDA graphs" in found.remedy
    assert "warm-up" not in found.remedy
    # What the GPU did meanwhile is not in the file: everything else is said of what is.
    assert found.severity == "recording"


def test_idle_time_between_operations_of_one_graph_is_work_that_is_not_recorded(findings):
    builder = steps()
    launch = builder.graph_launch(0)
    for at in (20, 300, 600):
        builder.kernel(GEMM, at, 20, launch)
    found = findings(builder)["queued-work-waits"]
    assert (found.inside_graphs_us, found.severity) == (540, "recording")
    assert found.title != found.TITLE
    assert "nsys" in found.remedy


@pytest.mark.parametrize("graph", [False, True], ids=["a kernel", "the first launch of a graph"])
def test_what_waits_for_a_known_reason_is_lost_time(graph, findings):
    assert findings(waiting_work(graph=graph))["queued-work-waits"].severity == "warning"


@pytest.mark.parametrize("within", [None, "load batch"])
@pytest.mark.parametrize("asked", [False, True], ids=["asked for", "of an operator"])
def test_where_the_cpu_waits_while_launched_work_waits_is_named(asked, within, findings):
    builder = waiting_work()
    builder.call("cudaStreamSynchronize", 100, 450)
    if asked:
        builder.op("aten::to", 90, 470)
    if within is not None:
        builder.annotation(within, 80, 490)
        builder.annotation("train", 0, 900)
    found = findings(builder)["queued-work-waits"]
    assert found.cpu_waited_us == 450
    assert found.cpu_waited_in == ("aten::to" if asked else "cudaStreamSynchronize")
    assert found.cpu_waited_within == within
    assert found.cpu_waited_in in found.message


def test_a_short_wait_of_the_cpu_beside_it_is_not_said(findings):
    builder = waiting_work()
    builder.call("cudaStreamSynchronize", 100, 200)
    found = findings(builder)["queued-work-waits"]
    assert found.cpu_waited_us == 200
    assert found.cpu_waited_in not in found.message


def test_where_nothing_is_recorded_the_program_is_looked_at_before_its_launches(all_findings):
    silent, launching = steps(), steps()
    for builder in (silent, launching):
        builder.launched(MUL, 0)
        builder.launched(MUL, 600, op="aten::sub")
    launching.op("prepare", 30, 560)
    assert all_findings(silent)["launch-gaps"].silent_us > 500
    assert all_findings(silent)["launch-gaps"].silence
    assert all_findings(launching)["launch-gaps"].silent_us < 50
    assert not all_findings(launching)["launch-gaps"].silence


def test_no_more_is_won_by_fewer_waits_than_the_gpu_idles_in_them_and_behind_them(findings):
    builder = steps(length=20_000)
    builder.launched(MUL, 0, dur=9000)
    builder.op("aten::item", 100, 9000)
    builder.call("cudaStreamSynchronize", 200, 8850)
    builder.launched(MUL, 9500, dur=100)
    found = findings(builder)["implicit-sync"]
    assert found.time_us == pytest.approx(8850)
    # The GPU ran dry at about 9,015 us, and had the next kernel at 9,510.
    assert 400 < found.saves_us < 600


def test_a_ratio_that_only_set_up_explains_is_none_of_launches(findings):
    builder = steps(length=100_000)
    builder.launched(MUL, 10)
    builder.op("prepare", 40, 89_900)
    builder.launched(MUL, 90_000, op="aten::sub")
    found = findings(builder)["overhead-bound"]
    assert found.launch_ratio > 100
    assert (found.busy_us, found.longest_before) == (20, "aten::sub")
    assert found.longest_us == pytest.approx(90_000, rel=0.01)
    assert found.remedy != type(found).REMEDY


def test_work_of_the_cpu_before_every_kernel_is_not_done_once(findings):
    builder = steps(length=100_000)
    for at in range(0, 100_000, 10_000):
        builder.op("prepare", at, 9900)
        builder.launched(MUL, at + 9950)
    found = findings(builder)["overhead-bound"]
    assert found.launch_ratio > 100
    assert found.remedy == type(found).REMEDY


@pytest.mark.parametrize(("wait_us", "launches"), [(300, True), (3000, False)])
def test_a_model_whose_small_kernels_are_launched_slowly_does_nothing_else(wait_us, launches, findings):
    """On an H200, with Python's stacks recorded, eager models waited 0.2 to 0.5 ms for each kernel of 2 us."""
    builder = steps(length=100 * wait_us)
    for at in range(0, 100 * wait_us, wait_us):
        builder.op("prepare", at, wait_us - 20)
        builder.launched(MUL, at + wait_us - 18, dur=2)
    found = findings(builder)["overhead-bound"]
    assert found.launch_ratio > 100
    assert (found.message == found.words(type(found).SENTENCE)) == launches


@pytest.mark.parametrize("compiled", [False, True])
def test_who_has_compiled_is_not_told_to_compile(compiled, findings):
    builder = steps()
    if compiled:
        builder.region("0/0", 0, 900)
    for at in range(0, 900, 100):
        builder.launched(MUL, at + 10)
    found = findings(builder)["overhead-bound"]
    assert found.compiled == compiled
    assert ("torch.compile" in found.remedy) != compiled
    assert "reduce-overhead" in found.remedy


def test_what_is_done_once_is_no_launching(findings):
    def ratio(lasted):
        builder = steps()
        builder.call("cudaMalloc", 10, lasted)
        for at in range(200, 900, 50):
            builder.launched(MUL, at, dur=5)
        return findings(builder)["overhead-bound"].launching_us

    assert ratio(5) == ratio(100)


@pytest.mark.parametrize(
    ("name", "wrappers"),
    [(None, ()), ("DistributedDataParallel.forward", ("ddp",)), ("FSDP::pre_forward (layer)", ("fsdp",))],
)
def test_only_wrappers_that_ran_are_advised_on(name, wrappers, findings):
    builder = steps()
    builder.kernel(NCCL, 10, 990, builder.launch(0))
    if name is not None:
        builder.annotation(name, 0, 900)
    found = findings(builder)["exposed-communication"]
    assert found.wrappers == wrappers
    # FSDP sends no all_reduce.
    assert ("DDP" in found.remedy, "FSDP" in found.remedy) == ("ddp" in wrappers, False)


def test_a_wrapper_is_advised_on_where_it_sends_what_takes_the_longest(findings):
    builder = steps()
    builder.kernel(NCCL.replace("AllReduce_Sum_bf16", "AllGather"), 10, 990, builder.launch(0))
    builder.annotation("FSDP::pre_forward (layer)", 0, 900)
    builder.annotation("DistributedDataParallel.forward", 0, 900)
    remedy = findings(builder)["exposed-communication"].remedy
    assert ("DDP" in remedy, "FSDP" in remedy) == (False, True)


def test_communication_that_is_no_collective_of_torchs_has_its_name(findings):
    builder = steps()
    builder.kernel("void deep_ep::internode::notify_dispatch<false, 8>(int const*)", 10, 500, builder.launch(0))
    builder.kernel(NCCL, 600, 300, builder.launch(5))
    assert findings(builder)["exposed-communication"].collectives_us == {"notify_dispatch": 500, "all_reduce": 300}


def copied(*copies):
    builder = steps()
    builder.kernel(MUL, 10, 100, builder.launch(0))
    for number, (what, start, dur) in enumerate(copies):
        builder.memcpy(what, start, dur, builder.call("copy", 20 + number), size=2**20)
    return builder


def test_copies_that_take_long_are_found(findings):
    found = findings(copied(("HtoD", 50, 400), ("DtoH", 500, 100)))["copies-take-long"]
    assert (found.count, found.time_us, found.share, found.bytes) == (2, 500, 0.5, 2**21)
    assert found.directions_us == {"HtoD": 400, "DtoH": 100}
    # The kernel runs from 10 to 110.
    assert (found.alone_us, found.longest_us) == (440, 400)
    assert "copies-take-long" not in findings(copied(("HtoD", 50, 90)))


def test_memory_that_is_not_pinned_is_advised_on_where_it_was_copied(findings):
    for memory, is_pageable in (("Pageable", True), ("Pinned", False)):
        builder = steps()
        builder.memcpy("HtoD", 10, 215, builder.call("copy", 0))
        builder.events[-1]["name"] = f"Memcpy HtoD ({memory} -> Device)"
        found = findings(builder)["copies-take-long"]
        assert (found.pageable_us, "pin_memory" in found.remedy) == (215 * is_pageable, is_pageable)


@pytest.mark.parametrize("name", ["CopyDeviceToHost", "CopyHostToDevice", "CopyDeviceToDevice"])
def test_the_direction_of_a_copy_is_known_as_rocm_spells_it(name, findings):
    builder = steps()
    builder.memcpy("HtoD", 10, 215, builder.call("copy", 0))
    builder.events[-1]["name"] = name
    _, of, to = name.replace("Copy", " ").replace("To", " ").split(" ")
    assert findings(builder)["copies-take-long"].directions_us == {f"{of[0]}to{to[0]}": 215}


def test_copies_without_a_kernel_are_found(findings):
    builder = steps()
    builder.memcpy("HtoD", 10, 980, builder.call("copy", 0), size=2**30)
    assert findings(builder)["copies-take-long"].alone_us == 980


@pytest.mark.parametrize(("direction", "is_pinned_memory_of_use"), [("HtoD", True), ("DtoH", True), ("DtoD", False)])
def test_pinned_memory_is_advised_on_for_copies_from_and_to_the_host_alone(
    findings, direction, is_pinned_memory_of_use
):
    found = findings(copied((direction, 50, 400)))["copies-take-long"]
    assert ("pinned memory" in found.remedy) is is_pinned_memory_of_use


def test_kernels_that_only_move_data_are_found(findings):
    def builder(dur):
        made = steps()
        made.launched(GEMM, 0, op="aten::mm", dur=100)
        made.launched(COPY, 200, op="aten::copy_", dur=dur)
        return made

    found = findings(builder(100))["copy-kernels"]
    assert (found.count, found.time_us, found.kernel_share) == (1, 100, 0.5)
    assert "copy-kernels" not in findings(builder(10))


def test_what_takes_less_than_a_hundredth_does_not_stand_out_and_can_be_forbidden(tmp_path):
    builder = steps(length=100_000)
    builder.launched(MUL, 0)
    builder.op("aten::item", 200, 50)
    builder.sync(210, 30, what="stream sync")
    builder.op("aten::add", 99_000, 10)
    profile = load(builder.write(tmp_path / "t.json"))
    assert "implicit-sync" not in {one.code for one in profile.findings}
    with pytest.raises(AssertionError, match="implicit-sync"):
        profile.expect(forbid="implicit-sync")


def test_the_profilers_own_gap_stands_behind_all_others(findings):
    builder = steps()
    builder.kernel(MUL, 10, 10, builder.launch(0))
    builder.kernel(SOFTMAX, 500, 400, builder.launch(490))
    builder.kernel(GEMM, 900, 50, builder.launch(495))
    builder.event("overhead", "Activity Buffer Request", 25, 470, pid=-1, tid=0)
    assert list(findings(builder))[-1] == "profiler-gap"
    assert "hotspot" in findings(builder)


def arange(builder, at, *given, inputs=None):
    """Add ``aten::arange`` as the profiler writes it, with what it calls itself."""
    told = {"Concrete Inputs": [*map(str, given), "", "", "", "False"]}
    kinds = [((), (), "Scalar") for _ in range(len(given) + 4)] if inputs is None else inputs
    builder.op("aten::arange", at, 8, inputs=kinds, **told)
    builder.op("aten::arange", at + 2, 4, inputs=kinds, **told)


def constants(*, calls=20, steps=1, number=lambda _: 14, **more):
    builder = TraceBuilder()
    for step in range(steps):
        builder.step(step, 10_000 * step, 10_000)
        for call in range(calls):
            arange(builder, 10_000 * step + 100 * call, number(call), **more)
        builder.launched(GEMM, 10_000 * step + 9000)
    return builder


def test_a_constant_that_is_made_again_and_again_is_found(findings):
    found = findings(constants(steps=2))["repeated-constant"]
    assert found.evidence["constants"] == ["aten::arange(14)"]
    assert found.evidence["ops"] == ["aten::arange"]
    assert found.evidence["calls_per_step"] == [20]
    # Of 40 calls of 8 us one has to be made.
    assert found.evidence["time_us"] == 39 * 8
    assert found.severity == "information"


@pytest.mark.parametrize(
    "built",
    [
        pytest.param(lambda: constants(calls=19, steps=2), id="not often enough in a step"),
        pytest.param(lambda: constants(number=lambda call: call), id="other numbers, other values"),
        pytest.param(lambda: constants(inputs=[((), (), "long int")] * 5), id="a tensor, whose values nobody knows"),
    ],
)
def test_what_may_differ_is_no_constant(built, findings):
    assert "repeated-constant" not in findings(built())


def test_copies_and_casts_of_one_shape_are_nothing_that_is_done_twice(findings):
    """They are those of layers: nobody can tell from a recording."""
    builder = steps()
    for number in range(49):
        inputs = [operand(559, 1024, dtype="float"), operand(559, 1024)]
        builder.launched(MUL, 200 * number, op="aten::copy_", inputs=inputs)
        builder.op("aten::to", 200 * number + 100, 9)
        builder.memcpy("HtoD", 200 * number + 110, 1, builder.call("copy", 200 * number + 102), size=8)
    assert "repeated-constant" not in findings(builder)


def test_to_forbid_it_where_numbers_are_not_recorded_is_not_measured(tmp_path):
    builder = TraceBuilder()
    builder.launched(GEMM, 100)
    builder.op("aten::arange", 0, 5)
    found = load(builder.write(tmp_path / "t.json"))
    assert why_not(lambda: found.expect(forbid="repeated-constant")).code == "not-recorded"
    without = TraceBuilder()
    without.launched(GEMM, 100)
    load(without.write(tmp_path / "t.json")).expect(forbid="repeated-constant")


@pytest.mark.parametrize("own", [False, True], ids=["foreign", "own"])
def test_the_time_before_the_first_operation_counts(own, all_findings):
    builder = steps()
    builder.op("aten::sort", 0, 480)
    builder.launched(MUL, 490, dur=200)
    builder.launched(MUL, 600, dur=200, wait=300)
    if own:
        builder.own(steps=1)
    # Up to the end of the launch.
    assert all_findings(builder)["launch-gaps"].longest_us == 495


def test_what_comes_of_recompiling_is_no_cause_of_it():
    codes = {rule.code for rule in RULES if "max_recompiles" in rule.explains}
    assert codes.isdisjoint({"compile-in-window", "graph-hash-changes"})
