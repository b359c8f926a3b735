"""Long files are read by what their events have in common; what differs from that is read as in any other file."""

from __future__ import annotations

from fractions import Fraction

import pytest
from builder import TraceBuilder

from pytest_torchprof import UnreadableRecording
from pytest_torchprof.recording.reader import read

pytestmark = pytest.mark.any_torch

EPOCH = 1_700_000_000_000_000
PIECE, LONG = 16 * 1024, 625
"""So many events are read in more than seven pieces of this size, a sixteenth of what it is otherwise."""


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch):
    monkeypatch.setattr("pytest_torchprof.recording.text.PIECE", PIECE)


def operators(builder, first, count):
    for i in range(first, first + count):
        builder.op(f"aten::op{i % 7}", i * 20, 10, inputs=[([i % 5, 4], [4, 1], "float")])


def launches(builder, first, count):
    for i in range(first, first + count):
        builder.kernel(f"k{i % 7}", i * 20, 5, builder.launch(i * 20 - 5))


def between(run, odd, *, begin=1_000_000):
    """Return a trace with an odd event inside of a long run, far from both of its ends."""
    builder = TraceBuilder(begin=begin)
    run(builder, 1, LONG)
    odd(builder, LONG * 20 + 20)
    run(builder, LONG + 2, LONG)
    return builder


def written(trace, part):
    """Return the events of a column as the file has them: name, start and end in ns."""
    rows = zip(part.name, part.start, part.end, strict=True)
    return [(trace.names[name], start, end) for name, start, end in rows]


def expected(builder, *categories):
    events = [event for event in builder.events if event["cat"] in categories]
    times = [(event["name"], exact(event["ts"]), max(event["dur"], 0)) for event in events]
    return [(name, start * 1000, (start + took) * 1000) for name, start, took in times]


def exact(us):
    return us if isinstance(us, int) else Fraction(us)


def check_all(trace, builder):
    assert trace.events == len(builder.events)
    assert written(trace, trace.ops) == expected(builder, "cpu_op")
    assert written(trace, trace.annotations) == expected(builder, "user_annotation")
    assert written(trace, trace.calls) == expected(builder, "cuda_runtime", "cuda_driver")
    assert written(trace, trace.gpu) == expected(builder, "kernel", "gpu_memcpy", "gpu_memset")


ODD = {
    "another thread": lambda builder, at: builder.op("aten::odd", at, 5, tid=77),
    "a thread with a name": lambda builder, at: builder.op("aten::odd", at, 5, tid="odd"),
    "an annotation": lambda builder, at: builder.annotation("odd", at, 5),
    "an arrow": lambda builder, at: builder.backward_of(at - 20, at + 20),
    "an allocation": lambda builder, at: builder.allocation(512, at),
    "a call": lambda builder, at: builder.call("odd", at),
    "a kernel on another stream": lambda builder, at: builder.kernel("odd", at, 5, builder.launch(at - 5), stream=99),
    "a kernel of a graph": lambda builder, at: builder.event(
        "kernel", "odd", at, 5, pid=0, tid=7, stream=7, correlation=0, **{"graph id": 3, "graph node id": 4}
    ),
    "an operator without an end": lambda builder, at: builder.op("aten::odd", at, -1),
    "a kernel without an end": lambda builder, at: builder.kernel("odd", at, -1, builder.launch(at - 5)),
    "a fraction": lambda builder, at: builder.op("aten::odd", at + 0.5, 5),
    "a number of a thread that is a float": lambda builder, at: builder.op("aten::odd", at, 5, tid=float(77)),
    "another phase": lambda builder, _: builder.events.append({**builder.events[-1], "ph": "B", "cat": "else"}),
}


@pytest.mark.parametrize("begin", [0, EPOCH])
@pytest.mark.parametrize("run", [operators, launches])
@pytest.mark.parametrize("odd", ODD)
def test_what_differs_inside_of_a_long_run_is_read_and_so_is_what_follows(tmp_path, odd, run, begin):
    builder = between(run, ODD[odd], begin=begin)
    trace = read(builder.write(tmp_path / "t.json"))
    check_all(trace, builder)
    assert trace.unended == (odd == "a kernel without an end")
    assert len(trace.arrows.starts) == len(trace.arrows.finishes) == (odd == "an arrow")
    assert trace.allocations.size == ([512] if odd == "an allocation" else [])
    assert trace.gpu.graph.count(3) == trace.gpu.node.count(4) == (odd == "a kernel of a graph")


def test_operands_and_streams_of_a_long_run_are_those_of_the_file(tmp_path):
    builder = between(operators, ODD["a kernel on another stream"])
    trace = read(builder.write(tmp_path / "t.json"))
    dims = [b"[[%d, 4]]" % (i % 5) for i in (*range(1, LONG + 1), *range(LONG + 2, 2 * LONG + 2))]
    assert [trace.inputs[inputs].split(b"]]")[0][1:] + b"]]" for inputs in trace.ops.inputs] == dims
    assert [trace.streams[stream] for stream in trace.gpu.stream] == [99]


def without_phase(builder, at):
    """Append an operator that does not say that it is complete, and has another key for its operands."""
    builder.op("aten::odd", at, 5)
    event = builder.events.pop()
    builder.events.append({**{key: event[key] for key in event if key != "ph"}, "args": {"input dims": [[8, 9]]}})


def test_an_operator_without_a_phase_is_read_with_care_inside_of_a_long_run_too(tmp_path):
    builder = between(operators, without_phase)
    trace = read(builder.write(tmp_path / "t.json"))
    check_all(trace, builder)
    odd = trace.names.index("aten::odd")
    assert trace.inputs[trace.ops.inputs[trace.ops.name.index(odd)]] == b"[[[8, 9]],null,null]"


@pytest.mark.parametrize("run", [operators, launches])
def test_a_process_that_is_none_is_refused_inside_of_a_long_run(tmp_path, run):
    builder = between(run, lambda builder, at: builder.event("cpu_op", "odd", at, 5, pid=[1]))
    with pytest.raises(UnreadableRecording, match="pid"):
        read(builder.write(tmp_path / "t.json"))
