"""Both sides run under the same conditions: seeds, order, the path of modules; and they end with the run."""

from __future__ import annotations

import os
import signal
import time
from itertools import product
from pathlib import Path

import pytest
from repository import PACKAGE, SLOWER, TESTS, Repository

pytestmark = pytest.mark.any_torch

SEEDED = """
import os, random
import torch
import shuffle

def wave(x):
    for _ in range(1 + shuffle.SEED % 89):
        x = torch.sin(x)
    for _ in range(hash("a text") % 97):
        x = torch.cos(x)
    return x
"""
SHUFFLE = '''
"""As pytest-randomly and pytest-random-order do: each process draws a seed, if nobody says which."""
import random

SEED = 0

def pytest_addoption(parser):
    parser.addoption("--randomly-seed", default="default")
    parser.addoption("--random-order-seed", default=str(random.randint(1, 10**6)))

def pytest_configure(config):
    global SEED
    given = config.option.randomly_seed
    SEED = random.getrandbits(32) if given == "default" else int(given)
    SEED += int(config.option.random_order_seed)
'''


def test_both_sides_have_the_same_seeds(tmp_path):
    files = {"waves.py": SEEDED, "shuffle.py": SHUFFLE, "test_waves.py": TESTS}
    made = Repository(tmp_path / "made", files)
    words = ("-p", "shuffle", "--torchprof-against-fresh")
    run = made.against("main", *words)
    assert run.rows == {"test_wave": ("same", "passed")}
    given = made.against("main", *words, "--randomly-seed=3")
    assert given.rows == {"test_wave": ("same", "passed")}


SPOILED = "raise RuntimeError('this is no module of the standard library')\n"


def test_the_standard_library_comes_before_the_root_directory(tmp_path):
    """As for plain pytest, where the package lies in src."""
    names = ("profile.py", "types.py", "random.py", "queue/__init__.py")
    files = {"src/waves.py": f"import profile, queue, random, types\n{PACKAGE}", "tests/test_waves.py": TESTS}
    made = Repository(tmp_path / "made", {**files, **dict.fromkeys(names, SPOILED), "helpers.py": ""})
    made.write({"src/waves.py": f"import helpers, profile, queue, random, types\n{SLOWER}"})
    run = made.against("main", program=("-P", "-m", "pytest"))
    assert run.rows == {"test_wave": ("worse (+1 kernel)", "failed")}


HANGS = """
import os, time
from pathlib import Path
import torch

if os.environ["HANGS"] in __file__ and (".torchprof" in __file__) == (os.environ["HANGS"] == ".torchprof"):
    Path(os.environ["TOLD"]).write_text(str(os.getpid()))
    while True:
        try:
            time.sleep(600)
        except KeyboardInterrupt:
            if os.environ["TAKES"]:
                raise

def wave(x):
    return torch.sin(x)
"""


def is_running(number: int) -> bool:
    """Whether there is such a process, which has not ended and only waits to be asked how."""
    try:
        os.kill(number, 0)
        return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError as problem:
        return not isinstance(problem, ProcessLookupError) and Path("/proc").exists() is False


def hanging(folder, side, takes_interrupts):
    """Return a run of which a side hangs: its repository, how that was before, the run's process, and the side's number."""
    made = Repository(folder / "made", {"waves.py": HANGS, "test_waves.py": TESTS})
    before, told = made.state(), folder / "told"
    how = {"HANGS": side, "TOLD": str(told), "TAKES": "yes" if takes_interrupts else ""}
    process = made.start("--torchprof-against=main", by_fork=True, **how)
    while not (told.is_file() and told.read_text()):
        assert process.poll() is None
        time.sleep(0.1)
    return made, before, process, int(told.read_text())


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_side_that_hangs_ends_with_the_run(tmp_path, number):
    cases = product((".torchprof", "waves"), (True, False))
    runs = [hanging(tmp_path / f"{side.strip('.')} {takes}", side, takes) for side, takes in cases]
    for _, _, process, _ in runs:
        process.send_signal(number)
    # Of each run the side has some seconds to end by itself: they go by at once.
    for made, before, process, side in runs:
        assert process.wait() == (-number if number == signal.SIGKILL else 128 + number)
        process.stdout.read()  # Ends with the last process that was started.
        process.stdout.close()
        while is_running(side):
            time.sleep(0.1)
        assert made.state() == before
        if number == signal.SIGTERM:  # In order: what the run has made is gone.
            assert not list((made.path / ".torchprof/against").glob("*/tree"))
            assert not [place for place in (made.path / ".torchprof/against/runs").iterdir() if place.is_dir()]
