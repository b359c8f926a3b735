"""Runs one test as a job of several ranks, by torch's own launcher, and leaves no process of it behind."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import filelock

from pytest_torchprof.testing.ranks import VARIABLE
from pytest_torchprof.testing.ranks.stacks import Stack, taken
from pytest_torchprof.testing.ranks.task import ALIVE, GIVEN_UP, LEFT_ALONE, RankEnd, RankFolder, Sign, Task

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    Process = subprocess.Popen[bytes]

_LOOK_S: Final = 0.1
_LEAVE_S: Final = 5.0
"""How long processes may take to end that were told to."""
_START_S: Final = 60.0
"""How long it may take at least until all ranks have begun their tests: they import what the tests need."""
_LAST_LINES: Final = 15
_FATAL: Final = "Fatal Python error"
_KILL: Final = getattr(signal, "SIGKILL", signal.SIGTERM)  # Windows has no other.
_TOLD_TO_END: Final = (LEFT_ALONE, -signal.SIGTERM, -_KILL)
_FAILED: Final = re.compile(r"rank\s+: (\d+) .*\n\s+exitcode\s+: (-?\d+)")
"""How the launcher tells of a rank that ended otherwise than with status 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPlan:
    """What a job runs, and how."""

    task: Task
    ranks: int
    words: tuple[str, ...]
    """Those that each rank calls pytest with."""
    folder: Path
    """Where it was called."""
    variables: Mapping[str, str]
    """What differs from the environment of this process."""
    silence_s: float
    """For how long no rank may tell of progress."""
    patience_s: float
    """How long the other ranks may run on once one has failed: who waits for it in a collective might never end."""
    replays: bool
    """Whether recordings are judged: the ranks have nothing to do with each other then, and need no launcher."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LostRank:
    """A rank that did not come to its end."""

    number: int
    how: str
    last_lines: tuple[str, ...]
    """Of what it wrote; where Python says what became of it, those."""
    outlived: bool
    """Whether it was ended for want of another one, which had failed."""
    stack: Stack | None = None
    """Where it was when the job was given up, if it could still tell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEnd:
    """What became of a job."""

    ranks: tuple[RankEnd, ...]
    lost: tuple[LostRank, ...]
    """The one first that the job ended by."""
    silence: str = ""
    """Why the job was given up, if no rank made progress any more."""


@dataclass(frozen=True, slots=True)
class _GivenUp:
    """Why a job was ended before its ranks had."""

    why: str
    by_silence: bool = False


def run_job(plan: JobPlan) -> JobEnd:
    """Run a job and wait for it; whatever ends the waiting ends the job."""
    with tempfile.TemporaryDirectory(prefix="torchprof-job-", ignore_cleanup_errors=True) as temporary:
        job = Path(temporary)
        plan.task.write(job)
        folders = [RankFolder(job, number) for number in range(plan.ranks)]
        processes: list[Process] = []
        alive = filelock.FileLock(job / ALIVE)
        alive.acquire()
        try:
            processes.extend(_start(plan, job))
            given_up = _wait(folders, processes, plan)
            running = {rank: pid for rank, folder in enumerate(folders) if (pid := folder.pid) and _is_there(pid)}
            asked = {rank: (folders[rank].path, pid) for rank, pid in running.items() if not folders[rank].ended}
            stacks = taken(asked) if given_up else {}
        finally:
            with suppress(OSError):
                (job / GIVEN_UP).touch()
            alive.release()  # Which ends every rank that still runs.
            _end(folders, processes)
        ranks = tuple(folder.read() for folder in folders)
        statuses = _statuses(job, processes, replays=plan.replays)
        if given_up:
            # Of those that the launcher ends itself, as soon as one has ended, it tells no status.
            ended_with_it = (rank for rank in running if ranks[rank].status is None and rank not in statuses)
            statuses |= dict.fromkeys(ended_with_it, LEFT_ALONE)
        lost = _lost(job, ranks, statuses, given_up, {rank: (folders[rank].sign, stacks.get(rank)) for rank in running})
        # A launcher that comes to its end names the ranks that have failed.
        if not (given_up or statuses) and (status := processes[0].returncode):
            lost = _lost_with_launcher(job, ranks, status)
        silence = given_up.why if given_up and given_up.by_silence else ""
        return JobEnd(ranks=ranks, lost=tuple(lost), silence=silence)


