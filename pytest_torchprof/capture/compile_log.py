"""The compilations of Dynamo during a test, in its measurements and between them, and which were recompiles."""

from __future__ import annotations

import gc
import re
import weakref
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from pytest_torchprof.analysis.source_lines import name_in_source
from pytest_torchprof.capture import torch_compile
from pytest_torchprof.capture.compile_history import caller_of, compile_history, is_torchs_own, short_reason
from pytest_torchprof.reasons.compiler_events import NoGuardFailed, TorchSilent
from pytest_torchprof.trace.compile_evidence import Recompile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import CodeType

    from pytest_torchprof.capture.torch_compile import Attempt, CodeLine
    from pytest_torchprof.reasons.compiler_events import AnyCompilerEvent
    from pytest_torchprof.trace.compile_evidence import GraphBreak


Owner: TypeAlias = "Callable[[], Any]"
"""Returns the one for which shared code was compiled; None once that is gone."""


class Compilation(Struct, frozen=True, kw_only=True):
    """One forward compilation during a test."""

    frame: int
    """Equal for compilations of the same code object."""
    place: CodeLine | None
    caller: CodeLine | None = None
    """The user's line that led to the compilation of torch's own code."""
    owner: Owner | None
    """The module whose forward it is, or what torch's wrapper encloses."""
    measurement: int
    """The number of the test's measurement during which, or after which, it happened."""
    call: int
    """The call of the measured code during which it happened, from 1."""
    ran_before: bool
    """Whether the code object had been compiled before the test, and has run in the test since."""
    inside: bool = False
    """Whether it happened inside of that call, not behind it."""
    identity: str | None = None
    """The compile id."""
    code: weakref.ref[CodeType] | None = None
    """The code object itself; the id of one that is gone may be another's."""
    dropped: bool = False
    """Whether an earlier call of the measurement had compiled it, and Dynamo has dropped that."""
    guard: str | None = None
    """The guard that failed in the earlier compilations; None for a first one."""


class CompileLog:
    """The compilations of a test from its first measurement on, until it is closed; it imports nothing of torch."""

    def __init__(self) -> None:
        self.attempts: list[Attempt] = []
        self.breaks: list[GraphBreak] = []
        self.calls = 0
        """How often the measured code was called, in all measurements so far."""
        self._measurements = 0
        self._first_call = 1
        self._compilations: list[Compilation] = []
        self._history = compile_history()
        self._known: frozenset[int] | None = None
        self._known_owners: tuple[Owner | None, ...] = ()
        self._clears = 0
        self._hooked: dict[str, Compilation] = {}
        self._ran: dict[int, list[Owner | None]] = {}
        self._entries: dict[int, tuple[Owner, int]] = {}
        self._is_inside = False
        self._restore = ExitStack()

    def close(self) -> None:
        """Stop noting compilations."""
        self._restore.close()

    def begin_measurement(self) -> None:
        """Begin another measurement of the test."""
        self._measurements += 1
        self._first_call = self.calls + 1
        self.read()

    def begin_call(self) -> None:
        """Take the compilations before a call of the measured code, and count the call."""
        self.read()
        self.calls += 1
        self._is_inside = True

    def end_call(self) -> None:
        """Take note that the call is over: what is compiled until the next one is not the measured code's."""
        self._is_inside = False

    def note_entry(self, owner: object) -> None:
        """Take note that what torch's wrapper encloses was called, compiled or not."""
        reference = _reference(owner)
        known, entries = self._entries.get(id(owner), (reference, 0))
        # Another one may have had this id, and be gone.
        self._entries[id(owner)] = (reference, entries + 1 if _is_same(known, reference) else 1)

    def read(self) -> None:
        """Take the compilations since the last call; those from before the test are left out."""
        if not torch_compile.dynamo_is_loaded():
            return
        attempts = self._history.catch_up()
        if self._known is None:
            of_before = self._measurements <= 1 and not self.calls
            compiled = self._history.compilations().values() if of_before else ()
            self._known = frozenset(id(compilation.code()) for compilation in compiled)
            self._known_owners = tuple(known.owner for known in compiled if torch_compile.is_wrapper(known.place))
            self._clears = self._history.clears
            if of_before:
                self._history.new_breaks()
                attempts = []
            if remove := torch_compile.on_compiled(self._compiled):
                self._restore.callback(remove)
        self.attempts += attempts
        self._compilations += [
            self._compilation(attempt)
            for attempt in attempts
            if attempt.forward and attempt.frame is not None and not attempt.failure
        ]

    @property
    def cleared(self) -> bool:
        """Whether records were removed before they could be read."""
        recorded = {attempt.compile_id for attempt in self.attempts}
        return self._known is not None and (self._history.clears > self._clears or not self._hooked.keys() <= recorded)

    @property
    def recompiles(self) -> tuple[Recompile, ...]:
        """The recompiles so far, from the first call of the test's first measurement on."""
        return tuple(recompiles(self._compilations))

    def note_run(self, identities: Iterable[str]) -> None:
        """Note which compiled code ran in a measurement, by compile id."""
        if not torch_compile.dynamo_is_loaded():
            return
        entries = self._history.compilations()
        for entry in (entries[identity] for identity in identities if identity in entries):
            self._ran.setdefault(id(entry.code()), []).append(entry.owner)

    def _compiled(self, code: CodeType, generated: CodeType, identity: str | None, owner: object) -> None:
        self.read()
        reference = None if owner is None else _reference(owner)
        self.breaks += self._history.note(code, generated, reference)
        if identity is None:  # A compilation of torch.export, of which Dynamo keeps no record.
            return
        self._hooked[identity] = Compilation(
            frame=id(code),
            place=torch_compile.CodeLine.of(code),
            caller=caller_of(code),
            owner=reference,
            measurement=self._measurements,
            call=self.calls,
            inside=self._is_inside,
            identity=identity,
            code=weakref.ref(code),
            dropped=self._was_dropped(code, reference),
            ran_before=self._ran_before(code, reference),
        )

    def _was_dropped(self, code: CodeType, owner: Owner | None) -> bool:
        if not self._is_inside:
            return False
        cached = {identity for identity, _ in torch_compile.compiled_codes(code)}
        return any(
            known.identity not in cached
            for known in self._compilations
            if known.inside and known.measurement == self._measurements and known.call < self.calls
            if known.code is not None and known.code() is code and _is_same(known.owner, owner)
        )

    def _ran_before(self, code: CodeType, owner: Owner | None) -> bool:
        if id(code) not in (self._known or ()):
            return False
        if owner is not None and torch_compile.is_wrapper(torch_compile.CodeLine.of(code)):
            # All that torch wraps shares this code; whose it was is known of what was compiled while somebody looked.
            known = any(other is None or _is_same(other, owner) for other in self._known_owners)
            entered, entries = self._entries.get(id(owner()), (None, 0))
            # This call is among its entries.
            return known and entries > 1 and _is_same(entered, owner)
        # From the cache, in the first call of this measurement if not in an earlier one.
        ran = self._ran.get(id(code), ())
        return self.calls > self._first_call or any(other is None or _is_same(other, owner) for other in ran)

    def _compilation(self, attempt: Attempt) -> Compilation:
        hooked = self._hooked.pop(attempt.compile_id or "", None)
        if hooked is not None:
            return replace(hooked, guard=attempt.guard)
        return Compilation(
            frame=hash(attempt.frame),
            place=attempt.frame,
            owner=None,
            measurement=self._measurements,
            call=self.calls,
            ran_before=False,
            guard=attempt.guard,
        )


