"""Collectives of a recording: which there are, what each sends, in which group, and how much computing hides."""

from __future__ import annotations

import gzip
import json
from math import prod

import jobs
import pytest
from builder import TraceBuilder
from facts import misses

from pytest_torchprof import load
from pytest_torchprof.analysis.joining import joined
from pytest_torchprof.analysis.rank_parts import part_of
from pytest_torchprof.cli import main
from pytest_torchprof.limits.seen import CollectivesSeen, SentBytes
from pytest_torchprof.reasons.collectives import Gap
from pytest_torchprof.trace import intervals
from pytest_torchprof.trace.columns import KERNEL

torch = pytest.importorskip("torch")
needs_gloo = pytest.mark.skipif(not torch.distributed.is_gloo_available(), reason="needs torch.distributed with gloo")

# What gloo records on the CPU

EACH_ONCE = """
few, many = torch.ones(8), torch.ones(1000)
group = distributed.group.WORLD

def step():
    distributed.all_reduce(few)
    distributed.all_gather_into_tensor(torch.empty(2000), many)
    distributed.reduce_scatter_tensor(torch.empty(500), many)
    distributed.all_to_all_single(torch.empty(1000), many)
    distributed.broadcast(few.double(), 0)
    if rank == 0:
        distributed.send(few, 1)
    else:
        distributed.recv(few, 0)
    distributed.barrier()
    try:
        distributed.all_gather_object([None, None], {"a": 1})
    except RuntimeError as problem:
        # It gathers first and needs NumPy then.
        assert "Numpy" in str(problem)
    distributed.all_gather([torch.empty(8), torch.empty(8)], few)
    distributed.reduce(few, 1)
    distributed.gather(few, [torch.empty(8), torch.empty(8)] if rank == 0 else None, 0)
    work = distributed.all_reduce(many, async_op=True)
    work.wait()
"""


@pytest.fixture(scope="module")
def each_once(tmp_path_factory):
    """Return the profiles of two ranks that ask for each collective once."""
    return [load(path, device="cpu") for path in jobs.record(tmp_path_factory.mktemp("job"), EACH_ONCE)]


def sizes(profile):
    return [(one.name, one.bytes_in, one.bytes_out) for one in profile.collectives]


@needs_gloo
def test_each_collective_of_gloo_is_there_once_with_what_it_sends(each_once):
    first, second = map(sizes, each_once)
    lengths = first[7:9]
    assert [name for name, _, _ in lengths] == ["all_gather"] * 2
    assert lengths[0] == ("all_gather", 8, 16)
    expected = [
        ("all_reduce", 32, 32),
        ("all_gather", 4000, 8000),
        ("reduce_scatter", 4000, 2000),
        ("all_to_all", 4000, 4000),
        ("broadcast", 64, 64),
        ("send_recv", 32, 0),
        ("barrier", 0, 0),
        *lengths,
        ("all_gather", 32, 64),
        ("reduce", 32, 32),
        ("gather", 32, 64),
        ("all_reduce", 4000, 4000),
    ]
    assert first == expected
    of_the_other = {5: ("send_recv", 0, 32), 11: ("gather", 32, 0)}
    assert second == [of_the_other.get(place, one) for place, one in enumerate(expected)]


@needs_gloo
def test_group_dtype_and_whether_the_program_waits_are_told(each_once):
    for profile in each_once:
        found = profile.collectives
        assert {(one.group.name, one.group.ranks, one.group.size) for one in found} == {("0", (0, 1), 2)}
        assert [one.dtype for one in found[:5]] == ["fp32"] * 4 + ["fp64"]
        assert found[-1].asynchronous in (True, None)
        assert found[0].asynchronous in (False, None)
        assert {one.step for one in found} == {0}


@needs_gloo
def test_times_are_those_of_the_ranges_in_which_gloo_worked(each_once):
    """Each range belongs to one collective, whichever of gloo's threads it ran on."""
    for profile in each_once:
        trace = profile.trace
        ranges = {
            (trace.annotations.start[i], trace.annotations.end[i])
            for i, name in enumerate(trace.annotations.name)
            if trace.names[name].startswith("gloo:")
        }
        assert {(one.start_ns, one.start_ns + one.dur_ns) for one in profile.collectives} == ranges
        assert len(profile.collectives) == len(ranges)


