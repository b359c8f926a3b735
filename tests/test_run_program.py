"""``torchprof run``: a program under the profiler, from outside, judged as one step."""

from __future__ import annotations

import sys

import fresh
import pytest
import torch

from pytest_torchprof import load
from pytest_torchprof.cli import main

PROGRAM = """
import sys
import torch
from helper import double

if __name__ == "__main__":
    print("arguments", sys.argv[1:])
    x = double(torch.ones(4, 4))
    torch.mm(x, x)
"""


@pytest.fixture
def program(tmp_path, monkeypatch):
    """Write a program of two files beside each other, and stand elsewhere; return its path."""
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.delitem(sys.modules, "helper", raising=False)
    (tmp_path / "helper.py").write_text("def double(x):\n    return x * 2\n")

    def write(ending: str = "") -> str:
        (tmp_path / "program.py").write_text(PROGRAM + ending)
        return str(tmp_path / "program.py")

    yield write
    sys.modules.pop("helper", None)


@pytest.mark.parametrize(
    ("limit", "status", "words"),
    [
        ("max_kernels=3", 0, "1 limit holds"),
        ("max_kernels=2", 1, "max_kernels=2 "),
        ("max_launches=3", 3, "not measured: the cpu as device has no"),
    ],
)
def test_limits_on_all_that_a_program_runs_are_its_exit_status(program, capsys, limit, status, words):
    assert main(["run", "--device", "cpu", "--limit", limit, program()]) == status
    out = capsys.readouterr().out
    assert words in out
    assert out.count("arguments") == 1


def test_a_program_finds_its_arguments_and_modules_and_runs_once(program, capsys):
    argv, path = list(sys.argv), list(sys.path)
    assert main(["run", "--device=cpu", program(), "--limit", "max_kernels=0", "--help"]) == 0
    out = capsys.readouterr().out
    assert out.count("arguments ['--limit', 'max_kernels=0', '--help']") == 1
    assert "aten::mm" in out
    assert (sys.argv, sys.path) == (argv, path)


def test_a_module_is_run_by_its_name(program, capsys, tmp_path, monkeypatch):
    program()
    monkeypatch.chdir(tmp_path)
    assert main(["run", "--device", "cpu", "--limit", "max_kernels=3", "-m", "program", "a"]) == 0
    assert "arguments ['a']" in capsys.readouterr().out


def test_the_recording_is_kept_whether_limits_hold_or_not(program, capsys):
    assert main(["run", "--device", "cpu", "--limit", "max_kernels=2", "--save", "kept.json.gz", program()]) == 1
    profile = load("kept.json.gz")
    assert profile.kernels.count == 3
    assert (profile.trace.metadata.calls, profile.trace.metadata.warmup) == (1, 0)
    assert "recording: kept.json.gz" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("ending", "status", "words"),
    [
        ("raise ValueError('wrong')", 1, "ValueError: wrong"),
        ("sys.exit(7)", 7, ""),
        ("sys.exit('why')", 1, "why\n"),
    ],
)
def test_the_programs_own_failure_is_its_own_exit_status(program, capsys, ending, status, words):
    path = program(ending)
    assert main(["run", "--device", "cpu", "--limit", "max_kernels=0", "--save", "kept.json", path]) == status
    err = capsys.readouterr().err
    assert words in err
    assert f"torchprof run: {path} itself ended with exit status {status}: nothing was judged" in err
    assert "pytest_torchprof" not in err


def test_a_program_that_exits_well_is_judged(program):
    assert main(["run", "--device", "cpu", "--limit", "max_kernels=3", program("sys.exit(0)")]) == 0
    assert main(["run", "--device", "cpu", "--limit", "max_kernels=2", program("sys.exit()")]) == 1


def test_a_program_that_runs_nothing_or_profiles_itself_is_not_measured_and_is_not_run_again(program, capsys, tmp_path):
    (tmp_path / "empty.py").write_text("print('once')")
    assert main(["run", "--device", "cpu", str(tmp_path / "empty.py")]) == 3
    assert "nothing ran on the device" in capsys.readouterr().out
    profiled = program("with torch.profiler.profile(): torch.sin(x)")
    assert main(["run", "--device", "cpu", profiled]) == 3
    out = capsys.readouterr().out
    assert "another profiler was started inside the measured code" in out
    assert out.count("arguments") == 1


@pytest.mark.skipif(torch.cuda.is_available(), reason="what a machine without a GPU says")
def test_without_a_gpu_limits_on_one_are_not_measured(program, capsys):
    assert main(["run", "--limit", "max_kernels=3", program()]) == 3
    assert "torch sees no GPU" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "expected a SCRIPT.py to run, or -m MODULE"),
        (["-m"], "expected a SCRIPT.py to run, or -m MODULE"),
        (["nowhere.py"], "there is no script nowhere.py"),
        (["--limits", "a"], "unknown option '--limits'"),
        (["--limit", "max_kernel=1", "PROGRAM"], "did you mean 'max_kernels'?"),
        (["--device", "gpu", "PROGRAM"], "device='gpu': expected"),
    ],
)
def test_what_cannot_be_meant_is_refused_before_anything_runs(program, capsys, words, said):
    path = program("raise SystemError")
    assert main(["run", *[path if word == "PROGRAM" else word for word in words]]) == 2
    out, err = capsys.readouterr()
    assert said in err
    assert out == ""


def test_a_process_of_its_own_ends_as_pythons_do(program):
    path = program("import atexit; atexit.register(print, 'at the end')")
    code = "import sys; from pytest_torchprof.cli import main; sys.argv[1:1] = ['run', '--device', 'cpu']; sys.exit(main())"
    done = fresh.run_code(code, "--limit", "max_kernels=2", path)
    assert done.returncode == 1
    assert "at the end" in done.stdout
    assert done.stdout.index("arguments") < done.stdout.index("max_kernels=2")
