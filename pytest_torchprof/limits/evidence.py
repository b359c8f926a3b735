"""The catalogue of what is shown below a limit: rows of work, and lines that say where, why, and what to do."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Final, Union

from msgspec.structs import replace

from pytest_torchprof.analysis.rank_kernels import OtherCount, OtherStepCount  # noqa: TC001 - msgspec reads the annotations
from pytest_torchprof.findings.catalogue import AnyFinding  # noqa: TC001 - msgspec reads the annotations
from pytest_torchprof.kernels.carried import possible_operators
from pytest_torchprof.kernels.names.kernelname import shortened
from pytest_torchprof.kernels.own_kernels import declaration_lines
from pytest_torchprof.limits.seen import AnySeen, outcome_text
from pytest_torchprof.reasons import decoding  # noqa: TC001 - msgspec reads the annotations
from pytest_torchprof.reasons.collectives import AnyRankDifference  # noqa: TC001 - msgspec reads the annotations
from pytest_torchprof.reasons.compiler_events import AnyCompilerEvent  # noqa: TC001 - msgspec reads the annotations
from pytest_torchprof.reasons.statement import Statement
from pytest_torchprof.reasons.step_title import StepTitle  # noqa: TC001 - msgspec reads the annotations
from pytest_torchprof.reasons.uncompiled import AnyWhyUncompiled  # noqa: TC001 - msgspec reads the annotations
from pytest_torchprof.text import and_more, counted, path_from_here
from pytest_torchprof.text.units import show_bytes, show_us
from pytest_torchprof.trace.caches import CacheUse, CacheUses

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pytest_torchprof.analysis.origin import Places
    from pytest_torchprof.kernels.kernel import Kernel

_LONGEST_KERNEL: Final = 60
_CACHES: Final = {"dynamo": "Dynamo", "aot_autograd": "AOTAutograd", "inductor": "Inductor", "triton": "Triton"}


class Evidence(Statement, frozen=True, tag_field="evidence"):
    """A fact that a person can act on."""

    @property
    def lines(self) -> list[str]:
        """The text line by line."""
        return self.text.split("\n")


class WorkRow(Evidence, frozen=True, kw_only=True):
    """Work of one kind that a limit is about: kernels of one name, copies, blocking calls. Printable text only."""

    count: int
    name: str
    full: str
    """The name uncut."""
    time_us: float | None = None
    size_bytes: int = 0
    """How much was copied or sent."""
    in_copies_us: float = 0.0
    """Of a blocking call: for how long the CPU waited in the copies before it."""
    allowed_by: tuple[str, ...] = ()
    """The allowances in the test that apply to it."""
    launched_nothing: bool = False
    """Of an operator: it ran, and launched no kernel."""
    ops: tuple[str, ...] = ()
    """The operators that launched it."""
    places: tuple[tuple[int, str], ...] = ()
    """The places in the user's code that launched it, with how often, if the recording shows them."""
    line: tuple[str, int] | None = None
    """The file and line that launched most of it."""
    also_ran: bool = False
    """Whether it is only listed for comparison, and did not miss the limit."""
    order: int = 0
    """How much of its kind the step had before its first: kernels, or operators of other names."""

    @property
    def note(self) -> str:
        """Further facts about it, as text."""
        size = show_bytes(self.size_bytes) if self.size_bytes else ""
        allowed = f"allowed: {', '.join(self.allowed_by)}" if self.allowed_by else ""
        copies = f"{show_us(self.in_copies_us)} in copies" if self.in_copies_us else ""
        nothing = "launched nothing" if self.launched_nothing else ""
        return ", ".join(filter(None, [size, copies, allowed, nothing]))

    def launched_by(self, name: str) -> list[str]:
        """Return the operators that ``name`` does not show already: on the CPU, the operator is the kernel."""
        return [op for op in self.ops if op not in name]

    @property
    def sentence(self) -> str:
        spent = show_us(self.time_us) if self.time_us is not None else ""
        facts = [spent, self.note, ", ".join(self.launched_by(self.name))]
        facts += [f"{count} x {place}" if len(self.places) > 1 else place for count, place in self.places]
        return "  ".join([f"{self.count:>4} x {self.name}", *filter(None, facts)])


class LineInWords(Evidence, frozen=True):
    """A line of another plugin's limit, in its own words."""

    SENTENCE = "{said}"

    said: str


class WhyLine(Evidence, frozen=True):
    """A reason that explains what was seen."""

    why: decoding.AnyReason

    @property
    def sentence(self) -> str:
        return self.why.text


class FindingLine(Evidence, frozen=True):
    """A finding that is forbidden."""

    finding: AnyFinding

    @property
    def sentence(self) -> str:
        # The limit says its code.
        return f"{self.finding.title}: {self.finding.message_with_place}"


