"""Bisect measures commits in forks of one process that has imported torch; each is what a fresh process would be."""

from __future__ import annotations

import copy
import json
import os
import signal
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest
from repository import PACKAGE, SLOWER, TESTS, WITHOUT_COMPILER, WITHOUT_HYPOTHESIS, Repository, environment

from pytest_torchprof.against.side import Side
from pytest_torchprof.against.start import SideStart
from pytest_torchprof.against.warm import warm_python
from pytest_torchprof.report import Reference

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [
    pytest.mark.any_torch,
    pytest.mark.skipif(sys.platform != "linux", reason="elsewhere each commit has a fresh process"),
]

# What code can tell of the process that it runs in, before it imports torch and after it.
TELLING = """
import json, os, signal, sys, threading

def told(name):
    main = sys.modules["__main__"]
    said = {
        "environment": {name: value for name, value in os.environ.items() if name != "PYTEST_CURRENT_TEST"},
        "folder": os.getcwd(), "path": sys.path, "words": sys.argv, "all words": sys.orig_argv, "hash": hash("x"),
        "modules": sorted(name for name in sys.modules
                          if name.partition(".")[0] not in sys.stdlib_module_names
                          and not name.startswith(("__mp_main__", "_sysconfigdata"))),
        "main": [main.__name__, main.__spec__.name, main.__file__], "flags": list(sys.flags),
        "input": os.path.realpath("/proc/self/fd/0"), "interrupt": str(signal.getsignal(signal.SIGINT)),
        "bytecode": sys.dont_write_bytecode, "ignored": sorted(map(str, signal.sigpending())),
    }
    with open(f"{name}.json", "w") as file:
        json.dump(said, file)

told("before")
from value import VALUE
PREPARE
import torch
told("after")

def test_it():
    told("running")
    with open("ran.json", "w") as file:
        json.dump({"value": VALUE, "parent": os.getppid(), "threads": torch.get_num_threads(),
                   "spec": torch.__spec__.loader.__class__.__name__}, file)
    print("said", VALUE)
    assert VALUE != "failing"
"""
# Enough to tell which process runs it.
WITHOUT_TORCH = """
import json, os

def test_it():
    with open("ran.json", "w") as file:
        json.dump({"parent": os.getppid()}, file)
"""
# No fork may run it: torch, which would read this, was imported before. The fresh process that runs it need not import torch.
FEWER_THREADS = """
import os
os.environ["OMP_NUM_THREADS"] = "1"
if os.getppid() != STARTER:
    import torch
"""


@pytest.fixture(scope="module")
def process(tmp_path_factory):
    """A runner whose process has imported torch and forked once."""
    folder = tmp_path_factory.mktemp("process")
    with warm_python(folder / "top") as made:
        assert made.run(launch_in(folder, "any", source=WITHOUT_TORCH), folder / "log") == 0
        yield made


@pytest.fixture
def warm(process):
    """A runner with the process that all tests share: what it gives up is its own."""
    return copy.copy(process)


def launch_in(folder: Path, value: str, prepare: str = "", source: str = TELLING) -> SideStart:
    """Return how to start a test in a folder that stands for the files of a commit."""
    tree = folder / "tree"
    tree.mkdir(parents=True)
    (tree / "value.py").write_text(f"VALUE = {value!r}\n")
    (tree / "test_it.py").write_text(source.replace("PREPARE", prepare))
    (tree / "pytest.ini").write_text("[pytest]\n")
    side = Side(
        is_base=True,
        reference=Reference(ref="main", sha="0" * 40, dirty=False),
        tree=tree,
        other=folder / "other",
        caches=folder / "caches",
        roots=(tree,),
        own_tests=False,
        keeps_recordings=False,
        results=folder,
        starter=os.getpid(),
    )
    path = os.pathsep.join([str(tree), environment()["PYTHONPATH"]])
    told = environment(PYTHONPATH=path, PYTHONHASHSEED="0", PYTHONDONTWRITEBYTECODE="1", **WITHOUT_HYPOTHESIS)
    words = ("test_it.py", "-q", "-p", "no:cacheprovider", "--torchprof-against=HEAD")
    return SideStart(arguments=words, folder=str(tree), environment={**told, **side.announce(folder / "base.json")})


def parent_in(folder: Path) -> int | None:
    """Return who started the process that ran a folder's test; None where it did not run."""
    ran = folder / "tree/ran.json"
    return json.loads(ran.read_text())["parent"] if ran.exists() else None


def what_was_told(folder: Path) -> dict[str, object]:
    return {
        name: json.loads((folder / f"tree/{name}.json").read_text()) for name in ("before", "after", "running", "ran")
    }


def without(folder: Path, told: dict[str, object]) -> str:
    return json.dumps(told, indent=1, sort_keys=True).replace(str(folder), "FOLDER")


