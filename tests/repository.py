"""Repositories of git with a package and tests in them, and runs of pytest that compare two of their states.

A run and the sides that it starts are forks which have torch at hand (`fresh`), but for
`by_fork=False`: whether they may be forks, and one comparison and search from end to end are shown with processes as users
have them. Where somebody is killed, each of them is the child of who has started it (`children`).
"""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from textwrap import dedent

import fresh
import pytest

ASKED = (("worktree", "list", "--porcelain"), ("stash", "list"), ("for-each-ref",), ("fsck", "--no-progress"))
"""Questions to git whose answers a comparison must not change."""
ROOT = Path(__file__).parents[1]
AUTHOR = {
    **{f"GIT_{who}_{what}": "someone" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")},
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
}
OURS = ("CI", "GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY", "GITHUB_WORKSPACE", "PYTEST_ADDOPTS", "PYTEST_CURRENT_TEST")

PYTEST = ("-m", "pytest")
TORCHPROF = ("-c", "import sys; from pytest_torchprof.cli import main; sys.exit(main())")
PACKAGE = """
import torch

def wave(x):
    return torch.sin(x)
"""
TESTS = """
import pytest, torch
import waves

x = torch.ones(8, 8)

@pytest.mark.torchprof(device="cpu")
def test_wave():
    waves.wave(x)
"""
SLOWER = PACKAGE.replace("torch.sin(x)", "torch.sin(x).cos()")
WITHOUT_COMPILER = """
def pytest_collection():
    import torch  # Not in the process that only starts the others.

    # The profiler asks whether there is this module, upon which torch imports it: three seconds in each process.
    torch._lazy_modules.discard("_inductor")
"""
"""A conftest.py for tests that compile nothing, where processes are not forks."""
WITHOUT_HYPOTHESIS = {"PYTEST_ADDOPTS": "-p no:hypothesispytest"}
"""For processes that are not forks: its plugin imports all of Hypothesis at the end of each run, 0.4 s."""


def environment(**more: str) -> dict[str, str]:
    """Return what a process of a user has in its environment, with this checkout of the plugin."""
    kept = {name: value for name, value in os.environ.items() if name not in OURS and not name.startswith("TORCHPROF")}
    return {**kept, **AUTHOR, "PYTHONPATH": str(ROOT), "COLUMNS": "160", **more}


class Repository:
    """One that a test makes."""

    def __init__(self, path: Path, files: dict[str, str]) -> None:
        self.path = path
        path.mkdir(parents=True)
        self.git("init", "--quiet", "--initial-branch=main")
        self.write({".gitignore": "__pycache__/\n.pytest_cache/\n*.so\nbuild/\n", **files})
        self.commit()

    def git(self, *words: str) -> str:
        done = subprocess.run(
            ["git", "-C", str(self.path), *words], env=environment(), capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def write(self, files: dict[str, str]) -> None:
        for name, text in files.items():
            path = self.path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(dedent(text))

    def commit(self, subject: str = "a state") -> str:
        self.git("add", "--all")
        self.git("commit", "--quiet", "--allow-empty", "--message", subject)
        return self.git("rev-parse", "HEAD").strip()

    def start(
        self,
        *words: str,
        by_fork: bool = False,
        python: str = sys.executable,
        program: tuple[str, ...] = PYTEST,
        cwd: Path | None = None,
        **more: str,
    ) -> subprocess.Popen:
        """Start pytest, or another program, in the repository; ``by_fork``: as a fork which is a child of ours."""
        from children import Child  # It imports torch.

        start = partial(Child, by=as_python) if by_fork else subprocess.Popen
        return start(
            [python, *program, *words],
            cwd=cwd or self.path,
            env=environment(**({} if by_fork else WITHOUT_HYPOTHESIS) | more),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,  # A group of processes of its own, as a terminal makes it.
        )

    def fork(
        self,
        *words: str,
        log: Path,
        python: str = sys.executable,
        program: tuple[str, ...] = PYTEST,
        cwd: Path | None = None,
        **more: str,
    ) -> fresh.Fresh:
        """Start pytest, or another program, in the repository by a fork, which writes to a log."""
        where = {"environment": environment(**more), "folder": cwd or self.path, "outputs": [log, log]}
        return fresh.Fresh(as_python, python, *program, *words, **where)

    def run(
        self,
        *words: str,
        by_fork: bool = True,
        python: str = sys.executable,
        program: tuple[str, ...] = PYTEST,
        cwd: Path | None = None,
        patience_s: float = 300,
        **more: str,
    ) -> Run:
        """Run pytest, or another program, in the repository to its end."""
        if by_fork and fresh.can_be(python) and sys.platform == "linux":
            with tempfile.TemporaryDirectory() as folder:
                log = Path(folder, "log")
                started = self.fork(*words, log=log, python=python, program=program, cwd=cwd, **more)
                run = Run(started.done(patience_s).returncode, log.read_text())
        else:
            process = self.start(*words, python=python, program=program, cwd=cwd, **more)
            out, _ = process.communicate(timeout=patience_s)
            run = Run(process.returncode, out)
        sys.stdout.write(run.out)
        return run

    def torchprof(self, *words: str, **how: object) -> Run:
        """Run the command ``torchprof`` in the repository to its end."""
        return self.run(*words, program=TORCHPROF, **how)

    def against(self, ref: str, *words: str, **how: object) -> Run:
        return self.run(f"--torchprof-against={ref}", *words, **how)

    def state(self) -> dict[str, object]:
        """Return all of the repository that a comparison must leave as it is: files, index, references, worktrees."""
        hidden = (".torchprof", "__pycache__", ".pytest_cache")
        files = {
            str(path.relative_to(self.path)): path.read_bytes()
            for path in sorted(self.path.rglob("*"))
            if path.is_file() and not path.is_symlink() and not set(hidden) & set(path.parts)
        }
        links = {
            str(path.relative_to(self.path)): path.readlink()
            for path in self.path.rglob("*")
            if path.is_symlink() and not set(hidden) & set(path.parts)
        }
        said = {" ".join(words): self.git(*words) for words in ASKED}
        return {"files": files, "links": links, **said}


class Run:
    """What a run of pytest came to."""

    def __init__(self, status: int, out: str) -> None:
        self.status, self.out = status, out

    @property
    def rows(self) -> dict[str, tuple[str, str]]:
        """The table of the section at the end: what each test came to against the other commit, and its verdict."""
        rows = re.findall(
            r"^\S*?::(\S+(?: \(\w+\))?) .*?  ([a-z]+(?: \(.*?\))?|-) +([a-z]+(?: [a-z]+)*)$", self.out, re.MULTILINE
        )
        return {name: (against, verdict) for name, against, verdict in rows}


# ------------------------------------------------------------------------------------------------------ what is forked


def as_python(python: str, *words: str) -> None:
    """Do in a fork what Python does with these words; the sides that it starts are forks too."""
    if words[0] == "-c":
        _start_each_commit_anew()
    fresh.as_python(python, *words, plugins=[_CommitsAnew()])


class _CommitsAnew:
    """A plugin that takes effect when pytest has imported the one that is tested."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_load_initial_conftests(self) -> None:
        _start_each_commit_anew()


def _start_each_commit_anew() -> None:
    """Let a search import torch for no process of its own that forks."""
    warm = importlib.import_module("pytest_torchprof.against.warm")
    warm.WarmPython.run = lambda _, start, log: start.run(log)
