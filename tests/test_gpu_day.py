"""The day on a GPU (tests/gpu/day): its steps end in time, are chosen by name, and are not repeated. Its questions need a GPU."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
import tomllib
import zipfile
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import distribution, distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

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


def test_what_is_asked_is_told_row_by_row():
    rows = re.findall(r"^\| .+ \| (`.+`) \|$", (DAY / "README.md").read_text(), re.MULTILINE)
    told = [name for row in rows for name in re.findall(r"`([\w/-]+)`", row)]
    listed = [line.split()[0].removeprefix("questions/") for line in day("--list", "questions").stdout.splitlines()]
    assert sorted(told) == sorted(listed)
    assert len(rows) >= 15


def requirements(name):
    """Return what a distribution needs on Linux, with what that needs in turn; of a checkout what it declares."""
    seen, open_ = set(), {Requirement(name)}
    while open_:
        requirement = open_.pop()
        if (key := canonicalize_name(requirement.name)) in {*seen, "torch"}:
            continue
        seen.add(key)
        needed = OWN if key == "pytest-torchprof" else distribution(key).requires or []
        extras = requirement.extras or {""}
        of_linux = [{**LINUX, "extra": extra} for extra in extras]
        parsed = map(Requirement, needed)
        open_ |= {one for one in parsed if one.marker is None or any(map(one.marker.evaluate, of_linux))}
    return seen


OWN = tomllib.loads((DAY.parents[2] / "pyproject.toml").read_text())["project"]["dependencies"]
LINUX = {
    "python_version": "3.12",
    "python_full_version": "3.12.1",
    "platform_machine": "x86_64",
    "sys_platform": "linux",
    "platform_system": "Linux",
    "os_name": "posix",
}


def test_the_wheels_that_are_listed_are_all_that_tests_need_beside_torch(monkeypatch):
    monkeypatch.syspath_prepend(DAY)
    needed = set().union(*map(requirements, ("pytest-torchprof", "hypothesis", "pytest-xdist")))
    lines = (DAY / "wheels.txt").read_text().splitlines()
    listed = {canonicalize_name(Requirement(line).name) for line in lines if not line.startswith("#")}
    assert needed - {"pytest-torchprof"} <= listed


def test_wheels_are_installed_for_all_steps_and_leave_this_python_as_it_is(tmp_path):
    wheels, out = tmp_path / "wheels", tmp_path / "out"
    wheels.mkdir()
    with zipfile.ZipFile(wheels / "pytest_torchprof-99-py3-none-any.whl", "w") as wheel:
        for name, text in {
            "METADATA": "Metadata-Version: 2.1\nName: pytest-torchprof\nVersion: 99\n",
            "WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
            "RECORD": "",
        }.items():
            wheel.writestr(f"pytest_torchprof-99.dist-info/{name}", text)
    day("--out", out, "--wheels", wheels, "machine")
    told = [one["says"] for one in results(out)["machine"]["said"]]
    assert "wheels" not in results(out)
    assert "pytest-torchprof==99" in told
    assert [one for one in told if one.startswith("torch==")]
    assert "99" not in {one.version for one in distributions(name="pytest-torchprof")}


def test_wheels_that_cannot_be_installed_are_told_and_the_rest_is_done(tmp_path):
    wheels, out = tmp_path / "wheels", tmp_path / "out"
    wheels.mkdir()
    (wheels / "nvidia_cuda_cupti-1-py3-none-any.whl").write_bytes(b"")
    day("--out", out, "--wheels", wheels, "machine")
    assert results(out)["machine"]["outcome"] == "done"
    assert results(out)["wheels"]["outcome"] == "status 1"
    assert "nvidia_cuda_cupti-1-py3-none-any.whl" in (out / "summary.md").read_text()


def test_what_hangs_is_ended_with_what_it_has_started_and_what_it_has_said_stands(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(DAY)
    import processes

    monkeypatch.setattr(processes, "_TO_SAY_GOODBYE_S", 1)

    def ended(fork):
        folder = tmp_path / ("a fork" if fork else "a new process")
        folder.mkdir()
        child = f"import time\nwhile True: open({str(folder / 'alive')!r}, 'w').close(); time.sleep(0.05)"
        program = (
            f"import signal, subprocess, sys, time, pathlib; signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
            f"print('said', flush=True); subprocess.Popen([sys.executable, '-c', {child!r}])\n"
            f"while True: time.sleep(1)"
        )
        status = processes.run(("-c", program), limit_s=4, log=folder / "step", environment={}, fork=fork)
        assert status is None
        assert (folder / "step.out").read_text() == "said\n"
        return folder / "alive"

    with ThreadPoolExecutor() as both:
        left = list(both.map(ended, (False, True)))
    time.sleep(0.5)
    for alive in left:
        alive.unlink(missing_ok=True)
    time.sleep(0.5)
    assert not any(alive.exists() for alive in left)
