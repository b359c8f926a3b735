"""What holds of any well-formed trace."""

from __future__ import annotations

import gzip
import json
import math
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import pytest
from builder import AUTOGRAD, MAIN, TraceBuilder
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from pytest_torchprof import load
from pytest_torchprof.report.analysis_json import as_dict

if TYPE_CHECKING:
    import random

pytestmark = pytest.mark.any_torch

NAMES = ["k", "void gemm<float>(int, }, {)", 'name "quoted"', "ünïcode \U0001f600", "triton_poi_fused_add_0", "Memcpy"]
moments = st.integers(0, 3000)
lengths = st.integers(0, 400)
threads = st.sampled_from([MAIN, AUTOGRAD])


@st.composite
def traces(draw):
    """Return a builder with steps, operators, launches, kernels, copies, waits; some launches lost, some orphans."""
    builder = TraceBuilder(
        rocm=draw(st.booleans()), begin=draw(st.sampled_from([0, 1_000_000, 1_700_000_000_000_000])) + 1
    )
    fraction = draw(st.sampled_from([0, 0.25]))
    for number in range(draw(st.integers(0, 3))):
        builder.step(number, number * 1000 + fraction, 900)
    for _ in range(draw(st.integers(0, 12))):
        builder.op(
            f"aten::{draw(st.sampled_from(['mul', 'mm', 'copy_']))}",
            draw(moments) + fraction,
            draw(lengths),
            tid=draw(threads),
        )
    for _ in range(draw(st.integers(0, 12))):
        correlation = builder.launch(draw(moments), draw(lengths), tid=draw(threads))
        if draw(st.integers(0, 9)):
            builder.kernel(
                draw(st.sampled_from(NAMES)),
                draw(moments),
                draw(lengths) + fraction,
                correlation,
                device=draw(st.integers(0, 1)),
                stream=draw(st.integers(7, 8)),
                blocks_per_sm=draw(st.sampled_from([None, 0.1, 3.0])),
            )
    for _ in range(draw(st.integers(0, 3))):
        kind = draw(st.sampled_from(["HtoD", "DtoH", "DtoD"]))
        builder.memcpy(kind, draw(moments), draw(lengths), builder.call("copy", draw(moments)), size=draw(lengths))
    for _ in range(draw(st.integers(0, 2))):
        builder.sync(draw(moments), draw(lengths), what=draw(st.sampled_from(["stream sync", "device sync"])))
    for _ in range(draw(st.integers(0, 2))):
        builder.kernel("orphan", draw(moments), draw(lengths), draw(st.integers(1, 50)))
    return builder


def start(event: dict) -> float:
    return event["ts"]


def analysis(text: bytes, suffix: str = ".json", by: str = "op") -> dict:
    with TemporaryDirectory() as folder:
        path = Path(folder) / f"t{suffix}"
        path.write_bytes(text)
        found = as_dict(load(path), by=by, findings=False)
    del found["trace"]["path"]
    return found


@settings(max_examples=60, deadline=None)
@given(traces())
def test_the_numbers_add_up(builder):
    found = analysis(builder.text().encode())
    counts = [step["kernels"] for step in found["steps"]]
    kernels = sum(event["cat"] == "kernel" for event in builder.events)
    assert sum(counts) == sum(row["count"] for row in found["kernels"])
    assert sum(counts) + found["trace"]["orphans"] <= kernels + sum(
        event["cat"] == "gpu_memcpy" for event in builder.events
    )
    assert found["summary"]["worst"]["kernels"] == max(counts)
    for step in found["steps"]:
        assert step["memcpys"] == step["memcpys_h2d"] + step["memcpys_d2h"] + step["memcpys_d2d"]
        assert step["kernel_time_us"] <= step["gpu_time_us"]
        assert 0 <= step["gpu_busy_us"] <= step["gpu_time_us"]
        assert step["gpu_busy_us"] <= 2 * step["gpu_span_us"]
        assert step["launches"] is None or step["graph_launches"] <= step["launches"]
        assert step["cpu_time_us"] is None or step["cpu_time_us"] >= 0
    for name in ("gpu_utilization", "sm_efficiency", "achieved_occupancy"):
        share = found["summary"][name]
        assert share is None or 0 <= share <= 1 + 1e-9
    for row in found["ops"]:
        assert 0 <= row["self_gpu_us"] <= row["gpu_us"]
    steps = sum(step["kernel_time_us"] for step in found["steps"])
    assert abs(steps - sum(row["time_us"] for row in found["kernels"])) < 1e-3


