"""The processes of ``torchprof fleet run``: their bounds, and what happens when they are killed or interrupted."""

from __future__ import annotations

import contextlib
import ctypes
import math
import multiprocessing
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor, wait
from functools import partial
from pathlib import Path
from threading import Event, Thread

import fresh
import judges
import pytest
from builder import TraceBuilder, own_recording
from facts import says
from fleets import content, counts, every_kind, fleet, large, records_in, summary_in
from full_pipes import kill_children_at_full_pipes

from pytest_torchprof.cli import main
from pytest_torchprof.fleet.alone import judge_alone
from pytest_torchprof.fleet.bounds import Bounds
from pytest_torchprof.fleet.crew import LocalCrew
from pytest_torchprof.fleet.engines import Engine, EngineCrew
from pytest_torchprof.fleet.judging import FileTask
from pytest_torchprof.fleet.listed import file_at_path
from pytest_torchprof.fleet.rules import Question
from pytest_torchprof.reasons import fleet as reasons
from pytest_torchprof.reasons.catalogue import from_plain
from pytest_torchprof.reasons.codes import Code
from pytest_torchprof.system import spawned_pool

pytestmark = pytest.mark.any_torch

FLEET = "import sys\nfrom pytest_torchprof.cli import main\nif __name__ == '__main__':\n    sys.exit(main(['fleet', 'run', *sys.argv[1:]]))"


@pytest.fixture
def traces(tmp_path):
    return every_kind(tmp_path / "traces")


def started(*words, cwd, **environment):
    """Start the command as a program; its processes are started anew from it."""
    script = cwd / "fleet_script.py"
    script.write_text(FLEET)
    command = [sys.executable, str(script), *map(str, words), "--jobs", "2"]
    whole = {**os.environ, **environment}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=whole)


def test_a_mistake_leaves_no_process_behind(tmp_path):
    assert fleet(tmp_path / "nothing", "--into", tmp_path / "out") == 2
    assert not multiprocessing.active_children()


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no pipes that are files")
def test_a_pipe_is_quarantined_whatever_its_name_promises(tmp_path):
    sources = ["pipe.zip", "pipe.jsonl", "pipe.json", "pat*.zip"]
    for name in sources:
        os.mkfifo(tmp_path / name.replace("*", "tern"))
    driver = judges.start_driver(*(tmp_path / name for name in sources), "--into", tmp_path / "out")
    # A reader would wait for a writer for ever.
    assert driver.done(120).returncode == 3
    assert counts(summary_in(tmp_path / "out")) == [4, 0, 0, 4]


def test_records_do_not_depend_on_the_process_that_judges(tmp_path, monkeypatch):
    builder = TraceBuilder()
    builder.step(0, 0, 1000)
    builder.event("python_function", "train.py(20): main", -50, 2000)
    for number in range(6):
        begin = 100 * number + 10
        builder.module(f"Linear_{number}", begin, 90)
        builder.launched("same", begin + 10, op=f"aten::op{number}")
    builder.write(tmp_path / "places.json")
    question = Question(limits=("max_kernels=1",))
    task = FileTask(key="0", file=file_at_path(str(tmp_path / "places.json")), question=question)
    came = set()
    for seed in "1234":
        # By it the order of a set of texts differs from one process to the next.
        monkeypatch.setenv("PYTHONHASHSEED", seed)
        came.update(judge_alone((task,), Bounds(memory_bytes=2 << 30, timeout_s=60)))
    (line,) = came
    assert b"Linear_5" in line


@pytest.mark.usefixtures("forked_judges")
def test_two_drivers_at_once_do_each_other_no_harm(traces, tmp_path):
    words = [traces, "--limit", "max_kernels=3", "--into"]
    both = [judges.start_driver(*words, tmp_path / "out") for _ in range(2)]
    for driver in both:
        done = driver.done()
        assert done.returncode == 1, done.stderr
        assert done.stdout.startswith("8 files listed: 5 judged, 1 not measured, 2 quarantined"), done.stderr
    assert fleet(*words, tmp_path / "alone") == 1
    assert content(tmp_path / "out") == content(tmp_path / "alone")


def test_a_file_that_takes_too_much_is_quarantined_and_the_others_are_judged(traces, tmp_path, request):
    large(traces / "large.json.gz")
    assert fleet(traces, "--memory", "128MiB", "--into", tmp_path / "memory") == 3
    request.getfixturevalue("forked_judges")  # They have more memory than that from their start.
    assert fleet(traces, "--timeout", "0.5s", "--into", tmp_path / "time") == 3
    taken = {name: records_in(tmp_path / name) for name in ("memory", "time")}
    of_large = {name: from_plain(records.pop("large.json.gz")["quarantined"]) for name, records in taken.items()}
    assert [reason.code for reason in of_large.values()] == [Code.OUT_OF_MEMORY, Code.TOOK_TOO_LONG]
    assert says(of_large["memory"], reasons.TookTooMuchMemory, limit=128 << 20)
    assert says(of_large["time"], reasons.TookTooLong, limit_us=5e5)
    assert taken["memory"] == taken["time"]
    assert counts(summary_in(tmp_path / "time")) == [9, 5, 1, 3]


