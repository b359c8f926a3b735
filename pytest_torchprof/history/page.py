"""The page of a history: one file that opens anywhere, with each test from commit to commit."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from itertools import accumulate, chain
from typing import TYPE_CHECKING, Any, Final

from pytest_torchprof.analysis.numbers import BY_NAME
from pytest_torchprof.history.changes import Cause, unchanged_stretches
from pytest_torchprof.history.event_ids import SHOWN, event_id, time_event_id
from pytest_torchprof.history.machines import Machines
from pytest_torchprof.history.series import EXACT
from pytest_torchprof.history.stopped import hardware_of
from pytest_torchprof.history.texts import (
    bisect_line,
    cause_text,
    census_texts,
    change_texts,
    heading_texts,
    remarks_on,
)
from pytest_torchprof.history.time_texts import (
    could_show,
    machine_of,
    moved_text,
    step_texts,
    time_bisect_line,
    time_cause_text,
    time_census_text,
    time_remarks_on,
    title_of,
)
from pytest_torchprof.report.page.document import as_json, compressed, document, text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pytest_torchprof.history.changes import HistoryEvent
    from pytest_torchprof.history.points import SeriesKey
    from pytest_torchprof.history.record import KernelCount
    from pytest_torchprof.history.runs import BranchRuns
    from pytest_torchprof.history.series import Series
    from pytest_torchprof.history.times import JudgedTimes, TimeEvent

_LONGEST: Final = 4000
"""How much of a paragraph is shown."""
_MOST_LISTED: Final = 200
"""How many tests or kernels of one event are listed."""


def history_page(
    branch: BranchRuns,
    all_series: Sequence[Series],
    events: Sequence[HistoryEvent],
    judged: Sequence[JudgedTimes],
    time_events: Sequence[TimeEvent],
) -> str:
    """Return the page, on which a series is drawn as its stretches without a change, not as points."""
    measured = sorted(set(branch.commit_of))
    drawn = _Drawing(branch, measured)
    at = drawn.of_commit
    of_series: defaultdict[SeriesKey, list[int]] = defaultdict(list)
    for number, event in enumerate(events):
        for key in dict.fromkeys(change.key for change in event.changes):
            of_series[key].append(number)
    # Steps of times come behind the changes of counts in the list of events.
    of_step = {id(step): number for number, event in enumerate(time_events, start=len(events)) for step in event.steps}
    times: defaultdict[SeriesKey, list[dict[str, Any]]] = defaultdict(list)
    for own in judged:
        times[own.times.key].append(_times(own, of_step, drawn))
    shown = [_series(series, of_series.get(series.key, []), times.get(series.key, []), drawn) for series in all_series]
    listed = [_event(event, branch, at) for event in events]
    listed += [_time_event(event, branch, at) for event in time_events]
    # What changed last comes first.
    shown.sort(key=lambda row: (-max((listed[number]["at"] for number in _events_of(row)), default=-1), row["name"]))
    known = {name for row in shown for segment in row["segments"] for name in segment["counts"]}
    index = {
        "commits": [branch.commits[commit] for commit in measured],
        "dates": drawn.dates,
        "numbers": [[name, BY_NAME[name].title, BY_NAME[name].noun] for name in EXACT if name in known],
        "series": shown,
        "events": listed,
        "remarks": {sha: branch.notes.remarks[sha] for sha in at if sha in branch.notes.remarks},
    }
    paragraphs = [*heading_texts(branch), *census_texts(all_series), time_census_text(judged)]
    return page_of(branch.branch, paragraphs, index)


def page_of(branch: str, paragraphs: Iterable[str], index: Mapping[str, Any]) -> str:
    """Return the page of a branch that says this at its head, and draws what is in the index."""
    body = (
        '<a class="skip" href="#series">Skip to the tests</a>'
        f'<header><h1><span class="brand">torchprof</span> History of {text(branch)}</h1>'
        f"{''.join(f'<p>{text(paragraph, _LONGEST)}</p>' for paragraph in paragraphs)}</header>"
        "<noscript><p>What is below needs JavaScript.</p></noscript>"
        '<main><div class="tools" id="tools"></div><div id="series" tabindex="-1"></div></main>'
    )
    return document(
        title=f"torchprof: history of {branch}",
        body=body,
        payloads={"index": compressed(as_json(index))},
        scripts=("words.js", "history.js"),
        styles=("style.css", "history.css"),
    )


class _Drawing:
    """The positions of a branch's runs on the page: the measured commits side by side."""

    def __init__(self, branch: BranchRuns, measured: Sequence[int]) -> None:
        self.of_commit = {branch.commits[commit]: number for number, commit in enumerate(measured)}
        """The number of each measured commit."""
        self._at = [self.of_commit[branch.commits[commit]] for commit in branch.commit_of]
        self.dates = [""] * len(measured)
        on: dict[tuple[str, str], set[int]] = {}
        machines = Machines(branch.runs)
        for number, run in zip(self._at, branch.runs, strict=True):
            self.dates[number] = "" if run.commit is None else run.commit.date.date().isoformat()
            for machine in machines.all_of(run):
                on.setdefault(("machine", machine), set()).add(number)
            for environment in run.environments:
                on.setdefault(("hardware", hardware_of(environment)), set()).add(number)
        self._on = {own: sorted(measured) for own, measured in on.items()}

    def spans(self, on: tuple[str, str], runs: Iterable[int]) -> list[tuple[int, int]]:
        """Return the first and the last commit of what was measured without a gap on a hardware or a machine."""
        measured = self._on.get(on, [])
        spans: list[tuple[int, int]] = []
        for number in sorted({self._at[index] for index in runs}):
            if spans and bisect_left(measured, number) == bisect_left(measured, spans[-1][1]) + 1:
                spans[-1] = (spans[-1][0], number)
            else:
                spans.append((number, number))
        return spans