@needs_gloo
def test_bandwidth_is_size_by_time_and_the_bus_carries_its_share(each_once):
    gather = each_once[0].collectives[1]
    assert gather.algorithm_gb_per_s == pytest.approx(8000 / gather.dur_ns)
    assert gather.bus_gb_per_s == pytest.approx(8000 / gather.dur_ns / 2)
    reduce = each_once[0].collectives[0]
    assert reduce.bus_gb_per_s == pytest.approx(32 / reduce.dur_ns)
    barrier = each_once[0].collectives[6]
    assert (barrier.algorithm_gb_per_s, barrier.why_no_bandwidth) == (None, Gap.BARRIER)


@needs_gloo
def test_each_collective_of_one_rank_meets_that_of_the_other(each_once):
    job = joined(map(part_of, each_once))
    assert (len(job.collectives), job.not_joined, job.alone) == (13, {}, {})
    sent = next(one for one in job.collectives if one.name == "send_recv")
    assert [(one.peer, one.is_send, one.tag) for one in sent.of_rank.values()] == [(1, True, 0), (0, False, 0)]
    assert sent.message_bytes == 32


def test_ranges_that_begin_in_another_order_are_told_apart_by_their_sizes(tmp_path):
    builder = TraceBuilder()
    for start, elements in ((0, 100), (10, 200)):
        dims, types = [[[elements]], []], ["TensorList", ""]
        builder.event("cpu_op", "c10d::allreduce_", start, 5, **{"Input Dims": dims, "Input type": types})
    for start, dur, elements in ((20, 7, 200), (21, 9, 100)):
        told = {"Input Dims": [[elements]], "Input type": ["float"]}
        builder.event("user_annotation", "gloo:all_reduce", start, dur, tid=start, **told)
    found = load(builder.write(tmp_path / "trace.json"), device="cpu").collectives
    assert [(one.bytes_in, one.duration_us) for one in found] == [(400, 9), (800, 7)]


FUNCTIONAL = """
import torch.distributed._functional_collectives as functional
x, world = torch.ones(1000), distributed.group.WORLD
def step():
    distributed.barrier()
    if rank == 1:
        time.sleep(0.5)  # Until then nothing that rank 0 asks for is done, and its recording has ended.
    step.kept = [
        functional.all_reduce(x, "sum", world),
        functional.all_gather_tensor(x, 0, world),
        functional.reduce_scatter_tensor(x, "sum", 0, world),
        functional.all_to_all_single(x, None, None, world),
        functional.broadcast(x, 0, world),
        *functional.all_reduce_coalesced([x, x], "sum", world),
        *functional.reduce_scatter_tensor_coalesced([x, x], "sum", [0, 0], world),
    ]
"""


@needs_gloo
def test_functional_collectives_that_nobody_awaits_have_the_sizes_of_their_operands(tmp_path):
    profile = load(jobs.record(tmp_path, FUNCTIONAL)[0], device="cpu")
    found = [one for one in profile.collectives if one.name != "barrier"]
    assert any(one.why_no_time for one in found)
    assert [(one.name, one.dtype, one.bytes_in, one.bytes_out) for one in found] == [
        ("all_reduce", "fp32", 4000, 4000),
        ("all_gather", "fp32", 4000, 8000),
        ("reduce_scatter", "fp32", 4000, 2000),
        ("all_to_all", "fp32", 4000, 4000),
        ("broadcast", "fp32", 4000, 4000),
        ("all_reduce", "fp32", 8000, 8000),
        ("reduce_scatter", "fp32", 8000, 4000),
    ]


BUCKETS = """
model = torch.nn.Sequential(torch.nn.Linear(64, 64, bias=False), torch.nn.Linear(64, 64, bias=False))
model = torch.nn.parallel.DistributedDataParallel(model, bucket_cap_mb=CAP, broadcast_buffers=False)

def step():
    model(torch.ones(4, 64)).sum().backward()

step()
"""


@needs_gloo
@pytest.mark.parametrize(("cap", "buckets"), [("25", [32768]), ("0.015", [16384, 16384])])
def test_each_bucket_of_ddp_is_a_collective(tmp_path, cap, buckets):
    for path in jobs.record(tmp_path, BUCKETS.replace("CAP", cap), steps=2):
        found = load(path, device="cpu").collectives
        assert [one.bytes_in for one in found] == buckets * 2
        assert {one.name for one in found} == {"all_reduce"}
        if len(buckets) > 1:
            verdict = misses(load(path, device="cpu"), collectives={"all_reduce": 1}, max_comm_bytes=32768)
            assert verdict.seen == (CollectivesSeen(2, "all_reduce", least=1, most=1),)
        assert [one.step for one in found] == sorted([0, 1] * len(buckets))


