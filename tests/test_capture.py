"""Capture on the CPU, with real profiler sessions: what is called how often, what is in the recording, what is left."""

from __future__ import annotations

import gc
import json
import os
import platform
import re
import socket
import sys
import threading
import weakref
from contextlib import closing

import pytest
import torch
from facts import says, why_not
from torch.autograd import profiler as autograd_profiler

import pytest_torchprof
from pytest_torchprof import capture
from pytest_torchprof.capture import lines, nvml
from pytest_torchprof.capture.profiler_lines import without_profiler_lines
from pytest_torchprof.capture.recording_file import make_anonymous
from pytest_torchprof.reasons.capturing import CaptureFailed, ProfilerRuns, ThreadOfProfiler
from pytest_torchprof.reasons.codes import Code
from pytest_torchprof.reasons.errors import TorchprofError
from pytest_torchprof.reasons.lost_work import LossNoted
from pytest_torchprof.reasons.nvml_silence import NvmlSilence


def plan(**changed):
    settings = {
        "device": "cpu",
        "warmup": 2,
        "steps": 3,
        "record": frozenset(),
        "nodeid": "tests/t.py::t",
        "label": None,
    }
    return capture.Plan(**{**settings, **changed})


def believe(path):
    return None


def measure(path, body, *, check=believe, **changed):
    calls = 0
    with closing(capture.iterations(plan(**changed), path, check)) as iterations:
        for _ in iterations:
            body()
            calls += 1
    return calls


def add():
    return torch.ones(8) + 1


def recorded(path):
    return json.loads(path.read_text())


def names(recording, category="cpu_op"):
    return [event["name"] for event in recording["traceEvents"] if event.get("cat") == category]


def assert_no_profiler_is_left():
    assert not torch._C._autograd._profiler_enabled()
    assert not autograd_profiler._is_profiler_enabled
    assert autograd_profiler._enable_profiler is torch._C._autograd._enable_profiler


@pytest.fixture
def path(tmp_path):
    return tmp_path / "recordings" / "t.json"


@pytest.fixture(autouse=True)
def nothing_is_left_behind(path):
    path.parent.mkdir()
    yield
    assert_no_profiler_is_left()
    assert {entry.name for entry in path.parent.iterdir()} <= {"t.json"}


@pytest.mark.parametrize(("warmup", "steps"), [(2, 3), (0, 1), (0, 4), (1, 1)])
def test_the_code_runs_warmup_plus_steps_times_and_each_step_has_a_range(path, warmup, steps):
    assert measure(path, add, warmup=warmup, steps=steps) == warmup + steps
    recording = recorded(path)
    assert names(recording, "user_annotation") == ["torchprof::sentinel", *(f"ProfilerStep#{i}" for i in range(steps))]
    assert recording["torchprof"]["calls"] == warmup + steps


def test_only_the_steps_are_recorded_not_the_warmup(path):
    measure(path, lambda: torch.ones(3).cumsum(0), warmup=3, steps=2)
    assert names(recorded(path)).count("aten::cumsum") == 2


def test_the_sentinel_ends_before_the_first_step(path):
    measure(path, add)
    events = {event["name"]: event for event in recorded(path)["traceEvents"] if event.get("cat") == "user_annotation"}
    sentinel = events["torchprof::sentinel"]
    assert sentinel["ts"] + sentinel["dur"] <= events["ProfilerStep#0"]["ts"]


def test_on_the_cpu_the_sentinel_is_one_kernel_in_each_session_since_none_is_lost(path):
    launched = []
    for _ in range(3):
        measure(path, lambda: None, warmup=0, steps=1)
        launched.append(names(recorded(path)))
    assert launched == [["aten::add_"]] * 3


