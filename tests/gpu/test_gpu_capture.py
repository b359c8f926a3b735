"""Capture on a real GPU: what it claims there, and what only a GPU can tell (docs/gpu-checks.md).

Whatever depends on the order of sessions in a process runs in a process of its own. Facts that are asked for rather
than claimed are attached as properties and printed; `pytest tests/gpu -rP` shows them.
"""

from __future__ import annotations

import gc
import json
import os
import time
from contextlib import closing
from fnmatch import fnmatchcase
from pathlib import Path
from textwrap import dedent

import fresh
import msgspec
import pytest
import torch

import pytest_torchprof
from pytest_torchprof import capture
from pytest_torchprof.reasons.capturing import ProfilerInside, ProfilerOnOtherThread
from pytest_torchprof.reasons.errors import TorchprofError
from pytest_torchprof.reasons.gpu_trouble import NoKernelsRecorded

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA or ROCm device; torch sees none"),
]

ROOT = Path(__file__).parents[2]
MIB = 1 << 20
KERNELS = 10
two_gpus = pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")


def plan(**changed):
    settings = {"warmup": 2, "steps": 3, "record": frozenset(), "nodeid": "t.py::t", "label": None}
    return capture.Plan(**{"device": capture.pick_device("auto"), **settings, **changed})


def believe(path):
    return pytest_torchprof.load(path).doubt


def measure(path, body, *, check=believe, **changed):
    with closing(capture.iterations(plan(**changed), path, check)) as iterations:
        for _ in iterations:
            body()
    return json.loads(path.read_text())


def ten_kernels(device="cuda"):
    x = torch.ones(256, device=device)

    def body():
        for _ in range(KERNELS):
            x.add_(1)

    return body


def events(recording, *categories):
    return [event for event in recording["traceEvents"] if event.get("cat") in categories]


def kernels_by_step(recording):
    """Count the kernels by the step in which their launching call began, straight from the file."""
    launched = {
        event["args"]["correlation"]: event["ts"]
        for event in events(recording, "cuda_runtime", "cuda_driver")
        if "correlation" in event["args"]
    }
    steps = sorted(
        (event for event in events(recording, "user_annotation") if event["name"].startswith("ProfilerStep#")),
        key=lambda event: event["ts"],
    )
    began = [launched.get(event["args"]["correlation"], 0) for event in events(recording, "kernel")]
    return [sum(step["ts"] <= ts < step["ts"] + step["dur"] for ts in began) for step in steps]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "t.json"


# ----------------------------------------------------------------------------------------------------------------------
# What a measurement holds


def test_auto_is_the_current_gpu_and_one_that_is_not_there_is_refused():
    assert capture.pick_device("auto") == f"cuda:{torch.cuda.current_device()}" == capture.pick_device("cuda")
    with pytest.raises(TorchprofError, match=r"from 'cuda:0'\. \[no-such-device\]"):
        capture.pick_device("cuda:99")


def test_each_step_has_its_ten_kernels_at_the_first_attempt(path):
    recording = measure(path, ten_kernels())
    assert kernels_by_step(recording) == [KERNELS] * 3
    assert recording["torchprof"]["attempts"] == 1
    assert recording["torchprof"]["devices_used"] == [torch.cuda.current_device()]


def test_the_reader_counts_the_same_kernels(path):
    measure(path, ten_kernels())
    profile = pytest_torchprof.load(path)
    assert profile.why_not is None
    assert [len(step.kernels) for step in profile.steps] == [KERNELS] * 3
    assert (profile.trace.orphans, profile.trace.lost_kernels) == (0, 0)


def test_work_queued_before_the_window_is_not_in_it(path):
    big = torch.ones(8192, 8192, device="cuda")

    def long_running():
        for _ in range(20):
            torch.mm(big, big)

    recording = measure(path, long_running)
    profile = pytest_torchprof.load(path)
    assert profile.trace.orphans == 0
    assert profile.trace.lost_kernels == 0
    assert len(set(kernels_by_step(recording))) == 1


def test_the_steps_are_not_synchronized_in_between(path):
    recording = measure(path, ten_kernels())
    steps = [event for event in events(recording, "user_annotation") if event["name"].startswith("ProfilerStep#")]
    first, last = min(step["ts"] for step in steps), max(step["ts"] + step["dur"] for step in steps)
    waits = [event["ts"] for event in events(recording, "cuda_runtime") if "DeviceSynchronize" in event["name"]]
    assert [ts for ts in waits if first <= ts <= last] == []
    assert [ts for ts in waits if ts > last] != []


