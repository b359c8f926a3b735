"""The operator table says what ``key_averages()`` says, on what is recorded here on the CPU."""

from __future__ import annotations

import pytest
import torch
from builder import TraceBuilder
from torch.profiler import ProfilerActivity, profile, record_function, schedule

from pytest_torchprof import load
from pytest_torchprof.analysis.operator_rows import by_op

pytestmark = pytest.mark.any_torch

COLUMNS = ("calls", "cpu_us", "self_cpu_us", "cpu_memory_bytes", "self_cpu_memory_bytes")


def ours(path):
    found = load(path)
    rows = by_op(found.trace, found.launching, [step.part for step in found.steps])
    return {row.name: tuple(_rounded(getattr(row, column)) for column in COLUMNS) for row in rows}


def _rounded(value):
    return round(value, 3) if isinstance(value, float) else value


def of_torch(averages):
    """Return the rows of operators: annotations have a table of their own, and memory freed by no operator none."""
    return {
        row.key: tuple(
            map(
                _rounded,
                (
                    row.count,
                    float(row.cpu_time_total),
                    float(row.self_cpu_time_total),
                    row.cpu_memory_usage,
                    row.self_cpu_memory_usage,
                ),
            )
        )
        for row in averages
        if not row.is_user_annotation and row.key != "[memory]"
    }


def recorded(step, path, *, calls=3, **options):
    step()
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True, profile_memory=True, **options) as prof:
        for _ in range(calls):
            step()
            if options:
                prof.step()
    if not options:
        prof.export_chrome_trace(str(path))
    return prof


@pytest.fixture
def mlp():
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 32))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x = torch.randn(16, 64)

    def step():
        optimizer.zero_grad()
        with record_function("MLP"):
            y = model(x)
        y.sum().backward()
        optimizer.step()

    return step


@pytest.fixture
def compiled():
    torch._dynamo.reset()
    layer = torch.compile(torch.nn.Linear(8, 8), backend="aot_eager")
    yield lambda: layer(torch.ones(2, 8)).sum().backward()
    torch._dynamo.reset()


def casting():
    # aten::to does nothing but call aten::to: one call. Autocast makes aten::linear call itself.
    torch.ones(4).to(torch.float64).to("cpu", torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        torch.nn.functional.linear(torch.ones(4, 4), torch.ones(4, 4), torch.ones(4))


def attention():
    x = torch.ones(1, 2, 8, 8, requires_grad=True)
    torch.nn.functional.scaled_dot_product_attention(x, x, x).sum().backward()


@torch.library.custom_op("torchprof_tests::annotated", mutates_args=())
def annotated(x: torch.Tensor) -> torch.Tensor:
    with record_function("inside of an operator"):
        return x.sin() + 1


def calling_annotated():
    annotated(torch.ones(64))


@pytest.mark.parametrize("what", ["mlp", "compiled", casting, attention, calling_annotated])
def test_all_columns_are_those_of_key_averages(what, request, tmp_path):
    step = request.getfixturevalue(what) if isinstance(what, str) else what
    prof = recorded(step, tmp_path / "t.json")
    assert ours(tmp_path / "t.json") == of_torch(prof.key_averages())


def test_shapes_are_those_of_most_calls(tmp_path):
    def step():
        for rows in (4, 4, 6):
            torch.ones(rows, 8) @ torch.ones(8, 2)

    prof = recorded(step, tmp_path / "t.json")
    found = load(tmp_path / "t.json")
    rows = {row.name: row for row in by_op(found.trace, found.launching, [step.part for step in found.steps])}
    grouped = [row for row in prof.key_averages(group_by_input_shape=True) if row.key == "aten::mm"]
    assert [list(shape) for shape in rows["aten::mm"].shapes] == max(grouped, key=lambda row: row.count).input_shapes
    assert rows["aten::mm"].calls == sum(row.count for row in grouped)


def test_with_a_schedule_only_what_started_in_a_step_counts(mlp, tmp_path):
    path = tmp_path / "t.json"
    prof = recorded(
        mlp,
        path,
        calls=4,
        schedule=schedule(wait=1, warmup=1, active=2),
        on_trace_ready=lambda prof: prof.export_chrome_trace(str(path)),
    )
    found = load(path)
    assert [step.name for step in found.steps] == ["ProfilerStep#2", "ProfilerStep#3"]
    assert ours(path) == of_torch(prof.key_averages())
    one = by_op(found.trace, found.launching, [found.steps[0].part])
    assert {row.name: row.calls * 2 for row in one} == {name: row[0] for name, row in ours(path).items()}


def test_memory_that_was_not_recorded_is_not_zero(tmp_path):
    with profile(activities=[ProfilerActivity.CPU]) as prof:
        torch.ones(8).sin()
    prof.export_chrome_trace(str(tmp_path / "t.json"))
    assert {row[3:] for row in ours(tmp_path / "t.json").values()} == {(None, None)}


def test_the_table_has_the_profilers_names(tmp_path):
    recorded(casting, tmp_path / "t.json")
    table = load(tmp_path / "t.json").table(by="op", sort_by="cpu_memory_usage")
    headers = [" ".join(words) for words in zip(*(line.split() for line in table.splitlines()[1:3]), strict=False)]
    assert "aten::linear" in table
    assert "[4, 4], [4, 4], [4]" in table
    for column in ("Self", "CPU", "total", "Mem", "# of", "Calls"):
        assert column in table, headers
    assert "CUDA" not in table


OTHER = 4242
"""A thread of the user's."""


def test_what_differs_from_torchs_table_does_so_on_purpose(tmp_path):
    builder = TraceBuilder()
    builder.op("aten::linear", 0, 100)
    builder.op("aten::is_leaf", 10, 5)
    builder.annotation("range", 20, 30)
    builder.launch(60, 10)
    builder.allocation(1024, 80, device_type=0)
    # torch counts this one for aten::linear too, since it runs at that moment.
    builder.allocation(2048, 80, device_type=0, tid=OTHER)
    builder.allocation(4096, 200, device_type=0)
    found = ours(builder.write(tmp_path / "t.json"))
    # torch leaves is_leaf out as well, and takes annotations and calls out of the operator's own time; rows of their own
    # they have there, "[memory]" too.
    assert found == {"aten::linear": (1, 100, 60, 1024, 1024)}


def test_an_operator_inside_of_its_like_beside_others_is_a_call_of_its_own(tmp_path):
    builder = TraceBuilder()
    builder.op("aten::to", 0, 100)
    builder.op("aten::to", 10, 50)
    builder.op("aten::copy_", 70, 20)
    builder.op("aten::add", 200, 100)
    builder.op("aten::add", 210, 50)
    found = ours(builder.write(tmp_path / "t.json"))
    assert {name: row[:3] for name, row in found.items()} == {
        "aten::to": (2, 150, 80),
        "aten::copy_": (1, 20, 20),
        "aten::add": (1, 100, 100),
    }
