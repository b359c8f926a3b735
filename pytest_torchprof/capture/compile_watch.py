"""The activity of torch.compile while code is measured, as plain data; imports torch only when it runs."""

from __future__ import annotations

import sys
from collections import Counter
from contextlib import ExitStack, contextmanager
from inspect import CO_GENERATOR
from typing import TYPE_CHECKING, Any, Self

from msgspec import Struct

from pytest_torchprof.capture import observers, torch_compile, torch_profiler
from pytest_torchprof.capture.compile_history import (
    GivenUp,
    break_of_code,
    compile_history,
    is_torchs_own,
    short_reason,
)
from pytest_torchprof.capture.second_chance import SecondChance
from pytest_torchprof.capture.torch_caches import NO_USES, uses_between, uses_so_far
from pytest_torchprof.capture.torch_entries import entries_noted
from pytest_torchprof.capture.torch_packages import packages_marked
from pytest_torchprof.devices.kinds import kind_of
from pytest_torchprof.reasons.compiler_events import GeneratorRefused
from pytest_torchprof.reasons.compiling import (
    BegunUnseen,
    GivenUpBefore,
    LeftAlone,
    NoRecordsInTorch,
    RecordsCleared,
    Unobserved,
)
from pytest_torchprof.reasons.decoding import to_stored
from pytest_torchprof.reasons.uncompiled import SettingInForce, SkippedAsTorchs
from pytest_torchprof.trace.caches import CompileCaches
from pytest_torchprof.trace.compile_evidence import CompileEvidence, CudaGraphSkips, Uncounted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path
    from types import CodeType, FrameType

    from pytest_torchprof.capture.compile_log import CompileLog
    from pytest_torchprof.capture.torch_compile import Attempt
    from pytest_torchprof.reasons.reason import Reason
    from pytest_torchprof.reasons.uncompiled import AnySetting, AnyWhyUncompiled
    from pytest_torchprof.trace.caches import CacheUses
    from pytest_torchprof.trace.compile_evidence import GraphBreak


class _Before(Struct, frozen=True, kw_only=True):
    """Dynamo's records and counts when the watch began."""

    considered: frozenset[int] = frozenset()
    frames: dict[str, int]
    inductor: dict[str, int]
    caches: CacheUses
    given_up: tuple[GivenUp, ...] = ()
    suspects: tuple[CodeType, ...] = ()


_BEGUN_UNSEEN = Uncounted(graph_breaks=BegunUnseen().to_plain(), recompiles=BegunUnseen().to_plain())


