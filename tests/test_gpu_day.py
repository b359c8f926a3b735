"""The day on a GPU (tests/gpu/day): its steps end in time, are chosen by name, and are not repeated. Its questions need a GPU."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
import zipfile
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import distribution, distributions
from pathlib import Path

import fresh
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

pytestmark = pytest.mark.any_torch

DAY = Path(__file__).parent / "gpu" / "day"
OF_AN_H200 = Path(__file__).parent / "recordings" / "h200"
COUNTED = ("test_cuda_graph.*", "test_geglu_mlp.test_eager*", "test_transformer_step.test_before*")


def day(*words):
    return subprocess.run([sys.executable, DAY, *words], capture_output=True, text=True, timeout=300, check=False)


def results(out):
    lines = (out / "steps.jsonl").read_text().splitlines()
    return {one["step"]: one for one in map(json.loads, lines)}


def test_steps_are_chosen_by_their_names_and_what_these_begin_with():
    listed = day("--list", "questions/first_session", "tests/capture").stdout.splitlines()
    names = {line.split()[0] for line in listed}
    assert len(names) > 2
    assert {name for name in names if not name.startswith("questions/first_session/")} == {"tests/capture"}


def test_every_file_of_tests_on_a_gpu_is_a_step():
    named = {line.split()[0] for line in day("--list", "tests").stdout.splitlines()}
    assert named == {f"tests/{path.stem.removeprefix('test_gpu_')}" for path in DAY.parent.glob("test_gpu_*.py")}


def test_what_one_gpu_has_yet_to_say_comes_first(monkeypatch):
    """Behind the machine and its libraries, by what docs/gpu-checks.md has as not yet seen."""
    monkeypatch.syspath_prepend(DAY)
    import steps

    monkeypatch.setattr(steps, "open_steps", lambda: {"tests/memory", "questions/allocators"})
    names = [step.name for step in steps.steps(quick=False)]
    assert names[:2] == ["machine", "questions/versions"]
    assert [name.partition("/")[2] for name in names[2:6]] == [
        "allocators",
        "allocators/expandable-segments",
        "allocators/cudaMallocAsync",
        "memory",
    ]
    assert sorted(names) == sorted(line.split()[0] for line in day("--list").stdout.splitlines())


def test_a_row_is_open_if_its_last_word_is_not_yet_and_one_gpu_can_answer_it(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(DAY)
    import claims

    page = tmp_path / "page.md"
    page.write_text(
        "| claim | test | seen | simulated |\n"
        "|---|---|---|---|\n"
        "| a | `test_nothing_is_printed` | not yet | |\n"
        "| b | `test_a_reset_hides_no_peak` (`test_gpu_memory.py`) | 2026-11-27, H200 | |\n"
        "| c | `test_a_launch_of_the_users` (`test_gpu_triton.py`, two GPUs) | not yet | |\n"
        "| d | question `many` | not yet: of an older torch | |\n"
        "| e | question `pdl` | 2026-11-29, H200: all linked; how far they overlap not yet | |\n"
        "| f | `benchmarks/false_alarms.py --device cuda` | not yet | |\n"
    )
    monkeypatch.setattr(claims, "PAGE", page)
    claims.open_steps.cache_clear()
    try:
        assert claims.open_steps() == {"tests/capture", "questions/pdl", "benchmarks/false_alarms"}
    finally:
        claims.open_steps.cache_clear()


def test_a_part_that_is_not_there_is_said(tmp_path):
    done = day("--out", tmp_path, "question/head")
    assert done.returncode
    assert "no step is called question/head; --list shows all" in done.stderr


def test_what_there_was_no_time_for_is_done_by_the_next_call_and_what_has_ended_is_not_repeated(tmp_path):
    day("--out", tmp_path, "--limit-s", "1", "machine")
    assert results(tmp_path)["machine"]["outcome"] == "no time left"
    assert "\nmachine: done\n" in day("--out", tmp_path, "machine").stdout
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


@pytest.fixture
def planned(monkeypatch):
    """Return a function that plans steps: their names, how long each may take, and what else they are."""
    monkeypatch.syspath_prepend(DAY)
    from plan import Plan
    from steps import Step

    def plan(at_once, *, locks=True, **steps):
        return Plan.of(
            [Step(name, (), limit_s, **more) for name, (limit_s, more) in steps.items()], at_once, locks=locks
        )

    return plan


def test_what_takes_times_is_done_by_itself_after_the_others(planned):
    plan = planned(2, a=(10, {"alone": True}), b=(20, {}), c=(30, {"measures": True}), d=(40, {}))
    assert [step.name for step in plan.beside] == ["b", "c", "d"]
    assert [step.name for step in plan.alone] == ["a"]
    assert next(plan.said(100)) == "4 steps, in at most 70 of 100 s: 3, 2 at once, in 60 s, then 1 by themselves"


def test_what_measures_is_done_by_itself_where_it_cannot_have_a_lock_of_its_own(planned):
    plan = planned(2, locks=False, a=(10, {"measures": True}), b=(20, {}))
    assert ([step.name for step in plan.beside], [step.name for step in plan.alone]) == (["b"], ["a"])
    assert "1 of them could be among the others if each had a lock of the GPU of its own" in "\n".join(plan.said(100))


def test_the_day_says_first_how_long_it_may_take_and_what_has_no_time(planned):
    plan = planned(1, a=(60, {}), b=(30, {"alone": True}), c=(20, {}))
    assert list(plan.said(100)) == [
        "3 steps, in at most 110 of 100 s",
        "where each takes as long as it may, there is no time for: c",
    ]
    assert len(list(plan.said(200))) == 1


def test_the_days_own_steps_that_take_times_or_look_for_others_are_alone():
    alone = {line.split()[0] for line in day("--list").stdout.splitlines() if line.split()[3:4] == ["alone"]}
    others = {"tests/times", "tests/findings", "tests/doctor", "doctor", "examples", "benchmarks/false_alarms"}
    questions = ("head", "attached", "attached/TEARDOWN_CUPTI", "frees", "pdl", "spread", "clocks", "many")
    assert alone == others | {f"questions/{name}" for name in questions}


HOLDS = """
import sys, time
from pathlib import Path
from pytest_torchprof.capture.gpu_lock import holding
here, other = map(Path, sys.argv[1:])
with holding("GPU-of-a-test-of-the-day", print, wait_s=0):
    here.touch()
    while not other.exists():
        time.sleep(0.01)
