"""What counts as a kernel where the CPU is the device, on operators as torch records them."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch.nn import functional

from pytest_torchprof import capture, load

x, linear = torch.ones(4, 4), torch.nn.Linear(4, 4)
lstm = torch.nn.LSTM(4, 4, num_layers=2)
offsets = torch.tensor([0])
mask, places, eye, y = torch.ones(4, 4) > 0, torch.tensor([0, 1]), torch.eye(4), torch.ones(4, 4)
grid, bag = torch.zeros(1, 2, 2, 2), torch.nn.EmbeddingBag(3, 4)
SAMPLED = ["aten::grid_sampler_2d"]
image, filters = torch.ones(1, 2, 5, 5, dtype=torch.float64), torch.ones(2, 2, 3, 3, dtype=torch.float64)
sparse, zeros = torch.eye(4).to_sparse(), torch.zeros(4, 4, dtype=torch.int64)


def without_warning(call, *args):
    with warnings.catch_warnings(action="ignore"):  # it is a beta
        return call(*args)


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
    "a sort, with the positions it makes inside": (lambda: x.sort(), ["aten::sort"]),
    "unique values, with the sort inside": (lambda: x.unique(sorted=False), ["aten::_unique2"]),
    "unique rows": (lambda: x.unique(dim=0), ["aten::unique_dim"]),
    "runs of values": (lambda: x.unique_consecutive(), ["aten::unique_consecutive"]),
    "an index by a mask, with the look for its places inside": (lambda: x[mask], ["aten::index"]),
    "an assignment by a mask": (lambda: y.index_put_((mask,), x[0, 0]), ["aten::_index_put_impl_"]),
    "an index by positions": (lambda: x[places], ["aten::index"]),
    "singular values": (lambda: torch.linalg.svd(x), ["aten::_linalg_svd"]),
    "eigenvalues": (lambda: torch.linalg.eigh(x), ["aten::_linalg_eigh"]),
    "a QR decomposition": (lambda: torch.linalg.qr(x), ["aten::linalg_qr"]),
    "a Cholesky decomposition": (lambda: torch.linalg.cholesky_ex(eye), ["aten::linalg_cholesky_ex"]),
    "least squares": (lambda: torch.linalg.lstsq(eye, x), ["aten::linalg_lstsq"]),
    "a factorization": (lambda: torch.linalg.lu_factor_ex(eye), ["aten::linalg_lu_factor_ex"]),
    "a permutation": (lambda: torch.randperm(9), ["aten::randperm"]),
    "the largest": (lambda: x.topk(2), ["aten::topk"]),
    "the middle": (lambda: x.median(), ["aten::median"]),
    "the most frequent": (lambda: x.mode(), ["aten::mode"]),
    "counts of values": (lambda: places.bincount(), ["aten::bincount"]),
    "a histogram": (lambda: x.histc(4), ["aten::histc"]),
    "distances": (lambda: torch.cdist(x, x), ["aten::_cdist_forward"]),
    "samples of an image": (lambda: functional.grid_sample(x[None, None], grid, align_corners=False), SAMPLED),
    "an embedding bag": (lambda: bag(places, offsets), ["aten::_embedding_bag"]),
    "a squared error": (lambda: functional.mse_loss(x, x), ["aten::mse_loss"]),
    "a variance": (lambda: x.var(), ["aten::var"]),
    "a number made for an operator": (lambda: torch.where(mask, x, 1.0), ["aten::where"]),
    "a transposed convolution in fp64": (
        lambda: functional.conv_transpose2d(image, filters),
        ["aten::slow_conv_transpose2d"],
    ),
    "a mean at places": (lambda: without_warning(x.scatter_reduce, 0, zeros, x, "mean"), ["aten::scatter_reduce"]),
    "a mean of rows": (lambda: without_warning(x.index_reduce, 0, places, x[:2], "mean"), ["aten::index_reduce"]),
    "rows as often as said": (lambda: x.repeat_interleave(2, 0), ["aten::repeat_interleave"]),
    "a sum of sparse matrices": (lambda: sparse + sparse, ["aten::add"]),
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


def test_an_lstm_keeps_its_work(tmp_path):
    """The layers of oneDNN hold a small addition each, which is not what they do."""
    plan = capture.Plan(device="cpu", warmup=1, steps=1, record=frozenset(), nodeid="lstm", label=None)
    path, sequence = tmp_path / "recording.json", torch.ones(5, 2, 4)
    for _ in capture.iterations(plan, path, lambda _path: None):
        lstm(sequence)[0].sum().backward()
    names = [kernel.name for kernel in load(path).kernels]
    assert names.count("aten::mkldnn_rnn_layer") == 2
    assert names.count("aten::mkldnn_rnn_layer_backward") == 2
    assert "aten::cat" in names
