"""The runs of CI on a branch on which people measure their own commits too, and whether CI still measures it."""

from __future__ import annotations

from datetime import datetime  # noqa: TC003 - msgspec reads the annotations
from itertools import pairwise
from typing import TYPE_CHECKING

from msgspec import Struct

from pytest_torchprof.history.ancestry import date_of, line_from, sha_of
from pytest_torchprof.history.pauses import A_DAY, longest_usual
from pytest_torchprof.history.record import Event

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pytest_torchprof.history.record import RunHead


class CiPause(Struct, frozen=True, kw_only=True):
    """CI has measured nothing on a branch for longer than is usual, while others went on from there."""

    last: str
    """The commit that it measured last."""
    since: datetime
    """When it did so."""
    ahead: tuple[str, ...]
    """The commits that it does not know, and that come after all that are the branch's, by their dates."""


def unknown_to_ci(on_branch: Iterable[RunHead], parents: Mapping[str, str]) -> frozenset[str]:
    """Return the commits that somebody measured on a branch, and that no run of CI there has or has before its own.

    One that was rebased or given up looks like one that is about to be pushed, and neither is the branch's: none where
    CI has measured fewer commits than people have by its last run, since what CI does not know is not left out of a
    branch that is theirs.
    """
    runs = [*on_branch]
    by_ci = {sha_of(run) for run in runs if run.event is not Event.LOCAL}
    local = {sha_of(run): run.began for run in sorted(runs, key=_newest_first) if run.event is Event.LOCAL}
    until = max((run.began for run in runs if run.event is not Event.LOCAL), default=None)
    # What people have measured since CI fell silent does not make the branch theirs, unless CI was there only once.
    known = [sha for sha, began in local.items() if len(by_ci) == 1 or until is None or began <= until]
    if len(by_ci) < len(known):
        return frozenset()
    passed: set[str] = set()
    for sha in by_ci:
        for own in line_from(sha, parents):
            if own in passed:
                break
            passed.add(own)
    return frozenset(local.keys() - passed)


def ci_pause(points: Sequence[RunHead], left_out: Iterable[RunHead], parents: Mapping[str, str]) -> CiPause | None:
    """Return since when CI no longer measures a branch with these points, oldest first; None as long as it does.

    ``left_out``: the runs of commits that it does not know. Where it measured one commit alone no pause is known, and
    the shortest one that is ever missed counts.
    """
    ahead = [run for run in left_out if _is_ahead(run, points[-1], parents)] if points else []
    by_ci = sorted((run for run in points if run.event is not Event.LOCAL), key=lambda run: run.began)
    if not ahead or not by_ci:
        return None
    first = dict(reversed([(sha_of(run), run.began) for run in by_ci]))
    pauses = [later - earlier for earlier, later in pairwise(sorted(first.values()))]
    last = by_ci[-1]
    if max(run.began for run in ahead) - last.began <= longest_usual(pauses, A_DAY):
        return None
    shas = tuple(dict.fromkeys(map(sha_of, sorted(ahead, key=date_of))))
    return CiPause(last=sha_of(last), since=last.began, ahead=shas)


def _is_ahead(run: RunHead, newest: RunHead, parents: Mapping[str, str]) -> bool:
    """Whether a commit comes after another one; by their dates where nothing is known of what came before it."""
    sha = sha_of(run)
    return sha_of(newest) in line_from(sha, parents) if sha in parents else date_of(run) > date_of(newest)


def _newest_first(run: RunHead) -> float:
    return -run.began.timestamp()
