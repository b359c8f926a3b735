"""The processes of a job of several ranks: started by torch's own launcher, waited for, ended, and what was lost."""

from __future__ import annotations

import os
import re
import signal
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from pytest_torchprof.reasons.lost_ranks import (
    CacheProcess,
    RankDied,
    RankEndedByLauncher,
    RankLostWithLauncher,
    RankOutlasted,
    RankStoodStill,
    StoppedAt,
)
from pytest_torchprof.system.processes import end as end_process
from pytest_torchprof.system.processes import is_there
from pytest_torchprof.system.processes import start as start_process
from pytest_torchprof.testing.ranks import VARIABLE, stacks
from pytest_torchprof.testing.ranks.task import LEFT_ALONE, RankEnd, RankFolder, Sign, TurnFolder
from pytest_torchprof.text import last_lines

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from pytest_torchprof.capture.cache_phase import CachePhase
    from pytest_torchprof.reasons.reason import Reason
    from pytest_torchprof.system.processes import Process
    from pytest_torchprof.testing.ranks.stacks import Stack


LOOK_S: Final = 0.1
_LEAVE_S: Final = 5.0
"""How long processes may take to end once they were told to."""
_START_S: Final = 60.0
"""How long at least all ranks may take until they have begun their tests: they import what the tests need."""
_MOST_COMPILING: Final = 10
"""How many times as long as for others is waited for ranks that compile."""
_LAST_LINES: Final = 15
_FATAL: Final = "Fatal Python error"
_KILL: Final = getattr(signal, "SIGKILL", signal.SIGTERM)  # Windows has no SIGKILL.
_ENDED_BY_US: Final = (LEFT_ALONE, -signal.SIGTERM, -_KILL)
_FAILED: Final = re.compile(r"rank\s+: (\d+) .*\n\s+exitcode\s+: (-?\d+)")
"""How the launcher reports a rank that ended with a status other than 0."""


class JobPlan(Struct, frozen=True, kw_only=True):
    """How a job runs tests."""

    file: str
    """The absolute path of their test file."""
    device: str
    """The device as the marker names it: the process group is that of the first test."""
    ranks: int
    arguments: tuple[str, ...]
    """The arguments with which each rank calls pytest."""
    folder: Path
    """Where pytest was called."""
    variables: Mapping[str, str]
    """The variables that differ from the environment of this process."""
    silence_s: float
    """For how long at most no rank may report progress."""
    patience_s: float
    """How long the other ranks may run on once one has failed: if they wait for it in a collective, they never end."""
    replays: bool
    """Whether recordings are judged: the ranks have nothing to do with each other then, and need no launcher."""
    compile_cache: str | None = None
    """For a process alone: whether it is to find the compile caches "cold" or "warm"; None for ranks."""
    phase: CachePhase | None = None
    """How that process finds them."""

    @property
    def is_launched(self) -> bool:
        """Whether torch's launcher starts its ranks."""
        return not self.replays and self.phase is None

    @property
    def process(self) -> CacheProcess | None:
        """The purpose of its process, if that is no rank of several."""
        if self.phase is None:
            return None
        if self.phase.fills:
            return CacheProcess.FILLS
        return CacheProcess.COLD if self.phase.name == "cold" else CacheProcess.WARM


class LostRank(Struct, frozen=True, kw_only=True):
    """A rank that did not come to its end."""

    number: int
    why: Reason
    last_lines: tuple[str, ...]
    """The last lines of its output, or those in which Python says what became of it."""
    outlived: bool
    """Whether it was ended because another one had failed."""
    stack: Stack | None = None
    """Where it was when the job was given up, if it could still say."""


class Place(Struct, frozen=True, kw_only=True):
    """Where a rank was when its job was given up, as far as that is known."""

    sign: Sign | None
    stack: Stack | None
    collective: str
    """The collective at which it stopped; empty where no flight recorder says."""

    @property
    def why_silent(self) -> RankStoodStill:
        """Why the rank made no progress: the goal that it had not reached, the line, and the collective."""
        if self.sign is None:
            return RankStoodStill(goal=None, waited=False, at=self.at)
        return RankStoodStill(goal=self.sign.goal, waited=self.sign.waits, at=self.at)

    @property
    def at(self) -> StoppedAt:
        """The line and the collective."""
        return StoppedAt("" if self.stack is None else self.stack.innermost, self.collective)


