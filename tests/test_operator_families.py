"""What is known of torch's operators where the CPU is the device: a table made from torch itself."""

from __future__ import annotations

import sys

import operator_table
import pytest
import torch

from pytest_torchprof import NotMeasured, attention, conv, family, gemm, profile
from pytest_torchprof.devices import cpu_operators
from pytest_torchprof.devices.cpu import operator_work
from pytest_torchprof.devices.kinds import OperatorWork
from pytest_torchprof.kernels.names import decode

SCHEMAS = [one for one in torch._C._jit_get_all_schemas() if one.name.partition("::")[0] in operator_table.SPACES]
NAMES = sorted({one.name for one in SCHEMAS})


def test_the_table_is_what_torch_says():
    version = torch.__version__.partition("+")[0]
    if version != cpu_operators.TORCH:
        pytest.skip(f"the table was made with torch {cpu_operators.TORCH}, this is {version}")
    written = operator_table.FILE.read_text()
    assert operator_table.text(cpu_operators.ALONE.split()) == written, f"{sys.executable} tests/operator_table.py"


def test_what_works_in_place_is_what_makes_a_new_tensor():
    pairs = [(name, name.rstrip("_")) for name in NAMES if name.endswith("_") and name.rstrip("_") in NAMES]
    assert len(pairs) > 200
    assert [pair for pair in pairs if len({decode(name).family for name in pair}) > 1] == []
    assert [pair for pair in pairs if len({operator_work(name) for name in pair}) > 1] == []


def test_what_works_on_lists_is_what_works_on_one():
    of_lists = [name for name in NAMES if "::_foreach_" in name and name.replace("_foreach_", "").rstrip("_") in NAMES]
    assert len(of_lists) > 50
    differing = [one for one in of_lists if decode(one).family != decode(one.replace("_foreach_", "")).family]
    assert differing == []


def test_views_are_no_kernels():
    views = {f"aten::{name}" for name in cpu_operators.VIEWS.split()}
    assert {"aten::view", "aten::t_", "aten::reshape"} <= views
    assert {name for name in views if operator_work(name) is not OperatorWork.NOTHING} == set()


@pytest.mark.parametrize(
    ("family", "names"),
    {
        "gemm": "aten::addmm_ aten::addmv_ aten::baddbmm_ aten::addbmm_ aten::_sparse_addmm quantized::linear "
        "quantized::linear_relu aten::_scaled_mm_v2 mkl::_mkl_linear onednn::qlinear_pointwise",
        "conv": "quantized::conv2d quantized::conv2d_relu onednn::qconv_pointwise aten::slow_conv_transpose3d",
        "reduction": "aten::_ctc_loss aten::_ctc_loss_backward aten::_foreach_norm aten::count_nonzero aten::equal",
        "other": "aten::_fft_c2c aten::stft aten::_coalesce aten::lu_unpack",
        "rng": "aten::multinomial aten::bernoulli_ aten::randperm",
        "index": "aten::index_reduce_ aten::scatter_reduce aten::index_add",
        "optimizer": "aten::_fused_adamw_",
        "pointwise": "aten::gelu_backward aten::_foreach_addcdiv_ aten::ge aten::fill_ quantized::add",
        "copy": "aten::copy_ aten::_to_copy aten::repeat_interleave aten::_foreach_copy_",
    }.items(),
)
def test_operators_are_of_the_family_of_what_they_compute(family, names):
    assert {name: decode(name).family for name in names.split()} == dict.fromkeys(names.split(), family)


MATRIX, RHS = torch.randn(8, 8), torch.randn(8, 2)
REFLECTORS, SCALES = torch.geqrf(MATRIX)
LSTM = torch.nn.LSTM(4, 4)
MULTIPLY_INSIDE = {
    "a recurrent layer": lambda: LSTM(torch.randn(2, 1, 4)),
    "its backward": lambda: LSTM(torch.randn(2, 1, 4))[0].sum().backward(),
    "a matrix exponential": lambda: torch.linalg.matrix_exp(MATRIX),
    "reflectors": lambda: torch.linalg.householder_product(REFLECTORS, SCALES),
    "reflectors, applied": lambda: torch.ormqr(REFLECTORS, SCALES, MATRIX),
    "least squares": lambda: torch.linalg.lstsq(MATRIX, RHS),
    "a solver": lambda: torch.linalg.solve(MATRIX, RHS),
    "a triangular solver": lambda: torch.linalg.solve_triangular(MATRIX, RHS, upper=True),
    "eigenvalues": lambda: torch.linalg.eigvals(MATRIX),
    "singular values": lambda: torch.linalg.svd(MATRIX),
}


@pytest.mark.parametrize("code", MULTIPLY_INSIDE.values(), ids=MULTIPLY_INSIDE)
def test_what_multiplies_inside_one_operator_is_of_no_one_family(code):
    """Its one event is no product's, and tells of none: it surely is no copy, and may count as a product."""
    found = profile(code, device="cpu", warmup=0, steps=1)
    several = [kernel for kernel in found.kernels if kernel.decoded.never]
    assert several
    assert {kernel.family for kernel in several} == {None}
    with pytest.raises(NotMeasured, match=rf" {several[0].name} = gemm") as untold:
        found.expect(forbid_kernels=gemm())
    assert untold.value.code == "match-unknown"
    found.expect(forbid_kernels=[conv(), attention(), family("sort"), family("communication")])


def test_who_knows_better_says_what_it_counts_as():
    declared = {"own_kernels": {"aten::linalg_matrix_exp": "other"}}
    profile(torch.linalg.matrix_exp, MATRIX, device="cpu").expect(forbid_kernels=gemm(), **declared)


def test_only_what_is_of_no_other_family_is_other():
    with pytest.raises(NotMeasured):
        profile(torch.linalg.matrix_exp, MATRIX, device="cpu").expect(only_kernels=family("other"))
    profile(torch.fft.fft, MATRIX, device="cpu").expect(only_kernels=family("other"), forbid_kernels=gemm())


def test_of_an_operator_that_torch_does_not_have_no_family_is_guessed():
    assert {decode(name).family for name in ("aten::nobody_knows", "aten::my_gemm", "quantized::something")} == {None}