def _events_of(row: dict[str, Any]) -> list[int]:
    """Return the numbers of the events of a series, of counts and of times."""
    return [*row["events"], *(step["event"] for times in row["times"] for step in times["steps"])]


def _series(series: Series, events: Sequence[int], times: Sequence[dict[str, Any]], drawn: _Drawing) -> dict[str, Any]:
    key = series.key
    segments: list[dict[str, Any]] = []
    for segment in unchanged_stretches(series):
        counts = {name: value for stretch in segment for name, value in stretch.measured.counts.items()}
        segments.append(
            {
                "spans": drawn.spans(
                    ("hardware", key.hardware), chain.from_iterable(stretch.indices for stretch in segment)
                ),
                "counts": {name: counts[name] for name in EXACT if name in counts},
                "torch": segment[-1].versions.torch,
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
        "times": times,
    }


def _times(judged: JudgedTimes, of_step: Mapping[int, int], drawn: _Drawing) -> dict[str, Any]:
    """Return the times of a series on one machine: the medians between steps, and in which commits each step lies."""
    times, at = judged.times, drawn.of_commit
    ends = [*accumulate(segment.count for segment in judged.segments)]
    return {
        "title": title_of(times),
        "machine": machine_of(times),
        "could_show": could_show(judged),
        "is_long_enough": judged.smallest is not None,
        "segments": [
            {
                "spans": drawn.spans(("machine", times.machine), times.runs[end - segment.count : end]),
                "us": float(f"{segment.median_us:.6g}"),
            }
            for end, segment in zip(ends, judged.segments, strict=True)
        ],
        "steps": [
            {
                "event": of_step[id(step)],
                "moved": moved_text(step),
                "at": at[segment.first.commit],
                "from": at[step.before.commit],
                "to": at[step.after.commit],
            }
            for step, segment in zip(judged.steps, judged.segments[1:], strict=True)
        ],
    }


def _time_event(event: TimeEvent, branch: BranchRuns, at: Mapping[str, int]) -> dict[str, Any]:
    return {
        "id": time_event_id(event)[:SHOWN],
        "kind": "step of times",
        "at": at[event.after],
        "cause": time_cause_text(event),
        "commits": event.commits or (),
        "of": len({step.times.key.test for step in event.steps}),
        "tests": step_texts(event, branch.notes)[:_MOST_LISTED],
        "more": max(0, len(event.steps) - _MOST_LISTED),
        "came": (),
        "went": (),
        "command": (time_bisect_line(event) or "").strip() or None,
        "remarks": time_remarks_on(event, branch.notes),
    }


def _event(event: HistoryEvent, branch: BranchRuns, at: Mapping[str, int]) -> dict[str, Any]:
    texts = change_texts(event, branch.notes)
    return {
        "id": event_id(event)[:SHOWN],
        "kind": "change",
        "at": at[event.after],
        "cause": cause_text(event),
        "commits": event.commits or (),
        "of": len({change.key.test for change in event.changes}),
        "tests": texts[:_MOST_LISTED],
        "more": max(0, len(texts) - _MOST_LISTED),
        "came": _kernels(event.came),
        "went": _kernels(event.went),
        "command": bisect_line(event, event.changes[0].key).strip() if event.cause is Cause.RANGE else None,
        "remarks": remarks_on(event, branch.notes),
    }


def _kernels(kernels: Sequence[KernelCount]) -> list[tuple[str, int]]:
    return [(kernel.name, kernel.count) for kernel in kernels[:_MOST_LISTED]]