@pytest.mark.usefixtures("forked_judges")
def test_small_files_are_judged_whatever_becomes_of_those_given_with_them(traces, tmp_path):
    for number in range(40):
        own_recording({"one": number % 7 + 1}).write(traces / f"small{number}.json.gz")
    assert fleet(traces, "--into", tmp_path / "alone") == 3
    bad = large(traces / "small2long.json.gz", parts=8, level=9)
    # Small enough to be given to a process with others, and it takes as long as a large one.
    assert bad.stat().st_size < 240 << 10
    for name, engine in ("own", []), ("threads", ["--engine", "futures:concurrent.futures:ThreadPoolExecutor"]):
        assert fleet(traces, "--timeout", "0.5s", "--into", tmp_path / name, *engine) == 3
        records = records_in(tmp_path / name)
        assert from_plain(records.pop(bad.name)["quarantined"]).code == Code.TOOK_TOO_LONG
        assert records == records_in(tmp_path / "alone")
        assert counts(summary_in(tmp_path / name)) == [49, 45, 1, 3]


needs_proc = pytest.mark.skipif(sys.platform != "linux", reason="looks at processes as Linux shows them")


def opened_by(path):
    """Yield the processes that have a file open."""
    for process in Path("/proc").glob("[0-9]*"):
        # It may end while it is looked at.
        with contextlib.suppress(OSError):
            if any(link.readlink() == path for link in (process / "fd").iterdir()):
                yield int(process.name)


@needs_proc
@pytest.mark.usefixtures("forked_judges")
def test_a_file_that_kills_its_process_is_quarantined(traces, tmp_path):
    killer, done = large(traces / "killer.json.gz", parts=6), Event()

    def kill():
        while not done.wait(0.02):
            for pid in opened_by(killer):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    killing = Thread(target=kill)
    killing.start()
    try:
        assert fleet(traces, "--retries", 1, "--into", tmp_path / "out") == 3
    finally:
        done.set()
        killing.join()
    reason = from_plain(records_in(tmp_path / "out")["killer.json.gz"]["quarantined"])
    assert says(reason, reasons.WorkerDied, status=-signal.SIGKILL)
    assert reason.code == Code.WORKER_DIED
    assert counts(summary_in(tmp_path / "out")) == [9, 5, 1, 3]


def crew_of_pool(jobs, bounds):
    """Return the crew of an engine that the user has made of Python's own pool."""
    return EngineCrew(Engine(partial(ProcessPoolExecutor, jobs, fresh.forks()), lambda: None), jobs, bounds)


def crew_of_loky(jobs, bounds):
    """Return the crew of an engine that the user has made of loky's pool."""
    loky = pytest.importorskip("loky", reason="needs loky, which is installed by hand: pip install loky")
    return EngineCrew(Engine(lambda: loky.ProcessPoolExecutor(jobs), lambda: None), jobs, bounds)


@pytest.mark.skipif(sys.platform == "win32", reason="the processes hand over more than a pipe of Linux holds")
@pytest.mark.usefixtures("forked_judges")
@pytest.mark.parametrize("crew_of", [LocalCrew, crew_of_pool, crew_of_loky])
def test_a_process_that_is_killed_while_it_hands_over_what_it_judged_is_replaced(traces, crew_of):
    """Their answers are larger than what a pipe holds: nobody empties it meanwhile, as on a machine with much to do."""
    crew = crew_of(2, Bounds(memory_bytes=2 << 30, timeout_s=60))
    files = [traces / f"{number}.json.gz" for number in range(4)] * 4
    tasks = tuple(
        FileTask(key=f"{at}", file=file_at_path(str(file)), question=Question()) for at, file in enumerate(files)
    )
    try:
        given = [crew.submit(tasks) for _ in range(12)]
        given[0].result(60)
        kill_children_at_full_pipes(2)
        # None is waited for without an end: each has come, or is tried again.
        assert not wait(given, timeout=60).not_done
    finally:
        crew.end()