def test_the_recording_knows_what_the_trace_cannot(path):
    measure(path, add, nodeid="tests/t.py::t[ü\n]", label="prefill")
    ours = recorded(path)["torchprof"]
    environment = ours.pop("environment")
    times = ours.pop("untraced_step_times_us")
    # Those that an earlier test of this process used, on a machine that has some.
    assert set(ours.pop("devices_used")) <= set(range(torch.cuda.device_count()))
    assert len(ours.pop("step_cpu_times_us")) == 3
    assert ours == {
        "schema": 1,
        "nodeid": "tests/t.py::t[ü\n]",
        "label": "prefill",
        "rank": 0,
        "world_size": 1,
        "device": "cpu",
        "device_asked": "auto",
        "threads": [],
        "warmup": 2,
        "steps": 3,
        "calls": 5,
        "attempts": 1,
        "sentinel": "torchprof::sentinel",
        "problems": [],
        "peak_memory_bytes": None,
        "flops_per_step": None,
        "compile": ours["compile"],
    }
    assert len(times) == 2
    assert all(time > 0 for time in times)
    assert environment["torch"] == torch.__version__
    assert environment["python"] == platform.python_version()


def test_without_warmup_there_are_no_untraced_times(path):
    measure(path, add, warmup=0)
    assert recorded(path)["torchprof"]["untraced_step_times_us"] is None


def test_shapes_and_dtypes_are_always_recorded(path):
    measure(path, add)
    added = next(event for event in recorded(path)["traceEvents"] if event["name"] == "aten::add")
    assert added["args"]["Input Dims"][0] == [8]
    assert added["args"]["Input type"][0] == "float"


@pytest.mark.parametrize(
    ("what", "category", "name"),
    [("stacks", "python_function", "test_capture.py"), ("memory", "cpu_instant_event", "[memory]")],
)
def test_stacks_and_memory_are_recorded_when_asked_for(path, what, category, name):
    measure(path, add)
    assert names(recorded(path), category) == []
    measure(path, add, record=frozenset([what]))
    assert any(name in found for found in names(recorded(path), category))


def test_with_stacks_what_is_done_to_mark_lines_is_no_time_of_a_step(path):
    measure(path, add, record=frozenset(["stacks"]))
    events = [event for event in recorded(path)["traceEvents"] if event.get("ph") == "X"]
    steps = [event for event in events if event["name"].startswith("ProfilerStep#")]
    frames = [event for event in events if event.get("cat") == "python_function"]
    ours = [frame for frame in frames if re.search(r"(lines|handed_over)\.py.*: (__enter__|noted)", frame["name"])]
    assert ours
    for step in steps:
        assert not [frame for frame in ours if step["ts"] <= frame["ts"] < step["ts"] + step["dur"]]


def test_modules_are_recorded_when_asked_for(path):
    model, x = torch.nn.Sequential(torch.nn.Linear(4, 4)), torch.ones(2, 4)
    measure(path, lambda: model(x), record=frozenset(["modules"]), steps=1)
    modules = [name for name in names(recorded(path), "python_function") if name.startswith("nn.Module: ")]
    assert modules == ["nn.Module: Sequential_0", "nn.Module: Linear_0"]


def test_the_head_of_a_recording_on_the_cpu_is_as_short_after_many(path):
    for _ in range(3):
        measure(path, lambda: None, steps=1)
    assert names(recorded(path), "cpu_op").count("aten::add_") == 1


def two_lines(x):
    y = torch.sin(x)
    return torch.cos(y)


def a_loop_of_many_lines(x):
    for _ in range(lines.MOST_MARKS):
        pass
    return torch.cos(x)


def places(path, op):
    profile = pytest_torchprof.load(path)
    return [str(origin) for _, origin in profile.steps[-1].places.of_operator(op)]


def test_a_recording_with_stacks_knows_each_line_that_was_reached(path):
    measure(path, lambda: two_lines(torch.ones(8)), record=frozenset(["stacks"]))
    first = two_lines.__code__.co_firstlineno
    assert recorded(path)["torchprof"]["lines"] is True
    for op, line in (("aten::sin", first + 1), ("aten::cos", first + 2)):
        (place,) = places(path, op)
        assert place.endswith(f"test_capture.py:{line} in two_lines")
    assert not [name for name in names(recorded(path), "cpu_op") if "line" in name]


