"""Ranks of one job in step: none begins the next phase of a measurement before it knows how the last ended on all.

They meet at the job's own store, under keys of their own: no process group of the user's takes part, and no collective.
A silent rank keeps the others waiting for as long as the ini key ``torchprof_rank_timeout`` says.
"""

from __future__ import annotations

import json
import os
import time
import zlib
from contextlib import contextmanager, suppress
from itertools import chain, repeat
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import convert
from msgspec.structs import replace

from pytest_torchprof.capture.coordination import Coordination
from pytest_torchprof.capture.rank import this_rank
from pytest_torchprof.capture.rank_messages import PhaseEnd, PhaseOfTest, RankStatus, RunEnd, SignOfLife, written
from pytest_torchprof.capture.reasons import line_of_error
from pytest_torchprof.capture.torch_store import connect, meeting_point
from pytest_torchprof.reasons.composed import OfRank
from pytest_torchprof.reasons.decoding import from_plain
from pytest_torchprof.reasons.errors import NotMeasured
from pytest_torchprof.reasons.goal import Goal, RunPoint
from pytest_torchprof.reasons.other_ranks import (
    EndedItsRun,
    EndedWithoutMeasuring,
    NothingHeardOfRank,
    RankElsewhere,
    RankProcess,
    RankStillSilent,
    RanksUnreachable,
    RankTooLate,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from torch._C._distributed_c10d import Store

    from pytest_torchprof.capture.rank import Rank
    from pytest_torchprof.capture.torch_store import Connection, MeetingPoint
    from pytest_torchprof.reasons.reason import Reason

_NAPS_S = (0.0005, 0.001, 0.002, 0.005, 0.01)
_LONGEST_NAP_S = 0.02
_LAST_LOOK_S = 5.0
"""How long rank 0 waits for the others' last look at a store in its process."""


class Announce(Protocol):
    """Announces to the processes that wait for the job how far this rank has come."""

    def __call__(self, goal: Goal, *, waits: bool = False) -> None:
        """Announce what the rank is about to reach; ``waits``: it has reached that, and waits for the others."""


class OtherRanks:
    """One process's knowledge of the other ranks of its job, over all tests of a run."""

    def __init__(self, timeout_s: float, collected: Iterable[str] = (), announce: Announce | None = None) -> None:
        """Take how long to wait for a rank, the ids of the tests that this rank has collected, and the announcer."""
        self.timeout_s = timeout_s
        self._collected = [zlib.crc32(nodeid.encode()) for nodeid in collected]
        self._announce = announce
        self.signs: dict[int, SignOfLife] = {}
        self.silent: set[int] = set()
        """The ranks that did not come while they were waited for, and have given no sign of life since."""
        self._runs: dict[str, int] = {}
        self._in_step: set[str] = set()
        """The tests that were measured in step and have failed on no rank so far."""
        self._signs_given = 0
        self._session: int | None = None
        self._point: MeetingPoint | None = None
        """The last known meeting point: a rank whose process group is gone may still tell the others so."""
        self._connection: Connection | None = None

    def begin_test(self, nodeid: str) -> None:
        """Note that a test begins; one may run several times."""
        self._runs[nodeid] = self._runs.get(nodeid, 0) + 1
        self._in_step.discard(nodeid)

    def end_phase(self, nodeid: str, end: PhaseEnd, *, after_test: bool) -> dict[int, PhaseEnd]:
        """Tell the others how the call or the teardown of a test has ended here; return how it ended on each of them.

        They are waited for if the test was measured in step and has failed nowhere so far; else the result is empty.
        NotMeasured if one of them does not come to its end.
        """
        waits = nodeid in self._in_step and end.outcome != "failed" and meeting_point() is not None
        self._in_step.discard(nodeid)
        # A rank that is not reached learns it by the timeout. A teardown may end the process group that has the store.
        with _reaching_the_store() if waits and not after_test else suppress(RuntimeError):
            if (store := self._store(also_former=True)) is None:
                return {}
            phase = self._phase(nodeid, after_test=after_test)
            store.set(ended := f"{phase.key}/ended/{this_rank().number}", written(end))
            if not waits:
                store.add(f"{phase.key}/end/done", 1)  # The store need not be kept for this rank any longer.
                return {}
            try:
                ends = Lockstep(self, store, phase, this_rank()).wait_for_ends(phase)
            except NotMeasured as problem:
                store.set(ended, written(PhaseEnd("failed", problem.reason)))
                raise
            if not any(other.outcome == "failed" for other in ends.values()):
                self._in_step.add(nodeid)
            return ends
        return {}

    def leave(self, why: Reason | str) -> None:
        """Tell the others that this rank runs no more tests, and why; ``why`` is empty if all have run."""
        with suppress(RuntimeError):
            if (store := self._store(also_former=True)) is not None:
                store.set(f"left/{this_rank().number}", written(RunEnd(why)))

    def hand_in(self, text: str) -> dict[int, str]:
        """Leave a text for rank 0, and return there those of all others that come to the end of their run."""
        with suppress(RuntimeError):
            if (store := self._store(also_former=True)) is not None:
                return Lockstep(self, store, None, this_rank()).handed_in(text)
        return {}

    def end_run(self) -> None:
        """Wait until each rank has written its files: a launcher ends all of them once one has failed."""
        with suppress(RuntimeError):  # The run is over, whatever is wrong with the store.
            if (store := self._store()) is not None:
                Lockstep(self, store, None, this_rank()).wait_for_the_end()

    def coordination(self, nodeid: str, label: str | None, *, after_test: bool) -> Coordination:
        """Return how this rank keeps up with the others in a measurement: in step, where it can reach them."""
        with _reaching_the_store():
            store = self._store()
            if store is None:
                return Coordination()
            self._in_step.add(nodeid)
            return Lockstep(self, store, self._phase(nodeid, after_test=after_test), this_rank(), label)

    def _store(self, *, also_former: bool = False) -> Store | None:
        """Return a connection to the store of the job, for our keys alone; None without other ranks or a store.

        ``also_former``: if there is none any more, that of the process group which this rank has left.
        """
        point = meeting_point()
        self._point = point or self._point
        point = self._point if also_former else point
        if point is None or (rank := this_rank()).alone:
            return None
        from torch.distributed.distributed_c10d import PrefixStore

        store = self._connected(point)
        if self._session is None:
            # One process may run pytest several times.
            self._session = store.add(f"torchprof/sessions/{rank.number}", 1)
        return PrefixStore(f"torchprof/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}/{self._session}", store)

    def _connected(self, point: MeetingPoint) -> Store:
        """Return the connection that there is, if it still reaches the store at this point, else a new one."""
        if self._connection is None or self._connection.point != point or not self._connection.reaches_the_store():
            self._connection = connect(point)
        return self._connection.store

    def _phase(self, nodeid: str, *, after_test: bool) -> PhaseOfTest:
        return PhaseOfTest(nodeid, self._runs.get(nodeid, 1), after_test)

    def announce(self, goal: Goal, label: str | None, *, waits: bool = False) -> None:
        """Announce to the processes that wait for the job how far this rank has come."""
        if self._announce is not None:
            self._announce(replace(goal, label=label), waits=waits)

    def sign(self, store: Store, rank: Rank, phase: PhaseOfTest | None, label: str | None, goal: Goal) -> None:
        """Let the other ranks know that this rank is alive, and what it does."""
        self.announce(goal, label)
        if not self._signs_given:
            store.set(f"collected/{rank.number}", json.dumps(self._collected))
        self._signs_given += 1
        process = RankProcess(os.getpid(), rank.host)
        status = RankStatus(count=self._signs_given, phase=phase, label=label, goal=goal, process=process)
        store.set(f"at/{rank.number}", written(status))

    def has_collected(self, store: Store, number: int, nodeid: str) -> bool:
        """Return whether a rank has collected the test; True if it has announced nothing so far."""
        if not store.check([key := f"collected/{number}"]):
            return True
        return zlib.crc32(nodeid.encode()) in json.loads(store.get(key))

    def heard(self, store: Store, number: int) -> SignOfLife:
        """Return the last sign of a rank."""
        known = self.signs.get(number, SignOfLife())
        text = store.get(f"at/{number}") if store.check([f"at/{number}"]) else b""
        if text != known.text:
            known = self.signs[number] = SignOfLife(text, time.monotonic())
            self.silent.discard(number)
        return known


class Lockstep(Coordination):
    """One measurement of several ranks that reach each other."""

    in_step = True
    is_fixed = False

    def __init__(
        self, others: OtherRanks, store: Store, phase: PhaseOfTest | None, rank: Rank, label: str | None = None
    ) -> None:
        self._others = others
        self._store = store
        self._rank = rank
        self._phase = phase
        """The phase that is measured, or has ended; None behind all tests."""
        self._label = label
        self._key = f"{self._of_test}/measurement/{label or ''}"
        self._numbers = set(range(rank.world))
        self._exchanges = 0
        self._goal = Goal(RunPoint.START_OF_MEASUREMENT)
        self.head_for(self._goal)

    @property
    def _of_test(self) -> str:
        """The beginning of the keys that all measurements of the test share."""
        return "" if self._phase is None else self._phase.key

    def head_for(self, goal: Goal) -> None:
        """Announce the goal that this rank is about to reach."""
        self._goal = goal
        with _reaching_the_store():
            self._others.sign(self._store, self._rank, self._phase, self._label, goal)

    def exchange(self, about: str, value: Any, kind: Any = Any) -> list[Any]:
        """Return each rank's value, in their order, once all have come here; NotMeasured for all if one does not."""
        self._exchanges += 1
        self._others.announce(self._goal, self._label, waits=True)
        key = f"{self._key}/{self._exchanges}: {about}"
        with _reaching_the_store():
            self._store.set(f"{key}/{self._rank.number}", written(value))
            return [convert(json.loads(text), kind) for text in self._wait_for_all(key)]

    def leave(self, reason: Reason) -> None:
        """Tell the others why this rank no longer takes part."""
        with suppress(RuntimeError):
            self._end_for_all(OfRank(self._rank.number, reason))

    def close(self) -> None:
        """End the last exchange: rank 0, whose process may have the store, is the last to look at it."""
        if (point := meeting_point()) is None or not point.of_a_rank:
            return
        with suppress(RuntimeError):
            self._store.add(f"{self._key}/done", 1)
            # The others wait for rank 0 meanwhile, in the next measurement.
            until, naps = time.monotonic() + min(_LAST_LOOK_S, self._others.timeout_s / 2), _naps()
            last = self._rank.number == 0
            while last and self._store.add(f"{self._key}/done", 0) < self._rank.world and time.monotonic() < until:
                time.sleep(next(naps))

    def wait_for_ends(self, phase: PhaseOfTest) -> dict[int, PhaseEnd]:
        """Return how a phase of the test has ended on each of the others; NotMeasured if one does not end it."""
        self._key = f"{phase.key}/end"  # See also OtherRanks.end_phase.
        goal = Goal(RunPoint.END_OF_TEARDOWN if phase.after_test else RunPoint.END_OF_TEST)
        self.head_for(goal)
        self._others.announce(goal, None, waits=True)
        began, naps = time.monotonic(), _naps()
        ends: dict[int, PhaseEnd] = {}
        while True:
            for number in self._numbers - ends.keys() - {self._rank.number}:
                # Asked first: a rank may come to its end, and leave, at any moment.
                reason = self._why_it_has_left(number, goal) or self._why_too_late(number, began, goal)
                if (end := self._end_on(number)) is not None:
                    ends[number] = end
                elif reason:
                    raise NotMeasured(reason)
            if len(ends) == self._rank.world - 1:
                self.close()
                return ends
            time.sleep(next(naps))

    def handed_in(self, text: str) -> dict[int, str]:
        """Leave a text for rank 0, and return there those of all others that give a sign of life until theirs comes."""
        self._store.set(f"handed in/{self._rank.number}", text)
        texts: dict[int, str] = {}
        if self._rank.number:
            return texts
        self.head_for(Goal(RunPoint.OTHERS_RESULTS))
        self._others.announce(self._goal, None, waits=True)
        naps, began = _naps(), time.monotonic()
        for number in range(1, self._rank.world):
            while not (there := self._store.check([f"handed in/{number}"])) and self._may_come(number, began):
                time.sleep(next(naps))
            if there:
                texts[number] = self._store.get(f"handed in/{number}").decode()
        return texts

    def wait_for_the_end(self) -> None:
        """Wait until all ranks have come to the end of their run, or give no sign of life."""
        self._store.set(f"over/{self._rank.number}", "1")
        self.head_for(Goal(RunPoint.END_OF_RUN))
        self._others.announce(self._goal, None, waits=True)
        naps, began = _naps(), time.monotonic()
        for number in range(self._rank.world):
            while not self._store.check([f"over/{number}"]) and self._may_come(number, began):
                time.sleep(next(naps))
        self.close()

    def _wait_for_all(self, key: str) -> list[bytes]:
        began, naps = time.monotonic(), _naps()
        values: dict[int, bytes] = {}
        while True:
            for number in self._numbers - values.keys():
                if self._store.check([f"{key}/{number}"]):
                    values[number] = self._store.get(f"{key}/{number}")
            if len(values) == self._rank.world:
                return [values[number] for number in sorted(values)]
            if self._store.check([f"{self._key}/over"]):
                raise NotMeasured(from_plain(json.loads(self._store.get(f"{self._key}/over"))))
            for number in self._numbers - values.keys():
                # Asked first: a rank may come, and end its test, at any moment.
                reason = self._why_it_does_not_come(number, began)
                if reason and not self._store.check([f"{key}/{number}"]):
                    raise NotMeasured(self._end_for_all(reason))
            time.sleep(next(naps))

    def _end_for_all(self, reason: Reason) -> Reason:
        """End the measurement on all ranks, and return why: the first reason that any of them had."""
        return from_plain(json.loads(self._store.compare_set(f"{self._key}/over", "", json.dumps(reason.to_plain()))))

    def _why_it_does_not_come(self, number: int, began: float) -> Reason | None:
        if (end := self._end_on(number)) is not None:
            return EndedWithoutMeasuring(number, end.outcome, end.why)
        if left := self._why_it_has_left(number, Goal(RunPoint.MEASUREMENT)):
            return left
        return None if self._may_come(number, began) else self._silence(number)

    def _end_on(self, number: int) -> PhaseEnd | None:
        """Return how the phase of the test has ended on a rank; None before it has."""
        if not self._store.check([ended := f"{self._of_test}/ended/{number}"]):
            return None
        return convert(json.loads(self._store.get(ended)), PhaseEnd)

    def _why_it_has_left(self, number: int, goal: Goal) -> Reason | None:
        if not self._store.check([left := f"left/{number}"]):
            return None
        ended = convert(json.loads(self._store.get(left)), RunEnd)
        return EndedItsRun(number, goal, ended.why, self._not_collected(number))

    def _not_collected(self, number: int) -> str | None:
        """Return the id of this test if a rank has not collected it; None if it has."""
        if self._phase is None or self._others.has_collected(self._store, number, self._phase.nodeid):
            return None
        return self._phase.nodeid

    def _why_too_late(self, number: int, began: float, goal: Goal) -> Reason | None:
        if self._may_come(number, began):
            return None
        self._others.silent.add(number)
        status, timeout_s = self._others.heard(self._store, number).status, self._others.timeout_s
        return RankTooLate(number, goal, timeout_s, None if status is None else status.process)

    def _silence(self, number: int) -> Reason:
        status, timeout_s = self._others.heard(self._store, number).status, self._others.timeout_s
        again = number in self._others.silent
        self._others.silent.add(number)
        if status is None:
            return NothingHeardOfRank(number, timeout_s)
        who, test = status.process, "" if status.phase is None else status.phase.nodeid
        if status.phase == self._phase and status.label != self._label:
            return RankElsewhere(number, timeout_s, who, None, status.label)
        if status.phase == self._phase:
            return RankTooLate(number, status.goal, timeout_s, who)
        if again:
            return RankStillSilent(number, test, who)
        return RankElsewhere(number, timeout_s, who, test, not_collected=self._not_collected(number))

    def _may_come(self, number: int, began: float) -> bool:
        """Return whether to wait for a rank any longer: each sign of life gives it new time."""
        heard = self._others.heard(self._store, number).heard
        return number not in self._others.silent and time.monotonic() - max(heard, began) < self._others.timeout_s


def _naps() -> Iterator[float]:
    return chain(_NAPS_S, repeat(_LONGEST_NAP_S))


@contextmanager
def _reaching_the_store() -> Iterator[None]:
    """Raise NotMeasured if the code inside cannot reach the store."""
    try:
        yield
    except RuntimeError as error:
        raise NotMeasured(RanksUnreachable(line_of_error(error))) from None
