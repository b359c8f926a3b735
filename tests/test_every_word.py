"""One recording on which every limit holds and is missed, and every setting turns what its limit says."""

from __future__ import annotations

import os
import shutil

import pytest
from builder import TraceBuilder
from every_word_live import OF_ANY_DEVICE, OF_COMPILING, answers, compiled, named, worked

from pytest_torchprof import gemm, load
from pytest_torchprof.limits import LIMITS, settings_of
from pytest_torchprof.limits.rank_limits import RANK_LIMITS

GEMM = "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn"
REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
BREAK = {"reason": "print()", "file": "/home/me/vendored/model.py", "line": 3, "function": "forward"}
COMPILED = {
    "dynamo": True,
    "compiled": True,
    "entries": {"0/0": []},
    "breaks": [BREAK],
    "recompiles": [{"reason": "size", "function": "forward", "file": "/home/me/vendored/model.py", "line": 1}],
    "graphs_are_marked": True,
    "time_us": {"total": 2_000_000},
    "caches": {"phase": "warm", "cold": {"time_us": {"total": 9_000_000}}},
}


def recorded(folder, *, graph=False):
    """Return two steps of 1 ms: a product, a fused kernel of Inductor's, a collective, a copy, a wait, a fill; a graph."""
    builder = TraceBuilder()
    device = {"id": 0, "name": "NVIDIA A100-SXM4-80GB", "numSms": 108, "computeMajor": 8}
    builder.metadata["deviceProperties"] = [device]
    builder.own(steps=2, flops_per_step=31_200_000_000, peak_memory_bytes=1000, compile=COMPILED)
    for number in range(2):
        at = 1000 * number
        builder.step(number, at, 1000)
        builder.annotation("block", at + 1, 60)
        builder.launched(GEMM, at + 10, op="aten::mm", dur=400)
        builder.region("0/0", at + 100, 100)
        builder.op("## Call CompiledFxGraph fabc ##", at + 101, 90)
        builder.op("aten::sort", at + 105, 10)
        builder.launched("triton_poi_fused_add_mul_0", at + 120, op=None, dur=20, wait=300)
        told = {"Collective name": "allreduce", "dtype": "Float", "Group size": 2}
        told |= {"In msg nelems": 1000, "Out msg nelems": 1000}
        builder.event("cpu_op", "c10d::allreduce_", at + 250, 20)
        builder.event("cpu_op", "record_param_comms", at + 251, 18, **told)
        builder.kernel(REDUCE, at + 400, 100, builder.launch(at + 255), stream=20, **told)
        if graph:
            builder.kernel("replayed", at + 520, 10, builder.graph_launch(at + 300))
        builder.op("aten::copy_", at + 560, 40)
        builder.memcpy("DtoH", at + 570, 10, builder.call("copy", at + 562, 30), size=8)
        builder.op("aten::item", at + 610, 80)
        builder.sync(at + 620, 60, what="stream sync")
        builder.memset(at + 720, 5, builder.call("fill", at + 710))
    builder.sync(2100, 20)
    return load(builder.write(folder / "recording.json"))


