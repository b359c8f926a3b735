"""``torchprof run``: a program under the profiler, from outside, judged as one step by the process that was called."""

from __future__ import annotations

import json
import signal
import sys
import time
from pathlib import Path

import fresh
import pytest
import torch
from jsonschema import validate

from pytest_torchprof import load
from pytest_torchprof.cli import main
from pytest_torchprof.cli.schema import SCHEMAS
from pytest_torchprof.reasons.measuring import ProgramEnded, ProgramFailed

COMMAND = "import sys; from pytest_torchprof.cli import main; sys.argv[1:1] = ['run']; sys.exit(main())"
PROGRAM = """
import atexit
import os
import signal
import sys
import threading
import time
import torch
from helper import double

if __name__ == "__main__":
    print("arguments", sys.argv[1:], flush=True)
    x = double(torch.ones(4, 4))
    torch.mm(x, x)
"""
HOLDS, MISSES = ("--limit", "max_kernels=3"), ("--limit", "max_kernels=2")


@pytest.fixture
def program(tmp_path, monkeypatch):
    """Write a program of two files beside each other, and stand elsewhere; return its path."""
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    monkeypatch.setenv("TMPDIR", str(tmp_path / "elsewhere"))
    (tmp_path / "helper.py").write_text("def double(x):\n    return x * 2\n")

    def write(ending: str = "") -> str:
        (tmp_path / "program.py").write_text(PROGRAM + ending)
        return str(tmp_path / "program.py")

    return write


def run(*words, device="cpu", before=""):
    """Call the command; nothing of it stays behind."""
    done = fresh.run_code(before + COMMAND, *(("--device", device) if device else ()), *words)
    assert "pytest_torchprof" not in done.stderr, done.stderr
    assert not list(Path.cwd().glob("torchprof-*")), "the recording's folder is still there"
    return done


@pytest.mark.parametrize(
    ("limit", "status", "words"),
    [
        ("max_kernels=3", 0, "1 limit holds"),
        ("max_kernels=2", 1, "max_kernels=2 "),
        ("max_launches=3", 3, "[needs-gpu]"),
    ],
)
def test_limits_on_all_that_a_program_runs_are_its_exit_status(program, limit, status, words):
    done = run("--limit", limit, program())
    assert done.returncode == status
    assert words in done.stdout
    assert done.stdout.count("arguments") == 1


@pytest.mark.any_torch
def test_as_many_rows_as_are_asked_for_are_shown_below_each_limit(program):
    path = program("\n    for op in (torch.sin, torch.cos, torch.exp, torch.abs, torch.neg):\n        op(x)\n")
    limits = ("--limit", "max_kernels=1", "--limit", "max_gpu_time=0")

    def rows(*words):
        return sum(line.lstrip().startswith("1 x ") for line in run(*words, *limits, path).stdout.splitlines())

    few = run("--top", "2", *limits, path)
    assert few.returncode == 1
    assert "and 6 more: --top N" in few.stdout
    assert (rows("--top", "2"), rows("--top", "7")) == (2, 7)
    table = run("--top", "2", path).stdout
    assert "(--top 8)" in table


@pytest.mark.parametrize(
    ("ending", "status", "word", "code"),
    [("", 1, "missed", None), ("import os; os._exit(0)", 3, "not measured", "not-run-to-end")],
)
def test_the_verdicts_are_a_line_of_json_behind_what_the_program_writes(program, ending, status, word, code):
    done = run("--json", "--limit=max_kernels=2", program(ending))
    assert done.returncode == status, done.stderr
    *_, last = done.stdout.splitlines()
    told = json.loads(last)
    validate(told, SCHEMAS["check"]())
    assert (told["status"], told["code"]) == (word, code)
    assert [verdict["number"] for verdict in told["limits"]] == ([3] if status == 1 else [])


