"""``torchprof doctor``: what it prints, what it survives, and which failures send people to it."""

from __future__ import annotations

import getpass
import json
import os
import platform
import re
import subprocess
import sys
import time
from multiprocessing.connection import Connection
from pathlib import Path
from textwrap import dedent

import fresh
import pytest
import torch
from builder import TraceBuilder
from children import Child
from facts import says

import pytest_torchprof
from pytest_torchprof.cli import doctor_checks as doctor
from pytest_torchprof.cli import main
from pytest_torchprof.cli.doctor_checks import inquiry, profiler
from pytest_torchprof.cli.doctor_checks.inquiry import public
from pytest_torchprof.cli.doctor_checks.machine import Machine, UsableGpu
from pytest_torchprof.cli.doctor_checks.profiler import of_lock
from pytest_torchprof.reasons.lost_work import LostKernels

PROGRAM = "from pytest_torchprof.cli import main; raise SystemExit(main())"
COMMAND = [sys.executable, "-c", PROGRAM, "doctor"]
DOCTOR = "do: run `torchprof doctor` to see what is wrong with the profiler or the device"


def run(*words, **environ):
    return fresh.run_code(PROGRAM, "doctor", *words, **environ)


# ----------------------------------------------------------------------------------------------------------------------
# The command


@pytest.mark.skipif(torch.cuda.is_available(), reason="says what a machine without a GPU says")
def test_a_machine_without_a_gpu_is_well():
    done = run()
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "nothing wrong")
    assert "no GPU (" in done.stdout
    assert "2 kernels seen of 2 operators (aten::mul, aten::add)" in " ".join(done.stdout.split())
    assert "Inductor compiles for the CPU" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 100


