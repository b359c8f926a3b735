"""Comparisons and searches that are killed at random moments, and what they leave behind.

    python tests/kills_at_random.py [--kills 20] [--seed 1] [--folder FOLDER]

A run of `--torchprof-against` or of `torchprof bisect`, by turns, gets SIGINT, SIGTERM or SIGKILL, or one of the
processes that it has started does: so many of each, after a random part of the time that an undisturbed run takes. After
each, files, index, references, worktrees, stash and `git fsck` must be as before, no process may be left, no lock held,
and no folder of ours in the temporary directory; at the end a run must give its verdict and remove what is left.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import tempfile
import time
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

from left_behind import left_in, processes
from repository import PACKAGE, PYTEST, SLOWER, TESTS, TORCHPROF, Repository

if TYPE_CHECKING:
    from collections.abc import Mapping

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGKILL)
PLAIN = ("-p", "no:hypothesispytest", "-p", "no:cacheprovider")
AGAINST = (PYTEST, ("--torchprof-against=main", "--torchprof-against-fresh", *PLAIN))
SEARCH = (
    TORCHPROF,
    (
        "bisect",
        "--limit",
        "max_kernels=1",
        "tests/test_waves.py",
        "--good",
        "good",
        "--",
        "--torchprof-against-fresh",
        *PLAIN,
    ),
)
PATIENCE_S = 60
"""For how long what was killed may take to be gone; the product says ten seconds, on a machine with nothing else to do."""


def make(folder: Path, more: Mapping[str, str]) -> Repository:
    """Return a repository with a few commits, of which one has added a kernel, with changes, and with further files."""
    made = Repository(folder, {"waves.py": PACKAGE, "tests/test_waves.py": TESTS, **more})
    made.git("tag", "good")
    for code in (SLOWER, SLOWER + "\n"):
        made.write({"waves.py": code})
        made.commit()
    made.write({"waves.py": SLOWER + "# changed\n", "notes.txt": "not added"})
    made.git("stash", "push", "--quiet", "--include-untracked")
    made.git("stash", "apply", "--quiet")
    return made


def below(pid: int) -> list[int]:
    """Return what a process has started, and what that has."""
    found: list[int] = []
    with suppress(OSError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            for child in map(int, (thread / "children").read_text().split()):
                found += [child, *below(child)]
    return found


def left(repository: Repository, temporary: Path) -> dict[str, object]:
    """Return what is left of a run after a while."""
    until = time.monotonic() + PATIENCE_S
    while processes(repository.path) and time.monotonic() < until:
        time.sleep(0.2)
    return {**left_in(repository.path), **left_in(temporary), **_folders(temporary)}


def _folders(temporary: Path) -> dict[str, object]:
    found = [path.name for path in temporary.iterdir() if "torchprof" in path.name]
    return {"temporary": found} if found else {}


def killed(
    repository: Repository, how: tuple, sent: signal.Signals, whom: str, moment_s: float, chance: random.Random
) -> tuple[str, int, dict[str, object]]:
    """Kill a run; return who was hit, its status and what it has left."""
    program, words = how
    with tempfile.TemporaryDirectory() as name:
        process = repository.start(*words, program=program, TMPDIR=name)
        time.sleep(moment_s)
        others = below(process.pid)
        hit, who = process.pid, "parent"
        if whom == "child":
            hit = chance.choice(others) if others else 0
            with suppress(OSError):
                who = " ".join(Path(f"/proc/{hit}/cmdline").read_text().split("\0")[:4])[-60:]
        if process.poll() is not None or not hit:
            who = f"nobody: {'it had ended' if process.poll() is not None else 'no child'}"
        else:
            with suppress(ProcessLookupError):
                os.kill(hit, sent)
        out = b"" if process.stdout is None else process.communicate(timeout=300)[0]
        found = left(repository, Path(name))
    if "Traceback" in str(out) and f"{os.sep}pytest_torchprof{os.sep}" in str(out):  # pytest has some of its own.
        found["traceback"] = out
    return who, process.returncode, found


def main() -> int:
    """Kill, and tell; return 1 where anything was left."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--folder", type=Path, default=None)
    asked = parser.parse_args()
    # A shell lets what it starts in the background ignore it, and so would all that is started here.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    chance = random.Random(asked.seed)
    counted = wrong = 0
    with tempfile.TemporaryDirectory(dir=asked.folder) as name:
        repository = make(Path(name, "repository"), {})
        before = repository.state()
        lasts = {}
        for how in (AGAINST, SEARCH):
            began = time.monotonic()
            repository.run(*how[1], program=how[0])
            lasts[how] = time.monotonic() - began
        for number, sent, whom in product(range(asked.kills), SIGNALS, ("parent", "child")):
            how = (AGAINST, SEARCH)[(number + SIGNALS.index(sent)) % 2]
            moment_s = chance.uniform(0.05, 0.95) * lasts[how]
            who, status, found = killed(repository, how, sent, whom, moment_s, chance)
            if (now := repository.state()) != before:
                found["changed"] = [key for key in before if before[key] != now[key]]
            is_hit = not who.startswith("nobody")
            counted, wrong = counted + is_hit, wrong + bool(found)
            told = "against" if how is AGAINST else "bisect"
            said = f"{told} {sent.name} {whom} after {moment_s:.1f} s ({who}): {status}, {found or 'nothing left'}"
            sys.stdout.write(f"seed {asked.seed} kill {counted}: {said}\n")
            sys.stdout.flush()
        run = repository.against("main", *PLAIN)
        kept = repository.path / ".torchprof/against"
        rest = [*kept.glob("*/tree"), *(kept / "runs").iterdir()]
    said = f"{counted} kills, {wrong} left something; the last run ended with {run.status}, and then {rest or 'nothing'} is left"
    sys.stdout.write(f"seed {asked.seed}: {said}\n")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
