"""What this process has compiled and given up so far; as long-lived as Dynamo's own state, and dropped with it."""

from __future__ import annotations

import weakref
from collections import Counter
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any

from pytest_torchprof.capture import torch_dynamo
from pytest_torchprof.capture.compile_watch import graph_breaks

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import CodeType

    from pytest_torchprof.capture.torch_dynamo import Attempt, Reason
    from pytest_torchprof.recording.metadata import GraphBreak


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenUp:
    """A frame that Dynamo left eager; it stays so until `torch._dynamo.reset()`."""

    code: weakref.ref[CodeType] | None
    compiled: frozenset[str]
    """Ids of what this code object had been compiled to when it was given up."""
    why: GraphBreak

    def living_code(self) -> CodeType | None:
        return self.code() if self.code else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiled:
    """One compilation of a frame that is still in Dynamo's cache."""

    generated: weakref.ref[CodeType]
    code: weakref.ref[CodeType]
    breaks: tuple[GraphBreak, ...]


class History:
    """Reads Dynamo's records piece by piece, so that what they forget (all but 64 compilations) is kept here."""

    def __init__(self) -> None:
        self._last_metrics: Any = None
        self._reasons_read = 0
        self._last_reason: Any = None
        self._compiled: dict[int, Compiled] = {}
        self._given_up: list[GivenUp] = []
        self._unimplemented: Counter[str] = Counter()
        self._failures = 0
        self.lost = False
        """Some compilations were forgotten by Dynamo before they could be read."""

    def catch_up(self) -> list[Attempt]:
        """Return the compilations since the last call, oldest first, and remember what they gave up."""
        kept = torch_dynamo.compilation_metrics() or []
        place = next((i for i, one in enumerate(kept) if one is self._last_metrics), -1)
        if place < 0 and torch_dynamo.metrics_are_full(len(kept)):
            self.lost = True
        self._last_metrics = kept[-1] if kept else self._last_metrics
        attempts = self._with_silent_failures([torch_dynamo.read_attempt(one) for one in kept[place + 1 :]])
        failed = [attempt for attempt in attempts if attempt.failure]
        self._failures += len(failed)
        if failed:
            codes = torch_dynamo.considered_codes() or []
            new = [_frame_given_up(attempt, codes) for attempt in failed]
            again = {id(one.living_code()) for one in new}
            self._given_up = [one for one in self._given_up if id(one.living_code()) not in again] + new
        return attempts

    def _with_silent_failures(self, attempts: list[Attempt]) -> list[Attempt]:
        """Return the attempts, those that were skipped for what torch cannot do as failed.

        torch 2.6 skips a frame with a break in a loop without a word, as it does one without anything to compile; only
        its count of what it cannot do has grown.
        """
        now = Counter(torch_dynamo.counted("unimplemented"))
        new = list((now - self._unimplemented).elements())
        self._unimplemented = now
        failures = sum(attempt.failure is not None for attempt in attempts)
        if len(new) <= failures:
            return attempts
        return [replace(attempt, failure=new[-1]) if attempt.skipped else attempt for attempt in attempts]

    def note(self, code: CodeType, generated: CodeType) -> list[GraphBreak]:
        """Remember a compilation that has just ended; return the graph breaks that were found since the last one."""
        new = self._new_reasons()
        caller = torch_dynamo.user_stack() if new else ()
        lines = torch_dynamo.lines_of_breaks(code, generated)
        # Those of a frame that was given up in between are no breaks of this one.
        own = [graph_breaks.of_reason(one, caller) for one in _of_code(new, code, lines) or new]
        self._compiled[id(generated)] = Compiled(
            generated=weakref.ref(generated), code=weakref.ref(code), breaks=tuple(own) if lines else ()
        )
        return [graph_breaks.of_reason(one, caller) for one in new]

    def new_breaks(self, *, keep: bool = False) -> list[GraphBreak]:
        """Return the graph breaks found since the last compilation; keep them for the next one to claim, or not."""
        before = self._reasons_read, self._last_reason
        new = self._new_reasons()
        if keep:
            self._reasons_read, self._last_reason = before
        return [graph_breaks.of_reason(one) for one in new]

    def compilations(self) -> dict[str, Compiled]:
        """Return what is in Dynamo's cache now, by compile id; breaks of unwatched code come from its own records."""
        found = {}
        for code in torch_dynamo.considered_codes() or ():
            for identity, generated in torch_dynamo.compiled_codes(code):
                known = self._compiled.get(id(generated))
                if known is None or known.generated() is not generated:
                    known = _unwatched(code, generated)
                    self._compiled[id(generated)] = known
                found[identity] = known
        self._compiled = {id(known.generated()): known for known in found.values()}
        return found

    def given_up(self) -> list[GivenUp]:
        """Return the frames that are left eager, without those that a reset of Dynamo gave another chance."""
        considered = {id(code) for code in torch_dynamo.considered_codes() or ()}
        self._given_up = [one for one in self._given_up if _still_given_up(one, considered)]
        return list(self._given_up)

    def suspects(self) -> list[CodeType]:
        """Return code that may have been given up without a record left; empty unless records were lost."""
        frames = torch_dynamo.counted("frames")
        if not self.lost or frames.get("total", 0) - frames.get("ok", 0) <= self._failures:
            return []
        known = {id(one.code()) for one in self._given_up if one.code}
        return [
            code
            for code in torch_dynamo.considered_codes() or ()
            if id(code) not in known and not torch_dynamo.compiled_codes(code) and not torch_dynamo.dynamo_skips(code)
        ]

    def _new_reasons(self) -> list[Reason]:
        """Return the entries that Dynamo's list of breaks has gained; a reset empties it."""
        now = torch_dynamo.break_reasons() or []
        seen = self._reasons_read
        if seen > len(now) or (seen and now[seen - 1] is not self._last_reason):
            seen = 0
        self._reasons_read, self._last_reason = len(now), now[-1] if now else None
        return [torch_dynamo.read_reason(one) for one in now[seen:]]

    def break_of(self, attempt: Attempt) -> GraphBreak:
        """Return why and where an attempt was given up."""
        return graph_breaks.of_failure(attempt, _code_of(attempt, torch_dynamo.considered_codes() or ()))


