"""The day on a GPU (tests/gpu/day): its steps end in time, are chosen by name, and are not repeated. Its questions need a GPU."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.any_torch

DAY = Path(__file__).parent / "gpu" / "day"


def day(*words):
    return subprocess.run([sys.executable, DAY, *words], capture_output=True, text=True, timeout=300, check=False)


def results(out):
    lines = (out / "steps.jsonl").read_text().splitlines()
    return {one["step"]: one for one in map(json.loads, lines)}


def test_steps_are_chosen_by_their_names_and_what_these_begin_with():
    listed = day("--list", "questions/first_session", "tests/capture").stdout.splitlines()
    names = [line.split()[0] for line in listed]
    assert len(names) > 2
    assert names[-1] == "tests/capture"
    assert all(name.startswith("questions/first_session/") for name in names[:-1])


def test_every_file_of_tests_on_a_gpu_is_a_step():
    named = {line.split()[0] for line in day("--list", "tests").stdout.splitlines()}
    assert named == {f"tests/{path.stem.removeprefix('test_gpu_')}" for path in DAY.parent.glob("test_gpu_*.py")}


def test_a_part_that_is_not_there_is_said(tmp_path):
    done = day("--out", tmp_path, "question/head")
    assert done.returncode
    assert "no step is called question/head; --list shows all" in done.stderr


def test_what_there_was_no_time_for_is_done_by_the_next_call_and_what_has_ended_is_not_repeated(tmp_path):
    day("--out", tmp_path, "--limit-s", "1", "machine")
    assert results(tmp_path)["machine"]["outcome"] == "no time left"
    assert day("--out", tmp_path, "machine").stdout.startswith("machine: done\n")
    first = results(tmp_path)["machine"]
    assert first["outcome"] == "done"
    assert "machine" not in day("--out", tmp_path, "machine").stdout
    assert results(tmp_path)["machine"] == first


def test_wheels_that_cannot_be_installed_are_told_and_the_rest_is_done(tmp_path):
    wheels, out = tmp_path / "wheels", tmp_path / "out"
    wheels.mkdir()
    (wheels / "nothing-1-py3-none-any.whl").write_bytes(b"")
    day("--out", out, "--wheels", wheels, "machine")
    assert results(out)["machine"]["outcome"] == "done"
    assert results(out)["wheels"]["outcome"] == "status 1"
    assert "nothing-1-py3-none-any.whl" in (out / "summary.md").read_text()


@pytest.mark.parametrize("fork", [False, True], ids=["a new process", "a fork"])
def test_what_hangs_is_ended_with_what_it_has_started_and_what_it_has_said_stands(tmp_path, monkeypatch, fork):
    monkeypatch.syspath_prepend(DAY)
    import processes

    monkeypatch.setattr(processes, "_TO_SAY_GOODBYE_S", 1)
    alive = tmp_path / "alive"
    child = f"import time\nwhile True: open({str(alive)!r}, 'w').close(); time.sleep(0.05)"
    program = (
        f"import signal, subprocess, sys, time, pathlib; signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        f"print('said', flush=True); subprocess.Popen([sys.executable, '-c', {child!r}])\n"
        f"while True: time.sleep(1)"
    )
    status = processes.run(("-c", program), limit_s=8, log=tmp_path / "step", environment={}, fork=fork)
    assert status is None
    assert (tmp_path / "step.out").read_text() == "said\n"
    time.sleep(0.5)
    alive.unlink(missing_ok=True)
    time.sleep(0.5)
    assert not alive.exists()