@pytest.mark.usefixtures("forked_judges")
def test_the_processes_of_a_program_that_calls_the_command_stay(traces, tmp_path):
    sleeping = fresh.forks().Process(target=time.sleep, args=(600,))
    sleeping.start()
    try:
        assert fleet(traces, "--into", tmp_path / "out") == 3
        assert sleeping.is_alive()
    finally:
        sleeping.kill()
        sleeping.join()


def children(pid):
    pids = []
    for thread in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            pids += map(int, thread.read_text().split())
    return pids


def proc_file(pid, what):
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/{what}").read_text()
    return ""


def workers_of(driver):
    """Return the processes that a driver has spawned, once there are any; none if it has ended."""
    while driver.poll() is None:
        time.sleep(0.02)
        if len(spawned := spawned_by(driver)) >= 2:
            return spawned
    return []


def spawned_by(driver):
    return [pid for pid in children(driver.pid) if "spawn_main" in proc_file(pid, "cmdline")]


@needs_proc
@pytest.mark.usefixtures("forked_judges")
def test_kills_at_any_time_change_nothing(traces, tmp_path):
    for number in range(60):
        own_recording({"one": number % 7 + 1}).write(traces / f"more{number}.json")
    words = [traces, "--limit", "max_kernels=3", "--into"]
    fresh.forks()  # Their server takes longer to start than the fleet to be judged.
    began = time.monotonic()
    assert fleet(*words, tmp_path / "undisturbed") == 1
    longest_s = time.monotonic() - began
    chance = random.Random(31)
    for driver_too, share in ((False, 0.5), (True, 0), (False, 1), (True, 1)):
        killed = []
        while not killed:
            driver = judges.start_driver(*words, tmp_path / "out")
            driver.process.join(chance.uniform(0.1, 0.9) * longest_s)
            below = children(driver.process.pid)
            whom = chance.sample(below, math.ceil(share * len(below)))
            for pid in [driver.process.pid, *whom] if driver_too else whom:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                    killed.append(pid)
            status = driver.done().returncode
            if not killed:
                # It had ended already, or had no process yet.
                shutil.rmtree(tmp_path / "out", ignore_errors=True)
        if not driver_too:
            assert status == 1
            assert content(tmp_path / "out") == content(tmp_path / "undisturbed")
            shutil.rmtree(tmp_path / "out")
    assert fleet(*words, tmp_path / "out") == 1
    assert content(tmp_path / "out") == content(tmp_path / "undisturbed")


@needs_proc
@pytest.mark.usefixtures("forked_judges")
def test_ctrl_c_says_how_far_the_run_came_and_the_same_command_goes_on(traces, tmp_path):
    words = [traces, "--into", tmp_path / "out", "--limit", "max_kernels=3"]
    first = large(traces / "large.json.gz", parts=6)
    driver = judges.start_driver(*words)
    while not any(opened_by(first)):
        assert driver.process.is_alive(), driver.done()
    os.kill(driver.process.pid, signal.SIGINT)
    done = driver.done()
    assert (done.returncode, done.stdout) == (130, "")
    assert " of 9 files; what was judged stays" in done.stderr
    assert "Traceback" not in done.stderr
    assert fleet(*words) == 1
    assert counts(summary_in(tmp_path / "out")) == [9, 5, 1, 3]


@needs_proc
@pytest.mark.usefixtures("forked_judges")
def test_memory_bounds_how_many_processes_there_are(tmp_path, monkeypatch):
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("needs two cores")
    (tmp_path / "traces").mkdir()
    for number in range(3):
        own_recording({"one": number + 1}).write(tmp_path / "traces" / f"{number}.json")
    most = []

    def noted(jobs, *others):
        most.append(jobs)
        return judges.forked(jobs, *others)

    monkeypatch.setattr(spawned_pool, "ProcessPoolExecutor", noted)
    whole = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for parts in (1, 2):
        words = ["fleet", "run", tmp_path / "traces", "--into", tmp_path / f"out{parts}", f"--memory={whole // parts}"]
        assert main([*map(str, words)]) == 0
    assert most == [1, 2]


@needs_proc
def test_no_process_outlives_its_driver(traces, tmp_path):
    large(traces / "large.json.gz")
    driver = started(traces, "--into", tmp_path / "out", cwd=tmp_path)
    workers = workers_of(driver)
    assert workers
    os.kill(driver.pid, signal.SIGKILL)
    driver.communicate()
    until = time.monotonic() + 60
    while any(Path(f"/proc/{pid}").exists() for pid in workers):
        assert time.monotonic() < until
        time.sleep(0.05)


def give_up_privileges():
    """Let permissions bind this process even where it is root's: without capabilities, root is a user like others."""
    header, none = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
    assert ctypes.CDLL(None).capset(header, none) == 0


