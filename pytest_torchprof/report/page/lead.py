"""The gist of a page of several measurements, in a sentence or two above the list."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from pytest_torchprof.report.outcome import Outcome
from pytest_torchprof.report.page.changes import Changes
from pytest_torchprof.report.page.document import text
from pytest_torchprof.report.page.ranks import RanksTogether
from pytest_torchprof.text import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_torchprof.report.page.details import Details
    from pytest_torchprof.report.page.jobs import JobOnPage
    from pytest_torchprof.report.page.verdicts import Noun

_FLAT: Final = 0.02
"""The share by which GPU time may differ and is as good as the same."""
_WHY_ALONE: Final = ("only before", "only now", "not compared")


def lead_of_job(jobs: Sequence[JobOnPage], count: int) -> str:
    """Return the headline of the job whose ranks are all that the page is of; empty for any other page."""
    ranks = jobs[0].ranks if jobs and jobs[0].is_all_of(count) else None
    if not isinstance(ranks, RanksTogether):
        return ""
    first, *others = ranks.headline
    link = f'<a href="#{min(jobs[0].numbers)}/ranks">Ranks side by side</a>'
    return f'<p class="lead">{text(first, 1000)}. {link}</p>' + "".join(f"<p>{text(line, 1000)}</p>" for line in others)


def lead_of_pairs(details: Sequence[Details], noun: Noun) -> str:
    """Return which of several pairs changed most, and how many measurements have no other side."""
    compared = {number: pair for number, each in enumerate(details) if (pair := _pair(each)) is not None}
    if not compared:
        return ""
    number = max(compared, key=lambda at: (abs(compared[at].difference_us), compared[at].kernels_differ is True))
    of_all = counted(len(compared), noun)
    if any(pair.kernels_differ or not _is_flat(pair) for pair in compared.values()):
        link = f'<a href="#{number}/changes">{text(details[number].name, 200)}</a>'
        changed = text(compared[number].headline, 500)
        first = f"Of {of_all} compared, {link} changed most: {changed}."
    else:
        is_timed = all(any(pair.time_us) for pair in compared.values())
        times = "as much GPU time as before" if is_timed else "times are not compared"
        first = f"{of_all} compared: the same kernels, and {times}."
    rest = _not_compared(details, noun)
    return f'<p class="lead">{first}</p>' + (f"<p>{text(rest)}</p>" if rest else "")


def _pair(each: Details) -> Changes | None:
    """Return the changes between two recordings; None for others, as those of a measurement against its baseline."""
    changes = each.compared
    return changes if isinstance(changes, Changes) and changes.kernels_differ is not None else None


def _is_flat(pair: Changes) -> bool:
    return abs(pair.difference_us) <= _FLAT * pair.time_us[0]


def _not_compared(details: Sequence[Details], noun: Noun) -> str:
    counts = Counter(_why_alone(each) for each in details)
    return "; ".join(f"{counted(counts[why], noun)} {why}" for why in _WHY_ALONE if counts[why])


def _why_alone(each: Details) -> str | None:
    if each.outcome == Outcome.GONE:
        return "only before"
    if each.before is None:
        return "only now"
    return None if _pair(each) is not None else "not compared"