"""


def test_steps_side_by_side_have_a_lock_of_the_gpu_each(tmp_path, monkeypatch):
    """Each holds it until the other one does, too."""
    monkeypatch.syspath_prepend(DAY)
    import apart
    import processes

    behind = apart.found(sys.executable, tmp_path)
    if behind is None:
        pytest.skip("a lock for each takes root and mount namespaces here")

    def hold(one, other):
        surroundings = {**apart.surroundings(tmp_path, one), "PYTHONPATH": str(DAY.parents[2])}
        words = ("-c", HOLDS, str(tmp_path / f"{one} holds"), str(tmp_path / f"{other} holds"))
        return processes.run(words, limit_s=60, log=tmp_path / one, environment=surroundings, behind=behind)

    with ThreadPoolExecutor() as both:
        assert list(both.map(hold, ("a", "b"), ("b", "a"))) == [0, 0]
    assert hold("c", "a") == 0


def test_a_lock_of_its_own_is_tried_and_not_concluded(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(DAY)
    import apart

    monkeypatch.setattr(apart, "IN_A_NAMESPACE", ("there is no such command",))
    monkeypatch.setattr(apart, "_HOLD", "print('held')")
    assert apart.found(sys.executable, tmp_path) == ()
    monkeypatch.setattr(apart, "_HOLD", "print('waits')")
    assert apart.found(sys.executable, tmp_path) is None


TESTS = """
import pathlib, pytest, time
def test_passes(record_property): record_property("fact", 7)
def test_fails(): assert 1 == 2, "one\\nis not two"
@pytest.mark.skip(reason="not here")
def test_is_skipped(): pass
@pytest.fixture
def broken(): raise ValueError("broken")
def test_has_no_ground(broken): pass
def test_hangs():
    pathlib.Path("hangs").touch()
    time.sleep(600)
