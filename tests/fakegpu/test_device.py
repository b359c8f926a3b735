"""What the simulated device can do: each test is a claim of its README."""

from __future__ import annotations

import ctypes
import hashlib
import itertools
from pathlib import Path

import pytest
import torch
from fakegpu.recording import CALLS, captured, kernels

pytestmark = pytest.mark.simulated_gpu

LAUNCHES = ("cudaLaunchKernel", "cudaLaunchKernelExC", "cuLaunchKernel", "cuLaunchKernelEx", "cudaGraphLaunch")


def elapsed_us(step):
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    step()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) * 1000


def test_who_launches_faster_than_the_device_works_waits_for_room_in_the_queue():
    x = torch.zeros(16_000_000, device="cuda")  # tens of microseconds for a kernel, a few for its launch
    event = torch.cuda.Event()
    for number in range(1500):
        x.add_(1)
        if number == 400:
            event.record()
    assert event.query()


def test_copies_are_done():
    x = torch.randn(1000)
    assert torch.equal(x.cuda().clone().cpu(), x)


def resident_mib():
    (line,) = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmRSS")]
    return int(line.split()[1]) >> 10


def test_fills_with_zero_are_done_and_take_no_memory():
    x = torch.randn(1 << 20).cuda()
    y = torch.empty(2 << 30, dtype=torch.uint8, device="cuda")
    before = resident_mib()
    for tensor in (x, y):
        size = ctypes.c_size_t(tensor.nbytes)
        assert ctypes.CDLL(None).cudaMemset(ctypes.c_void_p(tensor.data_ptr()), 0, size) == 0
    assert not x.cpu().any()
    assert resident_mib() < before + 512


def test_a_number_that_a_kernel_should_have_written_is_zero_and_not_what_lay_there():
    """Else torch would take what lay there for a number of elements, and allocate them."""
    torch.full((1 << 20,), 1e9).cuda()  # its memory is what the allocator gives out next
    found = torch.nonzero(torch.ones(1 << 20, device="cuda"))
    assert found.shape == (0, 1)
    assert torch.ones(1 << 18, device="cuda").sum().item() == 0


def test_a_number_that_was_copied_is_read():
    x = torch.tensor(5).cuda()
    y = torch.arange(8.0).cuda()
    assert y[3].item() == 3
    y.sin()
    assert x.item() == 5


def test_each_kernel_has_a_launch_before_it_and_waits_for_the_one_before(recorded):
    x = torch.ones(64, 64, device="cuda")
    events = recorded(lambda: torch.relu(x @ x + 1), "kernel", *CALLS)
    calls = {event["args"]["correlation"]: event for event in events if event["cat"] in CALLS}
    in_order = sorted(kernels(events), key=lambda event: event["ts"])
    assert len(in_order) == 3
    for kernel in in_order:
        call = calls[kernel["args"]["correlation"]]
        assert call["name"] in LAUNCHES
        assert call["ts"] < kernel["ts"]
        assert kernel["args"]["External id"] == call["args"]["External id"]
    for earlier, later in itertools.pairwise(in_order):
        assert earlier["ts"] + earlier["dur"] <= later["ts"]


def test_flows_lead_from_call_to_kernel(recorded):
    x = torch.ones(8, device="cuda")
    phases = [event["ph"] for event in recorded(lambda: x + 1, "ac2g")]
    assert phases.count("s") >= phases.count("f") >= 1


def test_a_replay_is_one_call_and_its_kernels_carry_the_graph(recorded):
    x = torch.ones(8, device="cuda")
    graph = captured(lambda: (x + 1).sin())
    events = recorded(graph.replay, "kernel", *CALLS)
    (launch,) = [event for event in events if event["name"] == "cudaGraphLaunch"]
    found = [event["args"] for event in kernels(events)]
    assert [kernel["correlation"] for kernel in found] == [launch["args"]["correlation"]] * 2
    assert len({kernel["graph node id"] for kernel in found}) == 2
    assert len({kernel["graph id"] for kernel in found}) == 1


def test_waiting_lasts_as_long_as_the_work():
    x = torch.ones(8, device="cuda")
    assert elapsed_us(lambda: [x.add_(1) for _ in range(100)]) >= 100 * 3


def test_kernels_of_two_streams_run_side_by_side(recorded, fault):
    x, y, side = torch.ones(8, device="cuda"), torch.ones(8, device="cuda"), torch.cuda.Stream()
    torch.cuda.synchronize()
    fault(SLOW="elementwise=300000000")

    def step():
        x.add_(1)
        with torch.cuda.stream(side):
            y.add_(1)

    first, second = sorted(recorded(step, "kernel"), key=lambda event: event["ts"])
    assert first["args"]["stream"] != second["args"]["stream"]
    assert second["ts"] < first["ts"] + first["dur"]


def test_memory_runs_out_and_is_there_again():
    with pytest.raises(torch.OutOfMemoryError):
        torch.empty(2**40, dtype=torch.uint8, device="cuda")
    assert torch.ones(8, device="cuda").shape == (8,)


def test_a_product_takes_as_long_as_its_operations_at_the_peak():
    x = torch.ones(4096, 4096, device="cuda", dtype=torch.bfloat16)
    at_the_peak_us = 2 * 4096**3 / 989e12 * 1e6
    assert at_the_peak_us < elapsed_us(lambda: x @ x)
    us = [elapsed_us(lambda: x @ x) for _ in range(5)]
    assert min(us) < 3 * at_the_peak_us


def test_a_pointwise_kernel_takes_as_long_as_its_bytes(recorded):
    x = torch.ones(64 << 20, device="cuda")
    (kernel,) = recorded(lambda: x + 1, "kernel")
    at_the_peak_us = 2 * 4 * (64 << 20) / 3350e9 * 1e6
    assert at_the_peak_us < kernel["dur"] < 1.5 * at_the_peak_us


