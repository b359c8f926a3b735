"""How a comparison with a baseline, or with a commit, fails a test: what it is worse than, and what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

from msgspec import Struct

from pytest_torchprof import compare
from pytest_torchprof.compare import Comparison  # noqa: TC001 - msgspec reads the annotations
from pytest_torchprof.compare.comparison import VARIED
from pytest_torchprof.compare.new_kernels import NewKernels  # noqa: TC001 - msgspec reads the annotations
from pytest_torchprof.limits import FailureLine, moved_lines
from pytest_torchprof.reasons import decoding  # noqa: TC001 - msgspec reads the annotations
from pytest_torchprof.reasons.statement import Statement
from pytest_torchprof.text import counted, first_of, path_from_here, quoted, reason_line

if TYPE_CHECKING:
    from collections.abc import Iterator


class WorseThanBaseline(Statement, frozen=True):
    """The test's launches are worse than its baseline."""

    GIST: ClassVar = "worse than the baseline"
    """The words for it in a line that has no room for more."""
    SENTENCE = f"{GIST} {{baseline}}"

    baseline: str
    """The file; or the branch, and its run."""


class WorseThanCommit(Statement, frozen=True):
    """The test's launches are worse than a commit's."""

    SENTENCE = "worse than at {commit}"

    commit: str


class AmbiguousToBaseline(Statement, frozen=True):
    """The test's launches may be worse than its baseline, which fails it in a strict run."""

    SENTENCE = "ambiguous against the baseline {baseline} (strict)"

    baseline: str
    """The file; or the branch, and its run."""


class AmbiguousToCommit(Statement, frozen=True):
    """The test's launches may be worse than a commit's, which fails it in a strict run."""

    SENTENCE = "ambiguous against {commit} (strict)"

    commit: str


class NoRunInBranch(Statement, frozen=True):
    """The branch whose last run is the baseline has no run with the test, which fails it in a strict run."""

    SENTENCE = "no run in {branch} has this test on this device (strict)"

    branch: str


class NoBaseline(Statement, frozen=True):
    """The test has no baseline, which fails it in a strict run."""

    SENTENCE = "no baseline for this test and device in {file} (strict)"

    file: str
    gone: tuple[str, ...] = ()
    """The tests that are gone and may be this one."""

    @property
    def sentence(self) -> str:
        missing = self.words(self.SENTENCE)
        if not self.gone:
            return missing
        are = "is" if len(self.gone) == 1 else "are"
        return f"{missing}, and its kernels are those of {first_of(self.gone)}, which {are} gone"


class ChangeOfCode(Statement, frozen=True, kw_only=True):
    """The remedy in the code, and the place for it."""

    breaks: int = 0
    """The breaks of compiled graphs that are new."""
    new: NewKernels | None = None
    location: tuple[str, int] | None = None
    """The file and line that launches what is worse, where it is known for sure."""
    elsewhere: bool = False
    """Whether other lines launch some of it."""

    @property
    def sentence(self) -> str:
        at = "" if self.location is None else f" at {path_from_here(self.location[0])}:{self.location[1]}"
        if self.breaks:
            others = f" and the {counted(self.breaks - 1, 'other')}" if self.breaks > 1 else ""
            return f"take out the graph break{at}{others}"
        if self.new is not None:
            return f"see what changed{', first' if self.elsewhere else ''}{at} ({self.new})"
        return f"fix the code{at}"


class AcceptAsWell(Statement, frozen=True):
    """A limit fails the test too: the baseline alone does not let it pass."""

    SENTENCE = "if the change is intended, accept it in the baseline as well"


class FixOrAccept(Statement, frozen=True):
    """The code is at fault, or the baseline is out of date."""

    SENTENCE = "{fix}, or accept the new baseline"

    fix: ChangeOfCode


class FixOrAllow(Statement, frozen=True):
    """The code is at fault, or it may do more than the commit, or the branch."""

    fix: ChangeOfCode
    tolerance: tuple[tuple[str, float], ...] = ()
    """By how much each number has to be allowed to rise."""

    @property
    def sentence(self) -> str:
        allowed = ", ".join(f'"{name}": {more:g}' for name, more in self.tolerance)
        return f"{self.fix}, or allow it in the marker: tolerance={{{allowed}}}" if allowed else str(self.fix)


class NewIfNotStrict(Statement, frozen=True):
    """A run that is not strict lets a test pass that its branch does not have."""

    SENTENCE = "without strict, a test that the branch does not have yet is a new one"


class RenameIfRenamed(Statement, frozen=True):
    """A renamed test keeps its baseline by a command, named at the end of the run if it is clear which test it is."""

    SENTENCE = "if it was renamed, rename its entry too, as the end of this run says (torchprof baseline rename)"


class PruneIfNew(Statement, frozen=True):
    """The entries of the tests whose kernels a new test runs are of no use any more."""

    SENTENCE = "if it is new, remove the entries of what is gone"