@settings(max_examples=40, deadline=None)
@given(traces(), st.randoms(use_true_random=False))
def test_the_order_of_events_does_not_matter(builder, shuffler: random.Random):
    # Of two operators, or calls, that begin and end together, nothing but the order says which is inside the other.
    for category in ("cpu_op", "cuda_runtime"):
        spans = [(event["tid"], event["ts"], event["dur"]) for event in builder.events if event["cat"] == category]
        assume(len(set(spans)) == len(spans))
    before = analysis(builder.text().encode(), by="kernel")
    shuffler.shuffle(builder.events)
    after = analysis(builder.text().encode(), by="kernel")
    assert after == before


def test_of_threads_that_begin_together_it_is_one_whatever_the_order():
    def cpu_time_us(*threads: int) -> float:
        builder = TraceBuilder()
        for thread in threads:
            builder.kernel("k", 7, 1, builder.launch(1, 3, tid=thread))
        builder.sync(1, 1, what="stream sync")
        return analysis(builder.text().encode())["summary"]["cpu_time_us"]

    assert cpu_time_us(MAIN, AUTOGRAD) == cpu_time_us(AUTOGRAD, MAIN)


@settings(max_examples=30, deadline=None)
@given(traces())
def test_packing_indenting_and_sorting_keys_do_not_matter(builder):
    plain = analysis(builder.text().encode())
    assert analysis(gzip.compress(builder.text().encode()), ".json.gz") == plain
    assert analysis(builder.text(indent=2).encode()) == plain
    assert analysis(json.dumps(builder.document(), sort_keys=True).encode()) == plain


@settings(max_examples=25, deadline=None)
@given(traces())
def test_what_is_saved_loads_as_it_was(builder):
    with TemporaryDirectory() as folder:
        path = builder.write(Path(folder) / "t.json")
        profile = load(path)
        profile.save(Path(folder) / "saved.json.gz")
        saved = load(Path(folder) / "saved.json.gz")
        saved.save(Path(folder) / "again.json")
        assert (Path(folder) / "again.json").read_bytes() == path.read_bytes()
        assert [step.numbers for step in saved.steps] == [step.numbers for step in profile.steps]
        assert list(saved.kernels) == list(profile.kernels)


@settings(max_examples=8, deadline=None)
@given(traces())
def test_a_long_file_read_in_pieces_gives_what_it_gives_whole(builder):
    """The second file cannot be cut: its events begin with different keys."""
    assume(builder.events)
    length = 1 + max(event["ts"] + event["dur"] for event in builder.events) - min(map(start, builder.events))
    times = math.ceil(600_000 / len(json.dumps(builder.events)))
    builder.events = [
        {**event, "ts": event["ts"] + number * length} for number in range(times) for event in builder.events
    ]
    whole = [dict(event) if i % 2 else dict(reversed(event.items())) for i, event in enumerate(builder.events)]
    rest = {key: value for key, value in builder.document().items() if key != "traceEvents"}
    assert analysis(json.dumps({"traceEvents": whole, **rest}).encode()) == analysis(builder.text().encode())


@settings(max_examples=60, deadline=None)
@given(traces(), st.data())
def test_a_file_that_is_cut_off_is_an_error_never_a_smaller_number(builder, data):
    from pytest_torchprof import UnreadableRecording

    text = builder.text().encode()
    cut = data.draw(st.integers(0, len(text) - 2))
    try:
        analysis(text[:cut])
    except UnreadableRecording:
        return
    raise AssertionError(f"{cut} of {len(text)} bytes were read as a trace")
