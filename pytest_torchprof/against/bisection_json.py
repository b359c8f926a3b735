"""The result of a search among commits as ``torchprof bisect --json`` prints it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct, to_builtins

from pytest_torchprof.against.bisect import Judged, SearchOutcome  # noqa: TC001 - msgspec reads the annotations
from pytest_torchprof.against.git import NamedCommit  # noqa: TC001 - as above
from pytest_torchprof.against.search_facts import AnyWhyAnswered, AnyWhyNotFound  # noqa: TC001 - as above
from pytest_torchprof.compare.comparison_json import ChangeJson, change_json
from pytest_torchprof.reasons.commit_gaps import AnyCommitGap  # noqa: TC001 - as above
from pytest_torchprof.text import json_text

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pytest_torchprof.against.bisect import SearchResult
    from pytest_torchprof.compare import Comparison
    from pytest_torchprof.report import Reference

SCHEMA: Final = 1


class SearchEnd(Struct, frozen=True, kw_only=True):
    """One of the two commits between which was searched."""

    ref: str
    """As the user named it."""
    sha: str


class ParentDifference(Struct, frozen=True, kw_only=True):
    """How a test differs at the first bad commit from its parent."""

    kernels_differ: bool
    summary: str
    changes: tuple[ChangeJson, ...]


class Bisection(Struct, frozen=True, kw_only=True):
    """The result of a search, and what was searched for; as JSON each reason and gap has its words as ``text``, too."""

    schema: int = SCHEMA
    test: str
    limits: tuple[str, ...]
    """As the user wrote them."""
    outcome: SearchOutcome
    why: AnyWhyAnswered | AnyWhyNotFound
    good: SearchEnd
    bad: SearchEnd
    candidates: tuple[NamedCommit, ...]
    parent: str | None
    tests: dict[str, ParentDifference]
    left_out: dict[str, AnyCommitGap]
    commits: tuple[Judged, ...]


def bisection_of(result: SearchResult, test: str, limits: Iterable[str]) -> Bisection:
    """Return the result of the search for the commit at which a test misses limits, or changes its kernels."""
    return Bisection(
        test=test,
        limits=tuple(limits),
        outcome=result.outcome,
        why=result.why,
        good=_end(result.good),
        bad=_end(result.bad),
        candidates=result.candidates,
        parent=result.parent,
        tests={name: _difference(comparison) for name, comparison in result.differences.items()},
        left_out=dict(result.left_out),
        commits=result.commits,
    )


def bisection_text(bisection: Bisection) -> str:
    """Return a result as JSON, with the words for each reason and gap."""
    # What a plugin's limit has seen may be of any type.
    plain = to_builtins(bisection, enc_hook=str)
    plain["why"]["text"] = bisection.why.text
    for written, commit in zip(plain["commits"], bisection.commits, strict=True):
        written["why"]["text"] = commit.why.text
    for test, gap in bisection.left_out.items():
        plain["left_out"][test]["text"] = gap.text
    return json_text(plain)


def _end(commit: Reference) -> SearchEnd:
    return SearchEnd(ref=commit.ref, sha=commit.sha)


def _difference(comparison: Comparison) -> ParentDifference:
    changes = tuple(map(change_json, comparison.changes))
    return ParentDifference(kernels_differ=comparison.kernels_differ, summary=comparison.summary, changes=changes)