def test_attention_of_cudnn_is_one_kernel_that_takes_as_long_as_its_products(recorded):
    q = torch.ones(2, 8, 1024, 64, device="cuda", dtype=torch.bfloat16, requires_grad=True)

    def step():
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.CUDNN_ATTENTION):
            torch.nn.functional.scaled_dot_product_attention(q, q, q).sum().backward()

    step()
    found = recorded(step, "kernel")
    product_us = 2 * (2 * 8 * 1024 * 1024 * 64) / 989e12 * 1e6
    for part, products in (("flash_fprop", 2), ("flash_bprop", 5)):
        (kernel,) = [event for event in found if part in event["name"]]
        assert products * product_us < kernel["dur"] < 2 * products * product_us


def test_a_convolution_is_a_kernel_of_cudnn_that_takes_as_long_as_its_operations(recorded):
    x, w = torch.ones(8, 64, 64, 64, device="cuda"), torch.ones(128, 64, 3, 3, device="cuda")
    found = recorded(lambda: torch.nn.functional.conv2d(x, w, padding=1), "kernel")
    (kernel,) = [event for event in found if "fprop_implicit_gemm" in event["name"]]
    at_the_peak_us = 2 * (8 * 128 * 64 * 64) * (64 * 3 * 3) / 495e12 * 1e6
    assert at_the_peak_us < kernel["dur"] < 2 * at_the_peak_us


DEVICE = """
p = torch.cuda.get_device_properties(0)
x = torch.ones(256, 256, device="cuda", dtype=torch.bfloat16)
with torch.profiler.profile() as prof:
    x @ x
    torch.cuda.synchronize()
(name,) = [e.name for e in prof.events() if e.device_type.name == "CUDA"]
print(json.dumps([p.name, p.major, p.multi_processor_count, p.L2_cache_size >> 20, name.split("_")[0]]))
"""


def test_it_is_an_h100_or_what_was_asked_for(process):
    assert process(DEVICE) == ["NVIDIA H100 80GB HBM3", 9, 132, 50, "nvjet"]
    assert process(DEVICE, DEVICE="a100") == ["NVIDIA A100-SXM4-80GB", 8, 108, 40, "ampere"]


def test_the_visible_devices_are_those_that_are_named(process, monkeypatch):
    program = """
        properties = [torch.cuda.get_device_properties(i) for i in range(torch.cuda.device_count())]
        print(json.dumps([{} for p in properties]))
    """
    number, uuid = "int(str(p.uuid)[-4:], 16)", "f'GPU-{p.uuid}'"
    _, second = process(program.format(uuid), COUNT=2)
    program = program.format(number)
    for visible, seen in [("1", [1]), ("1,0", [1, 0]), (second, [1]), ("", [])]:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        assert process(program, COUNT=2) == seen


def test_each_checkout_has_devices_of_its_own(process):
    """So that the runs of two checkouts do not wait for each other's lock, which is a device's."""
    checkout = hashlib.sha256(str(Path(__file__).parent).encode()).hexdigest()[:4]
    (uuid,) = process("print(json.dumps([str(torch.cuda.get_device_properties(0).uuid)]))")
    assert uuid.split("-")[1] == checkout


def test_each_machine_has_devices_of_its_own(process, monkeypatch):
    """So do the workers of a run; CUDA and NVML call a device the same, and find it by that."""
    program = """
        import pynvml
        pynvml.nvmlInit()
        uuid = f"GPU-{torch.cuda.get_device_properties(0).uuid}"
        print(json.dumps([uuid, pynvml.nvmlDeviceGetUUID(pynvml.nvmlDeviceGetHandleByIndex(0))]))
    """
    told = [process(program, MACHINE=machine) for machine in (0, 7, 4095)]
    assert [cuda for cuda, _ in told] == [nvml for _, nvml in told]
    assert [cuda.split("-")[3] for cuda, _ in told] == ["4000", "4007", "4fff"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", told[1][0])
    count = "print(json.dumps(torch.cuda.device_count()))"
    assert [process(count, MACHINE=machine) for machine in (7, 8)] == [1, 0]


def test_two_devices_have_streams_memory_and_rows_of_their_own(process):
    said = process(
        """
        import tempfile
        x, y = torch.ones(1 << 20, device="cuda:0"), torch.ones(1 << 20, device="cuda:1")
        with torch.profiler.profile() as prof:
            for tensor in (x, y):
                tensor.add_(1)
            x.copy_(y)
            for index in range(2):
                torch.cuda.synchronize(index)
        prof.export_chrome_trace(tempfile.mkdtemp() + "/trace.json")  # moved into place: not to /dev/null
        work = [(e.device_index, e.name) for e in prof.events() if e.device_type.name == "CUDA"]
        print(json.dumps([
            torch.cuda.device_count(),
            [torch.cuda.memory_allocated(i) >> 20 for i in range(2)],
            sorted(device for device, name in work if "elementwise" in name),
            [name for _, name in work if "Memcpy" in name],
        ]))
        """,
        COUNT=2,
    )
    assert said == [2, [4, 4], [0, 1], ["Memcpy PtoP (Device -> Device)"]]


def test_the_faults_can_be_changed_while_the_process_runs(fault):
    nvml = ctypes.CDLL("libnvidia-ml.so.1")
    name = ctypes.create_string_buffer(96)
    fault(NAME="NVIDIA Some Other")
    assert nvml.nvmlDeviceGetName(ctypes.c_void_p(1), name, len(name)) == 0
    assert name.value == b"NVIDIA Some Other"
