"""The page of a history: one file that opens anywhere, with each test from commit to commit."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Any, Final

from pytest_torchprof.analysis.numbers import BY_NAME
from pytest_torchprof.history.changes import Cause, unchanged_stretches
from pytest_torchprof.history.event_ids import SHOWN, event_id
from pytest_torchprof.history.series import EXACT, hardware_of
from pytest_torchprof.history.texts import (
    bisect_line,
    cause_text,
    census_lines,
    change_texts,
    heading_lines,
    remarks_on,
)
from pytest_torchprof.report.page.details import as_json
from pytest_torchprof.report.page.document import compressed, document, text

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pytest_torchprof.history.changes import HistoryEvent
    from pytest_torchprof.history.record import KernelCount
    from pytest_torchprof.history.runs import BranchRuns
    from pytest_torchprof.history.series import SameRuns, Series, SeriesKey

_WIDE: Final = 10_000
"""A width in which no line is broken: the browser does that."""
_MOST_LISTED: Final = 200
"""How many tests or kernels of one event are listed."""


def history_page(branch: BranchRuns, all_series: Sequence[Series], events: Sequence[HistoryEvent]) -> str:
    """Return the page, on which a series is drawn as its stretches without a change, not as points."""
    places = sorted(set(branch.places))
    at = {branch.commits[place]: number for number, place in enumerate(places)}
    of_series: dict[SeriesKey, list[int]] = {}
    for number, event in enumerate(events):
        for change in event.changes:
            of_series.setdefault(change.key, []).append(number)
    drawn = _Drawing(branch, places)
    shown = [_series(series, of_series.get(series.key, []), drawn) for series in all_series]
    # What changed last comes first.
    shown.sort(key=lambda row: (-(at[events[row["events"][-1]].after] if row["events"] else -1), row["name"]))
    known = {name for row in shown for segment in row["segments"] for name in segment["counts"]}
    index = {
        "commits": [branch.commits[place] for place in places],
        "dates": drawn.dates,
        "numbers": [[name, BY_NAME[name].title, BY_NAME[name].noun] for name in EXACT if name in known],
        "series": shown,
        "events": [_event(event, branch, at) for event in events],
        "remarks": {sha: branch.notes.remarks[sha] for sha in at if sha in branch.notes.remarks},
    }
    lines = [*heading_lines(branch, _WIDE), *census_lines(all_series, _WIDE)]
    body = (
        '<a class="skip" href="#series">Skip to the tests</a>'
        f'<header><h1><span class="brand">torchprof</span> History of {text(branch.branch)}</h1>'
        f"{''.join(f'<p>{text(line)}</p>' for line in lines)}</header>"
        "<noscript><p>What is below needs JavaScript.</p></noscript>"
        '<main><div class="tools" id="tools"></div><div id="series" tabindex="-1"></div></main>'
    )
    return document(
        title=f"torchprof: history of {branch.branch}",
        body=body,
        payloads={"index": compressed(as_json(index))},
        scripts=("words.js", "history.js"),
        styles=("style.css", "history.css"),
    )


class _Drawing:
    """The positions of a branch's runs on the page: the measured commits side by side."""

    def __init__(self, branch: BranchRuns, places: Sequence[int]) -> None:
        numbers = {place: number for number, place in enumerate(places)}
        self.at = [numbers[place] for place in branch.places]
        """The number of each run's commit."""
        self.dates = [""] * len(places)
        on: dict[str, set[int]] = {}
        for number, run in zip(self.at, branch.runs, strict=True):
            self.dates[number] = "" if run.commit is None else run.commit.date.date().isoformat()
            for environment in run.environments:
                on.setdefault(hardware_of(environment), set()).add(number)
        self._on = {hardware: sorted(measured) for hardware, measured in on.items()}

    def spans(self, hardware: str, stretches: Iterable[SameRuns]) -> list[tuple[int, int]]:
        """Return the first and the last commit of what was measured without a gap."""
        on = self._on.get(hardware, [])
        spans: list[tuple[int, int]] = []
        for number in sorted({self.at[index] for stretch in stretches for index in stretch.indices}):
            if spans and bisect_left(on, number) == bisect_left(on, spans[-1][1]) + 1:
                spans[-1] = (spans[-1][0], number)
            else:
                spans.append((number, number))
        return spans


def _series(series: Series, events: Sequence[int], drawn: _Drawing) -> dict[str, Any]:
    key = series.key
    segments: list[dict[str, Any]] = []
    for segment in unchanged_stretches(series):
        counts = {name: value for stretch in segment for name, value in stretch.measured.counts.items()}
        segments.append(
            {
                "spans": drawn.spans(key.hardware, segment),
                "counts": {name: counts[name] for name in EXACT if name in counts},
                "torch": segment[-1].environment.torch,
            }
        )
    segments.sort(key=lambda segment: segment["spans"])
    gaps = dict(series.gaps) | ({"missing": series.missing} if series.missing else {})
    return {
        "name": key.name,
        "hardware": key.hardware,
        "device": key.device,
        "segments": segments,
        "gaps": gaps,
        "ends_open": series.open_end,
        "removed_at": series.removed_at,
        "events": sorted(events),
    }


def _event(event: HistoryEvent, branch: BranchRuns, at: dict[str, int]) -> dict[str, Any]:
    return {
        "id": event_id(event)[:SHOWN],
        "at": at[event.after],
        "cause": cause_text(event),
        "commits": event.commits or (),
        "tests": change_texts(event, branch.notes)[:_MOST_LISTED],
        "more": max(0, len(event.changes) - _MOST_LISTED),
        "came": _kernels(event.came),
        "went": _kernels(event.went),
        "command": bisect_line(event, event.changes[0].key).strip() if event.cause is Cause.RANGE else None,
        "said": remarks_on(event, branch.notes),
    }


def _kernels(kernels: Sequence[KernelCount]) -> list[tuple[str, int]]:
    return [(kernel.name, kernel.count) for kernel in kernels[:_MOST_LISTED]]
