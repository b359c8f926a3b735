"""The compilations, graph breaks, skips and recompiles of this process; they live as long as Dynamo's state."""

from __future__ import annotations

import ast
import linecache
import os
import re
import sys
import weakref
from collections import Counter
from functools import cache
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from pytest_torchprof.analysis.source_lines import name_in_source
from pytest_torchprof.capture import observers, torch_compile
from pytest_torchprof.capture.torch_compile import CodeLine
from pytest_torchprof.reasons.compiler_events import DataDependentJump, ReasonForgotten, TorchSilent
from pytest_torchprof.trace.compile_evidence import GraphBreak

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import CodeType

    from pytest_torchprof.capture.torch_compile import Attempt, DynamoReason
    from pytest_torchprof.reasons.compiler_events import AnyCompilerEvent


def break_of_reason(reason: DynamoReason, caller: Iterable[CodeLine] = ()) -> GraphBreak:
    """Return a graph break; without code of the user's around it, its place is the user's last line in `caller`."""
    text = short_reason(reason.text)
    is_jump = text is not None and text.startswith("generic_jump")
    why = DataDependentJump(text) if text is not None and is_jump else text
    innermost = reason.stack[-1] if reason.stack else None
    place = _user_place(reason.stack)
    inferred = None if place else _user_place(caller)
    place = place or inferred or innermost
    return _break(why, place, innermost, inferred=inferred is not None, explanation=_explanation(reason.text))


def break_of_failure(attempt: Attempt, code: CodeType | None) -> GraphBreak:
    """Return the break of a frame that an attempt gave up, with the place where the attempt failed."""
    place = frame = attempt.frame or (CodeLine.of(code) if code is not None else None)
    if attempt.failed_at:
        file, line = attempt.failed_at
        place = CodeLine(file, line, _function_at(file, line) or (frame.function if frame else "?"))
    # The failure may lie in torch's code that was traced from the user's frame.
    user = _user_place(line_of_code for line_of_code in (frame, place) if line_of_code)
    text = attempt.failure or ""
    return _break(short_reason(text), user or place, place, explanation=_explanation(text))


def break_of_code(why: AnyCompilerEvent, code: CodeType) -> GraphBreak:
    """Return a break of a code object as a whole."""
    return _break(why, CodeLine.of(code), CodeLine.of(code))


def is_torchs_own(place: CodeLine | None) -> bool:
    """Return whether torch compiles this for itself, unasked: the wrapper of an operator such as ``cond``."""
    if place is None or not observers.is_torchs_file(place.file) or torch_compile.is_wrapper(place):
        return False
    # Code of torch's that is resumed after a graph break is a part of what the user compiles.
    is_resumed = name_in_source(place.function) != place.function
    of_modules = any(f"{os.sep}torch{os.sep}{part}{os.sep}" in place.file for part in (f"nn{os.sep}modules", "optim"))
    return not (is_resumed or of_modules or place.function == "forward" or _is_public(place.file, place.function))


@cache
def _is_public(file: str, function: str) -> bool:
    """Return whether users may call this, like flex_attention: unasked, torch compiles only helpers."""
    modules = [module for module in list(sys.modules.values()) if getattr(module, "__file__", None) == file]
    return not function.startswith("_") and any(callable(getattr(module, function, None)) for module in modules)


def short_reason(text: str) -> str | None:
    """Return the first line of a reason, and the second where the first only announces it; None if it has no words."""
    lines = [" ".join(line.split()) for line in text.splitlines() if line.strip()]
    if not lines:
        return None
    return " ".join(lines[:2]) if lines[0].endswith(":") else lines[0]


def _explanation(text: str) -> str | None:
    """Return the explanation that Dynamo gives after its reason, which alone often does not name the culprit."""
    match = re.search(r"\bExplanation: (.*?)(?:\n\s*(?:Hint|Developer debug context):|\n\s*\n|\Z)", text, re.DOTALL)
    return " ".join(match[1].split()) if match else None


def _break(
    why: AnyCompilerEvent | str | None,
    place: CodeLine | None,
    at: CodeLine | None,
    *,
    inferred: bool = False,
    explanation: str | None = None,
) -> GraphBreak:
    return GraphBreak(
        why=TorchSilent() if why is None else why,
        explanation=explanation,
        file=place.file if place else None,
        line=place.line if place else None,
        function=name_in_source(place.function) if place else None,
        at=f"{at.file}:{at.line}" if at else why if isinstance(why, str) else None,
        inferred=inferred,
    )


def _user_place(stack: Iterable[CodeLine]) -> CodeLine | None:
    own = [place for place in stack if not observers.is_library_file(place.file)]
    return own[-1] if own else None


def caller_of(code: CodeType) -> CodeLine | None:
    """Return the user's line that calls torch's own code right now; None for code of the user's."""
    return _user_place(observers.user_stack()) if observers.is_library_file(code.co_filename) else None