def test_the_sentinel_is_seen_and_over_before_the_first_step(path, fact):
    recording = measure(path, ten_kernels())
    ranges = {event["name"]: event for event in events(recording, "user_annotation")}
    sentinel, step = ranges["torchprof::sentinel"], ranges["ProfilerStep#0"]
    kernels = [event["ts"] for event in events(recording, "kernel") if event["ts"] < step["ts"]]
    launches = [
        event
        for event in events(recording, "cuda_runtime", "cuda_driver")
        if "Launch" in event["name"] and sentinel["ts"] <= event["ts"] < sentinel["ts"] + sentinel["dur"]
    ]
    assert kernels
    assert launches
    fact("sentinel kernels launched, seen", (len(launches), len(kernels)))


def test_nothing_is_left_on_the_gpu(path):
    body = ten_kernels()
    measure(path, body)
    torch.cuda.synchronize()
    gc.collect()
    before = torch.cuda.memory_allocated()
    measure(path, lambda: torch.ones(64, MIB, device="cuda").sum())
    gc.collect()
    assert torch.cuda.memory_allocated() == before


def test_peak_memory_is_that_of_the_steps_alone(path):
    earlier = torch.ones(512 * MIB, dtype=torch.uint8, device="cuda")
    del earlier
    base = torch.cuda.memory_allocated()
    recording = measure(path, lambda: torch.ones(64 * MIB, dtype=torch.uint8, device="cuda"))
    peak = recording["torchprof"]["peak_memory_bytes"] - base
    assert 64 * MIB <= peak < 128 * MIB


def test_recorded_shapes_keep_no_tensor_alive_during_the_steps(path):
    base = torch.cuda.memory_allocated()

    def body():
        for _ in range(8):
            torch.ones(64 * MIB, dtype=torch.uint8, device="cuda").add_(1)

    recording = measure(path, body)
    assert recording["torchprof"]["peak_memory_bytes"] - base < 3 * 64 * MIB


def test_an_exception_leaves_no_profiler_no_recording_and_no_memory(path):
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    calls = []

    def fails():
        calls.append(torch.ones(MIB, device="cuda").sum().item())
        if len(calls) == 4:
            raise ValueError("out of luck")

    with pytest.raises(ValueError, match="out of luck"):
        measure(path, fails)
    gc.collect()
    assert not path.exists()
    assert not torch._C._autograd._profiler_enabled()
    assert torch.cuda.memory_allocated() == before
    assert kernels_by_step(measure(path, ten_kernels())) == [KERNELS] * 3


def test_nothing_is_printed(path, capfd):
    measure(path, ten_kernels())
    out, err = capfd.readouterr()
    assert out == ""
    assert "USDT" not in err


def test_the_environment_names_the_gpu_and_its_driver(path):
    environment = capture.environment(capture.pick_device("auto"))
    major, minor = torch.cuda.get_device_capability()
    assert environment.gpu == torch.cuda.get_device_name()
    assert environment.compute_capability == f"{major}.{minor}"
    if torch.version.cuda:
        assert environment.driver.split(".")[0].isdecimal()
        clocks = environment.clocks_mhz
        assert 0 < clocks["sm"] <= clocks["sm_max"]
    assert os.sep not in msgspec.json.encode(environment).decode()


def test_thirty_sessions_with_idle_time_between_lose_nothing_of_the_steps(path, fact):
    body, seen = ten_kernels(), []
    for session in range(30):
        time.sleep(0 if session % 3 else 0.5)
        recording = measure(path, body, warmup=0, steps=2)
        assert kernels_by_step(recording) == [KERNELS] * 2, f"session {session}"
        seen.append(recording["torchprof"]["attempts"])
    fact("attempts per session", seen)


def test_kernels_of_a_backward_pass_are_in_their_step(path):
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 64)).cuda()
    x = torch.ones(8, 64, device="cuda")

    def body():
        model.zero_grad(set_to_none=True)
        model(x).sum().backward()

    counts = kernels_by_step(measure(path, body))
    assert counts[0] > KERNELS
    assert len(set(counts)) == 1


