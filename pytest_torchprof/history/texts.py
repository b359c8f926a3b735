"""The texts of a history, as lines: the changes of a branch, one test's series, and since when a condition holds."""

from __future__ import annotations

import shlex
from collections import Counter
from typing import TYPE_CHECKING, Final

from pytest_torchprof.analysis.numbers import BY_NAME
from pytest_torchprof.history.changes import Cause, State, unchanged
from pytest_torchprof.history.event_ids import SHOWN, accepted_because, change_id, event_id, remarks_on_changes
from pytest_torchprof.history.lacking import projects_behind
from pytest_torchprof.history.renamed import old_names_again
from pytest_torchprof.history.runs import OrderedBy
from pytest_torchprof.history.series import all_lacking, all_stopped
from pytest_torchprof.text import and_more, counted, first_of, printable, printable_line
from pytest_torchprof.text.tables import Column, table_lines
from pytest_torchprof.text.wrapping import wrapped

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from pytest_torchprof.history.changes import BranchEvent, HistoryEvent, SeriesChange
    from pytest_torchprof.history.lacking import LackingSeries
    from pytest_torchprof.history.notes import Notes
    from pytest_torchprof.history.points import Point, SeriesKey
    from pytest_torchprof.history.record import KernelCount
    from pytest_torchprof.history.rows_differ import OtherRow, RowsDiffer
    from pytest_torchprof.history.runs import BranchRuns
    from pytest_torchprof.history.series import Series
    from pytest_torchprof.history.since import ConditionAnswer, Interval
    from pytest_torchprof.history.stopped import StoppedHardware

_BARS: Final = "▁▂▃▄▅▆▇█"
_MOST_BARS: Final = 60
_INDENT: Final = "    "
_MOST_LACKING: Final = 10
"""How many series are named that the newest run did not measure."""
_MOST_ROWS: Final = 5
"""How many rows are named that differ from a record."""
_BESIDE: Final = ("kernels", "launches", "memcpys", "syncs", "graph_breaks")
"""The numbers that stand beside the one that is drawn."""
_ORDER: Final[Mapping[OrderedBy, str]] = {
    OrderedBy.GIT: "in the order of git's first parents",
    OrderedBy.ANCESTRY: "in the order of the ancestry that the records hold",
    OrderedBy.DATES: "in the order of their dates: no ancestry connects them all, --git DIR tells it",
}
_STATE: Final[Mapping[State, str]] = {
    State.CONFIRMED: "",
    State.LATEST: "one run has it so far",
    State.UNSTEADY: "runs of this commit disagree",
}


def heading_lines(branch: BranchRuns, width: int) -> list[str]:
    """Return a summary of a branch's history and of the runs that are left out, as lines."""
    lines = [line for text in heading_texts(branch) for line in wrapped(text, "", width=width)]
    return [printable(line) for line in lines]


def heading_texts(branch: BranchRuns) -> list[str]:
    """Return a summary of a branch's history and of the runs that are left out, as paragraphs."""
    commits = len({run.commit.sha for run in branch.runs if run.commit is not None})
    held = f"{branch.branch}: {counted(len(branch.runs), 'run')} of {counted(commits, 'commit')}"
    parts = [f"{count} ({why})" for why, count in branch.left_out.items()]
    left_out = [f"runs that are no points of it: {', '.join(parts)}"] if parts else []
    notices = (
        (branch.not_in_git, "but not among its first parents in the clone", "git fetch brings them"),
        (branch.not_pushed, "by runs outside CI, and known to no run of CI", "they are no points of it"),
        (branch.diverged, "but aside from it in the clone", "they are no points of it"),
    )
    named = [
        f"measured on {branch.branch}, {where}: {first_of([sha[:7] for sha in shas])}; {therefore}"
        for shas, where, therefore in notices
        if shas
    ]
    return [
        f"{held}, {_ORDER[branch.ordered_by]}",
        *left_out,
        *named,
        *_ci_pause_texts(branch),
        *_ahead_texts(branch),
        *_behind_texts(branch),
    ]


