"""Whether a recording is believed, where only a GPU, real or simulated, makes what is asked about."""

from __future__ import annotations

import threading
from contextlib import closing, contextmanager

import pytest
import torch

import pytest_torchprof
from pytest_torchprof import capture

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
    """Launch on another thread and stream all the time, more than the GPU keeps up with at once."""
    stop, data, stream = threading.Event(), torch.zeros(40_000_000, device="cuda"), torch.cuda.Stream()

    def work():
        with torch.cuda.stream(stream):
            while not stop.wait(0.0003):
                for _ in range(8):
                    data.add_(1)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def test_a_thread_that_launches_all_the_time_does_not_make_a_measurement_invalid(tmp_path):
    x = torch.zeros(64, device="cuda")
    with prefetcher():
        found = [record(tmp_path / f"{number}.json", lambda: x.mul_(2)) for number in range(20)]
    if not any(profile.trace.orphans or profile.trace.lost_kernels for profile in found):
        pytest.skip("none of the other thread's launches fell on an edge of a window")
    assert [profile.why_not for profile in found] == [None] * 20
    assert all(step.launches for profile in found for step in profile.steps)


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_work_on_the_second_device_alone_is_the_second_devices(tmp_path):
    x = torch.zeros(64, device="cuda:1")
    found = record(tmp_path / "recording.json", lambda: x.mul_(2), device="cuda:1")
    assert found.why_not is None
    assert [device.index for device in found.trace.devices] == [1]
    assert [device.name for device in found.trace.devices] == [torch.cuda.get_device_name(1)]
    assert {kernel.device for kernel in found.kernels} == {1}