def _function_at(file: str, line: int) -> str | None:
    """Return the innermost function around a line; the metrics of a failure name the line only."""
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError):
        return None
    around = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.lineno <= line <= (node.end_lineno or 0)
    ]
    return max(around, key=lambda node: node.lineno).name if around else None


class GivenUp(Struct, frozen=True, kw_only=True):
    """A frame that Dynamo left eager; it stays so until `torch._dynamo.reset()`."""

    code: weakref.ref[CodeType] | None
    compiled: frozenset[str]
    """Ids of what this code object had been compiled to when it was given up."""
    why: GraphBreak

    def living_code(self) -> CodeType | None:
        return self.code() if self.code else None


class Compiled(Struct, frozen=True, kw_only=True):
    """One compilation of a frame that is still in Dynamo's cache."""

    generated: weakref.ref[CodeType]
    code: weakref.ref[CodeType]
    breaks: tuple[GraphBreak, ...]
    owner: Callable[[], Any] | None = None
    """Returns the module, or what torch's wrapper encloses, for which it was compiled, if that was seen."""

    @property
    def place(self) -> CodeLine | None:
        """Where its code begins."""
        code = self.code()
        return None if code is None else CodeLine.of(code)


class History:
    """Reads Dynamo's records piece by piece, and keeps what they forget (all but 64 compilations)."""

    def __init__(self) -> None:
        self._last_metrics: Any = None
        self._reasons_read = 0
        self._last_reason: Any = None
        self._compiled: dict[int, Compiled] = {}
        self._given_up: list[GivenUp] = []
        self._without_graph: dict[int, weakref.ref[CodeType]] = {}
        self._unimplemented: Counter[str] = Counter()
        self.clears = 0
        """How often somebody removed Dynamo's records."""
        self.lost = False
        """Whether Dynamo forgot some compilations before they could be read."""

    def catch_up(self) -> list[Attempt]:
        """Return the compilations since the last call, oldest first, and remember what they gave up."""
        kept = torch_compile.compilation_metrics() or []
        last = next((i for i, metrics in enumerate(kept) if metrics is self._last_metrics), -1)
        if last < 0 and torch_compile.metrics_are_full(len(kept)):
            self.lost = True
        elif last < 0 and self._last_metrics is not None:
            self.clears += 1
        self._last_metrics = kept[-1] if kept else None
        attempts = self._with_silent_failures([torch_compile.read_attempt(metrics) for metrics in kept[last + 1 :]])
        failed = [attempt for attempt in attempts if attempt.failure]
        if empty := {tried.frame for tried in attempts if tried.frame and not tried.graph_ops and not tried.failure}:
            refs = [
                ref for ref in torch_compile.considered_refs() or () if (code := ref()) and CodeLine.of(code) in empty
            ]
            self._without_graph.update((id(ref), ref) for ref in refs)
        if failed:
            codes = torch_compile.considered_codes() or []
            new = [_frame_given_up(attempt, codes) for attempt in failed]
            again = {id(given_up.living_code()) for given_up in new}
            kept_up = [given_up for given_up in self._given_up if id(given_up.living_code()) not in again]
            self._given_up = kept_up + new
        return attempts

    def _with_silent_failures(self, attempts: list[Attempt]) -> list[Attempt]:
        """Return the attempts; if Dynamo gave something up without a record, those without a graph count as failed.

        torch 2.10 records a frame with a break in a loop like one without anything to compile; only its count of what
        it cannot do has grown.
        """
        if torch_compile.records_skipped_frames():
            return attempts
        now = Counter(torch_compile.counters("unimplemented"))
        new = list((now - self._unimplemented).elements())
        self._unimplemented = now
        failures = sum(attempt.failure is not None for attempt in attempts)
        if len(new) <= failures:
            return attempts
        return [attempt if attempt.graph_ops else replace(attempt, failure=new[-1]) for attempt in attempts]

    def note(self, code: CodeType, generated: CodeType, owner: Callable[[], Any] | None) -> list[GraphBreak]:
        """Remember a compilation that has just ended; return the graph breaks that came since the last one."""
        new = self._new_reasons()
        caller = observers.user_stack() if new else ()
        lines = torch_compile.lines_of_breaks(code, generated)
        # The breaks of a frame that was given up in between do not belong to this one.
        own = [break_of_reason(reason, caller) for reason in _reasons_of_code(new, code, lines) or new]
        self._compiled[id(generated)] = Compiled(
            generated=weakref.ref(generated),
            code=weakref.ref(code),
            breaks=tuple(own) if lines else (),
            owner=owner,
        )
        return [break_of_reason(reason, caller) for reason in new]

    def new_breaks(self, *, keep: bool = False) -> list[GraphBreak]:
        """Return the graph breaks since the last compilation; ``keep`` leaves them for the next one to claim."""
        before = self._reasons_read, self._last_reason
        new = self._new_reasons()
        if keep:
            self._reasons_read, self._last_reason = before
        return [break_of_reason(reason) for reason in new]

    def compilations(self) -> dict[str, Compiled]:
        """Return the contents of Dynamo's cache by compile id; breaks of unwatched code come from its own records."""
        compilations = {}
        for code in torch_compile.considered_codes() or ():
            for identity, generated in torch_compile.compiled_codes(code):
                known = self._compiled.get(id(generated))
                if known is None or known.generated() is not generated:
                    known = _unwatched(code, generated)
                    self._compiled[id(generated)] = known
                compilations[identity] = known
        self._compiled = {id(known.generated()): known for known in compilations.values()}
        return compilations

    def given_up(self) -> list[GivenUp]:
        """Return the frames that are left eager, without those that a reset of Dynamo gave another chance."""
        considered = {id(code) for code in torch_compile.considered_codes() or ()}
        self._given_up = [frame for frame in self._given_up if _still_given_up(frame, considered)]
        return list(self._given_up)

    def suspects(self) -> list[CodeType]:
        """Return code that was handed to Dynamo and left uncompiled, without a record of why.

        Dynamo did not try because it was disabled or a dispatch mode was in force; or its record was lost.
        """
        known = {id(frame.code()) for frame in self._given_up if frame.code}
        return [
            code
            for ref in torch_compile.considered_refs() or ()
            if id(ref) not in self._without_graph
            and (code := ref()) is not None
            and id(code) not in known
            and _is_left_alone(code)
        ]

    def _new_reasons(self) -> list[DynamoReason]:
        """Return the entries that Dynamo's list of breaks has gained; a reset empties it."""
        now = torch_compile.break_reasons() or []
        seen = self._reasons_read
        if seen > len(now) or (seen and now[seen - 1] is not self._last_reason):
            seen = 0
        self._reasons_read, self._last_reason = len(now), now[-1] if now else None
        return [torch_compile.read_reason(entry) for entry in now[seen:]]

    def break_of(self, attempt: Attempt) -> GraphBreak:
        """Return the graph break of an attempt that was given up: why and where."""
        return break_of_failure(attempt, _code_of(attempt, torch_compile.considered_codes() or ()))


