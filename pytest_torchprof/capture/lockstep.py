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
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from msgspec import convert, to_builtins

from pytest_torchprof.capture.coordination import Coordination
from pytest_torchprof.capture.rank import this_rank
from pytest_torchprof.capture.reasons import line_of_error
from pytest_torchprof.capture.torch_store import connect, meeting_point
from pytest_torchprof.reasons.composed import OfRank
from pytest_torchprof.reasons.decoding import from_plain
from pytest_torchprof.reasons.errors import NotMeasured
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
    from collections.abc import Iterable, Iterator, Mapping

    from torch._C._distributed_c10d import Store

    from pytest_torchprof.capture.rank import Rank
    from pytest_torchprof.capture.torch_store import Connection, MeetingPoint
    from pytest_torchprof.reasons.reason import Reason

_NAPS_S = (0.0005, 0.001, 0.002, 0.005, 0.01)
_LONGEST_NAP_S = 0.02
_LAST_LOOK_S = 5.0
"""How long rank 0 waits for the others' last look at a store in its process."""


WORST_FIRST: Final = ("failed", "skipped", "xfailed", "passed")
"""The outcomes of a test's ranks in the order in which they decide the test's own."""


class Announce(Protocol):
    """Announces to the processes that wait for the job how far this rank has come."""

    def __call__(self, goal: str, *, waits: bool = False) -> None:
        """Announce what the rank is about to reach; ``waits``: it has reached that, and waits for the others."""


class _Sign(NamedTuple):
    """The last sign of life of a rank."""

    text: bytes = b""
    heard: float = 0.0
    """When it was first seen, by ``time.monotonic``."""

    @property
    def status(self) -> dict[str, Any]:
        """What the rank announced of itself; empty before it announced anything."""
        return json.loads(self.text) if self.text else {}


class PhaseEnd(NamedTuple):
    """How a phase of a test has ended on one rank."""

    outcome: str
    """One of "passed", "failed", "skipped" and "xfailed"."""
    why: str = ""
    """The cause, in one line."""

    def __str__(self) -> str:
        """Return it as a clause."""
        return f"it {self.outcome}" + (f" ({self.why})" if self.why else "")


def expected_here(reason: str, ends: Mapping[int, PhaseEnd]) -> str:
    """Return the reason of an expected failure, with the ranks that passed all the same."""
    passed = [f"rank {number}" for number, end in ends.items() if end.outcome == "passed"]
    return f"{reason} (passed on {', '.join(passed)})".strip() if passed else reason


class OtherRanks:
    """One process's knowledge of the other ranks of its job, over all tests of a run."""

    def __init__(self, timeout_s: float, collected: Iterable[str] = (), announce: Announce | None = None) -> None:
        """Take how long to wait for a rank, the ids of the tests that this rank has collected, and the announcer."""
        self.timeout_s = timeout_s
        self._collected = [zlib.crc32(nodeid.encode()) for nodeid in collected]
        self._announce = announce
        self.signs: dict[int, _Sign] = {}
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
            key = self._phase_key(nodeid, after_test=after_test)
            store.set(ended := f"{key}/ended/{this_rank().number}", json.dumps(end))
            if not waits:
                store.add(f"{key}/end/done", 1)  # The store need not be kept for this rank any longer.
                return {}
            try:
                ends = Lockstep(self, store, key, this_rank()).wait_for_ends(after_test=after_test)
            except NotMeasured as problem:
                store.set(ended, json.dumps(PhaseEnd("failed", f"not measured: {problem}")))
                raise
            if not any(other.outcome == "failed" for other in ends.values()):
                self._in_step.add(nodeid)
            return ends
        return {}

    def leave(self, why: str) -> None:
        """Tell the others that this rank runs no more tests, and why; ``why`` is empty if all have run."""
        with suppress(RuntimeError):
            if (store := self._store(also_former=True)) is not None:
                store.set(f"left/{this_rank().number}", why)

    def hand_in(self, text: str) -> dict[int, str]:
        """Leave a text for rank 0, and return there those of all others that come to the end of their run."""
        with suppress(RuntimeError):
            if (store := self._store(also_former=True)) is not None:
                return Lockstep(self, store, "", this_rank()).handed_in(text)
        return {}

    def end_run(self) -> None:
        """Wait until each rank has written its files: a launcher ends all of them once one has failed."""
        with suppress(RuntimeError):  # The run is over, whatever is wrong with the store.
            if (store := self._store()) is not None:
                Lockstep(self, store, "", this_rank()).wait_for_the_end()

    def coordination(self, nodeid: str, label: str | None, *, after_test: bool) -> Coordination:
        """Return how this rank keeps up with the others in a measurement: in step, where it can reach them."""
        with _reaching_the_store():
            store = self._store()
            if store is None:
                return Coordination()
            self._in_step.add(nodeid)
            return Lockstep(self, store, self._phase_key(nodeid, after_test=after_test), this_rank(), label)

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

    def _phase_key(self, nodeid: str, *, after_test: bool) -> str:
        return f"{nodeid}#{self._runs.get(nodeid, 1)}{'/teardown' if after_test else ''}"

    def announce(self, goal: str, label: str | None, *, waits: bool = False) -> None:
        """Announce to the processes that wait for the job how far this rank has come."""
        if self._announce is not None:
            self._announce(f"{goal} of {label!r}" if label else goal, waits=waits)

    def sign(self, store: Store, rank: Rank, test: str, label: str | None, goal: str) -> None:
        """Let the other ranks know that this rank is alive, and what it does."""
        self.announce(goal, label)
        if not self._signs_given:
            store.set(f"collected/{rank.number}", json.dumps(self._collected))
        self._signs_given += 1
        status = {"count": self._signs_given, "test": test, "label": label, "goal": goal}
        status |= {"pid": os.getpid(), "host": rank.host}
        store.set(f"at/{rank.number}", json.dumps(status))

    def has_collected(self, store: Store, number: int, nodeid: str) -> bool:
        """Return whether a rank has collected the test; True if it has announced nothing so far."""
        if not store.check([key := f"collected/{number}"]):
            return True
        return zlib.crc32(nodeid.encode()) in json.loads(store.get(key))

    def heard(self, store: Store, number: int) -> _Sign:
        """Return the last sign of a rank."""
        known = self.signs.get(number, _Sign())
        text = store.get(f"at/{number}") if store.check([f"at/{number}"]) else b""
        if text != known.text:
            known = self.signs[number] = _Sign(text, time.monotonic())
            self.silent.discard(number)
        return known


