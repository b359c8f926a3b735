"""No share is above the whole: not of a window's time, not of the kernels' or the CPU's."""

from __future__ import annotations

import re
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from builder import AUTOGRAD, MAIN, TraceBuilder
from facts import LEFT_OUT
from findings_on_recordings import FINDINGS, HEALTHY
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from pytest_torchprof import load
from pytest_torchprof.findings import RULES, find

pytestmark = pytest.mark.any_torch

RECORDED_HERE = sorted((Path(__file__).parent / "recordings").glob("*.json.gz"))
# At what is zero or nearly so a rule tells all that it can see; others ask for at most so much.
LOUD = tuple(replace(rule, changed={one: 0 if one.value >= 1 else 0.001 for one in rule.thresholds}) for rule in RULES)
AT_MOST = ("busy", "late_launches", "work", "names", "spare", "inside", "small_us")
LOUDER = tuple(
    replace(rule, changed={one: 1.0 if one.name in AT_MOST else 0 for one in rule.thresholds}) for rule in RULES
)
NAMES = [
    "ampere_sgemm_128x64_tn",
    "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    "void at::native::vectorized_elementwise_kernel<4, at::native::MulFunctor<float> >(int)",
    "void cudnn::ops::nchwToNhwcKernel<float, float>()",
    "triton_poi_fused_add_0",
]


def shares(profile, rules):
    """Yield each share that a finding tells, as a number or as percent in its words."""
    for finding in find(profile, rules):
        for name, value in finding.evidence.items():
            if name in ("share", "kernel_share", "busy_share", "late_launches", "occupancy"):
                yield finding.code, name, value
        for percent in re.findall(r"(\d+)%", finding.message):
            yield finding.code, finding.message, int(percent) / 100
    numbers = profile.median
    for name in ("gpu_utilization", "sm_efficiency", "achieved_occupancy"):
        yield name, name, getattr(numbers, name) or 0.0


def above_the_whole(profile):
    found = [one for rules in (RULES, LOUD, LOUDER) for one in shares(profile, rules)]
    return [one for one in found if one[2] > 1 + 1e-9]


@st.composite
def crowded(draw):
    """Return a recording with work on several devices, streams and threads at once, and from before its window."""
    builder = TraceBuilder()
    if draw(st.booleans()):
        builder.own(steps=1)
    moments, lengths = st.integers(0, 900), st.integers(1, 600)
    threads = st.sampled_from([MAIN, AUTOGRAD, 77])
    builder.step(0, 0, 1000)
    for _ in range(draw(st.integers(0, 12))):
        name, at, tid = draw(st.sampled_from(NAMES)), draw(moments), draw(threads)
        operands = [([17, 33], [33, 1], "float")] * 2
        op = draw(st.sampled_from(["aten::mm", "aten::mul", "aten::copy_"]))
        stream, device = draw(st.integers(7, 9)), draw(st.integers(0, 1))
        builder.launched(
            name,
            at,
            op=op,
            tid=tid,
            inputs=operands,
            dur=draw(lengths),
            wait=draw(lengths),
            stream=stream,
            device=device,
            blocks_per_sm=draw(st.sampled_from([0.1, 1.0, 30.0])),
            occupancy=10,
        )
    for _ in range(draw(st.integers(0, 4))):
        builder.kernel("orphan", draw(st.integers(-900, 900)), draw(lengths), 3, device=draw(st.integers(0, 1)))
    for _ in range(draw(st.integers(0, 4))):
        tid, at, length = draw(threads), draw(moments), draw(lengths)
        builder.op("aten::item", at, length, tid=tid)
        builder.sync(at, length, what="stream sync", tid=tid)
    for name in ("cudaMalloc", "cudaFree"):
        builder.call(name, draw(moments), draw(lengths), tid=draw(threads))
    for name in ("_compile.compile_inner (dynamo_timed)", "TorchDynamo Cache Lookup", "Torch-Compiled Region: 0/0"):
        builder.op(name, draw(moments), draw(lengths), tid=draw(threads))
    for _ in range(draw(st.integers(0, 2))):
        builder.event("overhead", "Buffer Flush", draw(moments), draw(lengths))
    for at in (draw(moments), draw(moments)):
        builder.annotation("Optimizer.step#SGD.step", at, draw(lengths), tid=draw(threads))
        builder.annotation("mine", at, draw(lengths), tid=draw(threads))
    return builder


@settings(max_examples=150, deadline=None)
@given(crowded())
def test_of_any_recording(builder):
    with TemporaryDirectory() as folder:
        assert above_the_whole(load(builder.write(Path(folder) / "t.json"))) == []


@pytest.mark.parametrize("recording", sorted({*FINDINGS, *HEALTHY}.difference(LEFT_OUT)))
def test_of_each_shared_recording(recording, shared_trace):
    assert above_the_whole(load(shared_trace(recording))) == []


@pytest.mark.parametrize("path", RECORDED_HERE, ids=lambda path: path.name)
def test_of_each_recording_made_here(path):
    assert above_the_whole(load(path)) == []
