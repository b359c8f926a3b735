"""The operator around a launch is found whatever the order of the file and however many operators lie between two."""

from __future__ import annotations

import pytest
from builder import TraceBuilder
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_torchprof.profiles import load

pytestmark = pytest.mark.any_torch

OPERATORS = 40


@settings(max_examples=30)
@given(st.lists(st.integers(0, OPERATORS - 1), min_size=1, max_size=12, unique=True))
def test_each_kernel_has_the_operator_that_launched_it_in_any_order_of_the_file(tmp_path_factory, launching):
    builder = TraceBuilder()
    for i in range(OPERATORS):
        builder.op(f"aten::op{i}", 20 * i, 15)
    for i in launching:
        builder.kernel(f"kernel{i}", 5000 + i, 1, builder.launch(20 * i + 5, 5))
    kernels = load(builder.write(tmp_path_factory.mktemp("launches") / "trace.json")).kernels
    assert {kernel.name: kernel.op for kernel in kernels} == {f"kernel{i}": f"aten::op{i}" for i in launching}


def test_of_several_launches_in_a_row_each_has_the_operator_that_has_begun_by_then(tmp_path):
    builder = TraceBuilder()
    builder.op("aten::outer", 0, 100)
    builder.op("aten::inner", 40, 20)
    # Two before the inner operator begins, one just then, one in it, one on its end and one behind it.
    for i, start in enumerate((10, 20, 40, 50, 58, 80)):
        builder.kernel(f"kernel{i}", 5000 + i, 1, builder.launch(start, 2))
    kernels = load(builder.write(tmp_path / "trace.json")).kernels
    outer, inner = ["aten::outer"], ["aten::inner"]
    assert [kernel.op for kernel in kernels] == [*(outer * 2), *(inner * 3), *outer]