def _start(plan: JobPlan, job: Path) -> Iterator[Process]:
    """Start the launcher, or for a replay each rank by itself."""
    words = ["-m", "pytest", *plan.words]
    told = {**os.environ, **plan.variables, VARIABLE: str(job)}
    if str(plan.folder) not in sys.path and "" not in sys.path:
        told["PYTHONSAFEPATH"] = "1"  # As `pytest` was called, and not `python -m pytest`.
    if not plan.replays:
        launcher = ["-m", "torch.distributed.run", "--standalone", "--local-addr=127.0.0.1", "--redirects=3"]
        launcher += [f"--nproc-per-node={plan.ranks}", f"--log-dir={job / 'logs'}"]
        yield _popen([*launcher, *words], plan.folder, told, job / "launcher")
        return
    for rank in range(plan.ranks):
        place = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(plan.ranks)}
        yield _popen(words, plan.folder, {**told, **place}, job / "logs" / str(rank))


def _popen(words: list[str], folder: Path, told: Mapping[str, str], logs: Path) -> Process:
    logs.mkdir(parents=True)
    with (logs / "stdout.log").open("wb") as out, (logs / "stderr.log").open("wb") as err:
        # In a session of its own: Ctrl-C is for who waits for the job, and ends it so.
        return subprocess.Popen(  # noqa: S603 - this Python, with the words that its user has called it with
            [sys.executable, *words],
            cwd=folder,
            env=told,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            start_new_session=True,
        )


def _wait(folders: Sequence[RankFolder], processes: Sequence[Process], plan: JobPlan) -> _GivenUp | None:
    """Wait until all processes have ended; where they do not, return why they are waited for no more."""
    failed_s, heard_s = None, time.monotonic()
    signs: list[Sign | None] = []
    # All are asked, each time: to ask is what clears up after a process that has ended.
    while None in [process.poll() for process in processes]:
        time.sleep(_LOOK_S)
        now = time.monotonic()
        before, signs = signs, [folder.sign for folder in folders]
        heard_s = heard_s if signs == before else now
        if failed_s is None and any(_has_failed(folder) for folder in folders):
            failed_s = now
        if failed_s is not None:
            # A rank that failed because it had waited for the others has had the patience.
            longest_s = min(plan.patience_s, _LEAVE_S) if any(f.read().waited for f in folders) else plan.patience_s
            if now - failed_s > longest_s:
                return _GivenUp(f"had not ended {longest_s:.0f} s after another rank had failed")
        elif now - heard_s > (longest_s := _longest_silence_s(signs, plan)):
            return _GivenUp(f"no rank made progress for {longest_s:g} s", by_silence=True)
    return None


def _longest_silence_s(signs: Sequence[Sign | None], plan: JobPlan) -> float:
    if any(sign is None or not sign.in_test for sign in signs):
        return max(plan.silence_s, _START_S)
    # Ranks that wait for each other in a measurement find out by themselves.
    return plan.patience_s if any(sign and sign.waits for sign in signs) else plan.silence_s


def _has_failed(folder: RankFolder) -> bool:
    return folder.read().failed or (not folder.ended and folder.pid is not None and not _is_there(folder.pid))


def _runs(folder: RankFolder) -> bool:
    return not folder.ended and folder.pid is not None and _is_there(folder.pid)


