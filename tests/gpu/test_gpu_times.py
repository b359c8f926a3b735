"""Times without the profiler on a real GPU: events, the cold cache, the lock of a GPU."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from textwrap import dedent

import fresh
import msgspec
import pytest
import torch

from pytest_torchprof import capture, load
from pytest_torchprof.capture import nvml
from pytest_torchprof.capture.devices.cuda import gpu_uuid
from pytest_torchprof.capture.samples import Samples, on_one_stream
from pytest_torchprof.reasons.capturing import WorkGoesOn
from pytest_torchprof.reasons.decoding import from_stored
from pytest_torchprof.reasons.disturbances import NothingKnown, OthersUnknown, UsedByOthers, WaitedForCpu
from pytest_torchprof.recording.reader import read
from pytest_torchprof.trace.metadata import Batch

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA or ROCm device; torch sees none"),
]


HERE = Path(__file__).parent


def sampled(step, cache="hot", **told):
    samples = Samples(capture.pick_device("auto"), cache, **told)
    for _ in samples.settle():
        step()
    if samples.why_not is None:
        for _ in samples.take(samples.wanted):
            step()
    return samples.timing


def sampled_us(step, cache="hot"):
    (batch,) = sampled(step, cache).batches
    return statistics.median(batch.samples_us)


def profiled_us(step, path):
    """Return the GPU's busy time of a step, as the profiler has it."""
    device = capture.pick_device("auto")
    capture.arm(device)
    plan = capture.Plan(device=device, warmup=3, steps=5, record=frozenset(), nodeid="t.py::t", label=None)
    with closing(capture.iterations(plan, path, lambda _: None)) as calls:
        for _ in calls:
            step()
    return statistics.median(step.gpu_busy_us for step in load(path).steps)


@pytest.mark.parametrize(("size", "claimed"), [(64, False), (1024, False), (8192, True)])
def test_events_tell_the_time_that_the_profiler_tells(size, claimed, fact, tmp_path):
    """Of a short step they also hold what lies between event and kernel: told, not claimed."""
    # Of zeros: numbers take power, and at its power limit a GPU is not as fast in one second as in the next.
    x = torch.zeros(size, size, device="cuda", dtype=torch.bfloat16)
    events_us, busy_us = sampled_us(lambda: x @ x), profiled_us(lambda: x @ x, tmp_path / "t.json")
    fact(f"product_of_{size}", f"events {events_us:.1f} us, profiler {busy_us:.1f} us")
    assert not claimed or events_us == pytest.approx(busy_us, rel=0.25)


WAITED = WaitedForCpu()


def test_the_gpu_waits_for_no_launch_within_a_sample(fact):
    """A hundred kernels, each of them shorter than its launch."""
    body = """
        import msgspec, torch
        from test_gpu_times import sampled
        x = torch.zeros(1024, device="cuda")
        print(msgspec.json.encode(sampled(lambda: [x.add_(1) for _ in range(100)]).batches).decode())
    """
    # The simulated device counts no cycles; elsewhere the variable means nothing.
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (HERE, *HERE.parents[:2])))}
    said = subprocess.run(
        [sys.executable, "-c", dedent(body)],
        env={**environment, "FAKEGPU_SLOW": "spin_kernel=10000000"},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    ).stdout
    (batch,) = msgspec.json.decode(said, type=tuple[Batch, ...])
    fact("a_hundred_small_kernels", f"{statistics.median(batch.samples_us):.1f} us")
    assert WAITED not in batch.disturbed


@pytest.mark.real_gpu("the simulated one has no caches")
def test_with_a_cold_cache_what_would_fit_into_it_takes_longer(fact):
    # 16 MiB, read and written: in the last cache of every GPU since A100, and longer in memory than clocks can tell.
    x = torch.zeros(4 << 20, device="cuda")
    hot_us, cold_us = sampled_us(lambda: x.add_(1)), sampled_us(lambda: x.add_(1), "cold")
    fact("add_to_16_mib", f"hot {hot_us:.1f} us, cold {cold_us:.1f} us")
    assert cold_us > hot_us