def _is_left_alone(code: CodeType) -> bool:
    """Return whether code runs uncompiled although Dynamo does not skip it on purpose."""
    is_compiled = bool(torch_compile.compiled_codes(code))
    return not is_compiled and _is_for_compiling(CodeLine.of(code)) and not torch_compile.dynamo_skips(code)


def _is_for_compiling(place: CodeLine) -> bool:
    """Return whether it is the user's code, or code of torch's that users compile."""
    is_library = observers.is_library_file(place.file)
    return not is_library or observers.is_library_code(place) or torch_compile.is_wrapper(place)


def _frame_given_up(attempt: Attempt, codes: Iterable[CodeType]) -> GivenUp:
    code = _code_of(attempt, codes)
    ids = frozenset(identity for identity, _ in torch_compile.compiled_codes(code)) if code else frozenset()
    return GivenUp(code=weakref.ref(code) if code else None, compiled=ids, why=break_of_failure(attempt, code))


def _unwatched(code: CodeType, generated: CodeType) -> Compiled:
    """Return a compilation that was not watched, with the breaks in Dynamo's own list."""
    breaks: tuple[GraphBreak, ...] = ()
    lines = torch_compile.lines_of_breaks(code, generated)
    if lines:
        reasons = [torch_compile.read_reason(reason) for reason in torch_compile.break_reasons() or ()]
        reported = [break_of_reason(reason) for reason in _reasons_of_code(reasons, code, lines)]
        breaks = tuple(dict.fromkeys(reported)) or (break_of_code(ReasonForgotten(), code),)
    return Compiled(generated=weakref.ref(generated), code=weakref.ref(code), breaks=breaks)


def _reasons_of_code(reasons: Iterable[DynamoReason], code: CodeType, breaks: set[int]) -> list[DynamoReason]:
    """Return the reasons that belong to a code object; if possible, those at the lines of its breaks."""
    lines = {line for _, _, line in code.co_lines() if line is not None}
    same = [
        reason
        for reason in reasons
        if reason.stack and reason.stack[0].file == code.co_filename and reason.stack[0].line in lines
    ]
    return [reason for reason in same if reason.stack[0].line in breaks] or same


def _still_given_up(given_up: GivenUp, considered: set[int]) -> bool:
    code = given_up.living_code()
    if code is None or id(code) not in considered:
        return False
    return {identity for identity, _ in torch_compile.compiled_codes(code)} <= given_up.compiled


def _code_of(attempt: Attempt, codes: Iterable[CodeType]) -> CodeType | None:
    """Return the code object of an attempt; an attempt that hit the recompile limit has only its frame's number."""
    frame = attempt.frame
    if frame:
        same = [c for c in codes if CodeLine.of(c) == frame]
        return same[-1] if same else None
    number = (attempt.compile_id or "?").partition("/")[0] + "/"
    for code in codes:
        if any(identity.startswith(number) for identity, _ in torch_compile.compiled_codes(code)):
            return code
    return None


@cache
def compile_history() -> History:
    """Return the one history of the process: Dynamo's own state, which it follows, is the process's too."""
    return History()