def recompiles(compilations: Iterable[Compilation]) -> list[Recompile]:
    """Return the compilations of frames that had been compiled before in this test: after a failed guard, or anew.

    Two modules of one class, and all that torch's wrapper encloses, share a code object: the first compilation for an
    owner is no recompile, unless it comes in a later call of a measurement and replaces an owner that is gone, as with
    a model that is built anew for each call. Without a guard that failed, what an earlier call of the measurement had
    compiled was dropped meanwhile. Code that torch compiles for itself does not count.
    """
    earlier: dict[int, list[Compilation]] = {}
    recompiled = []
    for compilation in compilations:
        before = earlier.setdefault(compilation.frame, [])
        again = compilation.dropped if compilation.guard is None else _again(compilation, before)
        if again and not is_torchs_own(compilation.place):
            place = compilation.caller or compilation.place
            recompiled.append(
                Recompile(
                    why=_why_again(compilation.guard),
                    function=name_in_source(place.function) if place else None,
                    file=place.file if place else None,
                    line=place.line if place else None,
                )
            )
        before.append(compilation)
    return recompiled


def _why_again(guard: str | None) -> AnyCompilerEvent | str:
    if not guard:
        return NoGuardFailed()
    text = short_reason(guard)
    return TorchSilent() if text is None else re.sub(r"^\d+/\d+: ", "", text)


def _again(compilation: Compilation, before: list[Compilation]) -> bool:
    is_wrapped = torch_compile.is_wrapper(compilation.place)
    if compilation.owner is None or not before:
        return compilation.ran_before or (bool(before) and not is_wrapped)
    of_this = any(_is_same(other.owner, compilation.owner) for other in before)
    return of_this or _replaces(compilation, before) or (is_wrapped and compilation.ran_before)


def _replaces(compilation: Compilation, before: list[Compilation]) -> bool:
    others = [
        other.owner
        for other in before
        if other.owner is not None and other.measurement == compilation.measurement and other.call < compilation.call
    ]
    if others and all(owner() is not None for owner in others):
        # What is compiled is part of reference cycles: owners that are no longer in use may still exist.
        gc.collect()
    return any(owner() is None for owner in others)


def _reference(owner: object) -> Owner:
    try:
        return weakref.ref(owner)
    except TypeError:  # Some callables of C.
        return lambda: owner


def _is_same(owner: Owner | None, other: Owner | None) -> bool:
    if owner is None or other is None:
        return owner is other
    return owner is other or (owner() is not None and owner() is other())