@needs_proc
def test_a_folder_that_cannot_be_written_is_said_so(traces, tmp_path):
    locked = tmp_path / "locked"
    locked.mkdir(mode=0o555)
    if (child := os.fork()) == 0:
        status = None
        try:
            with (tmp_path / "said").open("w") as sys.stderr:
                give_up_privileges()
                status = fleet(traces / "0.json.gz", "--into", locked / "out")
        finally:
            os._exit(99 if status is None else status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 2
    said = (tmp_path / "said").read_text()
    assert f"{locked / 'out'}: cannot be written: Permission denied" in said
    assert "[report-not-written]" in said


@needs_proc
@pytest.mark.usefixtures("forked_judges")
def test_a_full_disk_loses_nothing(traces, tmp_path):
    words = [traces, "--into", tmp_path / "out"]
    assert fleet(*words) == 3
    whole = content(tmp_path / "out")
    for left in ("summary.json", "records.jsonl"):
        (tmp_path / "out" / left).unlink()
    shutil.rmtree(tmp_path / "out" / "parts")
    refused = judges.start_driver(*words, most_bytes=2000).done()
    assert refused.returncode == 2
    assert "[report-not-written]" in refused.stderr
    assert "Traceback" not in refused.stderr
    assert not list((tmp_path / "out").rglob("*.tmp"))
    assert fleet(*words) == 3
    assert content(tmp_path / "out") == whole


@pytest.mark.skipif(sys.platform == "win32", reason="a console there tells processes by groups")
def test_ctrl_c_while_a_process_begins_is_the_commands_alone(traces, tmp_path):
    """A terminal interrupts all processes at once, also one that has just begun to import."""
    interrupted = (
        "import os, signal, sys\nif 'spawn_main' in ' '.join(sys.orig_argv): os.kill(os.getpid(), signal.SIGINT)"
    )
    (tmp_path / "early").mkdir()
    (tmp_path / "early" / "sitecustomize.py").write_text(interrupted)
    before = os.environ.get("PYTHONPATH")
    path = os.pathsep.join(filter(None, [str(tmp_path / "early"), before]))
    out, err = started(traces, "--into", tmp_path / "out", cwd=tmp_path, PYTHONPATH=path).communicate()
    assert "Traceback" not in err
    assert "8 files listed: 5 judged" in out


@needs_proc
@pytest.mark.usefixtures("forked_judges")
def test_dask_comes_to_the_same_though_a_worker_is_killed(traces, tmp_path):
    pytest.importorskip("distributed")
    for number in range(40):
        own_recording({"one": number % 7 + 1}).write(traces / f"more{number}.json")
    words = [traces, "--limit", "max_kernels=3", "--into"]
    assert fleet(*words, tmp_path / "whole") == 1
    # Its processes are forks of one that has imported Dask and nothing of ours.
    forks = {"DASK_DISTRIBUTED__WORKER__MULTIPROCESSING_METHOD": "forkserver"}
    driver = started(*words, tmp_path / "out", "--engine", "dask", cwd=tmp_path, **forks)
    judging = []
    while not judging and driver.poll() is None:
        time.sleep(0.02)
        forked = [pid for server in children(driver.pid) for pid in children(server)]
        judging = [pid for pid in forked if "msgspec" in proc_file(pid, "maps")]
    assert judging
    with contextlib.suppress(ProcessLookupError):
        os.kill(judging[0], signal.SIGKILL)
    _, errors = driver.communicate()
    assert driver.returncode == 1, errors
    assert content(tmp_path / "out") == content(tmp_path / "whole")


@needs_proc
@pytest.mark.usefixtures("forked_judges")
def test_ray_comes_to_the_same_by_the_adapter_of_the_documentation(traces, tmp_path, monkeypatch):
    pytest.importorskip("ray", reason="needs Ray, which is installed by hand: pip install ray")
    page = (Path(__file__).parents[1] / "docs" / "fleet.md").read_text()
    (adapter,) = re.findall(r"```python\n# fleet_ray.py.*?\n(.*?)```", page, re.DOTALL)
    (tmp_path / "fleet_ray.py").write_text(adapter)
    large(traces / "large.json.gz")
    words = [traces, "--limit", "max_kernels=3", "--timeout", "1s", "--into"]
    assert fleet(*words, tmp_path / "whole") == 1
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *sys.path]))
    driver = started(*words, tmp_path / "out", "--engine", "futures:fleet_ray:RayExecutor", cwd=tmp_path)
    _, errors = driver.communicate()
    assert driver.returncode == 1, errors
    assert content(tmp_path / "out") == content(tmp_path / "whole")
    records = records_in(tmp_path / "out")
    assert from_plain(records["large.json.gz"]["quarantined"]).code == Code.TOOK_TOO_LONG