class KernelsToDeclare(Evidence, frozen=True):
    """Kernels of which the user is asked what they are, as lines for the ini file."""

    kernels: tuple[str, ...]
    unmatched: tuple[str, ...] = ()
    """Declarations that match no kernel."""

    @property
    def sentence(self) -> str:
        return "\n".join(declaration_lines(self.kernels, self.unmatched))


class AllowedNothing(Evidence, frozen=True):
    """Allowances of a test that matched nothing."""

    allowances: tuple[str, ...]

    @property
    def sentence(self) -> str:
        return f"allowed nothing: {', '.join(map(repr, self.allowances))}"


class GraphBreakLine(Evidence, frozen=True):
    """Where compiled code ends, and why."""

    why: AnyCompilerEvent | str
    """In Dynamo's words, where it has any; in reports of earlier versions always a text."""
    file: str | None
    """None where only the trace shows the graph break."""
    line: int | None
    function: str | None
    graphs: int | None
    """How many graphs there are of what could be one; None where the whole frame is left uncompiled."""
    explanation: str | None
    """The sentence that Dynamo says after its reason."""

    @property
    def file_line(self) -> str | None:
        """Where it is, "model.py:21"; None where only the trace shows it."""
        return None if self.file is None else f"{path_from_here(self.file)}:{self.line}"

    @property
    def sentence(self) -> str:
        if self.file_line is None:
            return str(self.why)
        what = "the whole frame runs uncompiled" if self.graphs is None else f"{self.graphs} graphs instead of 1"
        explained = f"\n    {self.explanation}" if self.explanation else ""
        return f"{self.file_line} in {self.function}: {self.why} ({what}){explained}"


class RecompileLine(Evidence, frozen=True):
    """Where something was compiled again, and why."""

    why: AnyCompilerEvent | str
    """The guard that failed, in Dynamo's words; in reports of earlier versions always a text."""
    file: str | None
    line: int | None
    function: str | None

    @property
    def sentence(self) -> str:
        where = "" if self.file is None else f"{path_from_here(self.file)}:{self.line} in {self.function}: "
        return f"{where}{self.why}"


class InsteadOfCompiling(Evidence, frozen=True):
    """A cause that was seen where nothing was compiled."""

    SENTENCE = "{what}"

    what: AnyWhyUncompiled | str
    """In recordings and reports of earlier versions a text."""


class WhyNothingIsCompiled(Evidence, frozen=True):
    """The usual causes where nothing was compiled."""

    SENTENCE = (
        "usual causes: the test does not call what torch.compile returned; module.compile() of a module from torch.nn, "
        "whose own code is skipped (use torch.compile(module)); torch.compiler.disable, or a stance; no tensor among "
        "the arguments; another thread runs the code, and torch.profiler does not record it"
    )


class SkippedGraph(Evidence, frozen=True):
    """Why Inductor made no CUDA graph."""

    SENTENCE = "no graph: {why}"

    why: AnyCompilerEvent | str
    """In Inductor's words, where it has any; in reports of earlier versions always a text."""


class CompilePart(Evidence, frozen=True):
    """How long a part of a compilation took."""

    part: str
    took_us: float
    phase: str | None = None
    """"cold" or "warm", where both are judged."""

    @property
    def sentence(self) -> str:
        return f"{self.took_us / 1e6:>8.2f} s {self.part}{f', {self.phase}' if self.phase else ''}"


class CachesUsed(Evidence, frozen=True):
    """The hits and misses in the compiler's caches."""

    uses: CacheUses
    phase: str | None = None
    """"cold" or "warm", where both are judged."""

    @property
    def sentence(self) -> str:
        uses = [(shown, getattr(self.uses, name)) for name, shown in _CACHES.items()]
        uses_text = "; ".join(f"{shown} {_show_use(use)}" for shown, use in uses if was_used(use))
        return f"found in caches{f', {self.phase}' if self.phase else ''}: {uses_text}"


class KernelCarries(Evidence, frozen=True):
    """The operators that kernels carry, one after another, or who launched them."""

    kernel: str
    carried: tuple[str, ...]
    launched_by: str | None
    count: int = 1
    line: tuple[str, int] | None = None
    """The file and line that launched it, if the recording shows them."""

    @property
    def sentence(self) -> str:
        made_by = f"carries {', '.join(self.carried)}" if self.carried else f"launched by {self.launched_by or '?'}"
        at = "" if self.line is None else f", {path_from_here(self.line[0])}:{self.line[1]}"
        return f"{f'{self.count} x ' if self.count > 1 else ''}{self.kernel} {made_by}{at}"


