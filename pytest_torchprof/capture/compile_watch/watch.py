"""Watches what torch.compile does from before the first warm-up call to the end of the measured steps."""

from __future__ import annotations

import weakref
from collections import Counter
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from inspect import CO_GENERATOR
from typing import TYPE_CHECKING, Self

from pytest_torchprof.capture import torch_private
from pytest_torchprof.capture.compile_watch import finding
from pytest_torchprof.capture.compile_watch.inductor import graphs
from pytest_torchprof.capture.compile_watch.memory import GivenUp, this_process
from pytest_torchprof.capture.compile_watch.recompiles import Compilation, recompiles
from pytest_torchprof.capture.compile_watch.running import Running

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import CodeType, TracebackType

    from pytest_torchprof.capture.compile_watch.finding import Finding
    from pytest_torchprof.capture.torch_private import Attempt


@dataclass(frozen=True, slots=True, kw_only=True)
class _Before:
    """What Dynamo knew and had counted when the watch began."""

    considered: frozenset[int] = frozenset()
    compiled: frozenset[int] = frozenset()
    frames: dict[str, int]
    inductor: dict[str, int]
    given_up: tuple[GivenUp, ...] = ()
    suspects: tuple[CodeType, ...] = ()


class CompileWatch:
    """A context manager around all calls of the measured code; `evidence` is the recording's `compile`.

    It imports nothing of torch. `call` is to be around every call: on Python 3.11 the last warm-up call (without
    warm-up the first measured one) is observed for frames that were given up before the watch began.
    """

    def __init__(self, device: str) -> None:
        self._device = device
        self._memory = this_process()
        self._restore = ExitStack()
        self._before: _Before | None = None
        self._running = Running(())
        self._observed = False
        self._calls = 0
        self._attempts: list[Attempt] = []
        self._breaks: list[Finding] = []
        self._compilations: list[Compilation] = []
        self._hooked: dict[str | None, Compilation] = {}
        self._settings: set[str] = set()

    def __enter__(self) -> Self:
        if self._device == "cpu":
            self._restore.enter_context(torch_private.cpu_kernels_profiled())
        try:
            self._begin(first=True)
        except BaseException:
            self._restore.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._running.close()
        self._restore.close()

    @contextmanager
    def call(self, *, warmup_calls_left: int) -> Iterator[None]:
        """Watch a call of the code; `warmup_calls_left` counts that call too, 0 in measured steps."""
        self._begin(first=False)
        self._read()
        self._calls += 1
        if warmup_calls_left <= 1 and not self._observed:
            self._observed = True
            self._running.begin()
        try:
            yield
        finally:
            # At once: a profiler that begins next for stacks has a profile function of its own.
            self._running.end()

    def evidence(self) -> dict[str, object]:
        """Return what was seen so far, as plain JSON."""
        self._begin(first=False)
        before = self._before
        if before is None:
            return {"dynamo": False}
        self._read()
        entries = self._memory.compilations()
        return {
            "dynamo": True,
            "unknown": self._unknown(before),
            "compiled": any(attempt.graph_ops for attempt in self._attempts),
            "entries": {identity: [one.as_json() for one in known.breaks] for identity, known in entries.items()},
            "breaks": [one.as_json() for one in (*self._breaks, *self._memory.new_breaks(keep=True))],
            "given_up": [one.as_json() for one in self._given_up(before)],
            "given_up_earlier": [one.finding.as_json() for one in before.given_up if self._ran(one)],
            "recompiles": [one.as_json() for one in recompiles(self._compilations)],
            "seen_instead": self._seen_instead(before),
            "cudagraph_skips": self._cudagraph_skips(before),
            "fx_graphs": graphs(cpu=self._device == "cpu"),
            "graphs_are_marked": torch_private.calls_of_graphs_are_marked(),
            "time_us": self._time_us(),
        }

    def _begin(self, *, first: bool) -> None:
        """Begin as soon as torch.compile is in use; what was compiled before the watch is history then."""
        if self._before is not None or not torch_private.dynamo_is_loaded():
            return
        history = self._memory.catch_up()
        if first:
            self._memory.new_breaks()
            self._before = self._what_was_before()
            self._running = Running(
                [code for code in map(GivenUp.living_code, self._before.given_up) if code] + [*self._before.suspects]
            )
        else:
            self._before = _Before(frames={}, inductor={})
            self._take(history)
        remove = torch_private.on_compiled(self._compiled)
        if remove:
            self._restore.callback(remove)
        self._restore.enter_context(
            torch_private.stances_noted(lambda name: self._settings.add(torch_private.stance_in_force(name)))
        )

    def _what_was_before(self) -> _Before:
        return _Before(
            considered=frozenset(id(code) for code in torch_private.considered_codes() or ()),
            compiled=frozenset(id(known.code()) for known in self._memory.compilations().values()),
            frames=torch_private.counted("frames"),
            inductor=torch_private.counted("inductor"),
            given_up=tuple(self._memory.given_up()),
            suspects=tuple(self._memory.suspects()),
        )

    def _compiled(self, code: CodeType, generated: CodeType, identity: str | None, module: object) -> None:
        self._read()
        self._breaks += self._memory.note(code, generated)
        self._hooked[identity] = Compilation(
            frame=id(code),
            place=torch_private.Place(code.co_filename, code.co_firstlineno, code.co_name),
            module=weakref.ref(module) if module is not None else None,
            call=self._calls,
            known_before=self._before is not None and id(code) in self._before.compiled,
            guard=None,
        )

    def _read(self) -> None:
        if self._before is not None:
            self._take(self._memory.catch_up())

    def _take(self, attempts: list[Attempt]) -> None:
        self._attempts += attempts
        self._compilations += [
            self._compilation(attempt)
            for attempt in attempts
            if attempt.forward and attempt.frame is not None and not attempt.failure
        ]
        self._settings |= {setting for setting in (torch_private.why_nothing_compiles(),) if setting}

    def _compilation(self, attempt: Attempt) -> Compilation:
        hooked = self._hooked.pop(attempt.compile_id, None)
        if hooked is not None:
            return hooked.because(attempt.guard)
        return Compilation(
            frame=hash(attempt.frame),
            place=attempt.frame,
            module=None,
            call=self._calls,
            known_before=False,
            guard=attempt.guard,
        )

    def _ran(self, given_up: GivenUp) -> bool:
        code = given_up.living_code()
        return code is not None and self._running.ran(code)

    def _given_up(self, before: _Before) -> list[Finding]:
        """Return the frames that were given up during the measurement."""
        failed = [attempt for attempt in self._attempts if attempt.failure]
        found = [self._memory.finding_of(attempt) for attempt in failed]
        frames = torch_private.counted("frames")
        left_eager = frames.get("total", 0) - frames.get("ok", 0)
        left_eager -= before.frames.get("total", 0) - before.frames.get("ok", 0)
        if left_eager > len(failed):
            # Dynamo refuses a generator before it begins to keep metrics of it.
            found += [
                finding.of_code("Attempt to trace generator", code)
                for code in self._newly_considered(before)
                if code.co_flags & CO_GENERATOR and not torch_private.dynamo_skips(code)
            ]
        return found

    def _newly_considered(self, before: _Before) -> list[CodeType]:
        return [code for code in torch_private.considered_codes() or () if id(code) not in before.considered]

    def _unknown(self, before: _Before) -> dict[str, str | None]:
        """Return why breaks or recompiles cannot be told, each None if they can."""
        missing = torch_private.missing_records()
        if missing:
            reason = f"this version of torch has no {missing}: not available"
            return {"graph_breaks": reason, "recompiles": reason}
        return {"graph_breaks": self._why_breaks_are_unknown(before), "recompiles": None}

    def _why_breaks_are_unknown(self, before: _Before) -> str | None:
        if before.given_up and self._running.blind:
            first = before.given_up[0].finding
            return (
                f"torch.compile gave up frames earlier in this process ({len(before.given_up)}, the first at "
                f"{first.file}:{first.line}), and whether one of them runs here is not known: {self._running.blind}"
            )
        ran = next((code for code in before.suspects if self._running.ran(code)), None)
        if ran is not None:
            return (
                f"{ran.co_name} ({ran.co_filename}:{ran.co_firstlineno}) ran uncompiled, and torch no longer knows "
                "why: more than 64 frames were compiled before the measurement"
            )
        return None

    def _seen_instead(self, before: _Before) -> list[str]:
        """Return what may have kept the code from being compiled."""
        left_alone = [
            f"{code.co_qualname} ({code.co_filename}:{code.co_firstlineno}) is torch's own code: torch.compile skips it"
            for code in self._newly_considered(before)
            if torch_private.is_library_code(code) and torch_private.dynamo_skips(code)
        ]
        return [*sorted(self._settings), *left_alone[:3]]

    def _cudagraph_skips(self, before: _Before) -> dict[str, object]:
        count = torch_private.counted("inductor").get("cudagraph_skips", 0) - before.inductor.get("cudagraph_skips", 0)
        reasons = [finding.first_line(one.cudagraph_skip) for one in self._attempts if one.cudagraph_skip]
        return {"count": max(count, len(reasons)), "reasons": list(dict.fromkeys(reasons))}

    def _time_us(self) -> dict[str, int]:
        """Return the time of each phase without those inside it, and their sum as "total"."""
        spent: Counter[str] = Counter()
        for attempt in self._attempts:
            # A backward's phases are parts of its own time.
            spent.update(attempt.times_us if attempt.forward else {"backward": attempt.times_us.get("backward", 0)})
        phases = {
            "tracing": spent["dynamo"] - spent["aot_autograd"],
            "aot_autograd": spent["aot_autograd"] - spent["inductor"],
            "inductor": spent["inductor"] - spent["code_generation"],
            "code_generation": spent["code_generation"],
            "backward": spent["backward"],
        }
        phases = {phase: max(us, 0) for phase, us in phases.items()}
        return {**phases, "total": sum(phases.values())}