def test_the_file_holds_all_that_an_ordinary_profile_exports(path, tmp_path):
    x = torch.ones(64, 64, device="cuda")

    def body():
        torch.mm(x, x).add_(1).sum().item()

    ours = measure(path, body)
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA], record_shapes=True
    ) as profiler:
        for _ in range(3):
            body()
    profiler.export_chrome_trace(str(tmp_path / "plain.json"))
    plain = json.loads((tmp_path / "plain.json").read_text())
    begin = min(event["ts"] for event in events(ours, "user_annotation") if event["name"] == "ProfilerStep#0")
    for category in ("kernel", "gpu_memcpy", "cpu_op"):
        found = [event for event in events(ours, category) if event["ts"] >= begin]
        expected = events(plain, category)
        assert sorted(event["name"] for event in found) == sorted(event["name"] for event in expected)
        assert {key for event in found for key in event["args"]} == {key for event in expected for key in event["args"]}


def test_a_second_stream_is_recorded_too(path):
    x, side = torch.ones(256, device="cuda"), torch.cuda.Stream()

    def body():
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            x.add_(1)
        torch.cuda.current_stream().wait_stream(side)
        x.add_(1)

    assert kernels_by_step(measure(path, body)) == [2] * 3


@two_gpus
def test_work_on_a_device_that_is_not_current_is_complete(path):
    body = ten_kernels("cuda:1")
    with torch.cuda.device(0):
        recording = measure(path, body, device="cuda:0")
    assert kernels_by_step(recording) == [KERNELS] * 3
    assert recording["torchprof"]["devices_used"] == [0, 1]


@two_gpus
def test_a_device_nobody_uses_is_left_alone(tmp_path):
    said = run(
        tmp_path,
        """
        import torch
        measure(ten_kernels())
        say(list(capture.devices.accelerator().in_use("cuda:0")))
        """,
    )
    assert said == [0]


# ----------------------------------------------------------------------------------------------------------------------
# The order of sessions in a process: kernels are there, or it is not measured; never silently fewer

PROGRAM = """
import contextlib, json, sys
from pathlib import Path
sys.path.insert(0, str(Path(sys.argv[2]) / "tests" / "gpu"))
import torch
from torch.profiler import ProfilerActivity, profile
import pytest_torchprof
from pytest_torchprof import capture
from pytest_torchprof.reasons.errors import NotMeasured
from test_gpu_capture import KERNELS, kernels_by_step, ten_kernels, measure as measure_to

path = Path(sys.argv[1])

def measure(body, **changed):
    try:
        return kernels_by_step(measure_to(path, body, **changed))
    except NotMeasured as reason:
        return str(reason)

def say(value):
    print("RESULT " + json.dumps(value))
"""