SHARDED = """
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

mesh = init_device_mesh("cpu", (2,))
model = torch.nn.Sequential(torch.nn.Linear(64, 64, bias=False), torch.nn.Linear(64, 32, bias=False))
for layer in (*model, model):
    fully_shard(layer, mesh=mesh)

def step():
    with record_function("forward"):
        loss = model(torch.ones(4, 64)).sum()
    with record_function("backward"):
        loss.backward()
"""


@needs_gloo
def test_fsdp_gathers_each_layer_twice_and_scatters_its_gradient(tmp_path):
    """A layer's parameters are gathered in the forward pass and, except the last layer's, dropped and gathered again."""
    gathered, scattered = [("all_gather", 8192, 16384), ("all_gather", 4096, 8192)], [("reduce_scatter", 8192, 4096)]
    paths = jobs.record(tmp_path, SHARDED, steps=2)
    for path in paths:
        profile = load(path, device="cpu")
        found = sizes(profile)
        assert found == (gathered + gathered[::-1] + [*scattered, ("reduce_scatter", 16384, 8192)]) * 2
        forward, backward = {"all_gather": 2, "reduce_scatter": 0}, {"all_gather": 2, "reduce_scatter": 2}
        profile.expect(
            collectives={"all_gather": 4, "reduce_scatter": 2},
            max_comm_bytes=3 * 24576,
            ranges={"forward": {"collectives": forward}, "backward": {"collectives": backward}},
        )
        verdict = misses(profile, collectives={"all_gather": 3})
        assert verdict.seen == (CollectivesSeen(4, "all_gather", least=3, most=3),)
        verdict = misses(profile, max_comm_bytes=3 * 24576 - 1)
        assert verdict.seen == (SentBytes(3 * 24576, 6, beyond_bytes=3 * 24576 - 1),)


# What NCCL records on GPUs

_TOLD = {
    "Collective name": "_allgather_base",
    "In msg nelems": 1000,
    "Out msg nelems": 8000,
    "dtype": "BFloat16",
    "Group size": 8,
    "Process Group Name": "3",
    "Process Group Description": "tp",
    "Process Group Ranks": "[0, 1, 2, 3, 4, 5, 6, 7]",
    "Seq": 12,
    "Comms Id": 18446744073709551615,
}
_ALL_GATHER = "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
_SEND_RECV = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"


@pytest.fixture
def built(tmp_path):
    """Return a function that reads what a builder wrote."""

    def read(builder):
        return load(builder.write(tmp_path / "trace.json"))

    return read


def asked(builder, operator, start, *, dims=(), types=(), kernel=None, dur=100, stream=20, **told):
    """Add an operator of torch.distributed, with its backend's parameters inside, and the kernel that it launches."""
    more = {"Input Dims": list(dims), "Input type": list(types)} if types else {}
    builder.event("cpu_op", operator, start, 20, **more)
    if told:
        builder.event("cpu_op", "record_param_comms", start + 1, 18, **told)
    if kernel is not None:
        builder.kernel(kernel, start + 30, dur, builder.launch(start + 5), stream=stream, **told)


def test_what_a_backend_says_of_its_collective_is_told(built):
    builder = TraceBuilder()
    asked(builder, "c10d::_allgather_base_", 0, kernel=_ALL_GATHER, **_TOLD)
    (found,) = built(builder).collectives
    assert (found.name, found.operator, found.dtype) == ("all_gather", "c10d::_allgather_base_", "bf16")
    assert (found.bytes_in, found.bytes_out, found.message_bytes) == (2000, 16000, 16000)
    assert (found.group.name, found.group.description, found.group.size) == ("3", "tp", 8)
    assert found.group.ranks == tuple(range(8))
    assert (found.sequence, found.comms_id) == (12, 2**64 - 1)
    assert (found.duration_us, found.stream, found.device) == (100, 20, 0)
    assert found.algorithm_gb_per_s == pytest.approx(16000 / 100e3)
    assert found.bus_gb_per_s == pytest.approx(16000 / 100e3 * 7 / 8)


def test_a_kernel_without_its_operator_is_known_by_what_its_backend_says(built):
    builder = TraceBuilder()
    builder.kernel(_ALL_GATHER, 30, 100, builder.launch(5), **_TOLD)
    (found,) = built(builder).collectives
    assert (found.name, found.operator, found.bytes_out, found.group.size) == ("all_gather", None, 16000, 8)


