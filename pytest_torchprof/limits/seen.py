"""The catalogue of what limits see: each kind with its fields and its words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Union

from pytest_torchprof.analysis.numbers import BY_NAME
from pytest_torchprof.reasons.statement import Statement
from pytest_torchprof.text import counted
from pytest_torchprof.text.units import show_bytes, show_ratio, show_share, show_us

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from pytest_torchprof.reasons.reason import Reason
    from pytest_torchprof.reasons.step_title import StepTitle


class Seen(Statement, frozen=True, tag_field="seen"):
    """The value that a limit saw in the measurement that it judges."""


class InWords(Seen, frozen=True):
    """The value that a limit of another plugin saw, in its own words."""

    SENTENCE = "{said}"

    said: str


class Unworded(Seen, frozen=True):
    """The value that a limit of another plugin saw, if its check gives no words: a number, or nothing."""

    value: float | None = None
    unit: str | None = None

    @property
    def sentence(self) -> str:
        if self.value is None:
            return "its check does not say what it saw"
        shown = _SHOWN.get(self.unit or "count")
        if shown is not None:
            return shown(self.value)
        return f"{round(self.value):,}" if self.value == round(self.value) else f"{self.value:,}"


_SHOWN: Final[Mapping[str, Callable[[float], str]]] = {
    "us": show_us,
    "s": lambda seconds: show_us(seconds * 1e6),
    "bytes": lambda size: show_bytes(round(size)),
    "share": show_share,
    "ratio": show_ratio,
}
"""How a number of each unit is shown; counts are shown as they are."""


class NumberSeen(Seen, frozen=True):
    """The value of a number in the step in which it is worst."""

    number: str
    """Its name in the table of numbers."""
    value: float
    beyond: float | None = None
    """The bound that it exceeds."""
    parts_us: tuple[float, float] | None = None
    """For a ratio, the times of the CPU and of the GPU from which it is computed."""
    on_gpu: bool = True

    @property
    def sentence(self) -> str:
        return self._shown(self.value) + self._excess() + self._parts()

    def _shown(self, value: float) -> str:
        number = BY_NAME[self.number]
        if number.unit == "count":
            return counted(round(value), number.noun)
        return f"{number.show(value)} {number.title_on(gpu=self.on_gpu)}" if number.unit == "us" else number.show(value)

    def _excess(self) -> str:
        """Return by how much it exceeds the bound, if both look the same; else an empty text."""
        if self.beyond is None or self._shown(self.value) != self._shown(self.beyond):
            return ""
        if BY_NAME[self.number].unit == "bytes":
            return f" (beyond it by {abs(self.value - self.beyond):,} B)"
        return f" (beyond it by {100 * abs(self.value / self.beyond - 1):.2g} %)"

    def _parts(self) -> str:
        if self.parts_us is None:
            return ""
        of_cpu, of_gpu = map(show_us, self.parts_us)
        return f" = {of_cpu} CPU / {of_gpu} GPU busy"


class PeakShare(Seen, frozen=True):
    """How much of the GPU's peak throughput was reached."""

    SENTENCE = "{share:ratio} of {peak_tflops:.4g} TFLOP/s ({dtype})"

    share: float
    peak_tflops: float
    dtype: str


class CountSeen(Seen, frozen=True):
    """The number of items, and how many of them a test allows."""

    count: int
    noun: str
    allowed: int = 0

    @property
    def sentence(self) -> str:
        return counted(self.count, self.noun) + (f", {self.allowed} allowed" if self.allowed else "")


class FindingsSeen(Seen, frozen=True):
    """Findings that are forbidden, by their codes."""

    SENTENCE = "{codes:list}"

    codes: tuple[str, ...]


class NoFinding(Seen, frozen=True):
    """None of the forbidden findings occurs."""

    SENTENCE = "none of them occurs"


class AsExpected(Seen, frozen=True):
    """All steps have what is asked for."""

    SENTENCE = "as expected in every step"


class CollectivesSeen(Seen, frozen=True):
    """How often a collective ran."""

    count: int
    collective: str
    least: int
    most: int | None
    """None: any number."""

    @property
    def sentence(self) -> str:
        return f"{self.count} x {self.collective}, expected {_show_counts(self.least, self.most)}"


class MatchesSeen(Seen, frozen=True):
    """How many kernels or operators match a pattern, where another number was expected."""

    count: int
    noun: str
    pattern: str
    least: int
    most: int | None
    """None: any number."""

    @property
    def sentence(self) -> str:
        expected = _show_counts(self.least, self.most)
        return f"{counted(self.count, self.noun)} {_match(self.count)} {self.pattern}, expected {expected}"


class ForbiddenMatches(Seen, frozen=True):
    """How many kernels or operators match a pattern that none may match."""

    count: int
    noun: str
    pattern: str

    @property
    def sentence(self) -> str:
        return f"{counted(self.count, self.noun)} {_match(self.count)} {self.pattern}"


class OtherKernels(Seen, frozen=True):
    """How many kernels match none of the patterns, where each should match one."""

    SENTENCE = "{kernels:other kernel}"

    kernels: int


class CarriedByNone(Seen, frozen=True):
    """No kernel carries operators that are to be fused."""

    operators: tuple[str, ...]
    compiled: bool

    @property
    def sentence(self) -> str:
        eager = "" if self.compiled else "nothing was compiled, and "
        together = " together" if len(self.operators) > 1 else ""
        return f"{eager}no kernel carries {' and '.join(self.operators)}{together}"


