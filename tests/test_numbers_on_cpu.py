"""On the CPU as device operators are the kernels: which ones, by the rules and on what torch really records."""

from __future__ import annotations

import pytest
import torch
from builder import TraceBuilder, own_recording
from recorded import record_call

from pytest_torchprof import load
from pytest_torchprof.devices.cpu import operator_work
from pytest_torchprof.devices.kinds import OperatorWork

GPU_ONLY = [
    *("launches", "graph_launches", "memcpys", "memsets", "memcpys_h2d", "memcpys_d2h", "memcpys_d2d", "memcpy_bytes"),
    *("syncs", "cpu_gpu_ratio", "gpu_utilization", "sm_efficiency", "achieved_occupancy", "peak_memory_bytes"),
]


@pytest.fixture
def kernels(tmp_path):
    """Return the names of the kernels in one profiled call of a function."""

    def run(function):
        function()
        path = tmp_path / "t.json"
        record_call(path, function, record_shapes=True)
        profile = load(path)
        assert profile.why_not is None
        return [kernel.name for kernel in profile.kernels]

    return run


def test_an_addition_of_a_number_is_one_kernel(kernels):
    x = torch.ones(8)
    assert kernels(lambda: x + 1) == ["aten::add"]


def test_a_linear_layer_is_one_kernel(kernels):
    layer, x = torch.nn.Linear(8, 8), torch.ones(4, 8)
    assert kernels(lambda: layer(x)) == ["aten::addmm"]


def test_a_mean_is_a_sum_and_a_division(kernels):
    x = torch.ones(8, 8)
    assert kernels(lambda: torch.mean(x, 0)) in (["aten::sum", "aten::div_"], ["aten::mean"])


def test_views_metadata_and_allocation_are_no_kernels(kernels):
    x = torch.ones(4, 4)

    def views():
        y = x.reshape(16).view(2, 8)[0].unsqueeze(0).expand(3, 8)
        y.detach().squeeze().unfold(0, 2, 1)
        torch.empty(3)
        x[0, 0].item()
        bool(x[0, 0] is None)

    assert kernels(views) == []


@pytest.mark.parametrize(
    ("name", "function", "expected"),
    [
        ("clone", lambda x: x.clone(), ["aten::copy_"]),
        ("conversion", lambda x: x.to(torch.float64), ["aten::copy_"]),
        ("contiguous", lambda x: x.t().contiguous(), ["aten::copy_"]),
        ("zeros", lambda _: torch.zeros(4, 4), ["aten::fill_"]),
        ("fill", lambda x: x.fill_(1), ["aten::fill_"]),
        ("reshape that copies", lambda x: x.t().reshape(16), ["aten::copy_"]),
        ("conversion that has nothing to do", lambda x: x.to(torch.float32), []),
        ("copy inside a product", lambda x: torch.matmul(x.t()[None].expand(2, 4, 4), x), ["aten::bmm"]),
    ],
)
def test_data_that_moves_on_its_own_is_a_kernel_once(kernels, name, function, expected):
    x = torch.ones(4, 4)
    found = kernels(lambda: function(x))
    if name == "zeros":
        assert found in (["aten::fill_"], ["aten::zero_"])
    elif name == "copy inside a product":
        assert found in (["aten::bmm"], ["aten::mm"])
    else:
        assert found == expected


def test_dropout_that_drops_nothing_is_no_kernel(kernels):
    layer, x = torch.nn.Dropout(0.5).eval(), torch.ones(4)
    assert kernels(lambda: layer(x)) == []


def test_backward_counts_on_its_own_thread(kernels):
    weight = torch.ones(4, 4, requires_grad=True)
    found = kernels(lambda: torch.mm(weight, weight).sum().backward())
    assert found.count("aten::mm") == 3


def test_every_view_of_torch_is_known_as_one():
    unknown = set()
    for schema in torch._C._jit_get_all_schemas():
        given = [argument.alias_info for argument in schema.arguments if argument.alias_info]
        returned = [value.alias_info for value in schema.returns if value.alias_info]
        is_view = given and returned and not any(alias.is_write for alias in given)
        if schema.name.startswith("aten::") and is_view and operator_work(schema.name) is OperatorWork.COMPUTES:
            unknown.add(schema.name)
    # TorchScript's and sparse tensors' own; none is recorded as an operator that returns its input.
    assert unknown <= {
        *("aten::as_tensor",),
        *("aten::__getitem__", "aten::_grad_sum_to_size", "aten::_ncf_unsqueeze", "aten::_ncf_view", "aten::coalesce"),
        *("aten::_sparse_broadcast_to", "aten::_test_autograd_multiple_dispatch_view", "aten::_unwrap_optional"),
    }