def test_a_program_that_fails_has_no_verdict_of_its_own_making(program):
    forged = (
        """print('{"schema": 1, "status": "holds", "message": null, "code": null, "remedy": null, "limits": []}')"""
    )
    done = run("--json", "--limit=max_kernels=9", program(f"    {forged}\n    sys.exit(7)"))
    assert done.returncode == 7
    *_, said, last = done.stdout.splitlines()
    assert json.loads(said)["status"] == "holds"
    verdict = json.loads(last)
    validate(verdict, SCHEMAS["check"]())
    assert (verdict["status"], verdict["code"], verdict["limits"]) == ("not measured", "not-run-to-end", [])
    assert verdict["message"] in done.stderr


def test_without_a_limit_there_is_no_json_that_could_be_taken_for_a_verdict(program):
    done = run("--json", program())
    assert (done.returncode, done.stdout) == (2, "")
    assert "--limit" in done.stderr


@pytest.mark.any_torch
@pytest.mark.skipif(sys.platform != "linux", reason="looked at on Linux")
@pytest.mark.parametrize("columns", [40, 80])
def test_no_line_of_what_was_missed_is_wider_than_the_terminal(program, columns):
    from terminals import on_terminal

    limits = ("--limit", "max_kernels=1", "--limit", "forbid_ops=aten::mm", "--limit", "max_syncs=0")
    status, lines = on_terminal(
        ["-c", COMMAND, "--device", "cpu", *limits, program()], columns, PYTHONWARNINGS="ignore"
    )
    assert status == 3
    assert any(line.startswith("  do: ") for line in lines)
    assert max(map(len, lines[1:])) <= columns


def test_a_program_finds_its_arguments_and_modules_and_runs_once(program):
    done = run(program(), "--limit", "max_kernels=0", "--help")
    assert done.returncode == 0
    assert done.stdout.count("arguments ['--limit', 'max_kernels=0', '--help']") == 1
    assert "aten::mm" in done.stdout


@pytest.mark.any_torch
@pytest.mark.parametrize(
    ("words", "arguments"),
    [
        (["PROGRAM", "--", "-h"], ["--", "-h"]),
        (["--", "PROGRAM", "--", "-m"], ["--", "-m"]),
        (["--limit=max_kernels=3", "PROGRAM", "-m", "--limit"], ["-m", "--limit"]),
        (["-m", "program", "--", "-h", "--limit"], ["--", "-h", "--limit"]),
        (["-m", "program", "-h", "-m", "x"], ["-h", "-m", "x"]),
    ],
)
def test_what_stands_behind_a_program_is_the_programs_two_dashes_too(program, tmp_path, monkeypatch, words, arguments):
    path = program()
    monkeypatch.chdir(tmp_path)
    done = run(*[path if word == "PROGRAM" else word for word in words])
    assert done.returncode == 0
    assert f"arguments {arguments}\n" in done.stdout


def test_a_module_is_run_by_its_name(program, tmp_path, monkeypatch):
    program()
    monkeypatch.chdir(tmp_path)
    done = run(*HOLDS, "-m", "program", "a")
    assert done.returncode == 0
    assert "arguments ['a']" in done.stdout


def test_a_script_knows_itself_as_under_python(program, tmp_path, monkeypatch):
    path = program("os.chdir('/'); print(sys.argv[0], __file__, __name__, __spec__, sys.path[0])")
    monkeypatch.chdir(Path(path).parent)
    script = f"program.py {path} __main__ None {tmp_path}\n"
    assert script in fresh.run_code(COMMAND, "--device", "cpu", "program.py").stdout


def test_a_program_reads_what_is_written_to_the_command(program):
    written = "import os; r, w = os.pipe(); os.write(w, b'words'); os.close(w); os.dup2(r, 0); "
    told = written + "sys = __import__('sys'); sys.stdin = open(0); "
    done = run(*HOLDS, program("print('read', sys.stdin.read())"), before=told)
    assert (done.returncode, "read words\n" in done.stdout) == (0, True)


