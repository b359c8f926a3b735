"""The messages between the ranks of a job: where each of them is, and how a phase of a test has ended there."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec import Struct, convert, to_builtins

from pytest_torchprof.reasons import decoding  # noqa: TC001 - msgspec reads the annotations
from pytest_torchprof.reasons.goal import Goal  # noqa: TC001 - as above
from pytest_torchprof.reasons.other_ranks import RankProcess  # noqa: TC001 - as above

if TYPE_CHECKING:
    from collections.abc import Mapping

WORST_FIRST: Final = ("failed", "skipped", "xfailed", "passed")
"""The outcomes of a test's ranks in the order in which they decide the test's own."""


class PhaseOfTest(Struct, frozen=True):
    """A phase of a test that is measured: its call, or its teardown."""

    nodeid: str
    run: int
    """Which of its runs, from one."""
    after_test: bool = False
    """Whether it is the teardown."""

    @property
    def key(self) -> str:
        """The beginning of its keys in the store."""
        return f"{self.nodeid}#{self.run}{'/teardown' if self.after_test else ''}"


class RankStatus(Struct, frozen=True, kw_only=True):
    """The status that a rank announces."""

    count: int
    """How often it has done so: no two signs of life are alike."""
    phase: PhaseOfTest | None
    """Where it is; None in no test."""
    label: str | None
    """The label of its measurement there."""
    goal: Goal
    process: RankProcess


class SignOfLife(NamedTuple):
    """The last sign of life of a rank."""

    text: bytes = b""
    heard: float = 0.0
    """When it was first seen, by ``time.monotonic``."""

    @property
    def status(self) -> RankStatus | None:
        """The status that the rank announced; None before it announced any."""
        return convert(json.loads(self.text), RankStatus) if self.text else None


class PhaseEnd(Struct, frozen=True):
    """How a phase of a test has ended on one rank."""

    outcome: str
    """One of "passed", "failed", "skipped" and "xfailed"."""
    why: decoding.AnyReason | str = ""
    """The cause: a reason of ours, or pytest's words in one line."""


class RunEnd(Struct, frozen=True):
    """How the run of a rank has ended."""

    why: decoding.AnyReason | str = ""
    """Why not all of its tests have run: an error of ours, or another one in one line; empty if they have."""


def expected_here(reason: str, ends: Mapping[int, PhaseEnd]) -> str:
    """Return the reason of an expected failure, with the ranks that passed all the same."""
    passed = [f"rank {number}" for number, end in ends.items() if end.outcome == "passed"]
    return f"{reason} (passed on {', '.join(passed)})".strip() if passed else reason


def written(value: object) -> str:
    """Return a value as ``convert`` reads it again, by Python's own writer: ids of tests may hold lone surrogates."""
    return json.dumps(to_builtins(value))