def test_a_fork_is_what_a_fresh_process_is(warm, tmp_path):
    found = {}
    for name, run in (("fresh", SideStart.run), ("fork", warm.run)):
        launch = launch_in(tmp_path / name, "one")
        assert run(launch, tmp_path / name / "log") == 0, (tmp_path / name / "log").read_text()
        found[name] = what_was_told(tmp_path / name)
    parents = {name: told["ran"].pop("parent") for name, told in found.items()}
    assert parents["fresh"] == os.getpid() != parents["fork"]
    assert "torch" not in found["fork"]["before"]["modules"]
    assert "torch" in found["fork"]["after"]["modules"]
    assert without(tmp_path / "fork", found["fork"]) == without(tmp_path / "fresh", found["fresh"])


def test_nothing_of_one_commit_is_seen_by_the_next(warm, tmp_path):
    parents = set()
    for value, status in (("failing", 1), ("next", 0)):
        folder = tmp_path / value
        assert warm.run(launch_in(folder, value), folder / "log") == status
        told = what_was_told(folder)
        assert told["ran"]["value"] == value
        assert "value" not in told["before"]["modules"]
        assert (f"said {value}" in (folder / "log").read_text()) == bool(status)
        parents.add(told["ran"]["parent"])
    assert len(parents - {os.getpid()}) == 1


@pytest.mark.parametrize("name", ["tqdm.py", "numpy/__init__.py", "sitecustomize.py"])
def test_where_a_commit_has_what_torch_imports_a_fresh_process_runs_it(warm, tmp_path, monkeypatch, name):
    launch = launch_in(tmp_path, "own", source=WITHOUT_TORCH)
    (own := tmp_path / "tree" / name).parent.mkdir(exist_ok=True)
    own.write_text("raise ImportError('the own one')\n")
    fresh = []
    monkeypatch.setattr(SideStart, "run", lambda start, _log: fresh.append(start) or 0)
    assert warm.run(launch, tmp_path / "log") == 0
    assert fresh == [launch]
    assert parent_in(tmp_path) is None


def test_what_torch_reads_at_its_import_is_what_the_code_has_set(warm, tmp_path):
    source = FEWER_THREADS.replace("STARTER", str(os.getpid())) + WITHOUT_TORCH
    assert warm.run(launch_in(tmp_path, "one", source=source), tmp_path / "log") == 0, (tmp_path / "log").read_text()
    assert parent_in(tmp_path) == os.getpid()


# The last one of those that share a process: it is gone then.
def test_a_process_that_is_killed_takes_its_fork_along(warm, tmp_path):
    hangs = launch_in(
        tmp_path / "hangs", "one", "open('parent', 'w').write(str(os.getppid())); import time; time.sleep(300)"
    )
    (killer := os.fork()) or _kill_when_told(tmp_path / "hangs/tree/parent")
    assert warm.run(hangs, tmp_path / "hangs/log") == -signal.SIGKILL
    os.waitpid(killer, 0)
    again = launch_in(tmp_path / "again", "one", source=WITHOUT_TORCH)
    assert warm.run(again, tmp_path / "again/log") == 0
    assert parent_in(tmp_path / "again") == os.getpid()


def _kill_when_told(file: Path) -> None:
    """Kill the process that a file names, and end this one."""
    with suppress(BaseException):
        while not file.is_file() or not file.read_text():
            time.sleep(0.1)
        os.kill(int(file.read_text()), signal.SIGKILL)
    os._exit(0)


NOTING = """
import os

def pytest_sessionstart():
    with open(os.environ["NOTED"], "a") as file:
        file.write(f"{os.getppid()}\\n")
"""
# The working tree's, which differs: the other side's code.
ELSEWHERE = "import os\nexec(open(os.environ['ELSEWHERE']).read())\n"


def test_a_search_starts_one_process_and_proves_which_code_ran(tmp_path):
    conftest = NOTING + WITHOUT_COMPILER
    made = Repository(tmp_path / "made", {"waves.py": PACKAGE, "test_waves.py": TESTS, "conftest.py": conftest})
    good = made.git("rev-parse", "HEAD").strip()
    for subject, code in (("elsewhere", ELSEWHERE), ("worse", SLOWER)):
        made.write({"waves.py": code})
        made.commit(subject)
    made.write({"waves.py": PACKAGE + "# differs\n"})
    told = {"NOTED": str(tmp_path / "noted"), "ELSEWHERE": str(made.path / "waves.py")}
    words = ("bisect", "--limit", "max_kernels=1", "test_waves.py", "--good", good)
    run = made.torchprof(*words, by_fork=False, **told)
    assert run.status == 3
    assert "the file waves.py was read from" in run.out
    parents = (tmp_path / "noted").read_text().split()
    assert len(parents) == 3
    assert len(set(parents)) == 1
