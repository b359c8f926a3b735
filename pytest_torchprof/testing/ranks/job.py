"""Jobs of several ranks: one runs the tests of a file that fit it, one by one, as long as it can be reused."""

from __future__ import annotations

import tempfile
import time
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import filelock

from pytest_torchprof.reasons.errors import TorchprofError
from pytest_torchprof.reasons.ranks_started import LostBehindLastTest
from pytest_torchprof.system.processes import is_there
from pytest_torchprof.testing.ranks.flight import last_collective_text
from pytest_torchprof.testing.ranks.launch import (
    JobEnd,
    Place,
    end,
    environment,
    lost_ranks,
    lost_with_launcher,
    start,
    statuses_of,
    wait,
)
from pytest_torchprof.testing.ranks.stacks import taken
from pytest_torchprof.testing.ranks.task import ALIVE, GIVEN_UP, LEFT_ALONE, RankFolder, Task, Turn
from pytest_torchprof.testing.workers import COLUMNS, HISTORY

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pytest

    from pytest_torchprof.system.processes import Process
    from pytest_torchprof.testing.ranks.launch import JobGivenUp, JobPlan, LostRank
    from pytest_torchprof.testing.ranks.task import RankEnd


class Jobs:
    """The jobs of a run, of which at most one exists at a time."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._job: _Job | None = None

    def run(self, plan: JobPlan, nodeids: Sequence[str], turn: Turn) -> JobEnd:
        """Run a test in the present job, if it fits, or in a new one; whatever ends the waiting ends the job.

        ``nodeids`` are the tests that may follow in the job.
        """
        if self._job is None or self._job.plan != plan or not self._job.is_there:
            self._drop()
            self._job = _Job(plan, nodeids, self._config)
        try:
            job_end = self._job.run(turn)
        except BaseException:
            self._job.abandon()
            raise
        finally:
            if self._job.is_over:
                self._job = None
        if self._job is not None and not _are_reusable(job_end.ranks):
            self._drop()
        return job_end

    def close(self) -> None:
        """End the job, if there is one; TorchprofError where one of its ranks does not come to its end."""
        if lost := self._drop():
            ranks, whys = zip(*((rank.number, rank.why) for rank in lost), strict=True)
            raise TorchprofError.because(LostBehindLastTest(ranks, whys))

    def _drop(self) -> tuple[LostRank, ...]:
        job, self._job = self._job, None
        if job is None:
            return ()
        try:
            return job.run(Turn(nodeid=None, last=True)).lost
        except BaseException:
            job.abandon()
            raise


def _are_reusable(ranks: Sequence[RankEnd]) -> bool:
    """Return whether another test may run on these ranks: all wait for it, and their process groups are in step."""
    counts: dict[str, set[int]] = {}
    for name, count in chain.from_iterable(rank.last.groups.items() for rank in ranks):
        counts.setdefault(name, set()).add(count)
    in_step = all(len(those) == 1 and min(those) >= 0 for those in counts.values())
    kept = {bool(rank.last.groups) for rank in ranks}
    return in_step and len(kept) == 1 and all(rank.last.goes_on and rank.last.left is None for rank in ranks)


class _Job:
    """The processes of one job, and the folder in which they find what to run."""

    def __init__(self, plan: JobPlan, nodeids: Sequence[str], config: pytest.Config) -> None:
        self.plan = plan
        self.is_over = False
        self._temporary = tempfile.TemporaryDirectory(prefix="torchprof-job-", ignore_cleanup_errors=True)
        self._folder = Path(self._temporary.name)
        self._ranks = [RankFolder(self._folder, rank, config) for rank in range(plan.ranks)]
        self._processes: list[Process] = []
        self._turns = 0
        self._meets_anew = False
        self._began_s = 0.0
        """When the test began, by the clock of files."""
        self._alive = filelock.FileLock(self._folder / ALIVE)
        self._alive.acquire()
        columns, history = config.stash.get(COLUMNS, None), config.stash.get(HISTORY, None)
        Task(
            nodeids=tuple(nodeids), file=plan.file, phase=plan.phase, columns=columns, history=history
        ).write(self._folder)  # fmt: skip

    @property
    def is_there(self) -> bool:
        """Whether all of its processes are running."""
        pids = [rank.pid for rank in self._ranks]
        starters = [process.poll() for process in self._processes]
        return not any(pid is None or not is_there(pid) for pid in pids) and set(starters) == {None}

    def run(self, turn: Turn) -> JobEnd:
        """Run a test, and wait for it; the job is over after the last one, or if not all ranks have ended it."""
        number, self._turns = self._turns, self._turns + 1
        self._began_s = time.time()
        Turn(
            nodeid=turn.nodeid, following=turn.following, last=turn.last, meets_anew=self._meets_anew
        ).write(self._folder, number)  # fmt: skip
        if number == 0:
            self._processes.extend(start(self.plan, self._folder))
        given_up = wait(self._ranks, number, self._processes, self.plan, last=turn.last)
        folders = [rank.of_turn(number) for rank in self._ranks]
        if given_up is None and not turn.last and all(folder.ended for folder in folders):
            ends = tuple(folder.read() for folder in folders)
            self._meets_anew = not ends[0].last.groups
            return JobEnd(ranks=ends, lost=(), process=self.plan.process)
        return self._ended(number, given_up)

    def abandon(self) -> None:
        """End all processes, however far they have got, and remove the folder."""
        if not self.is_over:
            self._end_processes()
            self._temporary.cleanup()

    def _ended(self, number: int, given_up: JobGivenUp | None) -> JobEnd:
        running = {rank: pid for rank, folder in enumerate(self._ranks) if (pid := folder.pid) and is_there(pid)}
        turns = [rank.of_turn(number) for rank in self._ranks]
        asked = {rank: (self._ranks[rank].root, pid) for rank, pid in running.items() if not turns[rank].ended}
        stacks = taken(asked) if given_up else {}
        self._end_processes()
        ranks = tuple(turn.read() for turn in turns)
        statuses = statuses_of(self._folder, self._processes, are_launched=self.plan.is_launched)
        if given_up:
            # The launcher reports no status of the ranks that it ends itself as soon as one has ended.
            ended_with_it = (rank for rank in running if ranks[rank].last.status is None and rank not in statuses)
            statuses |= dict.fromkeys(ended_with_it, LEFT_ALONE)
        places = {
            rank: Place(sign=self._ranks[rank].sign, stack=stacks.get(rank), collective=self._collective(rank))
            for rank in (running if given_up else ())
        }
        lost = tuple(lost_ranks(self._folder, ranks, statuses, given_up, places))
        # A launcher that ends by itself names the ranks that have failed.
        if not (given_up or statuses) and (status := self._processes[0].returncode):
            lost = tuple(lost_with_launcher(self._folder, ranks, status))
        self._temporary.cleanup()
        silent_s = given_up.waited_s if given_up and given_up.by_silence and lost else None
        return JobEnd(ranks=ranks, lost=lost, process=self.plan.process, silent_s=silent_s)

    def _collective(self, rank: int) -> str:
        return last_collective_text(rank, environment(self.plan), self.plan.folder, self._began_s)

    def _end_processes(self) -> None:
        self.is_over = True
        with suppress(OSError):
            (self._folder / GIVEN_UP).touch()
        self._alive.release()  # This ends every rank that still runs.
        end(self._ranks, self._processes)
