"""Updates of a baseline file that are killed, and several at once: nothing is torn, nothing is lost."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from pytest_torchprof.baseline import Entry, KernelRecord, read, update

pytestmark = pytest.mark.any_torch

REPOSITORY = Path(__file__).parents[1]
KILLS_AT_A_STAGE = 12
KILLS_AT_ANY_TIME = 8
ROUNDS = 3
ENTRIES_EACH = 26

COMMON = """
import os, sys, time
from pathlib import Path
from pytest_torchprof.baseline import Entry, KernelRecord, update

def entry(source, kernels=400):
    rows = tuple(KernelRecord(name=f"kernel_{i}") for i in range(kernels))
    return Entry(source=source, environment={}, steps=(rows,), numbers={"kernels": kernels}, varying={})

file = Path(sys.argv[1])
"""

# Says when it stands between the first byte and the rename, and waits there for its end.
HALTS_BEFORE_THE_RENAME = """
def halt(*_):
    print("between", flush=True)
    time.sleep(60)

setattr(os, sys.argv[2], halt)
update(file, {"killed": entry("never")})
"""

UPDATES_WITHOUT_END = """
print("ready", flush=True)
for i in range(10**9):
    update(file, {"killed": entry(str(i))})
"""

UPDATES_SEVERAL = """
sys.stdin.readline()
for i in range(int(sys.argv[3])):
    update(file, {f"{sys.argv[2]}_{i}": entry(sys.argv[2], kernels=3)})
"""


def start(script: str, *arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(COMMON + script), *map(str, arguments)],
        cwd=REPOSITORY,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def kept() -> Entry:
    return Entry(source="kept", environment={}, steps=((KernelRecord(name="k"),),), numbers={"kernels": 1}, varying={})


def end(child: subprocess.Popen[str]) -> None:
    child.kill()
    child.communicate()
    assert child.returncode == -signal.SIGKILL


@pytest.mark.parametrize("stage", ["fsync", "replace"])
def test_a_kill_between_the_first_byte_and_the_rename_leaves_the_old_file(tmp_path, stage):
    file = tmp_path / "b.json"
    update(file, {"old": kept()})
    before = file.read_bytes()
    for kill in range(KILLS_AT_A_STAGE // 2):
        child = start(HALTS_BEFORE_THE_RENAME, file, stage)
        assert child.stdout is not None
        assert child.stdout.readline() == "between\n"
        half_done = [path for path in tmp_path.iterdir() if path.suffix == ".tmp"]
        assert [path.stat().st_size > 0 for path in half_done] == [True]
        end(child)
        assert file.read_bytes() == before
        update(file, {f"next_{kill}": kept()})
        assert set(read(file).entries) == {"old", *(f"next_{i}" for i in range(kill + 1))}
        assert not [path for path in tmp_path.iterdir() if path.suffix == ".tmp"]
        before = file.read_bytes()


def test_a_kill_at_any_time_leaves_the_old_or_the_new_file(tmp_path):
    file = tmp_path / "b.json"
    update(file, {"old": kept()})
    for kill in range(KILLS_AT_ANY_TIME):
        child = start(UPDATES_WITHOUT_END, file)
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        while "killed" not in read(file).entries:
            assert child.poll() is None
        end(child)
        assert set(read(file).entries) >= {"old", "killed"}
        update(file, {f"next_{kill}": kept(), "killed": None})
    assert set(read(file).entries) == {"old", *(f"next_{i}" for i in range(KILLS_AT_ANY_TIME))}


def test_several_processes_that_update_one_file_lose_nothing(tmp_path):
    for round_ in range(ROUNDS):
        file = tmp_path / f"{round_}.json"
        children = [start(UPDATES_SEVERAL, file, name, ENTRIES_EACH) for name in ("left", "right")]
        for child in children:
            assert child.stdin is not None
            child.stdin.write("go\n")
            child.stdin.flush()
        assert [child.wait(120) for child in children] == [0, 0]
        for child in children:
            child.communicate()
        assert set(read(file).entries) == {f"{name}_{i}" for name in ("left", "right") for i in range(ENTRIES_EACH)}