def _ci_pause_texts(branch: BranchRuns) -> list[str]:
    """Return that CI may have left the branch, which leaves open what its newest code launches."""
    pause = branch.ci_pause
    if pause is None:
        return []
    last = f"{pause.last[:7]} ({pause.since.date().isoformat()})"
    ahead = first_of([sha[:7] for sha in pause.ahead])
    since = f"CI has measured nothing on {branch.branch} since {last}, for longer than is usual"
    return [f"{since}, while runs outside CI went on from there: {ahead}; what these launch is not judged"]


def _ahead_texts(branch: BranchRuns) -> list[str]:
    """Return that none of the newest commits was measured, and what that leaves open."""
    if not branch.ahead:
        return []
    if not branch.runs:
        return [f"no commit of {branch.branch} was measured"]
    commits = [sha[:7] for sha in branch.ahead[::-1]]
    since = f"{branch.runs[-1].commit.sha[:7]}: " if branch.runs[-1].commit is not None else ""
    due = "; this job of CI was to measure the newest of them" if branch.newest_was_due else ""
    return [f"not measured yet, {counted(len(commits), 'commit')} after {since}{first_of(commits)}{due}"]


def _behind_texts(branch: BranchRuns) -> list[str]:
    """Return which projects of the repository the newest runs did not measure."""
    behind = [f"{own.folder or 'its root'}, last at {own.last[:7]}" for own in projects_behind(branch)]
    return (
        [f"not measured at the newest commit, of the projects of the repository: {first_of(behind)}"] if behind else []
    )


def event_lines(event: HistoryEvent, notes: Notes, width: int) -> list[str]:
    """Return an event: its commit or commits, the tests that it changed, and the kernels that came and went."""
    date = event.changes[0].after.run.commit
    when = "" if date is None else f"{date.date.date().isoformat()}  "
    lines = wrapped(f"{when}{cause_text(event)}  [{event_id(event)[:SHOWN]}]", _INDENT, first="", width=width)
    for change in change_texts(event, notes):
        lines += wrapped(change, f"{_INDENT}  ", first=_INDENT, width=width)
    for word, kernels in (("came", event.came), ("went", event.went)):
        if kernels:
            lines += wrapped(f"{word}: {_kernels(kernels)}", f"{_INDENT}  ", first=_INDENT, width=width)
    for word, text in remarks_on(event, notes):
        lines += wrapped(f"{word}: {text}", f"{_INDENT}  ", first=_INDENT, width=width)
    lines = [printable(line) for line in lines]
    if event.cause is Cause.RANGE:
        lines.append(bisect_line(event, event.changes[0].key))
    return lines


def bisect_line(event: BranchEvent, key: SeriesKey) -> str:
    """Return the command that finds the commit among those of an event, in one line, so that it can be pasted."""
    test = shlex.quote(printable(key.test))
    return f"{_INDENT}torchprof bisect --changed {test} --good {event.before[:12]} --bad {event.after[:12]}"


def remark_lines(branch: BranchRuns, width: int) -> list[str]:
    """Return the remarks on commits of a branch, oldest commit first."""
    remarks = [(sha, text) for sha in branch.commits for text in branch.notes.remarks.get(sha, ())]
    lines = [line for sha, text in remarks for line in wrapped(f"{sha[:7]}: {text}", "  ", first="", width=width)]
    return [printable(line) for line in lines]


def census_lines(all_series: Sequence[Series], width: int) -> list[str]:
    """Return how much was judged, and what is missing."""
    lines = [line for text in census_texts(all_series) for line in wrapped(text, "  ", first="", width=width)]
    return [printable(line) for line in lines]