class Lockstep(Coordination):
    """One measurement of several ranks that reach each other."""

    in_step = True
    is_fixed = False

    def __init__(self, others: OtherRanks, store: Store, test: str, rank: Rank, label: str | None = None) -> None:
        self._others = others
        self._store = store
        self._rank = rank
        self._test = test
        self._label = label
        self._key = f"{test}/measurement/{label or ''}"
        self._numbers = set(range(rank.world))
        self._exchanges = 0
        self._goal = ""
        self.head_for("the start of this measurement")

    def head_for(self, goal: str) -> None:
        """Announce what this rank is about to reach."""
        self._goal = goal
        with _reaching_the_store():
            self._others.sign(self._store, self._rank, self._test, self._label, goal)

    def exchange(self, goal: str, value: Any, kind: Any = Any) -> list[Any]:
        """Return each rank's value, in their order, once all have come here; NotMeasured for all if one does not."""
        self._exchanges += 1
        self._others.announce(self._goal, self._label, waits=True)
        key = f"{self._key}/{self._exchanges}: {goal}"
        with _reaching_the_store():
            self._store.set(f"{key}/{self._rank.number}", json.dumps(to_builtins(value)))
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

    def wait_for_ends(self, *, after_test: bool) -> dict[int, PhaseEnd]:
        """Return how a phase of the test has ended on each of the others; NotMeasured if one does not end it."""
        self._key = f"{self._test}/end"  # See also OtherRanks.end_phase.
        goal = "the end of the teardown" if after_test else "the end of the test"
        self.head_for(goal)
        self._others.announce(goal, None, waits=True)
        began, naps = time.monotonic(), _naps()
        ends: dict[int, PhaseEnd] = {}
        while True:
            for number in self._numbers - ends.keys() - {self._rank.number}:
                # Asked first: a rank may come to its end, and leave, at any moment.
                reason = self._why_it_has_left(number, goal) or self._why_too_late(number, began, goal)
                if self._store.check([ended := f"{self._test}/ended/{number}"]):
                    ends[number] = PhaseEnd(*json.loads(self._store.get(ended)))
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
        self.head_for("the results of the other ranks")
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
        self.head_for("the end of the run")
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
        if self._store.check([ended := f"{self._test}/ended/{number}"]):
            end = PhaseEnd(*json.loads(self._store.get(ended)))
            return EndedWithoutMeasuring(number, end.outcome, end.why)
        if left := self._why_it_has_left(number, "this measurement"):
            return left
        return None if self._may_come(number, began) else self._silence(number)

    def _why_it_has_left(self, number: int, goal: str) -> Reason | None:
        if not self._store.check([left := f"left/{number}"]):
            return None
        return EndedItsRun(number, goal, self._store.get(left).decode(), self._not_collected(number))

    def _not_collected(self, number: int) -> str | None:
        """Return the id of this test if a rank has not collected it; None if it has."""
        test = self._test.rpartition("#")[0]
        return None if self._others.has_collected(self._store, number, test) else test

    def _why_too_late(self, number: int, began: float, goal: str) -> Reason | None:
        if self._may_come(number, began):
            return None
        self._others.silent.add(number)
        status, timeout_s = self._others.heard(self._store, number).status, self._others.timeout_s
        return RankTooLate(number, goal, timeout_s, _process(status) if status else None)

    def _silence(self, number: int) -> Reason:
        status, timeout_s = self._others.heard(self._store, number).status, self._others.timeout_s
        again = number in self._others.silent
        self._others.silent.add(number)
        if not status:
            return NothingHeardOfRank(number, timeout_s)
        who, test = _process(status), status["test"].rpartition("#")[0] or "no test"
        if status["test"] == self._test and status["label"] != self._label:
            return RankElsewhere(number, timeout_s, who, None, status["label"])
        if status["test"] == self._test:
            return RankTooLate(number, status["goal"], timeout_s, who)
        if again:
            return RankStillSilent(number, test, who)
        return RankElsewhere(number, timeout_s, who, test, not_collected=self._not_collected(number))

    def _may_come(self, number: int, began: float) -> bool:
        """Return whether to wait for a rank any longer: each sign of life gives it new time."""
        heard = self._others.heard(self._store, number).heard
        return number not in self._others.silent and time.monotonic() - max(heard, began) < self._others.timeout_s


def _process(status: Mapping[str, Any]) -> RankProcess:
    return RankProcess(status["pid"], status["host"])


def _naps() -> Iterator[float]:
    return chain(_NAPS_S, repeat(_LONGEST_NAP_S))


@contextmanager
def _reaching_the_store() -> Iterator[None]:
    """Raise NotMeasured if the code inside cannot reach the store."""
    try:
        yield
    except RuntimeError as error:
        raise NotMeasured(RanksUnreachable(line_of_error(error))) from None
