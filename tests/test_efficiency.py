"""How well the GPU was used: against kineto's priority and numbers that can be done by hand."""

from __future__ import annotations

from collections import Counter
from contextlib import closing
from itertools import pairwise

import pytest
import torch
from builder import TraceBuilder
from facts import misses, says, why_not
from findings_on_recordings import FINDINGS
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.flop_counter import register_flop_formula

from pytest_torchprof import capture, load
from pytest_torchprof.analysis import efficiency
from pytest_torchprof.limits.seen import PeakShare
from pytest_torchprof.reasons.throughput import FlopsNotRecorded, NothingCounted, PeakOfTypeUnknown, PeakUnknown

GEMM = "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn"
SGEMM = "ampere_sgemm_128x64_tn"
TEST_GPU = {"id": 0, "name": "NVIDIA A100-SXM4-80GB", "numSms": 108, "computeMajor": 8}


@pytest.fixture
def profile_of(tmp_path):
    return lambda builder: load(builder.write(tmp_path / "trace.json"))


def roles_at(events, instant):
    """Return the role with the highest priority that covers a microsecond, as kineto's plugin ranks them."""
    for role, ranges in events:
        if any(start <= instant < end for start, end in ranges):
            return role
    return "other"


def test_the_breakdown_is_that_of_kinetos_priority_done_by_the_microsecond(shared_trace):
    profile = load(shared_trace("h100_transformer_three_steps"))
    trace, gpu = profile.trace, profile.trace.gpu

    def us(part, members=None):
        chosen = range(len(part.start)) if members is None else members
        return [(part.start[i] // 1000, part.end[i] // 1000) for i in chosen]

    notes = [i for i, n in enumerate(trace.annotations.name) if not trace.names[n].startswith("ProfilerStep#")]
    events = [
        *(
            (role, us(gpu, [i for i, k in enumerate(gpu.kind) if k == kind]))
            for kind, role in enumerate(("kernel", "memcpy", "memset"))
        ),
        ("runtime", us(trace.calls)),
        ("cpu", us(trace.ops) + us(trace.annotations, notes) + us(trace.frames)),
    ]
    counted = dict.fromkeys(("kernel", "memcpy", "memset", "runtime", "cpu", "other"), 0)
    reached = 0
    for step, part in zip(trace.steps, profile.launching.parts, strict=True):
        begin = max(reached, step.start_ns // 1000)
        reached = max(step.end_ns // 1000, *(gpu.end[i] // 1000 for i in part.gpu_ops))
        for instant in range(begin, reached):
            counted[roles_at(events, instant)] += 1
    found = profile.efficiency.step_time
    assert {role: getattr(found, role) * 3 for role in counted} == pytest.approx(counted)
    assert found.communication == found.data_loader == 0


def test_each_role_takes_only_what_those_before_it_left(profile_of):
    builder = TraceBuilder()
    builder.step(0, 0, 1000)
    builder.op("aten::mul", 0, 400)
    builder.annotation("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 500, 100)
    builder.kernel(GEMM, 100, 200, builder.launch(50, 100))
    builder.memcpy("HtoD", 250, 100, builder.call("copy", 60, 10))
    builder.kernel("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(int)", 340, 100, builder.launch(70, 10), stream=9)
    found = profile_of(builder).efficiency.step_time
    assert (found.kernel, found.memcpy, found.communication) == (200, 50, 90)
    assert (found.runtime, found.data_loader, found.cpu, found.other) == (50, 100, 50, 460)
    assert found.total == 1000


def of_other(profile):
    return [(row.after, row.before, row.profiler, row.time_us, row.count) for row in profile.efficiency.other]


def test_other_is_named_by_what_is_around_it(profile_of):
    builder = TraceBuilder()
    for step in range(2):
        at = 1000 * step
        builder.step(step, at, 1000)
        builder.op("aten::mul", at + 100, 200)
        builder.op("aten::item", at + 110, 10)
        builder.call("copy", at + 400, 100)
        # The GPU works on while the CPU does nothing: of that time nothing is "other".
        builder.kernel(GEMM, at + 450, 150, builder.launch(at + 120))
        builder.annotation("data", at + 900, 50)
    profile = profile_of(builder)
    assert of_other(profile) == [
        ("cudaMemcpyAsync", "data", None, 300, 2),
        (None, "aten::mul", None, 100, 2),
        ("aten::mul", "cudaMemcpyAsync", None, 100, 2),
        ("data", None, None, 50, 2),
    ]
    assert profile.efficiency.step_time.other == 550


def test_of_ranges_that_begin_or_end_together_other_is_named_by_the_longest(profile_of):
    builder = TraceBuilder()
    builder.step(0, 0, 300)
    builder.call("copy", 90, 10)
    builder.op("aten::mul", 0, 100)
    builder.call("copy", 200, 10)
    builder.op("aten::add", 200, 100)
    builder.kernel(GEMM, 10, 20, builder.launch(5))
    assert of_other(profile_of(builder)) == [("aten::mul", "aten::add", None, 100, 1)]


TIMES = st.tuples(st.integers(2, 60), st.integers(0, 12)).map(lambda given: (given[0], given[0] + given[1]))


@settings(max_examples=40)
@given(st.lists(TIMES, max_size=8, unique=True), st.randoms(use_true_random=False))
def test_other_is_what_no_range_covers_however_they_lie_and_are_written(tmp_path_factory, ranges, chosen):
    """Computed again microsecond by microsecond: what is around a gap are the longest ranges that end and begin at it."""
    builder = TraceBuilder()
    builder.step(0, 0, 80)
    builder.kernel(GEMM, 1, 1, builder.launch(0, 1))
    for start, end in ranges:
        builder.annotation(f"range {start} to {end}", start, end - start, tid=2000 + start + 100 * end)
    chosen.shuffle(builder.events)
    named = {(start, end): f"range {start} to {end}" for start, end in ranges} | {(0, 1): "cudaLaunchKernel"}
    covered = {at for start, end in [*ranges, (0, 2)] for at in range(start, end)}
    # A range that takes no time has a gap on either side.
    borders = {0, 2, 80, *(at for times in ranges for at in times)}
    expected = Counter()
    for begin, until in pairwise(sorted(borders)):
        if begin in covered:
            continue
        ended = [times for times in named if times[1] <= begin]
        next_ones = [times for times in named if times[0] >= until]
        after = max(ended, key=lambda times: (times[1], -times[0]))
        before = min(next_ones, key=lambda times: (times[0], -times[1]), default=None)
        expected[named[after], named.get(before)] += until - begin
    other = load(builder.write(tmp_path_factory.mktemp("other") / "trace.json")).efficiency.other
    assert {(row.after, row.before): row.time_us for row in other} == expected


def test_what_the_profiler_did_meanwhile_is_told_apart(profile_of):
    builder = TraceBuilder()
    builder.step(0, 0, 1000)
    builder.op("aten::mul", 0, 100)
    builder.event("overhead", "Activity Buffer Request", 200, 600)
    builder.op("aten::add", 900, 100)
    builder.kernel(GEMM, 10, 20, builder.launch(5))
    assert of_other(profile_of(builder)) == [
        ("aten::mul", "aten::add", "Activity Buffer Request", 600, 1),
        ("aten::mul", "aten::add", None, 200, 2),
    ]


@pytest.mark.any_torch
@pytest.mark.parametrize("recording", FINDINGS)
def test_the_parts_of_other_make_the_whole(recording, shared_trace):
    found = load(shared_trace(recording)).efficiency
    assert sum(row.time_us for row in found.other) == pytest.approx(found.step_time.other)


def test_a_step_lasts_until_its_last_kernel_ends(profile_of):
    builder = TraceBuilder()
    builder.step(0, 0, 100)
    builder.step(1, 100, 100)
    builder.kernel(GEMM, 10, 300, builder.launch(5))
    builder.kernel(GEMM, 310, 290, builder.launch(105))
    assert profile_of(builder).efficiency.step_time.total == 300


def test_the_share_on_tensor_cores_is_of_products_only(profile_of):
    builder = TraceBuilder()
    builder.launched(GEMM, 0, op="aten::mm", dur=30)
    builder.launched(SGEMM, 100, op="aten::mm", dur=10)
    builder.launched("void at::native::vectorized_elementwise_kernel<4, F>()", 200, dur=500)
    assert profile_of(builder).efficiency.tensor_core_share == 0.75


def test_copies_have_a_bandwidth_by_direction(profile_of):
    builder = TraceBuilder()
    builder.memcpy("HtoD", 10, 100, builder.call("copy", 0), size=2_500_000)
    builder.memcpy("DtoH", 200, 50, builder.call("copy", 5), size=500_000)
    found = {copies.direction: copies.gb_per_s for copies in profile_of(builder).efficiency.copies}
    assert found == {"HtoD": 25.0, "DtoH": 10.0}


def with_flops(flops, *, kernel=GEMM, device=TEST_GPU, dur=1000, step=1000):
    """Return a recording of two steps in which a kernel runs ``dur`` us each, beside a range of ``step`` us."""
    builder = TraceBuilder()
    builder.metadata["deviceProperties"] = [device]
    builder.own(steps=2, flops_per_step=flops)
    for number in range(2):
        builder.step(number, number * step, step)
        builder.launched(kernel, number * step, op="aten::mm", dur=dur)
    builder.sync(3 * (step + dur), 10)
    return builder


def test_the_share_of_the_peak_is_done_by_hand(profile_of):
    profile = profile_of(with_flops(31_200_000_000))
    found = profile.efficiency.throughput
    # 31.2 GFLOP in 1 ms are 31.2 TFLOP/s, a tenth of the A100's 312.
    assert (found.tflops, found.dtype, found.peak_tflops) == (pytest.approx(31.2), "bf16", 312.0)
    assert profile.mfu == pytest.approx(0.1)
    profile.expect(min_mfu=0.09)
    assert misses(profile, min_mfu=0.2).seen == (PeakShare(pytest.approx(0.1), 312.0, "bf16"),)


def test_a_gpu_that_runs_behind_takes_the_time_that_it_runs(profile_of):
    assert profile_of(with_flops(31_200_000_000, step=100)).mfu == pytest.approx(0.1)
    assert profile_of(with_flops(31_200_000_000, dur=10)).mfu == pytest.approx(0.1)


def test_the_fastest_type_in_use_sets_the_peak(profile_of):
    builder = with_flops(31_200_000_000)
    builder.launched(SGEMM, 1500, op="aten::mm", dur=1)
    assert profile_of(builder).efficiency.throughput.dtype == "bf16"


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"flops": None}, FlopsNotRecorded()),
        ({"flops": 0}, NothingCounted()),
        ({"device": {"id": 0, "name": "Test GPU"}}, PeakUnknown(("Test GPU",))),
        ({"kernel": "ampere_fp64gemm_dgemm"}, PeakOfTypeUnknown((None,))),
    ],
)
def test_without_flops_or_peak_there_is_no_share(changed, reason, profile_of):
    profile = profile_of(with_flops(**{"flops": 10**9, **changed}))
    assert profile.mfu is None
    assert profile.efficiency.throughput.why_not == reason
    assert says(why_not(lambda: profile.expect(min_mfu=0.1)), type(reason))


@pytest.mark.parametrize(
    ("name", "bf16"),
    [
        ("NVIDIA H100 80GB HBM3", 989.4),
        ("NVIDIA H100 PCIe", 756.0),
        ("NVIDIA H200", 989.4),
        ("NVIDIA H100 NVL", 835.0),
        ("NVIDIA H200 NVL", None),
        ("NVIDIA A100-SXM4-40GB", 312.0),
        ("AMD Instinct MI300X VF", 1307.4),
        ("NVIDIA B200", 2250.0),
        ("NVIDIA GB200", None),
        ("NVIDIA RTX T400", None),
        ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", None),
        ("NVIDIA GeForce RTX 4090", 165.2),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", None),
        ("NVIDIA GeForce RTX 3090", None),
        ("Tesla V100-SXM3-32GB", None),
        ("NVIDIA PG509-210", None),
        (None, None),
    ],
)
def test_a_device_has_the_peak_of_its_own_data_sheet_or_none(name, bf16):
    peak = efficiency.peak_of_device(name)
    assert (peak and peak.tflops["bf16"]) == bf16


def test_each_peak_has_a_source():
    assert all(peak.source.startswith("https://") and peak.tflops for peak in efficiency.PEAKS)
    assert len({peak.source for peak in efficiency.PEAKS}) == len(efficiency.PEAKS)


def test_what_depends_on_the_type_only_has_its_usual_ratio():
    # Tensor cores halve their rate with each doubling of the operands; a slip in the table would show.
    for peak in efficiency.PEAKS:
        known = peak.tflops
        for narrow, wide in (("fp8", "bf16"), ("fp8", "fp16"), ("fp4", "fp8")):
            if narrow in known and wide in known:
                assert known[narrow] == pytest.approx(2 * known[wide], rel=0.03)


@pytest.fixture
def record(tmp_path):
    def run(step, *, warmup=3):
        path = tmp_path / "recording.json"
        plan = capture.Plan(
            device="cpu", warmup=warmup, steps=2, record=frozenset(), nodeid="x", label=None, count_flops=True
        )
        with closing(capture.iterations(plan, path, lambda _: None)) as calls:
            for _ in calls:
                step()
        return load(path)

    return run


BY_HAND = 2 * 8 * 64 * 64 * 2 + 2 * 8 * 64 * 32 * 3
"""Two layers: the products of the forward, for the weights' gradients, and for the second layer's input's."""


COMPILED_OTHERWISE = {"not-compiled", "backward-not-compiled", "graph-break", "recompile", "graph-hash-changes"}
"""What a count that is in the compiler's way would bring about."""


@pytest.mark.parametrize("compiled", [False, True])
def test_flops_are_counted_in_the_warm_up_as_the_code_is_written(compiled, record):
    torch._dynamo.reset()
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 32))
    step = torch.compile(model) if compiled else model
    x = torch.ones(8, 64)
    profile = record(lambda: step(x).sum().backward())
    assert profile.trace.metadata.flops_per_step == BY_HAND
    assert profile.compile.regions == (2 if compiled else 0)
    assert not profile.compile.compiled_in_window
    assert not COMPILED_OTHERWISE & {finding.code for finding in profile.findings}


def test_without_a_second_warm_up_call_nothing_is_counted(record):
    assert record(lambda: torch.ones(4, 4) @ torch.ones(4, 4), warmup=1).trace.metadata.flops_per_step is None


def test_flops_that_a_formula_tells_as_a_float_are_kept_as_a_whole_number(record):
    @torch.library.custom_op("torchprof_test::halved", mutates_args=())
    def halved(x: torch.Tensor) -> torch.Tensor:
        return x / 2

    @register_flop_formula(torch.ops.torchprof_test.halved)
    def _count(shape, *_, **__):
        return shape.numel() * 1.0

    profile = record(lambda: halved(torch.ones(4, 4)))
    assert profile.trace.metadata.flops_per_step == 16
    assert profile.why_not is None