def census_texts(all_series: Sequence[Series]) -> list[str]:
    """Return how much was judged, and what is missing, as paragraphs."""
    points = sum(series.count for series in all_series)
    gaps: dict[str, int] = {}
    for series in all_series:
        for why, count in series.gaps.items():
            gaps[why] = gaps.get(why, 0) + count
    missing = sum(series.missing for series in all_series)
    parts = [f"{count} {why}" for why, count in sorted(gaps.items())] + ([f"{missing} missing"] if missing else [])
    gapped = f"; gaps: {', '.join(parts)}" if parts else "; no gaps"
    judged = f"judged: {counted(points, 'measurement')} in {len(all_series)} series{gapped}"
    removed = {series.key.test: series.removed_at for series in all_series if series.removed_at is not None}
    gone = [f"{test} (not in {commit[:7]})" for test, commit in removed.items()]
    removed_text = [f"removed: {first_of(gone)}"] if gone else []
    return [judged, *removed_text, *stopped_texts(all_series), *lacking_texts(all_series), *_old_name_texts(all_series)]


def _old_name_texts(all_series: Sequence[Series]) -> list[str]:
    """Return which tests have an earlier name again, and the command that takes each for a test of its own."""
    return [
        f"{own.old}, since {own.since[:7]}, counts as {own.now} by the alias of {own.alias}, which had another name by "
        f"then; if it is another test: torchprof history alias STORE {shlex.quote(own.old)} {shlex.quote(own.old)}"
        for own in old_names_again(all_series)
    ]


def lacking_texts(all_series: Sequence[Series]) -> list[str]:
    """Return which series the newest run was to measure and did not, with the id under which each can be accepted."""
    lacking = all_lacking(all_series)
    texts = [_lacking(own, all_series[0].branch.notes) for own in lacking[:_MOST_LACKING]]
    left_out = len(lacking) - len(texts)
    return [*texts, *([f"not measured at the newest commit:{and_more(left_out)} (--json)"] if left_out else [])]


def _lacking(lacking: LackingSeries, notes: Notes) -> str:
    known, last = notes.accepted.get(lacking.id), lacking.last
    until = "never before" if last is None else f"last at {last.commit[:7]} ({date_of(last)})"
    named = f"not measured at the newest commit: {lacking.key.name} ({lacking.key.hardware or 'hardware not known'})"
    return f"{named}, {until}  [{lacking.id[:SHOWN]}]{'' if known is None else f'; known: {known}'}"


def stopped_texts(all_series: Sequence[Series]) -> list[str]:
    """Return on what nothing is measured any more, with the id under which it can be accepted."""
    return [_stopped(stopped, all_series[0].branch.notes) for stopped in all_stopped(all_series)]


def _stopped(stopped: StoppedHardware, notes: Notes) -> str:
    known = notes.accepted.get(stopped.id)
    lacking = f"{counted(stopped.runs, 'run')} of this branch came later and did not measure on it"
    last = f"last at {stopped.until[:7]} ({stopped.date.date().isoformat()})"
    missed = f"missed since {stopped.missed_from[:7]} ({stopped.missed_date.date().isoformat()})"
    named = f"not measured any more: {stopped.hardware or 'any CPU'}, {last}, {missed}"
    return f"{named}; {lacking}  [{stopped.id[:SHOWN]}]{'' if known is None else f'; known: {known}'}"


