"""Whether a recording is believed, where only a GPU, real or simulated, makes what is asked about."""

from __future__ import annotations

import ctypes
import threading
import time
from collections import deque
from contextlib import closing, contextmanager

import pytest
import torch

import pytest_torchprof
from pytest_torchprof import capture
from pytest_torchprof.reasons.codes import Code

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA or ROCm device; torch sees none"),
]


def record(path, body, *, device="cuda:0", check=lambda _: None, **changed):
    """Return the recordings of the measured calls, one per attempt, the last one loaded last."""
    settings = {"warmup": 1, "steps": 3, "record": frozenset(), "nodeid": "t.py::t", "label": None}
    plan = capture.Plan(**{"device": device, **settings, **changed})
    with closing(capture.iterations(plan, path, check)) as iterations:
        for _ in iterations:
            body()
    return pytest_torchprof.load(path)


@contextmanager
def prefetcher():
    """Launch on another thread and stream all the time, and keep the GPU busy, but never far behind."""
    stop, data, stream = threading.Event(), torch.zeros(40_000_000, device="cuda"), torch.cuda.Stream()

    def work():
        with torch.cuda.stream(stream):
            launched = deque()
            while not stop.wait(0.0003):
                for _ in range(8):
                    data.add_(1)
                launched.append(stream.record_event())
                if len(launched) > 4:
                    launched.popleft().synchronize()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def has_launches_on_an_edge(profile):
    return bool(profile.trace.orphans or profile.trace.lost_kernels)


def test_a_thread_that_launches_all_the_time_does_not_make_a_measurement_invalid(tmp_path, monkeypatch):
    # It is given ten seconds to be done, which it is not, and has launched half a million kernels by then.
    monkeypatch.setattr("pytest_torchprof.capture.handed_over.PATIENCE_S", 1)
    x = torch.zeros(64, device="cuda")
    believed = []

    def body():
        x.mul_(2)
        time.sleep(0.02)  # The other thread launches in each step, and so on both sides of its edges.

    with prefetcher():
        for number in range(20):
            profile = record(tmp_path / f"{number}.json", body)
            # On a busy machine it may come to no launch between the begin of a recording and the first step, and then may
            # as well have been given work by a step; a measurement is made anew for that.
            if profile.doubt is None or profile.doubt.code is not Code.OTHER_THREAD:
                assert profile.doubt is None
                assert all(step.launches for step in profile.steps)
                believed.append(profile)
            if sum(map(has_launches_on_an_edge, believed)) == 3:
                return
    assert believed
    if not any(map(has_launches_on_an_edge, believed)):
        pytest.skip("none of the other thread's launches fell on an edge of a window")


@pytest.fixture
def cooperative():
    """A launch by the driver's call for cooperative kernels, which kineto does not record."""
    torch.ones(1, device="cuda")
    driver, module, function = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p(), ctypes.c_void_p()
    code = b".version 7.0\n.target sm_50\n.address_size 64\n.visible .entry alone() { ret; }\n"
    assert driver.cuModuleLoadData(ctypes.byref(module), code) == 0
    assert driver.cuModuleGetFunction(ctypes.byref(function), module, b"alone") == 0

    def launch():
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        shape = [ctypes.c_uint(1)] * 6
        assert driver.cuLaunchCooperativeKernel(function, *shape, ctypes.c_uint(0), stream, None) == 0

    return launch


def test_launches_that_the_profiler_does_not_record_count_in_their_step_however_late_they_run(tmp_path, cooperative):
    x = torch.zeros(1 << 26, device="cuda")  # keeps the GPU busy while the launches are made

    def body():
        x.sin_()
        cooperative()
        cooperative()

    found = record(tmp_path / "recording.json", body)
    assert found.why_not is None
    assert [(len(step.kernels), step.launches) for step in found.steps] == [(3, 3)] * 3


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_work_on_the_second_device_alone_is_the_second_devices(tmp_path):
    x = torch.zeros(64, device="cuda:1")
    found = record(tmp_path / "recording.json", lambda: x.mul_(2), device="cuda:1")
    assert found.why_not is None
    assert [device.index for device in found.trace.devices] == [1]
    assert [device.name for device in found.trace.devices] == [torch.cuda.get_device_name(1)]
    assert {kernel.device for kernel in found.kernels} == {1}


def captured(kernels, *, keep=False):
    """Return a graph of so many kernels and a copy."""
    x, y = torch.zeros(64, device="cuda"), torch.zeros(64, device="cuda")
    y.copy_(x).add_(1)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph(keep_graph=True) if keep else torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y.copy_(x)
        for _ in range(kernels):
            y.add_(1)
    return graph


@pytest.mark.skipif(
    not hasattr(torch.cuda.graphs, "register_graph_instantiate_hook") or torch.version.hip,
    reason="torch tells since 2.14 when graphs are made",
)
@pytest.mark.parametrize("keep", [False, True])
def test_the_recording_knows_how_many_kernels_each_replayed_graph_has(tmp_path, keep):
    capture.arm("cuda:0")
    graph, other = captured(5, keep=keep), captured(3)
    x = torch.zeros(64, device="cuda")

    def body():
        x.add_(1)
        graph.replay()
        other.replay()

    found = record(tmp_path / "recording.json", body)
    assert found.why_not is None
    assert found.trace.metadata.graph_replays == (5, 3) * 3
    assert [step.graph_launches for step in found.steps] == [2, 2, 2]
    in_graphs = [sum(kernel.in_graph for kernel in step.kernels) for step in found.steps]
    assert in_graphs == [8, 8, 8]


def test_replays_of_several_threads_are_in_no_order(tmp_path):
    capture.arm("cuda:0")
    graph = captured(2)

    def body():
        graph.replay()
        thread = threading.Thread(target=graph.replay)
        thread.start()
        thread.join()

    found = record(tmp_path / "recording.json", body)
    assert found.why_not is None
    assert found.trace.metadata.graph_replays is None