@pytest.mark.parametrize(
    ("kernel", "name"),
    [
        ("void vllm::cross_device_reduce_1stage<__half, 8>(vllm::RankData*)", "all_reduce"),
        (_SEND_RECV, None),
    ],
)
def test_a_kernel_of_which_nothing_is_said_has_no_size(built, kernel, name):
    builder = TraceBuilder()
    builder.kernel(kernel, 30, 100, builder.launch(5))
    (found,) = built(builder).collectives
    assert (found.name, found.bytes_in, found.bytes_out, found.bus_gb_per_s) == (name, None, None, None)
    assert found.why_no_bytes is Gap.NO_OPERATOR
    assert found.duration_us == 100


def test_sends_and_receives_of_one_kernel_have_its_time_and_no_bandwidth(built):
    builder = TraceBuilder()
    for place, operator in enumerate(("c10d::send", "c10d::recv_")):
        asked(builder, operator, 30 * place, dims=([[8]], []), types=("TensorList", ""), **{**_TOLD, "dtype": "Float"})
    builder.kernel(_SEND_RECV, 100, 50, builder.launch(80))
    found = built(builder).collectives
    assert [(one.name, one.bytes_in, one.bytes_out) for one in found] == [("send_recv", 32, 0), ("send_recv", 0, 32)]
    assert {(one.duration_us, one.together) for one in found} == {(50, 2)}
    assert [one.why_no_bandwidth for one in found] == [Gap.BATCHED] * 2


@pytest.mark.parametrize(
    ("told", "reason"),
    [
        ({**_TOLD, "Group size": 1}, Gap.ONE_RANK),
        ({**_TOLD, "In msg nelems": 0, "Out msg nelems": 0}, Gap.NOTHING_TO_SEND),
        (_TOLD, Gap.NO_KERNEL),
    ],
)
def test_a_collective_without_a_kernel_counts_and_has_no_time(built, told, reason):
    builder = TraceBuilder()
    asked(builder, "c10d::_allgather_base_", 0, **told)
    builder.kernel("gemm", 100, 10, builder.launch(90))
    (found,) = built(builder).collectives
    assert (found.name, found.duration_us, found.why_no_time) == ("all_gather", None, reason)