class CompileWatch:
    """A context manager around all calls of the measured code; `evidence` is the recording's `compile`.

    It imports nothing of torch. `call` must enclose every call: on Python 3.11 the last warm-up call (without warm-up,
    the first measured one) is observed for frames that were given up before the watch began, and those that did not
    run in it get a second chance in the calls after it.
    """

    def __init__(self, device: str, log: CompileLog, triton_cache: Path | None = None) -> None:
        """Watch a measurement on this device; ``log`` is the whole test's, the folder its own Triton cache, if any."""
        self._log = log
        self._triton_cache = triton_cache
        self._generates_cpp = not kind_of(device).has_launches
        self._history = compile_history()
        self._restore = ExitStack()
        self._package_is_bound = False
        self._before: _Before | None = None
        self._eager = EagerCode(())
        self._second_chance = SecondChance()
        self._observed = False
        self._seen_before = 0, 0
        self._in_step = False
        self._on_threads = False
        self._settings: set[AnySetting] = set()
        self._entered_under: set[AnySetting] = set()
        self._eager_under: set[AnySetting] = set()

    def __enter__(self) -> Self:
        if self._generates_cpp:
            self._restore.enter_context(torch_compile.cpu_kernels_profiled())
            self._package_is_bound = self._restore.enter_context(packages_marked())
        try:
            self._log.begin_measurement()
            self._begin(first=True)
        except BaseException:
            self._restore.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._eager.close()
        self._second_chance.withdraw()
        self._restore.close()

    @contextmanager
    def call(self, *, warmup_calls_left: int) -> Iterator[None]:
        """Watch a call of the code; `warmup_calls_left` counts that call too, 0 in measured steps."""
        self._begin(first=False)
        self._log.begin_call()
        self._in_step = not warmup_calls_left
        is_observed = warmup_calls_left <= 1 and not self._observed
        if is_observed:
            self._observed = True
            self._eager.begin()
        try:
            yield
        finally:
            self._log.end_call()
            self._in_step = False
            # At once: a profiler that begins next for stacks has a profile function of its own.
            self._eager.end()
        if is_observed and not self._eager.sees_every_call and self._before is not None:
            # A frame that had been compiled when it was given up has hit the recompile limit.
            codes = [frame.living_code() for frame in self._before.given_up if not frame.compiled]
            self._second_chance.offer(code for code in codes if code is not None and not self._eager.ran(code))

    def evidence(self) -> CompileEvidence:
        """Return the evidence seen so far."""
        unseen = self._before is None
        self._begin(first=False)
        before = self._before
        if before is None:
            return CompileEvidence(package_is_bound=self._package_is_bound)
        from pytest_torchprof.capture import torch_inductor  # most tests compile nothing

        self._log.read()
        entries = self._history.compilations()
        own = [identity for identity, known in entries.items() if is_torchs_own(known.place)]
        return CompileEvidence(
            dynamo=True,
            unknown=_BEGUN_UNSEEN if unseen else self._unknown(before),
            compiled=any(attempt.graph_ops and not is_torchs_own(attempt.frame) for attempt in self._attempts),
            entries={identity: known.breaks for identity, known in entries.items()},
            of_torch=tuple(own),
            on_threads=self._on_threads,
            entered_under=tuple(_in_order(self._entered_under)),
            eager_under=tuple(_in_order(self._eager_under)),
            breaks=(*self._breaks, *self._history.new_breaks(keep=True)),
            given_up=tuple(self._given_up(before)),
            given_up_earlier=tuple(given_up.why for given_up in before.given_up if self._ran(given_up)),
            recompiles=self._log.recompiles,
            seen_instead=tuple(self._seen_instead(before)),
            cudagraph_skips=self._cudagraph_skips(before),
            fx_graphs=torch_inductor.inductor_graphs(cpu=self._generates_cpp),
            package_is_bound=self._package_is_bound,
            time_us=None if self._log.cleared else self._time_us(),
            remote_cache_hits=sum(attempt.remote_cache_hits for attempt in self._attempts),
            caches=CompileCaches(uses=uses_between(before.caches, uses_so_far(self._triton_cache))),
        )

    def _begin(self, *, first: bool) -> None:
        """Begin as soon as torch.compile is in use; what was compiled before the watch is history then."""
        if self._before is not None or not torch_compile.dynamo_is_loaded():
            return
        if first:
            self._log.read()
            self._history.new_breaks()
            self._seen_before = len(self._log.attempts), len(self._log.breaks)
            self._before = _Before(
                considered=frozenset(id(code) for code in torch_compile.considered_codes() or ()),
                frames=torch_compile.counters("frames"),
                inductor=torch_compile.counters("inductor"),
                caches=uses_so_far(self._triton_cache),
                given_up=tuple(self._history.given_up()),
                suspects=tuple(self._history.suspects()),
            )
            self._eager = EagerCode(
                [code for code in map(GivenUp.living_code, self._before.given_up) if code] + [*self._before.suspects]
            )
        else:
            self._before = _Before(frames={}, inductor={}, caches=NO_USES)
        self._restore.enter_context(entries_noted(self._note_entry))

    def _note_entry(self, function: object, setting: AnySetting | None, *, eagerly: bool) -> None:
        """Note that a compiled function is entered, the setting in force, and whether it runs uncompiled."""
        if (owner := torch_compile.owner_of(function)) is not None:
            self._log.note_entry(owner)
        code = getattr(function, "__code__", None)
        if code is not None and not eagerly:
            self._eager.note_entry(code)
        if setting is not None:
            self._settings.add(setting)
            # A stance may turn a compilation into an error.
            self._second_chance.withdraw()
        if self._in_step and not torch_profiler.records_this_thread():
            self._on_threads = True
        if eagerly and setting is not None:
            # In a warm-up call too: code that Dynamo has seen while it is disabled stays uncompiled.
            self._eager_under.add(setting)
        elif self._in_step and setting is not None:
            self._entered_under.add(setting)

    @property
    def _attempts(self) -> list[Attempt]:
        return self._log.attempts[self._seen_before[0] :]

    @property
    def _breaks(self) -> list[GraphBreak]:
        return self._log.breaks[self._seen_before[1] :]

    def _ran(self, given_up: GivenUp) -> bool:
        code = given_up.living_code()
        return code is not None and self._eager.ran(code)

    def _given_up(self, before: _Before) -> list[GraphBreak]:
        """Return the frames that were given up during the measurement."""
        failed = [attempt for attempt in self._attempts if attempt.failure]
        breaks = [self._history.break_of(attempt) for attempt in failed]
        frames = torch_compile.counters("frames")
        left_eager = frames.get("total", 0) - frames.get("ok", 0)
        left_eager -= before.frames.get("total", 0) - before.frames.get("ok", 0)
        if left_eager > len(failed):
            # Dynamo refuses a generator before it begins to keep metrics of it.
            breaks += [
                break_of_code(GeneratorRefused(), code)
                for code in self._newly_considered(before)
                if code.co_flags & CO_GENERATOR and not torch_compile.dynamo_skips(code)
            ]
        return breaks

    def _newly_considered(self, before: _Before) -> list[CodeType]:
        return [code for code in torch_compile.considered_codes() or () if id(code) not in before.considered]

    def _unknown(self, before: _Before) -> Uncounted:
        """Return why breaks and why recompiles are not known; each is None if they are known."""
        missing = torch_compile.missing_records()
        if missing:
            reason = NoRecordsInTorch(missing)
            return Uncounted(graph_breaks=reason.to_plain(), recompiles=reason.to_plain())
        if self._log.cleared:
            return Uncounted(graph_breaks=RecordsCleared().to_plain(), recompiles=RecordsCleared().to_plain())
        left = self._why_left_alone(before)
        return Uncounted(
            graph_breaks=to_stored(left or self._why_breaks_are_unknown(before)), recompiles=to_stored(left)
        )

    def _why_breaks_are_unknown(self, before: _Before) -> Reason | None:
        if before.given_up and self._eager.blind:
            first = before.given_up[0].why
            return GivenUpBefore(len(before.given_up), f"{first.file}:{first.line}", self._eager.blind)
        return None

    def _why_left_alone(self, before: _Before) -> Reason | None:
        """Return the reason if code ran that Dynamo has never tried to compile, here or before; else None."""
        known = {id(code) for code in before.suspects}
        left_alone = [code for code in before.suspects if self._eager.ran(code)]
        if not self._eager_under:
            # Code that a setting left uncompiled is reported with that setting, and generators as given up.
            new = (code for code in self._history.suspects() if id(code) not in known)
            left_alone += (code for code in new if not code.co_flags & CO_GENERATOR)
        # Python may call our own functions anywhere, such as the one that takes note of the files that are opened.
        left_alone = [code for code in left_alone if not observers.is_our_file(code.co_filename)]
        if not left_alone:
            return None
        ran = left_alone[0]
        line = f"{ran.co_filename}:{ran.co_firstlineno}"
        return LeftAlone(ran.co_name, line, forgotten=bool(self._history.lost))

    def _seen_instead(self, before: _Before) -> list[AnyWhyUncompiled]:
        """Return the possible reasons why the code was not compiled."""
        left_alone = [
            SkippedAsTorchs(code.co_qualname, code.co_filename, code.co_firstlineno)
            for code in self._newly_considered(before)
            if observers.is_library_code(torch_compile.CodeLine.of(code)) and torch_compile.dynamo_skips(code)
        ]
        return [*map(SettingInForce, _in_order(self._settings)), *left_alone[:3]]

    def _cudagraph_skips(self, before: _Before) -> CudaGraphSkips:
        count = torch_compile.counters("inductor").get("cudagraph_skips", 0) - before.inductor.get("cudagraph_skips", 0)
        skips = (attempt.cudagraph_skip for attempt in self._attempts if attempt.cudagraph_skip)
        reasons = [reason for skip in skips if (reason := short_reason(skip)) is not None]
        return CudaGraphSkips(count=max(count, len(reasons)), reasons=tuple(dict.fromkeys(reasons)))

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