@pytest.mark.parametrize(
    ("name", "does"),
    [
        ("aten::mul", OperatorWork.COMPUTES),
        ("aten::add.Tensor", OperatorWork.COMPUTES),
        ("mylib::op", OperatorWork.COMPUTES),
        ("mkldnn::_linear_pointwise", OperatorWork.COMPUTES),
        ("aten::view_copy", OperatorWork.MOVES),
        ("aten::copy_", OperatorWork.MOVES),
        ("graph_0_cpp_fused_add_mul_0", OperatorWork.FUSED),
        ("cpp_fused_relu_3", OperatorWork.FUSED),
        ("autograd::engine::evaluate_function: MulBackward0", OperatorWork.NOTHING),
        ("MulBackward0", OperatorWork.NOTHING),
        ("Torch-Compiled Region: 0/0", OperatorWork.NOTHING),
        ("profiler::_record_function_enter_new", OperatorWork.NOTHING),
        ("torchprof::sentinel", OperatorWork.NOTHING),
        ("inductor::_alloc_from_pool", OperatorWork.NOTHING),
    ],
)
def test_what_operators_do(name, does):
    assert operator_work(name) is does


@pytest.fixture
def built(tmp_path):
    def run(*ops, **own):
        builder = TraceBuilder()
        builder.own(device="cpu", steps=1, **own)
        builder.step(0, 0, 1000)
        for op in ops:
            builder.op(*op)
        return load(builder.write(tmp_path / "t.json"))

    return run


def test_a_computing_operator_around_another_is_no_kernel(built):
    profile = built(("aten::linear", 10, 100), ("aten::t", 20, 5), ("aten::addmm", 40, 50), ("aten::copy_", 45, 10))
    assert profile.kernels.names == ["aten::addmm"]
    assert dict(profile.ops) == {"aten::linear": 1, "aten::addmm": 1}


def test_a_copy_beside_what_computes_belongs_to_what_is_around_both(built):
    profile = built(("aten::matmul", 10, 100), ("aten::copy_", 20, 10), ("aten::bmm", 40, 50))
    assert profile.kernels.names == ["aten::bmm"]


def test_of_copies_inside_one_another_the_innermost_counts(built):
    profile = built(("aten::to", 10, 100), ("aten::_to_copy", 20, 80), ("aten::copy_", 30, 50))
    assert profile.kernels.names == ["aten::copy_"]


def test_an_inductor_kernel_counts_beside_operators(built):
    profile = built(("Torch-Compiled Region: 0/0", 10, 100), ("aten::mm", 20, 20), ("graph_0_cpp_fused_add_0", 50, 30))
    assert profile.kernels.names == ["aten::mm", "graph_0_cpp_fused_add_0"]


def test_what_a_compilation_runs_is_no_kernel(built):
    profile = built(("backend_compile (dynamo_timed)", 10, 100), ("aten::mul", 20, 5), ("aten::add", 200, 5))
    assert profile.kernels.names == ["aten::add"]


def test_times_are_those_of_the_operators(built):
    profile = built(("aten::mul", 10, 20), ("aten::add", 50, 30))
    assert (profile.kernel_time_us, profile.gpu_busy_us, profile.gpu_span_us, profile.cpu_time_us) == (50, 50, 70, 1000)
    kernel = profile.kernels[0]
    assert (kernel.duration_us, kernel.device, kernel.stream, kernel.launch) == (20, None, None, None)


@pytest.mark.parametrize("number", GPU_ONLY)
def test_what_only_a_gpu_has_is_absent(built, number):
    profile = built(("aten::mul", 10, 20), peak_memory_bytes=1)
    assert getattr(profile, number) is None
    assert getattr(profile.median, number) is None


def test_a_foreign_trace_without_gpu_has_no_kernels(tmp_path):
    builder = own_recording({"aten::mul": 2}, device="cpu")
    assert len(load(builder.write(tmp_path / "own.json")).kernels) == 2
    builder.torchprof = None
    assert len(load(builder.write(tmp_path / "foreign.json")).kernels) == 0