_NOWHERE: Final = Place(sign=None, stack=None, collective="")


class JobEnd(Struct, frozen=True, kw_only=True):
    """The outcome of a job."""

    ranks: tuple[RankEnd, ...]
    lost: tuple[LostRank, ...]
    """The lost ranks; first the one that ended the job."""
    process: CacheProcess | None = None
    """The name of its process in messages, where that is no rank of several."""
    silent_s: float | None = None
    """For how long no rank had made progress, if the job was given up for that."""


class JobGivenUp(Struct, frozen=True):
    """Why a job was ended before its ranks had."""

    waited_s: float
    """How long was waited: since another rank had failed, or without any progress."""
    by_silence: bool = False

    def why_lost(self, place: Place) -> Reason:
        """Return why a rank is lost that was ended at a place because the job was given up."""
        return place.why_silent if self.by_silence else RankOutlasted(self.waited_s, place.at)


def environment(plan: JobPlan) -> dict[str, str]:
    """Return the environment of the launcher and of all ranks."""
    return {**os.environ, **plan.variables}


def start(plan: JobPlan, job: Path) -> Iterator[Process]:
    """Start the launcher, or for a replay each rank by itself."""
    arguments = ["-m", "pytest", *plan.arguments]
    variables = {**environment(plan), VARIABLE: str(job)}
    if str(plan.folder) not in sys.path and "" not in sys.path:
        variables["PYTHONSAFEPATH"] = "1"  # As `pytest` was called, and not `python -m pytest`.
    if plan.is_launched:
        launcher = ["-m", "torch.distributed.run", "--standalone", "--local-addr=127.0.0.1", "--redirects=3"]
        launcher += [f"--nproc-per-node={plan.ranks}", f"--log-dir={job / 'logs'}"]
        yield _popen([*launcher, *arguments], plan.folder, variables, job / "launcher")
        return
    if plan.phase is not None:
        yield _popen(arguments, plan.folder, variables, job / "logs" / "0")
        return
    for rank in range(plan.ranks):
        rank_variables = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(plan.ranks)}
        yield _popen(arguments, plan.folder, {**variables, **rank_variables}, job / "logs" / str(rank))


def _popen(arguments: list[str], folder: Path, variables: Mapping[str, str], logs: Path) -> Process:
    logs.mkdir(parents=True)
    with (logs / "stdout.log").open("wb") as out, (logs / "stderr.log").open("wb") as err:
        # In a session of its own: Ctrl-C goes to the process that waits for the job, which then ends it.
        return start_process(
            [sys.executable, *arguments], own_group=True, cwd=folder, env=variables, stdout=out, stderr=err
        )


def wait(
    ranks: Sequence[RankFolder], number: int, processes: Sequence[Process], plan: JobPlan, *, last: bool
) -> JobGivenUp | None:
    """Wait until all ranks have ended a test, the ``last`` one with their processes.

    Return why they are not waited for any longer, or None if all have ended it.
    """
    failed_s, heard_s, compiled = None, time.monotonic(), 0
    signs: list[Sign | None] = []
    turns = [rank.of_turn(number) for rank in ranks]
    # All are asked each time: asking is what clears up after a process that has ended.
    while None in [process.poll() for process in processes]:
        if not last and all(turn.ended for turn in turns):
            return None
        time.sleep(LOOK_S)
        now = time.monotonic()
        before, signs = signs, [rank.sign for rank in ranks]
        heard_s = heard_s if signs == before else now
        if failed_s is None and any(map(_has_failed, ranks, turns)):
            failed_s = now
        if failed_s is not None:
            # A rank that failed because it had waited for the others has used up the patience.
            longest_s = min(plan.patience_s, _LEAVE_S) if any(turn.read().waited for turn in turns) else plan.patience_s
            if now - failed_s > longest_s:
                return JobGivenUp(longest_s)
        elif now - heard_s > (longest_s := _longest_silence_s(signs, plan)):
            if compiled < _MOST_COMPILING and _compile(ranks):
                heard_s, compiled = now, compiled + 1
                continue
            return JobGivenUp(longest_s, by_silence=True)
    return None