def _frame_given_up(attempt: Attempt, codes: Iterable[CodeType]) -> GivenUp:
    code = _code_of(attempt, codes)
    ids = frozenset(identity for identity, _ in torch_dynamo.compiled_codes(code)) if code else frozenset()
    return GivenUp(code=weakref.ref(code) if code else None, compiled=ids, why=graph_breaks.of_failure(attempt, code))


def _unwatched(code: CodeType, generated: CodeType) -> Compiled:
    """Return a compilation that nobody watched, with what Dynamo's own list says about its breaks."""
    breaks: tuple[GraphBreak, ...] = ()
    lines = torch_dynamo.lines_of_breaks(code, generated)
    if lines:
        reasons = [torch_dynamo.read_reason(one) for one in torch_dynamo.break_reasons() or ()]
        found = [graph_breaks.of_reason(one) for one in _of_code(reasons, code, lines)]
        breaks = tuple(dict.fromkeys(found)) or (
            graph_breaks.of_code("graph break whose reason torch no longer has", code),
        )
    return Compiled(generated=weakref.ref(generated), code=weakref.ref(code), breaks=breaks)


def _of_code(reasons: Iterable[Reason], code: CodeType, breaks: set[int]) -> list[Reason]:
    """Return the reasons that belong to a code object, if possible those at the lines of its breaks."""
    lines = {line for _, _, line in code.co_lines() if line is not None}
    same = [
        one for one in reasons if one.stack and one.stack[0].file == code.co_filename and one.stack[0].line in lines
    ]
    return [one for one in same if one.stack[0].line in breaks] or same


def _still_given_up(one: GivenUp, considered: set[int]) -> bool:
    code = one.living_code()
    if code is None or id(code) not in considered:
        return False
    return {identity for identity, _ in torch_dynamo.compiled_codes(code)} <= one.compiled


def _code_of(attempt: Attempt, codes: Iterable[CodeType]) -> CodeType | None:
    """Return the code object of an attempt; one that hit the recompile limit has nothing but its frame's number."""
    frame = attempt.frame
    if frame:
        same = [c for c in codes if (c.co_filename, c.co_firstlineno, c.co_name) == tuple(frame)]
        return same[-1] if same else None
    number = (attempt.compile_id or "?").partition("/")[0] + "/"
    for code in codes:
        if any(identity.startswith(number) for identity, _ in torch_dynamo.compiled_codes(code)):
            return code
    return None


@cache
def compile_history() -> History:
    """Return the one history of the process: Dynamo's own state, which it follows, is the process's too."""
    return History()