def called_in_a_line(x):
    return torch.sin(x)


def yielded(x):
    for part in (x, x):
        yield torch.exp(part)


def back_in_a_line(x):
    y = called_in_a_line(x) + torch.cos(x)
    try:
        raises(x)
    except ValueError:
        y = torch.tanh(y)
    return [torch.sqrt(part) for part in yielded(y)]


def raises(x):
    raise ValueError


def test_after_a_call_the_line_is_that_of_the_caller_again(path):
    measure(path, lambda: back_in_a_line(torch.ones(8)), record=frozenset(["lines"]), steps=1)
    first = back_in_a_line.__code__.co_firstlineno
    for op, line in (("aten::cos", 1), ("aten::add", 1), ("aten::tanh", 5), ("aten::sqrt", 6)):
        (place,) = places(path, op)
        assert f"test_capture.py:{first + line} in " in place, op
    (place,) = places(path, "aten::exp")
    assert place.endswith(f"test_capture.py:{yielded.__code__.co_firstlineno + 2} in yielded")


def test_what_a_library_does_between_its_modules_is_placed_in_the_one_around(path):
    layer = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    measure(path, lambda: layer(torch.ones(1, 4, 8)), record=frozenset(["lines"]), steps=1)
    found = places(path, "aten::add")
    assert {place.partition(", ")[2] for place in found} == {"TransformerEncoderLayer_0"}
    assert any(place.endswith("TransformerEncoderLayer_0.Linear_0") for place in places(path, "aten::addmm"))


def test_after_too_many_lines_no_line_is_told_rather_than_a_wrong_one(path, monkeypatch):
    monkeypatch.setattr(lines, "MOST_MARKS", 2_000)
    measure(path, lambda: a_loop_of_many_lines(torch.ones(8)), record=frozenset(["stacks"]), steps=1)
    assert recorded(path)["torchprof"]["lines"] is False
    (place,) = places(path, "aten::cos")
    assert place.startswith("a_loop_of_many_lines (")


def test_a_module_called_on_its_own_is_placed_in_the_line_that_waits_for_it(path):
    model, x = torch.nn.Linear(4, 4), torch.ones(2, 4)
    with closing(capture.iterations(plan(record=frozenset(["stacks"]), steps=1), path, believe)) as calls:
        for _ in calls:
            model(x)
    (place,) = places(path, "aten::addmm")
    assert "in test_a_module_called_on_its_own_is_placed_in_the_line_that_waits_for_it, Linear_0" in place


def test_the_reader_believes_a_live_recording_and_counts_its_kernels(path):
    measure(path, lambda: torch.ones(8) + 1, check=lambda recording: pytest_torchprof.load(recording).doubt)
    profile = pytest_torchprof.load(path)
    assert profile.why_not is None
    assert [step.kernels.names for step in profile.steps] == [["aten::fill_", "aten::add"]] * 3


def test_a_recording_names_neither_the_machine_nor_a_folder(path):
    measure(path, add)
    recording = recorded(path)
    assert "host_name" not in recording
    assert recording["traceName"] == "t.json"
    ours = json.dumps(recording["torchprof"])
    assert os.sep not in json.dumps(recording["torchprof"]["environment"])
    assert str(path.parent) not in ours
    assert not re.search(rf"\b{re.escape(socket.gethostname())}\b", ours)


@pytest.mark.parametrize(
    ("text", "anonymous"),
    [
        (
            '{"schemaVersion": 1, "host_name": "a \\"b\\"", "traceEvents": [], "traceName": "/home/me/x/t.json"}',
            {"schemaVersion": 1, "traceEvents": [], "traceName": "t.json"},
        ),
        ('{"traceEvents": [{"name": "\\"host_name\\": \\"x\\","}]}', {"traceEvents": [{"name": '"host_name": "x",'}]}),
        ('{"traceEvents": [], "traceName": "t"}', {"traceEvents": [], "traceName": "t"}),
    ],
    ids=["as torch 2.13 writes it", "no such keys, but such an event", "no room for a name"],
)
def test_a_trace_of_any_torch_is_made_anonymous(path, text, anonymous):
    path.write_text(text)
    with path.open("r+b") as file:
        make_anonymous(file, "t.json")
    assert json.loads(path.read_text()) == anonymous
    path.unlink()