class CarriedTogether(Seen, frozen=True):
    """Kernels carry operators that are to stay apart."""

    kernels: int
    operators: tuple[str, ...]

    @property
    def sentence(self) -> str:
        return self.words("{kernels:kernel} {kernels:carries|carry} " + " and ".join(self.operators) + " together")


class SentBytes(Seen, frozen=True):
    """How much the collectives of a step sent."""

    size_bytes: int
    collectives: int
    beyond_bytes: int | None = None
    """The bound that it exceeds."""

    @property
    def sentence(self) -> str:
        shown = show_bytes(self.size_bytes)
        if self.beyond_bytes is not None and shown == show_bytes(self.beyond_bytes):
            shown += f" (beyond it by {self.size_bytes - self.beyond_bytes:,} B)"
        return f"{shown} in {counted(self.collectives, 'collective')}"


class ExposedTime(Seen, frozen=True):
    """How long a step communicated without computing."""

    exposed_us: float
    time_us: float
    """All of its communication."""
    share: float | None = None
    """The share of the step's time; None unless a share is asked for."""
    span_us: float = 0.0
    """How long the step took."""

    @property
    def sentence(self) -> str:
        share = "" if self.share is None else f" = {show_share(self.share)} of {show_us(self.span_us)}"
        return f"{show_us(self.exposed_us)}{share} exposed, of {show_us(self.time_us)} of communication"


class HiddenShare(Seen, frozen=True):
    """How much of a step's communication computing hides."""

    SENTENCE = "{share:share} of {time_us:us} of communication is hidden"

    share: float
    time_us: float


class NothingWasCompiled(Seen, frozen=True):
    """torch.compile compiled nothing."""

    SENTENCE = "nothing was compiled"


class FallbackKernels(Seen, frozen=True):
    """How many kernels of aten's the graphs of Inductor call."""

    SENTENCE = "{kernels:aten kernel} called by Inductor's graphs"

    kernels: int


class NoGraphMade(Seen, frozen=True):
    """Inductor made no CUDA graph of what it compiled."""

    SENTENCE = "Inductor made no graph"


class NoGraphLaunched(Seen, frozen=True):
    """No CUDA graph was launched."""

    SENTENCE = "no graph was launched"


class GraphReplays(Seen, frozen=True):
    """How many of a step's kernels ran in CUDA graphs."""

    inside: int
    kernels: int
    launches: int
    moved: int = 0
    """Copies and fills that compiled code makes before it launches its graphs."""
    share: float | None = None
    """The share of the kernels, if it is too small."""

    @property
    def sentence(self) -> str:
        moved = ", copies and fills before them: {moved}" if self.moved else ""
        share = "" if self.share is None else " ({share:.0%})"
        return self.words("{inside} of {kernels:kernel} ran in {launches:graph launch}" + moved + share)


class OutsideGraphs(Seen, frozen=True):
    """How many kernels compiled code launched outside CUDA graphs."""

    SENTENCE = "{kernels:kernel} of compiled code launched outside a graph"

    kernels: int


class CompileTime(Seen, frozen=True):
    """How long torch.compile took, with caches as they were or of one phase."""

    took_s: float
    phase: str | None = None

    @property
    def sentence(self) -> str:
        return f"{self.took_s:.1f} s compiling{f' {self.phase}' if self.phase else ''}"


class RankSkew(Seen, frozen=True):
    """How far apart the ranks begin a collective."""

    skew_us: float
    """The median."""
    collectives: int
    aligned_to_us: float | None = None
    """How well the clocks of several hosts are aligned."""

    @property
    def sentence(self) -> str:
        clocks = "" if self.aligned_to_us is None else "; clocks aligned to {aligned_to_us:us}"
        return self.words("{skew_us:us}, the median over {collectives:collective}" + clocks)


class RankDifferences(Seen, frozen=True):
    """How many differences there are between the kernels of ranks."""

    SENTENCE = "{differences:difference} between ranks"

    differences: int


class SameOnRanks(Seen, frozen=True):
    """The ranks run the same kernels, or those of each process group do."""

    ranks: int
    groups: int | None = None

    @property
    def sentence(self) -> str:
        within = "" if self.groups is None else " within each of {groups:group}"
        return self.words("the same on {ranks} ranks" + within)


def outcome_text(seen: Iterable[Seen], in_step: StepTitle | str | None, reason: Reason | None) -> str:
    """Return a text of what was seen, in which step, or why it is not measured."""
    words = "; ".join(dict.fromkeys(map(str, seen)))
    where = f" in {in_step}" if in_step is not None else ""
    return "; ".join(filter(None, [f"{words}{where}" if words else "", str(reason or "")]))


def _show_counts(least: int, most: int | None) -> str:
    if most is None:
        return f"at least {least}"
    return str(least) if least == most else f"{least} to {most}"


def _match(count: int) -> str:
    return "matches" if count == 1 else "match"


KINDS: Final[tuple[type[Seen], ...]] = tuple(Seen.__subclasses__())

if TYPE_CHECKING:
    AnySeen = Seen
else:
    AnySeen = Union[KINDS]  # noqa: UP007 - of as many as there are