def _is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def _end(folders: Sequence[RankFolder], processes: Sequence[Process]) -> None:
    """Wait until the processes that were told to end have ended, and kill those that do not."""
    until = time.monotonic() + _LEAVE_S
    while (waits := None in [one.poll() for one in processes]) or any(map(_runs, folders)):
        if time.monotonic() > until:
            break
        time.sleep(_LOOK_S)
    for folder in folders:
        if (pid := folder.pid) is not None and (waits or _runs(folder)):
            with suppress(OSError):
                os.kill(pid, _KILL)
    for process in processes:
        with suppress(subprocess.TimeoutExpired):
            process.wait(_LEAVE_S)
        process.kill()
        process.wait()


def _statuses(job: Path, processes: Sequence[Process], *, replays: bool) -> dict[int, int]:
    """Return the exit statuses of ranks that ended with another than 0; the one by which the job ended is the first."""
    if replays:
        return {rank: process.returncode for rank, process in enumerate(processes) if process.returncode}
    others, _, first = _read(job / "launcher").rpartition("Root Cause")
    return {int(rank): int(status) for rank, status in _FAILED.findall(first + others)}


def _lost(
    job: Path,
    ranks: Sequence[RankEnd],
    statuses: Mapping[int, int],
    given_up: _GivenUp | None,
    places: Mapping[int, tuple[Sign | None, Stack | None]],
) -> Iterator[LostRank]:
    """Yield the ranks that did not come to their end, where they were when the job was given up, if it was."""
    first = next(iter(statuses), None)
    for rank in dict.fromkeys([*statuses, *range(len(ranks))]):
        status = statuses.get(rank, 0)
        if ranks[rank].status is not None and not status:
            continue
        is_ended = given_up is not None and status in _TOLD_TO_END
        wrote = next(job.glob(f"logs/**/{rank}"), job / "launcher")
        sign, stack = places.get(rank, (None, None))
        said = _how(status)
        if given_up is not None and is_ended:
            said = _place(None if given_up.by_silence else given_up.why, sign, stack)
        elif first is not None and rank != first and status == -signal.SIGTERM:
            said = f"was ended by the launcher after rank {first} {_how(statuses[first])}"
        outlived = is_ended and given_up is not None and not given_up.by_silence
        lines = _last_lines(_read(wrote))
        yield LostRank(number=rank, how=said, last_lines=lines, outlived=outlived, stack=stack)


def _place(why: str | None, sign: Sign | None, stack: Stack | None) -> str:
    """Return where a rank was that was ended, after why it was."""
    goal = "did not begin its tests" if sign is None else f"did not reach {sign.goal}"
    if sign is not None and sign.waits:
        goal = f"waited for the others at {sign.goal}"
    at = "where it was is not known" if stack is None else stack.innermost
    return f"{why or goal}: {at}"


def _lost_with_launcher(job: Path, ranks: Sequence[RankEnd], status: int) -> Iterator[LostRank]:
    last_lines = _last_lines(_read(job / "launcher"))
    for rank, end in enumerate(ranks):
        if end.status is None:
            how = f"was lost with the launcher, which {_how(status)}"
            yield LostRank(number=rank, how=how, last_lines=last_lines, outlived=False)


def _last_lines(text: str) -> tuple[str, ...]:
    _, fatal, rest = text.partition(_FATAL)
    return tuple(f"{fatal}{rest}".splitlines()[:_LAST_LINES] if fatal else text.splitlines()[-_LAST_LINES:])


def _how(status: int) -> str:
    if status >= 0:
        return f"ended with exit status {status} before its test did"
    with suppress(ValueError):
        return f"was killed by {signal.Signals(-status).name}"
    return f"was killed by signal {-status}"


def _read(logs: Path) -> str:
    """Return what a process wrote: its errors, or where it has none the rest."""
    files = (logs / f"{name}.log" for name in ("stderr", "stdout"))
    texts = (file.read_text(encoding="utf-8", errors="backslashreplace").rstrip() for file in files if file.is_file())
    return next(filter(None, texts), "")
