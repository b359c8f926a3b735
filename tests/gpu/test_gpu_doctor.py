"""``torchprof doctor`` on a GPU: it finds nothing wrong with a sound one, and names each fault of a simulated one."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import forking
import fresh
import pytest
import torch
from simulated import gpu_is_simulated

from pytest_torchprof.cli import doctor_checks as doctor
from pytest_torchprof.cli.doctor_checks import profiler
from pytest_torchprof.cli.doctor_checks.inquiry import SEE_THE_GPU
from pytest_torchprof.reasons.disturbances import Brake
from pytest_torchprof.reasons.no_gpu import DriverSeesNone, GpusHidden, NoGpuOfThese
from pytest_torchprof.reasons.nvml_silence import AskerNotListed

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA or ROCm device; torch sees none"),
]
simulated = pytest.mark.skipif(not gpu_is_simulated(), reason="a fault on demand needs the simulated device")

CHECKS = {check.name: check for check in doctor.CHECKS}
COMMAND = "from pytest_torchprof.cli import main; raise SystemExit(main())"
TURNS = 20
"""How often the command asks for the GPU while tests beside this one measure on it: it waits for a few seconds only."""


@pytest.fixture
def ask(tmp_path, monkeypatch):
    """Return a function that makes some of the checks under a fault.

    What may suffer from a fault runs in processes of its own, so that this one's GPU stays sound.
    """
    # Locks of other tests are not this one's, and what needs idle time says so.
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(profiler, "_IDLE_S", 0.0)

    def ask(*names, **fault):
        for name, value in fault.items():
            monkeypatch.setenv(name, value)
        # What the loader reads when a process starts comes too late for a fork.
        if gpu_is_simulated() and not any(name.startswith("LD_") for name in fault):
            monkeypatch.setattr("subprocess.Popen", forking.Popen)
        return list(doctor.answers([CHECKS[name] for name in names]))

    return ask


def told(answers, check):
    """Return what was answered of something that is answered once."""
    (answer,) = (one for one in answers if one.check == check)
    return answer


def test_a_sound_gpu_is_well(tmp_path):
    for _ in range(TURNS):
        done = fresh.run_from_start(COMMAND, "doctor", "--json", TMPDIR=str(tmp_path))
        answers = {one["check"]: one for one in json.loads(done.stdout)["answers"]}
        if answers["GPU lock"]["status"] != "wrong":
            break
    # Tests beside this one may hold the GPU's lock.
    said = [line for line in done.stderr.splitlines() if not line.startswith("torchprof waits for the GPU")]
    assert said == []
    # What others do on this GPU meanwhile, and its temperature, are not this test's to say.
    wrong = {check for check, one in answers.items() if one["status"] == "wrong"}
    assert wrong <= {"NVML processes", "NVML slow-downs"}
    assert done.returncode == bool(wrong)
    assert torch.cuda.get_device_name() in answers["GPU"]["text"]
    assert "launched 50 kernels each: all were seen" in answers["sessions"]["text"]
    assert answers["CUDA graph"]["text"].startswith("1 launch, ")
    assert answers["Triton kernel"]["text"].startswith("1 launch, 1 kernel in each step; 0 orphans, 0 lost")
    assert "1 kernel in each step; 0 orphans, 0 lost" in answers["cooperative"]["text"]
    assert "by CUDA events" in answers["clock"]["text"]


FIRST = "nothing can be measured on a GPU until this is put right"


@simulated
@pytest.mark.parametrize(
    ("fault", "why"),
    [
        ({"FAKEGPU_COUNT": "0"}, DriverSeesNone().text),
        ({"CUDA_VISIBLE_DEVICES": ""}, GpusHidden((("CUDA_VISIBLE_DEVICES", ""),)).text),
        ({"FAKEGPU_INIT_ERROR": "802"}, "fabric manager"),
        ({"FAKEGPU_INIT_ERROR": "35"}, "too old"),
        ({"FAKEGPU_INIT_ERROR": "46"}, "busy or unavailable"),
        ({"FAKEGPU_INIT_ERROR": "2"}, "out of memory"),
        ({"FAKEGPU_INIT_ERROR": "214"}, "ECC"),
        ({"FAKEGPU_MEM_GB": "0.001"}, "out of memory"),
        ({"FAKEGPU_FAIL_KERNEL": "elementwise"}, "illegal memory access"),
    ],
    ids=lambda value: " ".join(f"{name}={one}" for name, one in value.items()) if isinstance(value, dict) else None,
)
def test_a_gpu_that_cannot_be_used_is_named_and_nothing_is_asked_of_it(ask, fault, why):
    answers = ask("GPU", "NVML", "sessions", **fault)
    assert [(one.check, one.status) for one in answers] == [
        ("GPU", "wrong"),
        ("NVML", "not known"),
        ("sessions", "not known"),
    ]
    assert why in answers[0].text
    assert answers[0].do == FIRST
    assert answers[1].text == "not looked at: torch cannot use the GPU"


@simulated
@pytest.mark.parametrize(
    ("faults", "expected"),
    [
        (
            {
                "FAKEGPU_NVML_THROTTLE": "0x24",
                "FAKEGPU_NVML_PROCESSES": "2",
                "FAKEGPU_NVML_COMPUTE_MODE": "3",
                "FAKEGPU_NVML_ERROR": "nvmlDeviceGetClockInfo:4,nvmlDeviceGetMaxClockInfo:4",
            },
            [
                ("driver", "ok", "."),
                ("clocks", "not known", "nvmlDeviceGetClockInfo: Insufficient Permissions"),
                ("slow-downs", "wrong", f"{Brake.POWER_LIMIT}, {Brake.TEMPERATURE}"),
                ("processes", "wrong", "other processes on it"),
                ("compute mode", "ok", "exclusive process: one process at a time"),
                ("MIG", "ok", "a whole GPU"),
            ],
        ),
        (
            {"FAKEGPU_NVML": "old", "FAKEGPU_MIG": "1", "FAKEGPU_NVML_COMPUTE_MODE": "2"},
            [
                ("clocks", "ok", "sm 1755 of 1980 MHz"),
                ("slow-downs", "ok", "none"),
                ("compute mode", "wrong", "prohibited"),
                ("MIG", "ok", "a slice of a GPU"),
            ],
        ),
        (
            {"FAKEGPU_NVML": "new", "FAKEGPU_NVML_PROCESSES": "none", "FAKEGPU_NVML_COMPUTE_MODE": "7"},
            [
                ("slow-downs", "ok", "none"),
                ("processes", "not known", AskerNotListed().text),
                ("compute mode", "not known", "the driver says 7, which is none of the modes"),
            ],
        ),
        ({"FAKEGPU_NVML": "absent"}, [("library", "not known", "NVML Shared Library Not Found")]),
        ({"FAKEGPU_NVML_ERROR": "3"}, [("library", "not known", "nvmlInit: Not Supported")]),
        ({"FAKEGPU_NVML_ERROR": "nvmlInitWithFlags:18"}, [("library", "wrong", "version mismatch")]),
        ({"FAKEGPU_NVML_ERROR": "nvmlDeviceGetHandleByUUID:15"}, [("GPU", "wrong", "GPU is lost")]),
    ],
    ids=["disturbed", "old, a slice", "new, in a container", "absent", "refuses everything", "updated", "lost"],
)
def test_what_the_driver_tells_is_told_query_by_query(ask, faults, expected):
    answers = ask("NVML", **faults)
    for name, status, text in expected:
        answer = told(answers, f"NVML {name}")
        assert answer.status == status
        assert text in answer.text
        assert status != "wrong" or answer.do
    if expected[0][0] == "library":
        assert len(answers) == 1


@simulated
def test_one_of_two_gpus_is_looked_at_and_their_number_said(ask):
    assert "cuda:0 of 2 GPUs" in told(ask("GPU", FAKEGPU_COUNT="2"), "GPU").text


@simulated
def test_variables_that_disturb_measurements_are_wrong(ask):
    answers = ask("environment", CUDA_LAUNCH_BLOCKING="1", CUDA_INJECTION64_PATH="/x/libtool.so")
    wrong = [one for one in answers if one.status == "wrong"]
    assert [one.text.partition(":")[0] for one in wrong] == [
        "CUDA_INJECTION64_PATH=/x/libtool.so",
        "CUDA_LAUNCH_BLOCKING=1",
    ]
    assert [one.do for one in wrong] == [
        "run the tests without it, or with --torchprof=off",
        "unset CUDA_LAUNCH_BLOCKING",
    ]


@simulated
def test_another_cupti_beside_torchs_own_is_named(ask, tmp_path):
    loaded = next(path for path in map(Path, profiler.loaded_paths()) if path.is_file())
    other = Path(shutil.copy(loaded, tmp_path / loaded.name))
    # A torch of pip's finds its own whatever is in LD_LIBRARY_PATH.
    answer = told(ask("CUPTI", LD_LIBRARY_PATH=f"{tmp_path}:{os.environ['LD_LIBRARY_PATH']}"), "CUPTI")
    assert (answer.status, str(other) in answer.text) == ("ok", False)
    answer = told(ask("CUPTI", LD_PRELOAD=f"{os.environ['LD_PRELOAD']}:{other}"), "CUPTI")
    assert answer.status == "wrong"
    assert answer.text.startswith("2 are loaded at once: ")
    assert str(other) in answer.text
    assert "LD_PRELOAD" in answer.do


@simulated
def test_a_cupti_that_is_known_to_lose_kernels_is_named(ask):
    answer = told(ask("CUPTI"), "CUPTI")
    assert answer.status == "ok"
    release = tuple(map(int, torch.version.cuda.split(".")))
    assert f"of CUDA {torch.version.cuda} (API " in answer.text
    assert ("known to lose the first kernels of a session" in answer.text) == ((12, 6) <= release <= (13, 0))


@simulated
@pytest.mark.parametrize(("version", "named"), [(23, False), (24, True), (28, True), (130000, True), (130100, False)])
def test_whether_a_cupti_loses_kernels_is_told_by_its_version(ask, version, named):
    answer = told(ask("CUPTI", FAKEGPU_CUPTI_VERSION=str(version)), "CUPTI")
    assert ("known to lose the first kernels of a session" in answer.text) == named


@simulated
@pytest.mark.parametrize(("version", "named"), [(130000, True), (130100, True), (130101, False), (28, True)])
def test_a_cupti_that_may_number_graphs_wrongly_is_named(ask, version, named):
    answer = told(ask("CUPTI", FAKEGPU_CUPTI_VERSION=str(version)), "CUPTI")
    assert answer.status == "ok"
    assert (
        "may give CUDA graphs wrong correlation ids (before CUDA 13.1 Update 1): see CUDA graph" in answer.text
    ) == named


# ----------------------------------------------------------------------------------------------------------------------
# The profiler


@simulated
@pytest.mark.parametrize(
    ("fault", "text"),
    [
        ({}, "10 sessions, 0 s apart, launched 50 kernels each: all were seen"),
        ({"FAKEGPU_SLOW": "FillFunctor=300000000"}, "all were seen"),
        (
            {"FAKEGPU_CUPTI_DROP": "5"},
            "all were seen; of the extra ones at the head of each, which nobody counts, 5 each were lost",
        ),
        ({"FAKEGPU_CUPTI_HEAD": "0"}, "which nobody counts, 1 2 3 4 5 6 7 8 9 10 were lost"),
    ],
    ids=["none", "kernels in flight from before", "losses at the head", "one more lost in each session"],
)
def test_sessions_are_well_where_what_tests_count_is_seen(ask, fault, text):
    (answer,) = ask("sessions", **fault)
    assert (answer.status, answer.do) == ("ok", "")
    assert answer.text.endswith(text)


@simulated
@pytest.mark.parametrize(
    ("fault", "text"),
    [
        ({"FAKEGPU_CUPTI_DROP_EVERY": "7"}, "the profiler loses kernels"),
        ({"FAKEGPU_CUPTI_DROP": "30:3"}, "47 each were seen"),
        ({"FAKEGPU_CUPTI_BUFFER": "2"}, "the profiler loses kernels"),
        ({"FAKEGPU_LOST_AFTER": "150"}, "CUDA error"),
    ],
    ids=["every seventh record", "records in the middle", "full buffers", "the GPU vanishes"],
)
def test_sessions_are_wrong_where_what_tests_count_is_lost(ask, fault, text):
    (answer,) = ask("sessions", **fault)
    assert answer.status == "wrong"
    assert text in answer.text
    assert answer.do


@simulated
def test_kinds_of_launches_are_told_apart(ask):
    fault = {"FAKEGPU_CUPTI_DROP_GRAPH": "all", "FAKEGPU_CUPTI_DROP_CALLS": "cuLaunchKernelEx"}
    graph, triton, cooperative = ask("CUDA graph", "Triton kernel", "cooperative", **fault)
    assert (graph.status, triton.status, cooperative.status) == ("wrong", "ok", "ok")
    assert "0 kernels in each step" in graph.text
    assert "3 kernels launched by " in triton.text
    assert "CUDA graphs" in graph.do


@simulated
def test_a_slow_product_is_measured_right(ask):
    (answer,) = ask("clock", FAKEGPU_SLOW="gemm=900000000")
    assert answer.status == "ok"
    assert "by CUDA events" in answer.text


@simulated
@pytest.mark.parametrize(
    ("code", "error"),
    [
        (39, "CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED"),
        (14, "CUPTI_ERROR_NOT_COMPATIBLE"),
    ],
)
def test_what_cupti_refuses_is_quoted(ask, code, error):
    answer = told(ask("probe", FAKEGPU_CUPTI_ERROR=str(code)), "probe")
    assert answer.status == "wrong"
    assert "a fresh process sees 0 of its 64 kernels" in answer.text
    assert error in answer.text
    assert answer.do


@simulated
def test_a_session_that_runs_whenever_python_starts_is_what_keeps_all_others_from_seeing(ask, tmp_path, monkeypatch):
    (tmp_path / "sitecustomize.py").write_text(
        "from torch.profiler import ProfilerActivity, profile\nwith profile(activities=[ProfilerActivity.CPU]): pass\n"
    )
    # A fork has begun already.
    answers = ask("probe", PYTHONPATH=str(tmp_path), LD_BIND_NOW="1")
    answer = told(answers, "probe")
    assert answer.status == "wrong"
    assert (
        "a fresh process sees 0 of its 64 kernels, and one that leaves out what runs whenever Python starts sees 64"
        in (answer.text)
    )
    assert "sitecustomize" in answer.do
    monkeypatch.delenv("PYTHONPATH")
    assert told(ask("probe"), "probe").status == "ok"


ASK = """
import json, sys
from pytest_torchprof.cli import doctor_checks as doctor
chosen = [check for check in doctor.CHECKS if check.name in sys.argv[1:]]
print(json.dumps([[one.check, one.status, one.text] for one in doctor.answers(chosen)]))
"""


@simulated
def test_a_device_that_fails_under_the_profiler_is_not_blamed_on_other_tools(ask):
    answer = told(ask("probe", FAKEGPU_LOST_AFTER="40"), "probe")
    assert answer.status == "wrong"
    assert "CUDA error" in answer.text
    assert answer.do == SEE_THE_GPU


@simulated
def test_a_gpu_that_is_there_and_cannot_be_used_is_not_missing(ask):
    assert "torch cannot use the GPU" in told(ask("CUPTI", FAKEGPU_INIT_ERROR="46"), "CUPTI").text


@simulated
def test_a_variable_that_names_a_gpu_is_not_blamed_for_a_driver_that_sees_none(ask):
    answer = told(ask("GPU", FAKEGPU_COUNT="0", CUDA_VISIBLE_DEVICES="0"), "GPU")
    assert NoGpuOfThese((("CUDA_VISIBLE_DEVICES", "0"),)).text in answer.text


@simulated
def test_neither_warnings_nor_the_current_folder_are_taken_for_a_broken_gpu(ask, tmp_path, monkeypatch):
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch/__init__.py").write_text("raise ImportError('a checkout of torch')\n")
    monkeypatch.chdir(tmp_path)
    answers = ask("GPU", "probe", "CPU as device", PYTHONWARNINGS="error")
    assert {answer.status for answer in answers} == {"ok"}


@simulated
def test_what_cannot_be_profiled_is_not_profiled_further(tmp_path):
    """In a process of its own: this one's profiler works, which is what another line says."""
    given = {"TMPDIR": str(tmp_path), "FAKEGPU_CUPTI_ERROR": "35"}
    done = fresh.run_from_start(ASK, "probe", "sessions", "clock", **given)
    probe, *others = json.loads(done.stdout)
    assert (probe[:2], "CUPTI_ERROR_INSUFFICIENT_PRIVILEGES" in probe[2]) == (["probe", "wrong"], True)
    assert others == [
        ["this process", "wrong", "sees no kernel of its own either"],
        ["sessions", "not known", "not looked at: the probe saw no kernel"],
        ["clock", "not known", "not looked at: the probe saw no kernel"],
    ]


@simulated
def test_a_test_that_the_profiler_fails_names_the_command(tmp_path):
    Path(tmp_path, "test_it.py").write_text(
        "import pytest, torch\n"
        "@pytest.mark.torchprof(max_kernels=5)\n"
        "def test_body(): torch.ones(8, device='cuda').add_(1)\n"
        "def test_call(torchprof): torchprof(lambda: torch.ones(8, device='cuda'))\n"
    )
    # Without the short summary, which is whole where CI is set and would tell the reasons once more.
    words = ("-p", "no:cacheprovider", "-rN", str(tmp_path))
    done = fresh.start_pytest(*words, TMPDIR=str(tmp_path), FAKEGPU_CUPTI_ERROR="35").done()
    assert "2 not measured" in done.stdout
    assert done.stdout.count("do: run `torchprof doctor` to see what is wrong with the profiler or the device") == 2