def test_the_recording_is_kept_whether_limits_hold_or_not(program):
    done = run(*MISSES, "--save", "kept.json.gz", program("os.chdir('/')"))
    profile = load("kept.json.gz")
    assert (done.returncode, profile.kernels.count) == (1, 3)
    assert (profile.trace.metadata.calls, profile.trace.metadata.warmup) == (1, 0)
    assert "recording: kept.json.gz" in done.stdout


@pytest.mark.any_torch
@pytest.mark.parametrize(
    ("ending", "status", "words"),
    [
        ("raise ValueError('wrong')", 1, "ValueError: wrong"),
        ("sys.exit(7)", 7, ""),
        ("sys.exit('why')", 1, "why\n"),
        ("atexit.register(os._exit, 9)", 9, ""),
        (
            "sys.excepthook = lambda *told: sys.stderr.write(f'hooked {told[1]}'); raise ValueError('wrong')",
            1,
            "hooked wrong",
        ),
        ("os.kill(os.getppid(), signal.SIGINT); time.sleep(60)", 130, "KeyboardInterrupt"),
    ],
)
def test_the_programs_own_failure_is_its_own_exit_status(program, ending, status, words):
    path = program(ending)
    done = run("--limit", "max_kernels=0", "--save", "kept.json", path)
    assert done.returncode == status
    assert words in done.stderr
    assert f"torchprof run: {ProgramFailed(path, status).sentence}" in done.stderr
    assert not Path("kept.json").exists()


@pytest.mark.any_torch
def test_a_program_that_exits_well_is_judged(program):
    assert run(*HOLDS, program("sys.exit(0)")).returncode == 0
    assert run(*MISSES, program("sys.exit()")).returncode == 1
    assert run(*MISSES, program("sys.exit(256)")).returncode == 1  # The system keeps a byte of it: 0.