def run(tmp_path, scenario, **environment):
    """Run the scenario in a fresh process, where it calls `say` once; a crash fails the test."""
    words = (str(tmp_path / "t.json"), str(ROOT))
    done = fresh.run_from_start(PROGRAM + dedent(scenario), *words, **environment)
    assert done.returncode == 0, done.stderr
    said = [line.removeprefix("RESULT ") for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    return json.loads(said[0])


COMPLETE = [KERNELS] * 3

BEFORE = {
    "nothing": "",
    "a measurement of the cpu": "measure(lambda: torch.ones(3) + 1, device='cpu')",
    "a CPU-only session": "with profile(activities=[ProfilerActivity.CPU]): torch.ones(3) + 1",
    "a legacy autograd session": "with torch.autograd.profiler.profile(): torch.ones(3) + 1",
    "an empty session": "with profile(): pass",
    "torch's session for CUDA graphs": "from torch.profiler import _utils; _utils._init_for_cuda_graphs()",
    "a CUDA-only session": "with profile(activities=[ProfilerActivity.CUDA]): torch.ones(3, device='cuda') + 1",
}


@pytest.mark.parametrize("before", BEFORE)
def test_after_another_first_session_kernels_are_complete_or_it_is_not_measured(tmp_path, fact, before):
    said = run(tmp_path, f"{BEFORE[before]}\nsay(measure(ten_kernels()))")
    fact(f"kernels per step after {before}", said)
    if before in ("nothing", "a measurement of the cpu"):
        assert said == COMPLETE
    else:
        assert said == COMPLETE or NoKernelsRecorded("cuda:0").sentence in said


def test_arming_first_protects_later_measurements_from_a_cpu_only_session(tmp_path):
    said = run(
        tmp_path,
        """
        capture.arm("cuda:0")
        with profile(activities=[ProfilerActivity.CPU]):
            torch.ones(3) + 1
        say(measure(ten_kernels()))
        """,
    )
    assert said == COMPLETE


def test_a_nested_profiler_is_not_measured_and_the_next_measurement_holds(tmp_path, fact):
    said = run(
        tmp_path,
        """
        theirs = []
        body = ten_kernels()
        def nested():
            with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
                body()
                torch.cuda.synchronize()
            names = [event.name for event in profiler.events() if event.device_type.name == "CUDA"]
            theirs.append(len(names))
        say([measure(nested), theirs, measure(ten_kernels())])
        """,
    )
    assert fnmatchcase(said[0], f"{ProfilerInside('*', left_running=False).sentence} [[]another-profiler]")
    assert said[2] == COMPLETE
    fact("kernels the nested profiler saw", said[1])


def test_a_profiler_on_another_thread_is_not_measured_and_the_next_measurement_holds(tmp_path):
    said = run(
        tmp_path,
        """
        import threading
        refused = []
        def profiled():
            try:
                with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]):
                    torch.ones(3, device="cuda") + 1
            except RuntimeError as error:
                refused.append(str(error))
        def body():
            thread = threading.Thread(target=profiled)
            thread.start()
            thread.join()
        say([measure(body), measure(ten_kernels()), refused])
        """,
    )
    # torch 2.11 refuses the second profiler before it begins, and nothing runs.
    elsewhere = f"{ProfilerOnOtherThread('*').sentence} [[]another-profiler]"
    assert said[0] == [0, 0, 0] if said[2] else fnmatchcase(said[0], elsewhere)
    assert said[1] == COMPLETE


def test_an_error_of_the_gpu_is_the_tests_own_and_does_not_crash_the_process(tmp_path):
    said = run(
        tmp_path,
        """
        index = torch.full((4,), 10**6, device="cuda")
        calls = []
        def body():
            calls.append(1)
            if len(calls) == 4:
                torch.ones(4, device="cuda")[index] += 1
        try:
            measure(body)
        except RuntimeError as error:
            say([type(error).__name__, torch._C._autograd._profiler_enabled()])
        """,
        FAKEGPU_FAIL_KERNEL="index:2",  # the simulated device does not look at indices; elsewhere it means nothing
    )
    assert said[1] is False


RENAMED = """
import torch
known = torch._C._profiler._ExperimentalConfig

def renamed(**options):
    if "trace_only" in options:
        raise TypeError("no option trace_only")
    return known(**options)

torch._C._profiler._ExperimentalConfig = renamed
"""
TWO_TESTS = """
import pytest, torch

@pytest.mark.parametrize("number", range(2))
@pytest.mark.torchprof(device="cuda", max_kernels=2, min_kernels=2)
def test_it(number):
    torch.ones(8, device="cuda").add_(1)
"""


@pytest.mark.skipif(torch.__version__ < (2, 13), reason="has no trace_only")
@pytest.mark.parametrize("options", [(), ("-q",), ("-n2",)], ids=" ".join)
def test_a_torch_that_cannot_be_asked_for_the_file_only_is_told_once_in_a_run(pytester, options):
    pytester.makepyfile(test_it=TWO_TESTS)
    for conftest, times in ((RENAMED, 1), ("", 0)):
        pytester.makeconftest(conftest)
        result = fresh.run_pytest("-p", "no:cacheprovider", *options)
        assert result.parseoutcomes()["passed"] == 2
        assert result.stdout.str().count("no longer knows trace_only") == times


# Before each replay torch sets seed and offset of the random numbers, with a kernel for each, in some versions always.
REPLAYED = [[KERNELS + fills] * 3 for fills in (0, 2)]

CAPTURED = """
body = ten_kernels()
graph = torch.cuda.CUDAGraph()
stream = torch.cuda.Stream()
with torch.cuda.stream(stream):
    body()
torch.cuda.synchronize()
with torch.cuda.graph(graph):
    body()
"""


def test_a_graph_captured_after_arming_replays_with_all_its_kernels(tmp_path):
    said = run(tmp_path, f"capture.arm('cuda:0')\n{CAPTURED}\nsay(measure(graph.replay))")
    assert said in REPLAYED


def test_a_graph_captured_before_the_first_session_is_complete_or_not_measured(tmp_path, fact):
    said = run(tmp_path, f"{CAPTURED}\nsay(measure(graph.replay))")
    fact("kernels per step of a graph captured before the first session", said)
    assert said in REPLAYED or isinstance(said, str)


def test_blocking_launches_are_in_the_recording_and_the_counts_hold(tmp_path):
    said = run(
        tmp_path,
        """
        counts = measure(ten_kernels())
        say([counts, json.loads(path.read_text())["torchprof"]["environment"]["cuda_launch_blocking"]])
        """,
        CUDA_LAUNCH_BLOCKING="1",
    )
    assert said == [COMPLETE, True]
