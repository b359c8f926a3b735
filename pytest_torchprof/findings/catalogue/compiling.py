"""Findings about torch.compile: a row for each."""

from __future__ import annotations

from pytest_torchprof.findings.finding import Finding
from pytest_torchprof.reasons.compiler_events import AnyCompilerEvent  # noqa: TC001  (the type of a field, which msgspec looks up)
from pytest_torchprof.reasons.uncompiled import AnyWhyUncompiled  # noqa: TC001  (as above)
from pytest_torchprof.text.reprs import ShownFields


class Break(ShownFields, frozen=True, kw_only=True):
    """A graph break: why, where in the user's code, and how often."""

    reason: AnyCompilerEvent | str
    file: str | None = None
    line: int | None = None
    function: str | None = None
    count: int | None = None


class _ListedByLine:
    """Of several that are alike, the first one's line is shown."""

    __slots__ = ()
    source: str | None

    @property
    def where(self) -> str:
        """The first one's file and line."""
        return f" ({self.source})" if self.source else ""


class GraphBroke(_ListedByLine, Finding, frozen=True, kw_only=True, tag="graph-break"):
    """Compiled code was left and entered again."""

    TITLE = "Graph breaks"
    SENTENCE = "{count:graph break}{count:|, the first}: {first}{where}"
    REMEDY = "move what Dynamo cannot trace out of the compiled function; fullgraph=True raises at the place"
    ACTION = "move what Dynamo cannot trace out of the compiled function"

    breaks: tuple[Break, ...]
    nested_regions: int

    @property
    def count(self) -> int:
        """How many of them there are."""
        return len(self.breaks)

    @property
    def first(self) -> str:
        """The first one's reason."""
        return str(self.breaks[0].reason)


class Again(ShownFields, frozen=True, kw_only=True):
    """A recompile: why, and of which function."""

    reason: AnyCompilerEvent | str | None = None
    function: str | None = None


class CompiledAgain(_ListedByLine, Finding, frozen=True, kw_only=True, tag="recompile"):
    """A compiled function was compiled again."""

    TITLE = "Recompiles"
    SENTENCE = "{count:recompile}{count:|, the first}: {first}{where}"
    REMEDY = (
        "keep what guards look at the same (sizes, types, Python values), or mark sizes as dynamic: "
        "torch._dynamo.mark_dynamic, torch.compile(dynamic=True)"
    )
    ACTION = "keep what guards look at the same"

    recompiles: tuple[Again, ...]

    @property
    def count(self) -> int:
        """How many of them there are."""
        return len(self.recompiles)

    @property
    def first(self) -> str:
        """The first one's reason."""
        return str(self.recompiles[0].reason)


class CompiledInWindow(Finding, frozen=True, kw_only=True, tag="compile-in-window"):
    """Code was compiled inside the steps."""

    TITLE = "Compiled while measured"
    SENTENCE = "{time_us:us} ({share:percent} of the time) went into compiling {where}"
    REMEDY = "more warm-up calls (warmup=); if it compiles at each call, see its recompiles"
    ACTION = "more warm-up calls (warmup=)"

    time_us: float
    share: float
    count: int
    has_steps: bool = True
    """Whether the recording has steps; without any, the whole of it counts as one."""

    @property
    def where(self) -> str:
        """Where that was."""
        return "inside the steps" if self.has_steps else "while it was recorded"


class NotCompiled(Finding, frozen=True, kw_only=True, tag="not-compiled"):
    """torch.compile was asked for and left the code alone, or calls found no compiled code that fits."""

    TITLE = "Not compiled"
    SENTENCE = "torch.compile left everything as it is: {hints}"
    REMEDY = (
        "torch.compile(module) instead of module.compile() for modules of torch.nn; look for disable(), stances and "
        "the recompile limit"
    )
    ACTION = "torch.compile(module) instead of module.compile()"
    _NONE_FITS = "{lookups_without_region:call} looked for compiled code, found none that fits, and ran as written"

    lookups_without_region: int
    seen: tuple[AnyWhyUncompiled | str, ...]
    """The reasons that kept Dynamo away; texts in recordings and reports of earlier versions."""

    @property
    def hints(self) -> str:
        """The reasons that kept Dynamo away."""
        return "; ".join(map(str, self.seen))

    @property
    def message(self) -> str:
        return self.words(self.SENTENCE if self.seen else self._NONE_FITS)