def log_lines(series: Series, number: str, width: int, is_shown: Callable[[Point], bool]) -> list[str]:
    """Return a series: a sparkline of a number, and a row for each stretch of runs in which nothing changed.

    What is missing is that of the whole series, whichever of its points are shown.
    """
    points = [point for point in series.points if is_shown(point)]
    rows = [[point for point in row if is_shown(point)] for row in unchanged(series)]
    known = [point.measured.counts[number] for point in points if number in point.measured.counts]
    shown = BY_NAME[number]
    line = f"{shown.title} {sparkline(known)}  {shown.show(min(known))} to {shown.show(max(known))}" if known else ""
    heading = f"{series.key.name}   {series.key.hardware}, device {series.key.device}"
    names = (number, *(name for name in _BESIDE if name != number))
    known_names = {name for point in points for name in point.measured.counts}
    columns = [
        Column("commits", _commits, "left"),
        Column("date", lambda points: date_of(points[0]), "left", leaves=2),
        Column("runs", lambda points: str(len(points))),
        *(_number_column(name) for name in names if name in known_names),
        Column("torch", lambda points: printable_line(points[-1].environment.torch or "-"), "left", leaves=1),
    ]
    table = table_lines([row for row in rows if row], columns, width) if points else ["no run that is asked for"]
    lines = [printable(heading), *([line] if line else []), *table]
    gaps = ", ".join(f"{count} {why}" for why, count in sorted(series.gaps.items()))
    missing = f"{series.missing} missing" if series.missing else ""
    lacking = ", ".join(filter(None, [gaps, missing]))
    gone = [] if series.removed_at is None else [f"removed: {series.removed_at[:7]} does not have it any more"]
    return [
        *lines,
        *([printable(f"gaps: {lacking}")] if lacking else []),
        *gone,
        *map(printable, [*stopped_texts([series]), *lacking_texts([series])]),
    ]


def when_lines(series: Series, answers: Sequence[ConditionAnswer], condition: str, width: int) -> list[str]:
    """Return in which commits a condition holds in a series, for each of the versions that are side by side."""
    lines = [f"{series.key.name}   {series.key.hardware}"]
    for answer in answers:
        versions = "".join(f", {name} {value}" for name, value in answer.versions.items())
        asked = f"{condition}{versions}"
        for interval in answer.intervals:
            lines += wrapped(_interval(interval, asked), _INDENT, first="  ", width=width)
        if not answer.intervals:
            never = f"never, in {counted(answer.known, 'run')}" if answer.known else "not known: no run has measured it"
            lines.append(f"  {asked}: {never}")
    stopped = stopped_texts([series])
    for text in stopped:
        lines += wrapped(text, _INDENT, first="  ", width=width)
    if not stopped and any(answer.known and not answer.newest_is_known for answer in answers):
        lines.append("  not known of the newest commit, which was not measured")
    return [printable(line) for line in lines]


def _interval(interval: Interval, condition: str) -> str:
    first = f"{interval.first.commit[:7]} ({date_of(interval.first)})"
    if interval.before is None:
        since = f"from the first run on, {first}"
    else:
        value = BY_NAME[interval.number].show(interval.before.measured.counts[interval.number])
        since = f"since {first}; {interval.before.commit[:7]} before it had {value}"
    since += _not_measured(interval.gaps_before)
    until = "" if interval.until is None else f", until {interval.until.commit[:7]} ({date_of(interval.until)})"
    until += _not_measured(interval.gaps_until)
    disagree = "; runs of one commit disagree" if interval.disagree else ""
    return f"{condition}: {since}{until}{disagree}"


def _not_measured(runs: int) -> str:
    """Return that runs in between do not tell."""
    return f" ({counted(runs, 'run')} in between did not measure it)" if runs else ""


def remarks_on(event: HistoryEvent, notes: Notes) -> list[tuple[str, str]]:
    """Return the remarks on an event and on the commits that can have made it."""
    return with_remarks(accepted_because(event, notes), remarks_on_changes(event, notes), event, notes)


def with_remarks(
    accepted: str | None, remarks: Iterable[str], event: BranchEvent, notes: Notes
) -> list[tuple[str, str]]:
    """Return why an event is accepted, if it is, the remarks on it, and those on the commits that can have made it."""
    of_commits = [text for sha in event.commits or (event.after,) for text in notes.remarks.get(sha, ())]
    return [*([] if accepted is None else [("known", accepted)]), *(("note", text) for text in (*remarks, *of_commits))]


def cause_text(event: BranchEvent) -> str:
    """Return the possible cause of an event, with its commits."""
    before, after = event.before[:7], event.after[:7]
    if event.cause is Cause.NONE:
        machines = f" ({_moved(event)})" if event.moved else ""
        return f"{after}: unsteady, its runs disagree with the same versions{machines}"
    if event.cause is Cause.ENVIRONMENT:
        return f"{after}: {_moved(event)}, at the same commit"
    where = f"between {before} and {after}" if event.commits is None else _commits_text(event)
    if event.cause is Cause.UNDECIDABLE:
        return f"{where}, or {_moved(event)}: both changed"
    return f"{where}: the test itself was edited" if event.cause is Cause.TEST else where