def test_is_not_reached(): pass
"""


@pytest.fixture
def told(tmp_path, monkeypatch):
    """Return the tests of a run that was killed, as they were told."""
    monkeypatch.syspath_prepend(DAY)
    import leaving_out
    import outcomes

    (tmp_path / "test_it.py").write_text(TESTS)
    words = [
        sys.executable,
        "-m",
        "pytest",
        "-c",
        "pytest.ini",
        *leaving_out.words(),
        "-p",
        "no:torchprof",
        "test_it.py",
    ]
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    environment = {**os.environ, "DAY_TOLD": str(tmp_path / "told"), "PYTHONPATH": str(DAY / "plugin")}
    with subprocess.Popen(words, cwd=tmp_path, env=environment, stdout=subprocess.DEVNULL) as run:
        until = time.monotonic() + 60
        while not (tmp_path / "hangs").exists() and time.monotonic() < until:
            time.sleep(0.05)
        run.kill()
    return outcomes.heard(tmp_path / "told")


def test_what_each_test_said_is_known_of_a_run_that_was_killed(told):
    import outcomes
    import summary

    assert {one.name.partition("::")[2]: (one.outcome, one.why) for one in told} == {
        "test_passes": ("passed", ""),
        "test_fails": ("failed", "is not two"),
        "test_is_skipped": ("skipped", "Skipped: not here"),
        "test_has_no_ground": ("failed", "ValueError: broken"),
        "test_hangs": ("running", ""),
        "test_is_not_reached": ("not reached", ""),
    }
    assert "assert 1 == 2" in next(one.report for one in told if one.name.endswith("test_fails"))
    said = [one["says"] for one in outcomes.said(told)]
    assert said == [
        "1 of 6 passed, 2 failed, 1 skipped, 1 running, 1 not reached",
        "failed test_fails: is not two",
        "failed test_has_no_ground: ValueError: broken",
        "running test_hangs",
        "skipped: not here: test_is_skipped",
        "fact of test_passes: fact = 7",
    ]
    result = {"step": "tests/it", "asks": "", "outcome": "ended after 1 s", "took_s": 1.0, "error": ""}
    page = summary.page([{**result, "said": outcomes.said(told), "tests": outcomes.noted(told)}], {})
    assert "| test_it.py | 1 | 2 | 1 | `test_hangs` | 1 |" in page
    assert "- test_it.py: `test_fails`: is not two" in page


def test_what_becomes_of_a_test_under_a_tool_is_told_by_its_own_words(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(DAY)
    import tools

    def judged(*phases):
        lines = [{"test": "t.py::test_it", "when": "start"}, *({"test": "t.py::test_it", **one} for one in phases)]
        (tmp_path / "told").write_text("".join(json.dumps(one) + "\n" for one in lines))
        return tools._judged(tmp_path / "told")

    over = {"when": "teardown", "outcome": "passed"}
    failed = {"when": "call", "outcome": "failed", "report": "all of it"}
    assert judged(over) == "measured right"
    assert judged({**failed, "said": "not measured: lost kernels [lost-kernels]"}, over).startswith(
        "not measured: lost"
    )
    assert judged({**failed, "said": "max_kernels=3: 6 kernels"}, over) == "it fails: max_kernels=3: 6 kernels"
    assert not judged()
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(tools, "_BESIDE_NCU", "no/such/folder")
    assert [said for said, _ in tools.tools("nsys", quick=True)] == ["there is no nsys on this machine"]


def test_recordings_are_counted_by_hand_beside_the_plugins_counts(tmp_path, monkeypatch):
    """Of an H200: all the same, until a kernel is taken out of what is counted by hand."""
    monkeypatch.syspath_prepend(DAY)
    import counts

    for pattern in COUNTED:
        (path,) = OF_AN_H200.glob(f"{pattern}.json.gz")
        shutil.copy(path, tmp_path)
    (said, figures), *others = counts.said(tmp_path)
    assert "3 recordings with" in said
    assert "the plugin counts the same in all of them" in said
    assert others == []
    assert [figures[name][0]["kernels"] for name in sorted(figures)[:2]] == [3, 5]
    read = counts.read

    def without_a_kernel(path):
        file = read(path)
        last = max((one for one in file["traceEvents"] if one.get("cat") == "kernel"), key=lambda one: float(one["ts"]))
        file["traceEvents"].remove(last)
        return file

    monkeypatch.setattr(counts, "read", without_a_kernel)
    (said, _), *others = counts.said(tmp_path)
    assert "in all but 3 of them" in said
    assert all("kernels by hand" in one for one, _ in others)


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
    for package in ("pytest_torchprof", "torch_geometric"):
        with zipfile.ZipFile(wheels / f"{package}-99-py3-none-any.whl", "w") as wheel:
            for name, text in {
                "METADATA": f"Metadata-Version: 2.1\nName: {package.replace('_', '-')}\nVersion: 99\n",
                "WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
                "RECORD": "",
            }.items():
                wheel.writestr(f"{package}-99.dist-info/{name}", text)
    day("--out", out, "--wheels", wheels, "machine")
    told = [one["says"] for one in results(out)["machine"]["said"]]
    assert "wheels" not in results(out)
    assert {"pytest-torchprof==99", "torch-geometric==99"} <= set(told)
    assert [one for one in told if one.startswith("torch==")]
    assert "99" not in {one.version for one in distributions(name="pytest-torchprof")}


REFUSES_A_FILE = """
import sys
if sys.argv[-1].endswith(".whl"):
    sys.exit(f"invalid: {sys.argv[-1]}")
"""


def test_wheels_that_cannot_be_installed_are_told_and_the_rest_is_done(tmp_path, monkeypatch):
    """By another pip, which takes no time; the real one installs in the test before."""
    wheels, out = tmp_path / "wheels", tmp_path / "out"
    (tmp_path / "pip.py").write_text(REFUSES_A_FILE)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
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
    # A process has one server of forks: where the day started it, all forks of later tests would have to import torch.
    fresh.forks()

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


def test_a_day_that_is_ended_leaves_nothing_running_and_what_was_running_is_done_by_the_next_call(tmp_path):
    words = [sys.executable, DAY, "--out", tmp_path, "tests/memory"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as run:
        assert run.stdout.readline().startswith("1 step, ")
        until = time.monotonic() + 60
        while not (running := children(run.pid)) and time.monotonic() < until:
            time.sleep(0.05)
        run.terminate()
        run.wait(20)
    assert running
    assert not [pid for pid in running if Path(f"/proc/{pid}").exists()]
    assert not (tmp_path / "steps.jsonl").exists()


def children(pid):
    """Return the processes that this one has started."""
    return [int(child) for path in Path(f"/proc/{pid}/task").glob("*/children") for child in path.read_text().split()]
