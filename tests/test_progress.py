"""What a terminal shows while a test is measured."""

from __future__ import annotations

import os
import pty
import re
import sys
from contextlib import suppress
from multiprocessing.connection import Connection

import fresh
import pytest

pytestmark = pytest.mark.any_torch

TEST = """
import pytest, torch

@pytest.mark.torchprof(device="cpu", warmup=2, steps=3, max_kernels=5, tolerance={"time": 0.5})
def test_step():
    torch.ones(4) + 1
"""
SHOWN = re.compile(r"\[([a-z][^\]]*): test_step\]")


@pytest.fixture
def shown(pytester, monkeypatch):
    """Return a function that runs a test on a terminal, and returns what was shown beside pytest's own lines."""
    pytester.makepyfile(test_it=TEST)

    def run(*options, **environment):
        for name, value in {"TERM": "xterm", "CI": "", **environment}.items():
            monkeypatch.setenv(name, value)
        terminal, its_end = pty.openpty()
        screen = Connection(its_end, readable=False)
        words = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *options]
        started = fresh.Fresh(fresh.as_python, *words, environment=os.environ, outputs=[screen, screen])
        screen.close()
        output = bytearray()
        with suppress(OSError):  # So ends what is written to a terminal.
            while data := os.read(terminal, 4096):
                output.extend(data)
        os.close(terminal)
        started.process.join()
        assert started.process.exitcode == 0
        return SHOWN.findall(output.decode(errors="replace")), output.decode(errors="replace")

    return run


def test_each_phase_of_a_measurement_is_shown_and_taken_away_again(shown):
    phases, output = shown("--torchprof-baseline=update")
    assert [phase.split()[0] for phase in phases][:2] == ["warm-up", "step"]
    assert phases[0] == "warm-up call 1 of 2"
    assert phases[1] == "step 1 of 3"
    assert re.fullmatch(r"untraced calls: [\d,]+", phases[-1])
    # The last thing written there is nothing.
    assert output.rindex("\0337\033[?7l\033[K") > output.rindex("untraced calls")


@pytest.mark.parametrize("environment", [{"CI": "true"}, {"TERM": "dumb"}], ids=str)
def test_logs_have_no_progress(shown, environment):
    assert shown(**environment)[0] == []