KINDS: Final = (
    WorseThanBaseline,
    WorseThanCommit,
    AmbiguousToBaseline,
    AmbiguousToCommit,
    NoRunInBranch,
    NoBaseline,
    ChangeOfCode,
    AcceptAsWell,
    FixOrAccept,
    FixOrAllow,
    NewIfNotStrict,
    RenameIfRenamed,
    PruneIfNew,
)


class BaselineFailure(Struct, frozen=True, kw_only=True):
    """How a comparison with a baseline, or with a commit, fails a test."""

    comparison: Comparison
    nodeid: str
    file: str
    """The baseline's."""
    commit: str | None = None
    """The commit that is compared with; None for the baseline."""
    branch: str | None = None
    """The branch of a history whose last run is the baseline."""
    run_of_branch: str | None = None
    """The commit and the day of that run, if it has the test."""
    gone: tuple[str, ...] = ()
    """The tests that are gone and may be this one, where it has no baseline."""
    unlocated: tuple[decoding.AnyReason, ...] = ()
    """Why it is not known where kernels are launched."""
    blamed: tuple[str, int] | None = None
    """The file and line that launches what is worse, where it is known for sure."""
    rank: int | None = None
    """The rank that it fails on, where it is another one."""

    def lines(self, *, beside_limits: bool = False) -> Iterator[FailureLine]:
        """Yield the lines of the failure: kernels with their places, gated numbers, varying numbers, remedies.

        ``beside_limits``: limits fail it too, so that a new baseline alone does not let it pass.
        """
        on_rank = "" if self.rank is None else f"rank {self.rank}: "
        headline = self.headline
        if self.comparison.verdict == "new":
            yield FailureLine(f"{on_rank}{headline}", "headline")
            yield from self._remedies_without_baseline()
            return
        lines = [
            FailureLine(f"  {line.text}", line.about, subject=line.subject, file_line=line.file_line, full=line.full)
            for line in self.comparison.decided_lines()
        ]
        gated = [line for line in lines if line.about == "gated"]
        numbers = "; ".join(line.subject for line in gated)
        gist = headline.GIST if isinstance(headline, WorseThanBaseline) else ""
        yield FailureLine(f"{on_rank}{headline}", "headline", subject=gist, numbers=numbers)
        # Below what came and went, which is why they have moved; with nothing of that they stand in the headline.
        below = FailureLine(f"    {numbers}", "gated") if moved_lines(lines) else None
        for line in lines:
            if line.about != "gated":
                yield line
            elif below is not None and line is gated[0]:
                yield below
        yield from (FailureLine(f"    lines: not known: {reason_line(str(why))}") for why in self.unlocated)
        for text in self.comparison.varied():
            yield FailureLine(text, "varies", subject=VARIED, figures=self.comparison.varied_figures())
        if self.commit is None and self.branch is None:
            accept = AcceptAsWell() if beside_limits else FixOrAccept(self.change_of_code)
            yield FailureLine(f"{accept}: ", "remedy", f"pytest {quoted(self.nodeid)} --torchprof-baseline=update")
        else:
            allowed = compare.tolerance_for(self.comparison.changes)
            yield FailureLine(str(FixOrAllow(self.change_of_code, tuple(allowed.items()))), "remedy")

    @property
    def headline(self) -> Statement:
        """The failure, in a line."""
        if self.comparison.verdict == "new":
            return NoBaseline(self.file, self.gone) if self.branch is None else NoRunInBranch(self.branch)
        if self.comparison.verdict == "worse":
            return WorseThanBaseline(self._baseline) if self.commit is None else WorseThanCommit(self.commit)
        return AmbiguousToBaseline(self._baseline) if self.commit is None else AmbiguousToCommit(self.commit)

    @property
    def change_of_code(self) -> ChangeOfCode:
        """The remedy in the code, and the place for it."""
        failing = [change for change in self.comparison.changes if change.fails]
        return ChangeOfCode(
            breaks=sum(len(change.breaks) for change in failing),
            new=compare.new_kernels(self.comparison.changes),
            location=self.blamed,
            elsewhere=len({change.file_line for change in failing if change.file_line}) > 1,
        )

    @property
    def _baseline(self) -> str:
        if self.branch is None:
            return self.file
        return self.branch if self.run_of_branch is None else f"{self.branch}, the run of {self.run_of_branch}"

    def _remedies_without_baseline(self) -> Iterator[FailureLine]:
        if self.branch is not None:
            yield FailureLine(str(NewIfNotStrict()), "remedy")
        elif self.gone:
            yield FailureLine(str(RenameIfRenamed()), "remedy")
            yield FailureLine(f"{PruneIfNew()}: ", "remedy", "torchprof baseline prune")
        else:
            yield FailureLine("", "remedy", f"pytest {quoted(self.nodeid)} --torchprof-baseline=add")
