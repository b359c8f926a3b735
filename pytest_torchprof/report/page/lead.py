"""The gist of a page of several measurements, in a sentence or two above the list."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from pytest_torchprof.report.outcome import Outcome
from pytest_torchprof.report.page.document import text
from pytest_torchprof.text import counted

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_torchprof.report.page.jobs import JobOnPage
    from pytest_torchprof.report.page.verdicts import Noun

_FLAT: Final = 0.02
"""The share by which GPU time may differ and is as good as the same."""
_WHY_ALONE: Final = ("only before", "only now", "not compared")


def lead_of_job(jobs: Sequence[JobOnPage], count: int) -> str:
    """Return the headline of the job whose ranks are all that the page is of; empty for any other page."""
    if not (jobs and jobs[0].is_all_of(count)):
        return ""
    first, *others = jobs[0].facts["headline"]
    link = f'<a href="#{min(jobs[0].numbers)}/ranks">Ranks side by side</a>'
    return f'<p class="lead">{text(first, 1000)}. {link}</p>' + "".join(f"<p>{text(line, 1000)}</p>" for line in others)


def lead_of_pairs(details: Sequence[Mapping[str, Any]], noun: Noun) -> str:
    """Return which of several pairs changed most, and how many measurements have no other side."""
    compared = {number: each["compared"] for number, each in enumerate(details) if _is_compared(each)}
    if not compared:
        return ""
    number = max(compared, key=lambda at: (abs(_moved_us(compared[at])), compared[at]["kernels_differ"]))
    of_all = counted(len(compared), noun)
    if any(pair["kernels_differ"] or not _is_flat(pair) for pair in compared.values()):
        link = f'<a href="#{number}/changes">{text(details[number]["name"], 200)}</a>'
        changed = text(compared[number]["headline"], 500)
        first = f"Of {of_all} compared, {link} changed most: {changed}."
    else:
        times = "as much GPU time as before" if all(map(_is_timed, compared.values())) else "times are not compared"
        first = f"{of_all} compared: the same kernels, and {times}."
    rest = _not_compared(details, noun)
    return f'<p class="lead">{first}</p>' + (f"<p>{text(rest)}</p>" if rest else "")


def _is_compared(each: Mapping[str, Any]) -> bool:
    """Return whether two recordings are compared, and not a measurement with its baseline."""
    return "kernels_differ" in each.get("compared", ())


def _is_timed(compared: Mapping[str, Any]) -> bool:
    return any(compared["time_us"])


def _moved_us(compared: Mapping[str, Any]) -> float:
    before, now = compared["time_us"]
    return float(now - before)


def _is_flat(compared: Mapping[str, Any]) -> bool:
    return abs(_moved_us(compared)) <= _FLAT * float(compared["time_us"][0])


def _not_compared(details: Sequence[Mapping[str, Any]], noun: Noun) -> str:
    counts = Counter(_why_alone(each) for each in details)
    return "; ".join(f"{counted(counts[why], noun)} {why}" for why in _WHY_ALONE if counts[why])


def _why_alone(each: Mapping[str, Any]) -> str | None:
    if each["outcome"] == Outcome.GONE:
        return "only before"
    if "before" not in each:
        return "only now"
    return None if _is_compared(each) else "not compared"
