"""Runs of pytest in which torch is imported and nothing else of what `fresh` has: forks of one process that has started for them all.

It reads `LD_PRELOAD` and the like as any process does.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT = Path(__file__).parents[1]
WITHOUT = ("-p", "no:cacheprovider", "-p", "no:hypothesispytest")
"""Plugins that nothing here uses; that of Hypothesis imports all of it at the end of each run."""
FORKS = """
import json, os, sys
import pytest, torch

statuses = []
for number, (folder, words) in enumerate(json.loads(sys.argv[1])):
    if (fork := os.fork()) == 0:
        os.chdir(folder)
        for stream, name in ((1, "stdout"), (2, "stderr")):
            os.dup2(os.open(f"{name}{number}", os.O_WRONLY | os.O_CREAT), stream)
        sys.argv[:] = ["pytest", *words]
        sys.path.insert(0, folder)
        status = pytest.main(words)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)  # What torch does at an end takes longer than most runs.
    statuses.append(os.waitstatus_to_exitcode(os.waitpid(fork, 0)[1]))
print(json.dumps(statuses))
"""


def run_pytests(*runs: tuple[Path, Sequence[str]], **environment: str) -> list[pytest.RunResult]:
    """Run pytest in each of these folders with these words."""
    told = json.dumps([(str(folder), [*WITHOUT, *words]) for folder, words in runs])
    own = os.environ | {"PYTHONPATH": str(ROOT)} | environment
    done = subprocess.run([sys.executable, "-c", FORKS, told], env=own, stdout=subprocess.PIPE, text=True, check=True)
    return [
        pytest.RunResult(
            status, *((folder / f"{name}{number}").read_text().splitlines() for name in ("stdout", "stderr")), 0
        )
        for number, (status, (folder, _)) in enumerate(zip(json.loads(done.stdout), runs, strict=True))
    ]