def _commits_text(event: BranchEvent) -> str:
    commits = event.commits or ()
    if len(commits) == 1:
        return f"{event.after[:7]}, after {event.before[:7]}"
    return f"one of {len(commits)} commits after {event.before[:7]}: {first_of([sha[:7] for sha in commits])}"


def _moved(event: BranchEvent) -> str:
    return ", ".join(f"{name} {old} -> {new}" for name, (old, new) in event.moved.items())


def change_texts(event: HistoryEvent, notes: Notes) -> list[str]:
    """Return the change of each test at an event; where only some are accepted, the reason stands beside each of these.

    The same change with several versions that run side by side is said once.
    """
    all_known = accepted_because(event, notes) is not None
    reasons = [None if all_known else notes.accepted.get(change_id(change)) for change in event.changes]
    alike = Counter(
        f"{_change(change, event)}{'' if why is None else f'; known: {why}'}"
        for change, why in zip(event.changes, reasons, strict=True)
    )
    return [text if count == 1 else f"{text}; alike with {counted(count, 'version')}" for text, count in alike.items()]


def _change(change: SeriesChange, event: HistoryEvent) -> str:
    numbers = [
        f"{BY_NAME[name].title} {BY_NAME[name].show(old)} -> {BY_NAME[name].show(new)}"
        for name, (old, new) in change.numbers.items()
    ]
    what = ", ".join(numbers) or "other kernels, as many as before"
    undone = f"undone at {change.undone_at[:7]}" if change.undone_at else _STATE[change.state]
    before, after = change.before.commit, change.after.commit
    # What its own measurements leave is more than the event's commits.
    own = "" if (before, after) == (event.before, event.after) else f"measured at {before[:7]} and {after[:7]}"
    return "; ".join(filter(None, [f"{change.key.name} ({change.key.hardware}): {what}", own, undone]))


def _kernels(kernels: Sequence[KernelCount]) -> str:
    return first_of([f"{kernel.count} x {kernel.name}" for kernel in kernels], most=6)


def _commits(points: Sequence[Point]) -> str:
    first, last = points[0].commit[:7], points[-1].commit[:7]
    return first if first == last else f"{first}..{last}"


def date_of(point: Point) -> str:
    """Return the day of its commit."""
    return "-" if point.run.commit is None else point.run.commit.date.date().isoformat()


def _number_column(name: str) -> Column:
    number = BY_NAME[name]
    return Column(number.title, lambda points: number.show(points[-1].measured.counts.get(name)), leaves=3)


def sparkline(values: Sequence[float]) -> str:
    """Return a bar for each value, as high as it is among all of them; of more than fit, those of the newest."""
    low, high = min(values), max(values)
    steps = len(_BARS) - 1
    newest = values[-_MOST_BARS:]
    return "".join(_BARS[0 if high == low else round((value - low) / (high - low) * steps)] for value in newest)


def differing_lines(differing: RowsDiffer) -> list[str]:
    """Return which rows of a database are not those that a record makes, and what differs in them."""
    lines = [f"{differing.record}: {_differing_text(row)}" for row in differing.rows[:_MOST_ROWS]]
    more = len(differing.rows) - len(lines)
    return [*lines, f"{differing.record}:{and_more(more)}"] if more else lines


def _differing_text(row: OtherRow) -> str:
    named = f"table {row.table}, row {row.row}"
    if row.is_missing:
        return f"{named} is missing"
    if row.of_no_record:
        return f"{named} is of no record"
    columns = (
        f"{name} is {printable_line(str(there))}, in the record {printable_line(str(meant))}"
        for name, (there, meant) in row.columns.items()
    )
    return f"{named}: {'; '.join(columns)}"