@pytest.mark.parametrize("columns", [40, 60, 80, 200])
def test_no_line_is_wider_than_the_screen(monkeypatch, capsys, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    long = inquiry.Answer("recorded operators", "wrong", "what was seen of it " * 12, "what there is to do " * 12)
    monkeypatch.setattr("pytest_torchprof.cli.doctor_checks.answers", lambda **_: [long])
    assert main(["doctor"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= min(columns, 100)
    assert " ".join(" ".join(lines).split()).count("what there is to do") == 12


def test_on_a_narrow_screen_no_word_of_an_answer_is_broken(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "40")
    answer = inquiry.Answer("torch", "ok", "2.13.0+cpu, and so on", "")
    monkeypatch.setattr("pytest_torchprof.cli.doctor_checks.answers", lambda **_: [answer])
    assert main(["doctor"]) == 0
    assert "2.13.0+cpu, and so on" in " ".join(capsys.readouterr().out.split())


@pytest.mark.any_torch
@pytest.mark.skipif(torch.cuda.is_available(), reason="says what a machine without a GPU says")
def test_json_holds_every_answer_and_nothing_of_the_user():
    environ = {"KINETO_CONFIG": str(Path.home() / "kineto.conf"), "CXX": "no-such-compiler", "HOME": str(Path.home())}
    done = run("--json", **environ)
    report = json.loads(done.stdout)
    assert sorted(report) == ["answers", "schema", "versions"]
    assert report["schema"] == 1
    assert report["versions"]["torch"] == torch.__version__.partition("+")[0] or "+" in report["versions"]["torch"]
    assert all(sorted(one) == ["check", "do", "status", "text"] for one in report["answers"])
    assert {one["status"] for one in report["answers"]} <= {"ok", "wrong", "not known"}
    by_check = {one["check"]: one for one in report["answers"]}
    assert by_check["environment"]["text"].startswith("KINETO_CONFIG=~/kineto.conf: ")
    # Without a compiler everything else works, and what to do is said.
    assert done.returncode == 1
    assert [one["check"] for one in report["answers"] if one["status"] == "wrong"] == ["torch.compile"]
    assert "install g++ or clang++" in by_check["torch.compile"]["do"]
    for private in (str(Path.home()), platform.node(), f"/{getpass.getuser()}/"):
        assert private not in done.stdout


def test_a_missing_torch_is_said(tmp_path):
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\n"
        "class Missing:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'torch': raise ModuleNotFoundError(\"No module named 'torch'\", name=name)\n"
        "sys.meta_path.insert(0, Missing())\n"
    )
    path = os.pathsep.join([str(tmp_path), str(Path(pytest_torchprof.__file__).parents[1])])
    done = subprocess.run(COMMAND, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    assert any(line.split(maxsplit=2) == ["wrong", "torch", "torch is not installed"] for line in lines)
    assert "not known  probe              not looked at without torch" in lines


@pytest.mark.parametrize("words", [["--jsn"], ["trace.json"]])
def test_bad_usage_is_told(capsys, words):
    assert main(["doctor", *words]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert words[-1] in err
    assert "torchprof doctor --help" in err


def test_help_says_what_the_exit_status_means(capsys):
    assert main(["doctor", "--help"]) == 0
    assert "exit status: 0 nothing is wrong, 1 something is wrong, 2 bad usage" in capsys.readouterr().out


# ----------------------------------------------------------------------------------------------------------------------
# What it survives


def test_a_check_that_raises_is_an_answer():
    def look(_):
        raise ValueError(f"{Path.home()}/x is broken\nand more")
        yield

    def crash(_):
        inquiry.ask(os.abort)
        yield

    answers = list(doctor.answers([doctor.Check("one", look, "nothing"), doctor.Check("two", crash, "nothing")]))
    assert [(one.check, one.status) for one in answers] == [("one", "not known"), ("two", "wrong")]
    assert answers[0].text == "the check itself failed: ValueError: ~/x is broken"
    assert "its process was ended by SIGABRT" in answers[1].text


@pytest.mark.any_torch
def test_a_check_that_hangs_is_ended():
    began = time.monotonic()
    with pytest.raises(inquiry.ChildFailed, match=r" 3 s and was ended$"):
        inquiry.ask(time.sleep, 300, limit_s=3)
    assert time.monotonic() - began < 250


def test_what_a_fresh_process_raises_is_told_in_its_first_line():
    with pytest.raises(inquiry.ChildFailed, match=r"^JSONDecodeError: Expecting"):
        inquiry.ask(json.loads, "{")


def test_no_module_of_the_current_folder_is_imported_in_place_of_an_installed_one(tmp_path, monkeypatch):
    (tmp_path / "msgspec.py").write_text("raise SystemExit('not this one')")
    monkeypatch.chdir(tmp_path)
    assert inquiry.ask(json.loads, '{"a": 1}') == {"a": 1}


# The home of the superuser, which is none below a folder of homes.
ROOTS_HOME = "/" + "root"


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("/home/ada/lib:/opt/cuda/lib", "~/lib:/opt/cuda/lib"),
        ("/Users/ada/x", "~/x"),
        (f"{ROOTS_HOME}/x and {ROOTS_HOME}ed", f"~/x and {ROOTS_HOME}ed"),
        ("/srv/env/lib/python3.11/site-packages/nvidia/cu13", "site-packages/nvidia/cu13"),
        ("CUDA 13.0", "CUDA 13.0"),
    ],
)
def test_paths_say_nothing_of_the_user(monkeypatch, written, shown):
    monkeypatch.setenv("HOME", "/home/somebody")
    assert public(written) == shown


def test_another_cupti_in_place_of_torchs_own_is_told_from_it(tmp_path, monkeypatch):
    """As builds of torch load it that look into LD_LIBRARY_PATH first; those of pip do not."""
    own = tmp_path / "site-packages" / "nvidia" / "cu13" / "lib" / "libcupti.so.13"
    own.parent.mkdir(parents=True)
    own.touch()
    monkeypatch.setattr(torch, "__file__", str(tmp_path / "site-packages" / "torch" / "__init__.py"))
    assert profiler.shadowed("/opt/cuda/lib64/libcupti.so.13") == "site-packages/nvidia/cu13/lib/libcupti.so.13"
    assert profiler.shadowed(str(own)) is None
    own.unlink()
    assert profiler.shadowed("/opt/cuda/lib64/libcupti.so.13") is None


def test_the_holder_of_the_gpus_lock_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr("pytest_torchprof.capture.gpu_lock._EVERYBODYS", tmp_path / "nowhere")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr("pytest_torchprof.cli.doctor_checks.profiler._WAIT_S", 0.1)
    machine = Machine()
    machine.seen_gpu = UsableGpu(
        name="GPU",
        kind="sm_90",
        memory_bytes=1,
        device="cuda:0",
        count=1,
        uuid="GPU-x",
        allocator="native",
        cuda=True,
        driver=None,
    )
    hold = (
        "import sys; from pathlib import Path; from pytest_torchprof.capture import gpu_lock\n"
        "gpu_lock._EVERYBODYS = Path('/nowhere')\n"
        "with gpu_lock.holding('GPU-x', print, doing='test_it.py::test_a'): print('held', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", hold],
        env=os.environ | {"TMPDIR": str(tmp_path)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as holder:
        assert holder.stdout.readline() == "held\n"
        (answer,) = of_lock(machine)
        holder.stdin.close()
    assert (answer.status, answer.check) == ("wrong", "GPU lock")
    assert re.search(rf"held: process {holder.pid} \(.*\) measures test_it.py::test_a, ", answer.text)
    # Nothing else could be measured either, and would wait for an hour.
    assert machine.profiler_fails == "the GPU's lock is not to be had"
    (answer,) = of_lock(machine)
    assert answer.status == "ok"


@pytest.mark.any_torch
def test_each_line_is_written_as_soon_as_it_is_known():
    with Child(COMMAND, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as doctor:
        said = [doctor.stdout.readline() for _ in range(4)]
        assert doctor.poll() is None, "it wrote when it was done"
        doctor.kill()
    assert said[0].startswith("torchprof doctor: ")
    assert any(line.startswith("ok         torch ") for line in said)


@pytest.mark.any_torch
def test_nobody_needs_to_read_to_the_end(tmp_path):
    answers, its_output = os.pipe()
    pipe, errors = Connection(its_output, readable=False), tmp_path / "errors"
    command = (fresh.as_python, *COMMAND)
    # What it says of a compiler, which takes the longest, is nothing to the reader who has gone.
    started = fresh.Fresh(*command, environment=os.environ | {"CXX": "no-such-compiler"}, outputs=[pipe, errors])
    pipe.close()
    with os.fdopen(answers) as reader:
        assert reader.readline().startswith("torchprof doctor: ")
    started.process.join()
    assert errors.read_text() == ""


# ----------------------------------------------------------------------------------------------------------------------
# Who is sent to it


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU that is not there")
def test_a_device_that_measures_nothing_names_the_command(run_tests):
    result = run_tests(
        dedent("""
        @pytest.mark.torchprof(device="cuda", max_kernels=1)
        def test_body(): pass
        @pytest.mark.torchprof(device="cuda", max_kernels=1)
        def test_call(torchprof): torchprof(lambda: None)
        """)
    )
    result.assert_outcomes(failed=2)
    assert result.stdout.str().count(DOCTOR) == 2


def test_a_file_with_losses_does_not_name_the_command(tmp_path):
    """It may be another machine's: the doctor looks at this one."""
    builder = TraceBuilder()
    builder.own(steps=1)
    builder.step(0, 0, 900)
    builder.launched("kernel", 10)
    builder.launch(40)
    builder.sync(1100, 50)
    profile = pytest_torchprof.load(builder.write(tmp_path / "t.json"))
    with pytest.raises(pytest_torchprof.NotMeasured) as failure:
        profile.expect(max_kernels=5)
    assert says(failure.value.reason, LostKernels, lost=1, launches=2)
    assert re.search(DOCTOR, str(failure.value)) is None


def test_another_profiler_and_the_tests_own_mistakes_do_not(run_tests):
    result = run_tests(
        dedent("""
        @cpu
        def test_another(torchprof):
            with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]):
                torchprof(lambda: x + 1)
        @cpu
        def test_nothing(torchprof): pass
        """)
    )
    result.assert_outcomes(failed=2)
    assert "torchprof doctor" not in result.stdout.str()