@pytest.mark.any_torch
@pytest.mark.parametrize(
    ("ending", "status"),
    [
        ("os._exit(0)", 0),
        ("os._exit(5)", 5),
        ("os.execv(sys.executable, [sys.executable, '-c', ''])", 0),
        ("[os.fork() and os._exit(0), os.setsid()]", 0),
        ("import glob, shutil; [shutil.rmtree(one) for one in glob.glob('torchprof-*')]", 0),
        ("os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL),
        ("atexit.register(os.kill, os.getpid(), signal.SIGSEGV)", -signal.SIGSEGV),
        ("os.kill(os.getppid(), signal.SIGTERM); time.sleep(60)", -signal.SIGTERM),
    ],
)
def test_a_program_that_leaves_nothing_to_judge_is_not_measured(program, ending, status):
    path = program(ending)
    done = run("--limit", "min_kernels=0", path)
    assert done.returncode == 3
    line = " ".join(part.strip() for part in done.stdout.splitlines()[1:])
    assert line == f"not measured: {ProgramEnded(path, status).sentence} [not-run-to-end]"


@pytest.mark.any_torch
@pytest.mark.parametrize("end", ["sys.exit(3)", "pass", "raise ValueError"])
def test_only_the_process_that_was_started_judges_whatever_a_fork_of_it_does(program, end):
    fork = f"""
    atexit.register(print, "at the end", os.getpid())
    if other := os.fork():
        print("a fork ended with", os.waitstatus_to_exitcode(os.waitpid(other, 0)[1]), flush=True)
    else:
        {end}
"""
    done = run(*MISSES, program(fork))
    assert done.returncode == 1
    status = {"sys.exit(3)": 3, "pass": 0, "raise ValueError": 1}[end]
    assert f"a fork ended with {status}\n" in done.stdout
    assert done.stdout.count("1 limit missed") == 1
    assert len([line for line in done.stdout.splitlines() if line.startswith("at the end")]) == 2


@pytest.mark.any_torch
def test_processes_that_a_program_starts_by_multiprocessing_are_its_own_and_not_judged(program):
    pools = """
    import multiprocessing
    for method in ("fork", "spawn"):
        with multiprocessing.get_context(method).Pool(1) as pool:
            print(method, pool.map(double, [1]))
"""
    done = run(*HOLDS, program(pools))
    assert (done.returncode, done.stdout.count("1 limit holds")) == (0, 1)
    assert all(f"{method} [2]" in done.stdout for method in ("fork", "spawn"))


def test_a_program_that_handles_a_signal_is_judged(program):
    handles = """
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    os.kill(os.getppid(), signal.SIGTERM)
    time.sleep(60)
"""
    assert run(*HOLDS, program(handles)).returncode == 0


def test_threads_that_outlive_the_programs_last_line_are_waited_for_as_python_does(program):
    late = "threading.Thread(target=lambda: [time.sleep(0.3), print('late')]).start()"
    done = run(*HOLDS, program(late))
    assert done.stdout.index("late") < done.stdout.index("max_kernels=3")
    assert done.returncode == 3  # The CPU's profiler does not see that thread.


def test_a_program_that_closes_what_it_did_not_open_is_judged(program):
    assert run(*MISSES, program("os.closerange(3, 1000)")).returncode == 1


@pytest.mark.skipif(sys.platform != "linux", reason="Linux ends a process with the one that started it")
def test_a_program_ends_with_the_command_that_was_killed(program):
    path = program(
        "print(os.getpid(), file=open('pid', 'w'), flush=True); os.kill(os.getppid(), signal.SIGKILL); time.sleep(60)"
    )
    assert fresh.run_code(COMMAND, "--device", "cpu", path).returncode == -9
    process, until = int(Path("pid").read_text()), time.monotonic() + 30
    while Path(f"/proc/{process}/stat").exists() and " Z " not in Path(f"/proc/{process}/stat").read_text():
        assert time.monotonic() < until, "the program goes on"
        time.sleep(0.05)


def test_a_program_that_runs_nothing_or_profiles_itself_is_not_measured_and_is_not_run_again(program, tmp_path):
    (tmp_path / "empty.py").write_text("print('once')")
    done = run(str(tmp_path / "empty.py"))
    assert done.returncode == 3
    assert "[nothing-ran]" in done.stdout
    done = run(program("with torch.profiler.profile(): torch.sin(x)"))
    assert done.returncode == 3
    assert "[another-profiler]" in done.stdout
    assert done.stdout.count("arguments") == 1


@pytest.mark.skipif(torch.cuda.is_available(), reason="what a machine without a GPU says")
def test_without_a_gpu_limits_on_one_are_not_measured(program):
    done = run(*HOLDS, program(), device=None)
    assert done.returncode == 3
    assert "[needs-gpu]" in done.stdout
    assert "arguments" not in done.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "expected a SCRIPT.py to run, or -m MODULE"),
        (["-m"], "expected a SCRIPT.py to run, or -m MODULE"),
        (["nowhere.py"], "no script nowhere.py"),
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
    done = run(*MISSES, program("atexit.register(print, 'at the end')"))
    assert done.returncode == 1
    assert "at the end" in done.stdout
    assert done.stdout.index("arguments") < done.stdout.index("max_kernels=2")


@pytest.mark.parametrize(
    "module", ["no_such_module", "no_such_module.at_all", "json.no_such_module", "json.tool.of_none", "json"]
)
def test_a_module_that_cannot_be_run_is_bad_usage_in_one_sentence(module):
    done = run(*HOLDS, "-m", module)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith("torchprof run: ")
    assert f" module {module} " in line
    assert line.endswith("[bad-usage]")


def test_what_a_module_lacks_itself_is_its_own_failure(tmp_path, monkeypatch):
    (tmp_path / "lacking.py").write_text("import no_such_module\n")
    monkeypatch.chdir(tmp_path)
    done = run(*HOLDS, "-m", "lacking")
    assert done.returncode == 1
    assert 'lacking.py", line 1' in done.stderr
    assert "torchprof run: lacking itself " in done.stderr.splitlines()[-1]