def test_what_computes_meanwhile_hides_it_whichever_step_it_belongs_to(built):
    builder = TraceBuilder()
    for number in (0, 1):
        builder.step(number, 200 * number, 200)
    asked(builder, "c10d::_allgather_base_", 10, kernel=_ALL_GATHER, dur=200, **_TOLD)
    builder.kernel("first", 20, 50, builder.launch(60))
    builder.kernel("second", 60, 20, builder.launch(62), stream=9)
    builder.kernel("of the next step", 210, 100, builder.launch(205))
    profile = built(builder)
    (found,) = profile.collectives
    assert (found.start_ns // 1000 % 1000, found.duration_us) == (40, 200)
    # 40 to 80 and 210 to 240.
    assert found.overlap == pytest.approx(70 / 200)
    assert found.exposed_us == pytest.approx(130)


# Every recording

NCCL = (
    "a100_graphs_nccl_orphans",
    "a100_megatron_tp8_rank0",
    "a100_megatron_tp8_rank1",
    "b200_eager_nvjet",
    "v100_dlrm_rank0",
)


@pytest.mark.parametrize("name", NCCL)
def test_each_kernel_that_communicates_belongs_to_one_collective(name, shared_trace):
    profile = load(shared_trace(name))
    gpu, steps = profile.trace.gpu, profile.trace.step_of_gpu_op
    kernels = sorted((gpu.start[i], gpu.end[i]) for i in profile.gpu_work.communication if steps[i] >= 0)
    timed = sorted((one.start_ns, one.start_ns + one.dur_ns) for one in profile.collectives if one.dur_ns is not None)
    assert timed == kernels
    assert sum(step.time_us for step in profile.communication.steps) <= sum(end - start for start, end in kernels) / 1e3
    assert all(one.name for one in profile.collectives)


@pytest.mark.any_torch
def test_sizes_are_those_of_the_operators_operands(shared_trace):
    """A second way to the same: by the raw events, with the sizes of the operand that is larger."""
    path = shared_trace("a100_graphs_nccl_orphans")
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    widths = {"float": 4, "long": 8, "long int": 8, "int": 4}
    expected = sorted(
        max(
            event["args"]["Input Dims"][place][0] * (event["args"]["Input Dims"][place][1:] or [1])[0]
            for place in (0, 1)
        )
        * widths[event["args"]["Input type"][0]]
        for event in events
        if event.get("name") in ("c10d::alltoall_base_", "c10d::_allgather_base_", "c10d::_reduce_scatter_base_")
    )
    found = [one.message_bytes for one in load(path).collectives if one.name != "all_reduce"]
    assert sorted(found) == expected


WIDTHS = {"float": 4, "c10::Half": 2, "long int": 8, "long": 8, "int": 4}


def from_the_raw_file(path):
    """Return start, duration, message and group size of each NCCL kernel of an operator, by another way: its launch."""
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    launches = {
        event["args"]["correlation"]: (event["tid"], event["ts"])
        for event in events
        if event.get("cat") in ("cuda_runtime", "cuda_driver") and "correlation" in event.get("args", {})
    }
    ops = [event for event in events if event.get("name", "").startswith("c10d::")]
    notes = [
        event for event in events if event.get("name", "").startswith("nccl:") and event["cat"] == "user_annotation"
    ]
    for event in events:
        # One whose launch came before the recording belongs to no step.
        if event.get("cat") != "kernel" or not event["name"].startswith("nccl"):
            continue
        if event["args"]["correlation"] not in launches:
            continue
        tid, ts = launches[event["args"]["correlation"]]
        inside = [op for op in ops if op["tid"] == tid and op["ts"] <= ts < op["ts"] + op["dur"]]
        (note,) = [one for one in notes if one["tid"] == tid and one["ts"] <= ts < one["ts"] + one["dur"]]
        tensors = [(note["args"]["Input Dims"][0], note["args"]["Input type"][0])]
        tensors += zip(inside[0]["args"]["Input Dims"], inside[0]["args"]["Input type"], strict=True)
        sizes = [prod(dims) * WIDTHS[kind] for dims, kind in tensors if kind in WIDTHS]
        yield round(event["ts"] * 1000), round(event["dur"] * 1000), max(sizes)


@pytest.mark.any_torch
@pytest.mark.parametrize("name", ["a100_graphs_nccl_orphans", "a100_megatron_tp8_rank1", "v100_dlrm_rank0"])
def test_durations_and_bandwidths_are_those_of_another_computation(name, shared_trace):
    path = shared_trace(name)
    found = {(one.start_ns, one.dur_ns): one for one in load(path).collectives if one.dur_ns is not None}
    compared = 0
    for start, dur, size in from_the_raw_file(path):
        if (one := found.get((start, dur))) is None:
            continue
        compared += 1
        assert one.message_bytes == size
        assert one.algorithm_gb_per_s == pytest.approx(size / dur)
        if one.group.size is not None:
            assert one.bus_gb_per_s == pytest.approx(size / dur * 2 * (one.group.size - 1) / one.group.size)
    assert compared == len(found) > 0


def test_the_bandwidth_of_a_newer_recording_is_that_of_what_nccl_says(shared_trace):
    path = shared_trace("b200_eager_nvjet")
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    (kernel,) = [event for event in events if event.get("cat") == "kernel" and "Collective name" in event["args"]]
    (one,) = [one for one in load(path).collectives if one.name == "all_gather"]
    size = 2 * kernel["args"]["Out msg nelems"]
    assert (one.duration_us, one.message_bytes) == (pytest.approx(kernel["dur"]), size)
    assert one.bus_gb_per_s == pytest.approx(size / kernel["dur"] / 1000 * 7 / 8)


def test_a_recording_without_communication_has_none(shared_trace):
    profile = load(shared_trace("h100_bert_small"))
    assert profile.collectives == ()
    (step,) = profile.communication.steps
    assert (step.time_us, step.exposed_us, step.overlap) == (0, 0, None)


def test_communication_and_computing_of_one_device_make_its_kernel_time(shared_trace):
    profile = load(shared_trace("v100_dlrm_rank0"))
    gpu, (step,) = profile.trace.gpu, profile.communication.steps
    spans = [
        intervals.merged(
            (gpu.start[i], gpu.end[i])
            for i, kind in enumerate(gpu.kind)
            if kind == KERNEL and (i in profile.gpu_work.communication) is talking
        )
        for talking in (True, False)
    ]
    both = intervals.length(intervals.merged([*spans[0], *spans[1]]))
    hidden = intervals.length(spans[0]) + intervals.length(spans[1]) - both
    assert step.exposed_us == pytest.approx((intervals.length(spans[0]) - hidden) / 1000)


# In tables


def analyzed(capsys, path, *words):
    assert main(["analyze", str(path), *words]) == 0
    return capsys.readouterr().out


@pytest.mark.any_torch
@pytest.mark.parametrize("name", NCCL)
def test_rows_of_collectives_add_up_to_them(name, shared_trace, capsys):
    path = shared_trace(name)
    found = load(path).collectives
    rows = json.loads(analyzed(capsys, path, "--json", "--no-findings"))["collectives"]
    assert sum(row["calls"] for row in rows) == len(found)
    assert sum(row["time_us"] for row in rows) == pytest.approx(sum(one.duration_us or 0 for one in found))
    known = [row["bytes"] for row in rows if row["bytes"] is not None]
    assert sum(known) == sum(one.message_bytes or 0 for one in found)
    assert rows == sorted(rows, key=lambda row: -row["time_us"])


def test_a_row_tells_group_size_and_bandwidth(built, capsys):
    builder = TraceBuilder()
    for start, dur in ((0, 100), (500, 300)):
        asked(builder, "c10d::_allgather_base_", start, kernel=_ALL_GATHER, dur=dur, **_TOLD)
    builder.kernel("gemm", 530, 200, builder.launch(520))
    path = built(builder).trace.path
    (row,) = json.loads(analyzed(capsys, path, "--json", "--by", "collective"))["collectives"]
    assert (row["name"], row["group"], row["group_size"], row["dtype"]) == ("all_gather", "3 tp", 8, "bf16")
    assert (row["calls"], row["bytes"], row["time_us"], row["exposed_us"]) == (2, 32000, 400, 200)
    assert row["bus_gb_per_s"] == pytest.approx(32000 / 400e3 * 7 / 8, abs=1e-3)
    (line,) = [line for line in analyzed(capsys, path).splitlines() if line.startswith("all_gather")]
    words = ("3 tp: 8 ranks", "bf16", "2", "31.2 KiB", "400 us", "50.0%", "0.07")
    assert [word for word in words if word not in line] == []


def test_what_runs_at_once_counts_once_in_a_row(built, capsys):
    """Of two of 100 us that begin 40 us apart, 140 us are the row's time, and a kernel hides 30 us of these once."""
    builder = TraceBuilder()
    for start, stream in ((0, 7), (40, 8)):
        asked(builder, "c10d::_allgather_base_", start, kernel=_ALL_GATHER, dur=100, stream=stream, **_TOLD)
    builder.kernel("gemm", 70, 30, builder.launch(60), stream=9)
    profile = built(builder)
    (row,) = json.loads(analyzed(capsys, profile.trace.path, "--json", "--by", "collective"))["collectives"]
    first, second = profile.collectives
    together = max(second.start_ns + second.dur_ns, first.start_ns + first.dur_ns) - first.start_ns
    assert together < first.dur_ns + second.dur_ns
    assert (row["calls"], row["time_us"], row["exposed_us"]) == (2, together / 1000, together / 1000 - 30)
    assert row["mean_us"] == 100
    assert row["bus_gb_per_s"] == pytest.approx(32000 / together * 7 / 8, abs=1e-3)


def test_the_collectives_of_a_recording_take_no_longer_than_its_steps(shared_trace, capsys):
    plain = json.loads(analyzed(capsys, shared_trace("cpu_only_steps"), "--json", "--by", "collective"))
    (row,) = plain["collectives"]
    assert row["time_us"] / 1000 <= sum(step["cpu_time_us"] for step in plain["steps"]) / 1000
    assert row["mean_us"] * row["calls"] > row["time_us"]


def test_the_table_is_there_where_there_is_communication_only(shared_trace, capsys):
    assert "collectives in the step" in analyzed(capsys, shared_trace("v100_dlrm_rank0"), "--no-findings")
    path = shared_trace("h100_bert_small")
    assert "collectives" not in analyzed(capsys, path, "--no-findings")
    assert "no collectives in the step" in analyzed(capsys, path, "--no-findings", "--by", "collective")


@pytest.mark.any_torch
@pytest.mark.parametrize("width", [40, 60, 80, 132])
def test_the_table_fits_the_terminal(shared_trace, capsys, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    text = analyzed(capsys, shared_trace("a100_graphs_nccl_orphans"), "--no-findings", "--by", "collective")
    table = text[text.index("collectives over") :]
    assert max(map(len, table.splitlines())) <= width
    assert "all_to_all" in table