class BackwardNotCompiled(Finding, frozen=True, kw_only=True, tag="backward-not-compiled"):
    """The forward is compiled, and its backward ran as single nodes of autograd."""

    TITLE = "Backward not compiled"
    SENTENCE = (
        "the forward is compiled, the backward ran as {count:autograd node} ({first:list}), {time_us:us} on the CPU"
    )
    REMEDY = (
        'a backend with AOTAutograd (the default "inductor" has it, "eager" has not), no graph breaks in the forward, '
        "gradients required when it is compiled"
    )
    ACTION = "compile with a backend that has AOTAutograd (inductor)"

    time_us: float
    share: float
    nodes: tuple[str, ...]
    """Their names, at most ten."""
    count: int

    @property
    def first(self) -> tuple[str, ...]:
        """Some of the nodes."""
        return self.nodes[:3]


class GraphHashChanges(Finding, frozen=True, kw_only=True, tag="graph-hash-changes"):
    """Some steps run graphs of Inductor's that other steps do not run."""

    TITLE = "Other graphs in other steps"
    SENTENCE = "{count} of {of_steps} steps run other compiled graphs than the rest: {first:list}"
    REMEDY = "the inputs differ between steps (sizes, types, a Python value): each combination has code of its own"
    ACTION = "keep sizes, types and Python values of inputs as they are"

    steps: tuple[str, ...]
    of_steps: int
    graphs: tuple[str, ...]
    """The hashes of graphs that not every step runs."""

    @property
    def count(self) -> int:
        """How many steps run other graphs."""
        return len(self.steps)

    @property
    def first(self) -> tuple[str, ...]:
        """Some of the steps."""
        return self.steps[:5]


class GuardOverhead(Finding, frozen=True, kw_only=True, tag="guard-overhead"):
    """Calls of compiled code spend much time before the code: with guards and prologues."""

    TITLE = "Guards cost much"
    SENTENCE = (
        "{per_call_us:us} per call of compiled code go into look-ups and prologues, {cpu_share:percent} of the CPU's "
        "time"
    )
    REMEDY = (
        "compile larger pieces, so that fewer calls check more work; "
        "torch.compiler.set_stance(skip_guard_eval_unsafe=True) where nothing changes"
    )
    ACTION = "compile larger pieces, so that fewer calls check more work"

    time_us: float
    share: float
    cpu_share: float
    per_call_us: float
    calls: int


class CompileOverhead(Finding, frozen=True, kw_only=True, tag="compile-overhead"):
    """A compiled step takes the CPU longer, by more than the GPU gains, than the same step uncompiled."""

    TITLE = "Compiling does not pay"
    SENTENCE = (
        "a compiled step takes the CPU {cpu_us:us}, the same uncompiled {cpu_us_uncompiled:us}; on the GPU it gains "
        "{won_us:us}"
    )
    _ON_CPU = "a compiled step takes the CPU {cpu_us:us}, the same uncompiled {cpu_us_uncompiled:us}"
    REMEDY = (
        "compile more at once, so that one look-up pays for many operators, or leave it uncompiled; "
        'mode="reduce-overhead" on a GPU'
    )
    ACTION = "compile more at once"

    time_us: float
    share: float
    cpu_us: float
    cpu_us_uncompiled: float
    gained_us: float | None = None
    """The time that the GPU gains a step, less than 0 where it loses; null where the CPU is the device."""

    @property
    def won_us(self) -> float:
        """The time that the GPU gains, 0 if it gains none."""
        return max(self.gained_us or 0.0, 0.0)

    @property
    def message(self) -> str:
        return self.words(self._ON_CPU if self.gained_us is None else self.SENTENCE)