class PatternAdvice(Evidence, frozen=True):
    """How to ask for kernels that a pattern does not match."""

    pattern: str
    is_expression: bool
    """Whether it is a glob or a regular expression; else a piece of a name."""
    selector: str
    """The selector that matches them, as users write it."""
    kernels: int
    noun: str
    """The kind of kernel: "GEMM"."""
    asked: tuple[str, ...]
    """The requests in the pattern's words: "layout tn"."""
    names: tuple[tuple[int, str], ...]
    """The most frequent names, each with its count."""
    other_names: int

    @property
    def sentence(self) -> str:
        tried = f"{'matches' if self.is_expression else 'contains'} `{self.pattern}`"
        they = counted(self.kernels, self.noun)
        asked = " and ".join(self.asked)
        are = self.words(f"{they} {{kernels:has|have}} {asked}" if asked else f"there {{kernels:is|are}} {they}")
        named = ", ".join(f"{shortened(name, _LONGEST_KERNEL)} x{count}" for count, name in self.names)
        return f"no kernel name {tried}; {are} ({named}{and_more(self.other_names, 'name')}): use {self.selector}"


class IdleOperators(Evidence, frozen=True):
    """Operators that ran and launched no kernel."""

    SENTENCE = "{calls:more call} of {operators:list} launched no kernel"

    calls: int
    operators: tuple[str, ...]


class LateRank(Evidence, frozen=True):
    """Which rank begins a collective last."""

    SENTENCE = "{collective} in step {step}: rank {rank} {skew_us:us} late"

    collective: str
    step: int
    """From 1."""
    rank: int
    skew_us: float


class RankDiffers(Evidence, frozen=True):
    """How collectives of a rank differ from those of the others."""

    difference: AnyRankDifference

    @property
    def sentence(self) -> str:
        return f"rank {self.difference.rank}: {self.difference}"


class RankKernels(Evidence, frozen=True):
    """How kernels of a rank differ from those of another."""

    SENTENCE = "rank {rank} against rank {other}: {difference}"

    rank: int
    other: int
    difference: OtherCount | OtherStepCount


class WorstRank(Evidence, frozen=True):
    """The rank with the worst verdict on a limit."""

    rank: int
    ranks: int
    seen: tuple[AnySeen, ...] = ()
    """The facts that were seen there; empty if this is that rank."""
    in_step: StepTitle | str | None = None
    reason: decoding.AnyReason | None = None
    """Why it is not measured there."""

    @property
    def sentence(self) -> str:
        there = outcome_text(self.seen, self.in_step, self.reason)
        return f"worst on rank {self.rank} of {self.ranks}{f': {there}' if there else ''}"


class OtherwiseOnRank(Evidence, frozen=True):
    """The verdict on a limit on another rank."""

    rank: int
    status: str
    seen: tuple[AnySeen, ...]
    in_step: StepTitle | str | None = None
    reason: decoding.AnyReason | None = None
    """Why it is not measured there."""

    @property
    def sentence(self) -> str:
        return f"{self.status} on rank {self.rank}: {outcome_text(self.seen, self.in_step, self.reason)}"


class RowsLeftOut(Evidence, frozen=True):
    """Rows that a verdict does not keep, for there are thousands."""

    SENTENCE = "and {rows:more row} that the report does not keep"

    rows: int


class CaughtByTest(Evidence, frozen=True):
    """The test's own code caught the error that said that something is not measured."""

    SENTENCE = "the test caught the error that said so"


def carried_by_kernels(kernels: Iterable[Kernel], places: Places) -> list[KernelCarries]:
    """Return a line per kernel in their order; consecutive lines that read the same are merged."""
    lines = groupby(
        KernelCarries(
            kernel.short, tuple(possible_operators(kernel)), kernel.launcher, line=_first_line(kernel, places)
        )
        for kernel in kernels
    )
    return [replace(line, count=len(list(alike))) for line, alike in lines]


def _first_line(kernel: Kernel, places: Places) -> tuple[str, int] | None:
    known = ((origin.file, origin.line) for _, origin in places.of([(kernel.name, kernel.op)]))
    return next(((file, line) for file, line in known if file is not None), None)


def was_used(use: CacheUse) -> bool:
    """Return whether anything was looked up in a cache, or may have been."""
    return use != CacheUse(hits=0, misses=0, bypasses=0)


def _show_use(use: CacheUse) -> str:
    if use.hits is None and use.misses is None:
        return "not known"
    hits = "hits not known" if use.hits is None else counted(use.hits, "hit")
    misses = "misses not known" if use.misses is None else counted(use.misses, "miss")
    bypasses = [f"{use.bypasses} that cannot be kept"] if use.bypasses else []
    return ", ".join([hits, misses, *bypasses])


KINDS: Final[tuple[type[Evidence], ...]] = tuple(Evidence.__subclasses__())

if TYPE_CHECKING:
    AnyEvidence = Evidence
else:
    AnyEvidence = Union[KINDS]  # noqa: UP007 - of as many as there are