def _compile(ranks: Sequence[RankFolder]) -> bool:
    """Return whether a rank is compiling code, during which it cannot report progress."""
    alive = {number: (rank.root, pid) for number, rank in enumerate(ranks) if (pid := rank.pid) is not None}
    return any(stack.compiles for stack in stacks.taken(alive).values())


def _longest_silence_s(signs: Sequence[Sign | None], plan: JobPlan) -> float:
    if any(sign is None or not sign.in_test for sign in signs):
        return max(plan.silence_s, _START_S)
    # Ranks that wait for each other in a measurement notice it themselves.
    return plan.patience_s if any(sign and sign.waits for sign in signs) else plan.silence_s


def _has_failed(rank: RankFolder, turn: TurnFolder) -> bool:
    return turn.read().failed or (not turn.ended and rank.pid is not None and not is_there(rank.pid))


def _runs(rank: RankFolder) -> bool:
    return rank.pid is not None and is_there(rank.pid)


def end(folders: Sequence[RankFolder], processes: Sequence[Process]) -> None:
    """Wait until the processes that were told to end have ended, and kill those that do not."""
    until = time.monotonic() + _LEAVE_S
    while (waits := None in [process.poll() for process in processes]) or any(map(_runs, folders)):
        if time.monotonic() > until:
            break
        time.sleep(LOOK_S)
    for folder in folders:
        if (pid := folder.pid) is not None and (waits or _runs(folder)):
            with suppress(OSError):
                os.kill(pid, _KILL)
    for process in processes:
        end_process(process, asks=False, patience_s=_LEAVE_S)


def statuses_of(job: Path, processes: Sequence[Process], *, are_launched: bool) -> dict[int, int]:
    """Return the exit statuses other than 0 by rank; the first is that of the rank by which the job ended."""
    if not are_launched:
        return {rank: process.returncode for rank, process in enumerate(processes) if process.returncode}
    others, _, first = _read(job / "launcher").rpartition("Root Cause")
    return {int(rank): int(status) for rank, status in _FAILED.findall(first + others)}


def lost_ranks(
    job: Path,
    ranks: Sequence[RankEnd],
    statuses: Mapping[int, int],
    given_up: JobGivenUp | None,
    places: Mapping[int, Place],
) -> Iterator[LostRank]:
    """Yield the ranks that did not come to their end, with where they were if the job was given up."""
    first = next(iter(statuses), None)
    for rank in dict.fromkeys([*statuses, *range(len(ranks))]):
        status = statuses.get(rank, 0)
        if ranks[rank].last.status is not None and not status:
            continue
        is_ended = given_up is not None and status in _ENDED_BY_US
        wrote = next(job.glob(f"logs/**/{rank}"), job / "launcher")
        place = places.get(rank, _NOWHERE)
        why: Reason = RankDied(status)
        if given_up is not None and is_ended:
            why = given_up.why_lost(place)
        elif first is not None and rank != first and status == -signal.SIGTERM:
            why = RankEndedByLauncher(first, statuses[first])
        outlived = is_ended and given_up is not None and not given_up.by_silence
        lines = _last_lines(_read(wrote))
        yield LostRank(number=rank, why=why, last_lines=lines, outlived=outlived, stack=place.stack)


def lost_with_launcher(job: Path, ranks: Sequence[RankEnd], status: int) -> Iterator[LostRank]:
    """Yield the ranks that did not come to their end because the launcher did."""
    last_lines = _last_lines(_read(job / "launcher"))
    for rank, end in enumerate(ranks):
        if end.last.status is None:
            why = RankLostWithLauncher(status)
            yield LostRank(number=rank, why=why, last_lines=last_lines, outlived=False)


def _last_lines(text: str) -> tuple[str, ...]:
    _, fatal, rest = text.partition(_FATAL)
    return tuple(f"{fatal}{rest}".splitlines()[:_LAST_LINES] if fatal else last_lines(text, _LAST_LINES))


def _read(logs: Path) -> str:
    """Return the text that a process wrote to stderr, or if that is empty, to stdout."""
    files = (logs / f"{name}.log" for name in ("stderr", "stdout"))
    texts = (file.read_text(encoding="utf-8", errors="backslashreplace").rstrip() for file in files if file.is_file())
    return next(filter(None, texts), "")