TABLE = [
    ({"max_kernels": 3}, {"max_kernels": 2}),
    ({"min_kernels": 3}, {"min_kernels": 4}),
    ({"max_launches": 3}, {"max_launches": 2}),
    ({"max_memcpys": 1}, {"max_memcpys": 0}),
    ({"max_memcpys": 0, "allow_memcpys": "DtoH"}, {"max_memcpys": 0, "allow_memcpys": "HtoD"}),
    ({"max_memsets": 1}, {"max_memsets": 0}),
    ({"max_syncs": 1}, {"max_syncs": 0}),
    ({"max_syncs": 0, "allow_syncs": "aten::item"}, {"max_syncs": 0, "allow_syncs": "aten::nonzero"}),
    ({"max_syncs": 1, "waits": "calls"}, {"max_syncs": 1, "waits": "all"}),
    ({"max_gpu_time": "1ms"}, {"max_gpu_time": "1us"}),
    ({"max_cpu_gpu_ratio": 10}, {"max_cpu_gpu_ratio": 0.1}),
    ({"min_gpu_utilization": 0.1}, {"min_gpu_utilization": 0.9}),
    ({"min_sm_efficiency": 0.1}, {"min_sm_efficiency": 0.9}),
    ({"min_mfu": 0.05}, {"min_mfu": 0.9}),
    ({"max_peak_memory": 1000}, {"max_peak_memory": 999}),
    ({"kernels": {gemm(layout="tn"): 1}}, {"kernels": {gemm(layout="tn"): 2}}),
    ({"forbid_kernels": "conv"}, {"forbid_kernels": "triton_*"}),
    ({"only_kernels": "re:."}, {"only_kernels": gemm()}),
    ({"ops": "aten::mm"}, {"ops": {"aten::mm": 2}}),
    ({"forbid_ops": "aten::conv2d"}, {"forbid_ops": "aten::mm"}),
    ({"forbid_ops": "aten::mm", "allow_ops": "aten::mm"}, {"forbid_ops": "aten::mm", "allow_ops": "aten::add"}),
    ({"fused": ["add", "mul"]}, {"fused": ["add", "sin"]}),
    ({"not_fused": ["mm", "mul"]}, {"not_fused": ["add", "mul"]}),
    ({"collectives": {"all_reduce": 1}}, {"collectives": {"all_reduce": 2}}),
    ({"max_comm_bytes": 4000}, {"max_comm_bytes": 3999}),
    ({"max_exposed_communication": "1ms"}, {"max_exposed_communication": "1us"}),
    ({"min_overlap": 0.1}, {"min_overlap": 0.9}),
    ({"ranges": {"block": {"max_kernels": 1}}}, {"ranges": {"block": {"max_kernels": 0}}}),
    ({"max_graph_breaks": 1}, {"max_graph_breaks": 0}),
    ({"max_graph_breaks": 0, "own": "pytest_torchprof"}, {"max_graph_breaks": 0, "own": "vendored"}),
    ({"max_recompiles": 1}, {"max_recompiles": 0}),
    ({"max_fallbacks": 1}, {"max_fallbacks": 0}),
    ({"max_compile_time": 2}, {"max_compile_time": 1}),
    ({"max_compile_time": {"cold": 9, "warm": 2}}, {"max_compile_time": {"cold": 8, "warm": 2}}),
    ({"cuda_graph": 0.25}, {"cuda_graph": "all"}),
    ({"forbid": "no-gpu-work"}, {"forbid": "sync-over-little-work"}),
]


# One recording tells nothing of the others of its job; tests/test_jobs.py has theirs.
OF_ONE_RECORDING = [limit for limit in LIMITS if limit not in RANK_LIMITS]


def test_every_word_is_in_the_table():
    assert {word for pair in TABLE for limits in pair for word in limits} == (
        {limit.name for limit in OF_ONE_RECORDING} | settings_of(OF_ONE_RECORDING).keys()
    )


@pytest.mark.parametrize(("holds", "missed"), TABLE, ids=lambda limits: "-".join(limits))
def test_it_holds_and_is_missed(tmp_path, holds, missed):
    # Of a graph's kernels nobody knows the operators.
    profile = recorded(tmp_path, graph="cuda_graph" in holds)
    answers(profile, holds, missed)


needs_compiler = pytest.mark.skipif(not shutil.which(os.environ.get("CXX", "g++")), reason="needs a C++ compiler")


@needs_compiler
@pytest.mark.parametrize(("holds", "missed"), **named(OF_ANY_DEVICE))
def test_it_does_so_live_where_the_cpu_is_the_device(holds, missed):
    answers(worked("cpu"), holds, missed)


@needs_compiler
@pytest.mark.parametrize(("holds", "missed"), **named(OF_COMPILING))
def test_it_does_so_live_of_what_is_compiled(holds, missed):
    answers(compiled("cpu"), holds, missed)