def test_an_exception_in_the_measured_code_stops_at_once_and_leaves_nothing(path):
    calls = []

    def fails_in_step_3():
        calls.append(1)
        if len(calls) == 2 + 3:
            raise ValueError("out of luck")

    with pytest.raises(ValueError, match="out of luck"):
        measure(path, fails_in_step_3)
    assert len(calls) == 5
    assert not path.exists()
    assert_no_profiler_is_left()


@pytest.mark.parametrize("after", [0, 1, 2, 4])
def test_leaving_early_stops_the_profiler_and_leaves_nothing(path, after):
    iterations = capture.iterations(plan(), path, believe)
    for _ in range(after):
        next(iterations)
    iterations.close()
    assert not path.exists()
    assert_no_profiler_is_left()


def test_a_refused_recording_is_measured_again_by_steps_more_calls(path):
    verdicts = iter([LossNoted("a kernel"), None])
    assert measure(path, add, check=lambda _: next(verdicts)) == 2 + 3 + 3
    ours = recorded(path)["torchprof"]
    assert (ours["calls"], ours["attempts"]) == (8, 2)


def test_after_two_more_attempts_it_is_not_measured_and_the_recording_stays_for_a_look(path):
    seen = []

    def refuse(recording):
        seen.append(recorded(recording)["torchprof"]["attempts"])
        return LossNoted(f"no. {len(seen)}")

    assert why_not(lambda: measure(path, add, check=refuse)) == LossNoted("no. 3")
    assert seen == [1, 2, 3]
    assert recorded(path)["torchprof"]["calls"] == 2 + 3 * 3


def test_leaving_after_a_refused_recording_leaves_nothing(path):
    with closing(capture.iterations(plan(), path, lambda _: LossNoted("a kernel"))) as iterations:
        for _ in range(2 + 3 + 1):
            next(iterations)
        assert path.exists()
    assert not path.exists()


def test_an_error_that_nobody_foresaw_is_not_measured_says_where_it_was_and_leaves_nothing(path):
    def check(_):
        raise ZeroDivisionError("of all things")

    reason = why_not(lambda: measure(path, add, check=check))
    assert (type(reason), reason.code) == (CaptureFailed, Code.MEASUREMENT_FAILED)
    assert (reason.error, reason.error_text) == ("ZeroDivisionError", "of all things")
    assert re.fullmatch(r"test_capture\.py:\d+", reason.line)
    assert not path.exists()


def test_the_profiler_prints_nothing_and_the_measured_code_prints_all(path, capfd):
    def body():
        os.write(2, b"mine\n")
        sys.stdout.write("and mine\n")

    measure(path, body)
    out, err = capfd.readouterr()
    assert out.splitlines() == ["and mine"] * 5
    assert err.splitlines() == ["mine"] * 5


def test_what_another_thread_writes_meanwhile_arrives(capfd):
    with without_profiler_lines():
        writer = threading.Thread(target=os.write, args=(2, b"USDT: not the profiler\nof a thread\n"))
        writer.start()
        writer.join()
        os.write(2, b"USDT:2026-11-20 23:53:50 1:1 SyncActivityProfilerHandler.cpp:52] profiler_start\nlast")
    assert capfd.readouterr().err == "USDT: not the profiler\nof a thread\nlast"


def test_stderr_is_restored_when_the_profiler_raises(capfd):
    def raising():
        with without_profiler_lines():
            os.write(2, b"the reason\n")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        raising()
    os.write(2, b"later\n")
    assert capfd.readouterr().err == "the reason\nlater\n"


def test_without_a_stderr_there_is_nothing_to_keep_clean():
    saved = os.dup(2)
    os.close(2)
    try:
        with without_profiler_lines():
            pass
    finally:
        os.dup2(saved, 2)
        os.close(saved)


