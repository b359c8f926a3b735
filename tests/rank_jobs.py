"""Jobs of several ranks: pytest in fresh processes that find each other as under any launcher, through gloo on the CPU."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import fresh

if TYPE_CHECKING:
    import pytest

LONGEST_S = 240
"""A rank that waits for another would wait for half an hour."""

TOGETHER = """
import os, signal, time
import pytest, torch
from torch import distributed

RANK = int(os.environ["RANK"])
x = torch.ones(8)

@pytest.fixture(scope="session", autouse=True)
def job():
    distributed.init_process_group("gloo")
    yield
    distributed.destroy_process_group()

def step():
    distributed.all_reduce(x)
    torch.sin(x)
"""
"""A module's head: what the ranks have in common, and a step of two kernels."""


@dataclass(frozen=True)
class RankRun:
    """What one rank's run of pytest came to."""

    status: int
    text: str
    tests: dict[str, tuple[str, str]]
    """By a test's name how it came out, and the text of a failure or skip."""
    outcomes: dict[str, set[str]]
    """By a test's name how its measurements came out, as JUnit's properties say."""

    def outcome(self, name: str) -> str:
        """Return how a test came out: passed, failure, error or skipped."""
        return self.tests[name][0]

    def said(self, name: str) -> str:
        """Return why a test did not pass, in one line."""
        return " ".join(self.tests[name][1].split())


def start(world: int, *args: str, **environment: str) -> list[fresh.Fresh]:
    """Start pytest in each of so many ranks, in the current folder."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    told = {"WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), **environment}
    return [
        fresh.start_pytest(
            "-p", "no:cacheprovider", "--torchprof-device=cpu", f"--junitxml=rank{rank}.xml", *args,
            **told, RANK=str(rank), LOCAL_RANK=str(rank),
        )
        for rank in range(world)
    ]  # fmt: skip


def run(world: int, *args: str, **environment: str) -> list[RankRun]:
    """Run pytest in each of so many ranks, and return what came of each."""
    return ended(start(world, *args, **environment))


def ended(started: list[fresh.Fresh]) -> list[RankRun]:
    """Return what came of the ranks that were started in the current folder."""
    return [_done(rank, one) for rank, one in enumerate(started)]


def _done(rank: int, started: fresh.Fresh) -> RankRun:
    done = started.done(LONGEST_S)
    report = Path(f"rank{rank}.xml")
    return RankRun(done.returncode, done.stdout + done.stderr, _tests(report), _outcomes(report))


def _outcomes(report: Path) -> dict[str, set[str]]:
    cases = ET.parse(report).iter("testcase") if report.is_file() else ()
    return {
        case.get("name", ""): {
            one.get("value", "") for one in case.iter("property") if one.get("name", "").endswith(".outcome")
        }
        for case in cases
    }


def _tests(report: Path) -> dict[str, tuple[str, str]]:
    if not report.is_file():
        return {}
    found = {}
    for case in ET.parse(report).iter("testcase"):
        problem = next((one for one in case if one.tag in ("failure", "error", "skipped")), None)
        found[case.get("name", "")] = (
            ("passed", "") if problem is None else (problem.tag, f"{problem.get('message')}\n{problem.text}")
        )
    return found


def without_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let runs say what they say on anybody's machine."""
    for name in ("CI", "GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY"):
        monkeypatch.delenv(name, raising=False)