def test_a_call_that_asks_for_a_value_is_told_to_wait():
    x = torch.zeros(64, device="cuda")
    (batch,) = sampled(lambda: x.sum().item()).batches
    assert WAITED in batch.disturbed


def test_samples_of_work_on_several_streams_begin_on_an_idle_gpu():
    """What goes on elsewhere need not wait for the head start, and would be over before the sample begins."""
    x, side = torch.zeros(64, device="cuda"), torch.cuda.Stream()

    def step():
        with torch.cuda.stream(side):
            x.add_(1)
        torch.cuda.current_stream().wait_stream(side)

    (batch,) = sampled(step, one_stream=False).batches
    assert min(batch.samples_us) > 0
    assert WAITED in batch.disturbed


def test_a_recording_tells_whether_all_was_on_one_stream(tmp_path):
    x, side = torch.zeros(64, device="cuda"), torch.cuda.Stream()

    def aside():
        with torch.cuda.stream(side):
            x.add_(1)

    profiled_us(lambda: x.add_(1), tmp_path / "t.json")
    assert on_one_stream(read(tmp_path / "t.json"))
    profiled_us(aside, tmp_path / "t.json")
    assert not on_one_stream(read(tmp_path / "t.json"))


def test_work_that_nobody_waits_for_has_no_times():
    x, side = torch.zeros(8192, 8192, device="cuda", dtype=torch.bfloat16), torch.cuda.Stream()
    out = torch.empty_like(x)

    def left_alone():
        with torch.cuda.stream(side):
            for _ in range(4):
                torch.mm(x, x, out=out)

    def waited_for():
        left_alone()
        torch.cuda.current_stream().wait_stream(side)

    evidence = sampled(left_alone, one_stream=False)
    assert evidence.batches == ()
    assert isinstance(from_stored(evidence.why_not), WorkGoesOn)
    assert sampled(waited_for, one_stream=False).why_not is None


def test_another_process_on_the_gpu_is_told():
    device = capture.pick_device("auto")
    torch.ones(1, device=device)
    other = """
        import sys, torch
        torch.ones(1, device="cuda")
        print("there", flush=True)
        sys.stdin.read()
    """
    with subprocess.Popen(
        [sys.executable, "-c", dedent(other)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout.readline() == "there\n"
        with nvml.watched(gpu_uuid(device)) as disturbances:
            told = disturbances()
        process.stdin.close()
    if any(isinstance(fact, OthersUnknown | NothingKnown) for fact in told):
        pytest.skip(f"this driver does not tell: {told}")
    assert any(isinstance(fact, UsedByOthers) for fact in told), told


def test_two_processes_do_not_measure_on_one_gpu_at_once(tmp_path):
    """Each measures for a while and writes down when it began and ended."""
    body = """
        import sys, time
        from contextlib import closing
        from pathlib import Path
        import torch
        from pytest_torchprof import capture
        device = capture.pick_device("auto")
        capture.arm(device)
        plan = capture.Plan(device=device, warmup=0, steps=20, record=frozenset(), nodeid="t.py::t", label=None)
        x, moments = torch.ones(8, device=device), []
        with closing(capture.iterations(plan, Path(sys.argv[1]), lambda _: None)) as calls:
            for _ in calls:
                moments.append(time.monotonic())
                x.add_(1)
                time.sleep(0.05)
        print(moments[0], moments[-1])
    """

    def measured(index):
        return tuple(map(float, fresh.run_from_start(dedent(body), str(tmp_path / f"{index}.json")).stdout.split()))

    with ThreadPoolExecutor() as threads:
        (_, first_end), (second_start, _) = sorted(threads.map(measured, range(2)))
    assert first_end < second_start