def test_nothing_that_was_computed_is_kept(path):
    kept = []

    def body():
        result = torch.ones(1000) * 2
        kept.append(weakref.ref(result))

    measure(path, body)
    gc.collect()
    assert [reference() for reference in kept] == [None] * 5


def test_measuring_consumes_no_random_numbers_and_leaves_grad_mode(path):
    torch.manual_seed(7)
    before = torch.get_rng_state()
    measure(path, add)
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.is_grad_enabled()
    with torch.inference_mode():
        measure(path, add)


def test_a_measurement_inside_a_measurement_is_refused_and_the_outer_one_holds(path, tmp_path):
    def body():
        if autograd_profiler._is_profiler_enabled:
            reason = why_not(lambda: measure(tmp_path / "inner.json", add))
            assert says(reason, ProfilerRuns, where=ThreadOfProfiler.THIS)

    assert measure(path, body) == 5
    assert len(names(recorded(path), "user_annotation")) == 1 + 3


def test_the_environment_says_what_precision_is_in_use_by_either_set_of_flags(path):
    legacy = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("high")
        assert capture.environment("cpu").tf32_matmul is True
        assert capture.environment("cpu").matmul_precision == "high"
    finally:
        torch.set_float32_matmul_precision(legacy)
    assert capture.environment("cpu").tf32_matmul is False
    if not hasattr(torch.backends, "fp32_precision"):
        return
    try:
        torch.backends.cuda.matmul.fp32_precision = "tf32"
        assert capture.environment("cpu").tf32_matmul is True
    finally:
        torch.backends.cuda.matmul.fp32_precision = "none"


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU is there")
def test_what_no_driver_tells_is_unknown():
    assert isinstance(nvml.driver_version(), NvmlSilence)
    assert isinstance(nvml.clocks_mhz("GPU-0"), NvmlSilence)
    environment = capture.environment("cpu")
    assert [environment.gpu, environment.compute_capability, environment.driver, environment.clocks_mhz] == [None] * 4


@pytest.mark.parametrize(
    ("setting", "told"),
    [
        ("CUDA_LAUNCH_BLOCKING=1", "CUDA_LAUNCH_BLOCKING=1"),
        ("CUDA_LAUNCH_BLOCKING=0", None),
        ("HIP_LAUNCH_BLOCKING=1", "HIP_LAUNCH_BLOCKING=1"),
        ("AMD_SERIALIZE_KERNEL=3", "AMD_SERIALIZE_KERNEL=3"),
        ("AMD_SERIALIZE_KERNEL=0", None),
    ],
)
def test_the_environment_says_when_launches_block(monkeypatch, setting, told):
    for name in ("CUDA_LAUNCH_BLOCKING", "HIP_LAUNCH_BLOCKING", "AMD_SERIALIZE_KERNEL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(*setting.split("="))
    environment = capture.environment("cpu")
    assert environment.launches_wait == told
    assert environment.cuda_launch_blocking is (setting == "CUDA_LAUNCH_BLOCKING=1")


def test_the_cpu_is_a_device_and_auto_means_it_where_there_is_no_gpu():
    assert capture.pick_device("cpu") == "cpu"
    if not torch.cuda.is_available():
        assert capture.pick_device("auto") == "cpu"
    capture.arm("cpu")


@pytest.mark.parametrize(
    ("device", "text"),
    [("xpu", "unknown device 'xpu'"), ("tpu", "unknown device 'tpu'"), ("cuda:x", "unknown device 'cuda:x'")],
)
def test_a_device_that_cannot_be_measured_is_refused_with_what_can(device, text):
    with pytest.raises(TorchprofError, match=text) as caught:
        capture.pick_device(device)
    assert "'cpu'" in str(caught.value)


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU is there")
@pytest.mark.parametrize("device", ["cuda", "cuda:0", "cuda:7"])
def test_a_gpu_that_is_not_there_is_refused(device):
    with pytest.raises(TorchprofError, match="no-gpu"):
        capture.pick_device(device)