def _in_order(settings: Iterable[AnySetting]) -> list[AnySetting]:
    return sorted(settings, key=str)


def _nothing() -> None:
    """Stop nothing; no method, which would hold its object in a circle until the next collection of garbage."""


class EagerCode:
    """Notes which of the code objects run; from Python 3.12 on without cost, on 3.11 by a profile function.

    The profile function slows every call on its thread, so on 3.11 it is set only between `begin` and `end` of one
    call; an earlier one is called too, and restored. `blind` says why nothing could be noted.
    """

    def __init__(self, codes: Iterable[CodeType]) -> None:
        self._codes = list(codes)
        self._ids = {id(code) for code in self._codes}
        self._ran: set[int] = set()
        self._entered: set[int] = set()
        self._stop: Callable[[], object] = _nothing
        self.blind: Unobserved | None = Unobserved.NO_CALL if self._codes else None
        if self._codes and hasattr(sys, "monitoring"):
            self._monitor(sys.monitoring)

    @property
    def sees_every_call(self) -> bool:
        """Whether the code is observed from the first call to the last."""
        return hasattr(sys, "monitoring") and self.blind is None

    def ran(self, code: CodeType) -> bool:
        """Return whether the code object was seen running, or was entered and has not been compiled so far."""
        return id(code) in self._ran or (id(code) in self._entered and not torch_compile.compiled_codes(code))

    def note_entry(self, code: CodeType) -> None:
        """Note a code object that is entered through torch.compile."""
        self._entered.add(id(code))

    def begin(self) -> None:
        """Observe from here to `end`; do nothing where the code is observed all the time."""
        if not self._codes or hasattr(sys, "monitoring"):
            return
        before: Any = sys.getprofile()
        if before is not None and not callable(before):
            self.blind = Unobserved.PYTHON_PROFILER
            return
        note, seen = self._note, self._ids

        def on_call(frame: FrameType, event: str, arg: object) -> None:
            if event == "call" and id(frame.f_code) in seen:
                note(frame.f_code, 0)
            if before is not None:
                before(frame, event, arg)

        self._keep_from_dynamo(on_call.__code__)
        self.blind = None
        self._stop = lambda: sys.setprofile(before)
        sys.setprofile(on_call)

    def end(self) -> None:
        """Restore the profile function from before `begin`."""
        if not hasattr(sys, "monitoring"):
            self._stop()
            self._stop = _nothing

    def close(self) -> None:
        """Stop observing."""
        self._stop()
        self._stop = _nothing

    def _note(self, code: CodeType, _offset: int) -> None:
        if torch_compile.runs_under_dynamo():
            self._ran.add(id(code))

    def _keep_from_dynamo(self, *codes: CodeType) -> None:
        ours = (EagerCode._note, torch_compile.runs_under_dynamo)
        for code in (*codes, *(function.__code__ for function in ours)):
            torch_compile.keep_from_dynamo(code)

    def _monitor(self, monitoring: Any) -> None:
        free = next((tool for tool in (4, 3, 5, 2, 1) if monitoring.get_tool(tool) is None), None)
        if free is None:
            self.blind = Unobserved.TOOLS_TAKEN
            return
        monitoring.use_tool_id(free, "pytest-torchprof")
        self._keep_from_dynamo()
        monitoring.register_callback(free, monitoring.events.PY_START, self._note)
        for code in self._codes:
            monitoring.set_local_events(free, code, monitoring.events.PY_START)
        self.blind = None

        def stop() -> None:
            for code in self._codes:
                monitoring.set_local_events(free, code, 0)
            monitoring.register_callback(free, monitoring.events.PY_START, None)
            monitoring.free_tool_id(free)

        self._stop = stop
