"""What counts as a kernel where the CPU is the device, on operators as torch records them."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from pytest_torchprof import capture, load

x, linear = torch.ones(4, 4), torch.nn.Linear(4, 4)

CASES = {
    "an operator that converts a scalar inside": (lambda: x + 1, ["aten::add"]),
    "a composite with one that computes": (lambda: linear(x), ["aten::addmm"]),
    "a composite with two that compute": (lambda: x.mean(), ["aten::sum", "aten::div_"]),
    "a constant": (lambda: torch.tensor(1.0), []),
    "a conversion to the type it has": (lambda: x.to(torch.float32), []),
    "a conversion": (lambda: x.to(torch.float64), ["aten::copy_"]),
    "a conversion before an operator": (lambda: x + x.half(), ["aten::copy_", "aten::add"]),
    "a copy": (lambda: x.clone(), ["aten::copy_"]),
    "a view": (lambda: x.view(16).reshape(4, 4).t().expand(2, 4, 4)[0].detach(), []),
    "a change of layout": (lambda: x.t().contiguous(), ["aten::copy_"]),
    "a layout that it has": (lambda: x.contiguous(), []),
    "an allocation": (lambda: torch.empty(3), []),
    "a fill": (lambda: torch.ones(3), ["aten::fill_"]),
    "a look at a value": (lambda: x.sum().item(), ["aten::sum"]),
    "a branch on a value": (lambda: bool(x.sum() > 0), ["aten::sum", "aten::gt"]),
    "dropout in training": (lambda: functional.dropout(x), ["aten::bernoulli_", "aten::div_", "aten::mul"]),
    "dropout in evaluation": (lambda: functional.dropout(x, training=False), []),
    "softmax": (lambda: x.softmax(-1), ["aten::_softmax"]),
    "layer norm": (lambda: functional.layer_norm(x, (4,)), ["aten::native_layer_norm"]),
    "a product of matrices in a batch": (lambda: torch.einsum("bij,bjk->bik", x[None], x[None]), ["aten::bmm"]),
}


@pytest.mark.parametrize("case", CASES)
def test_kernels_are_the_operators_that_compute(case, tmp_path):
    function, expected = CASES[case]
    plan = capture.Plan(device="cpu", warmup=1, steps=1, record=frozenset(), nodeid=case, label=None)
    path = tmp_path / "recording.json"
    for _ in capture.iterations(plan, path, lambda _path: None):
        function()
    assert [kernel.name for kernel in load(path).kernels] == expected
