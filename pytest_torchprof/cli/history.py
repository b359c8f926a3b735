"""``torchprof history COMMAND``: what the records of many runs tell: which commit changed what a test launches."""

from __future__ import annotations

import json
import sys
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec import to_builtins

from pytest_torchprof.cli import (
    UNUSABLE,
    UsageError,
    history_files,
    history_notes,
    history_prune,
    history_tables,
    sentence,
)
from pytest_torchprof.cli.history_read import (
    add_choice_of_runs,
    believed,
    day,
    read_branch,
    read_test,
)
from pytest_torchprof.history.belonging import ANYWAY, HistoryProject
from pytest_torchprof.history.changes import events_of
from pytest_torchprof.history.changes_json import changes_in
from pytest_torchprof.history.folder import OUTBOX, HistoryFolder
from pytest_torchprof.history.gate import (
    GateVerdict,
    is_lacking,
    is_since,
    is_unsure,
    joint_verdict,
    verdict_on_counts,
    verdict_on_times,
)
from pytest_torchprof.history.record import BadRecord, Event, RunRecord
from pytest_torchprof.history.series import EXACT
from pytest_torchprof.history.since import answers_of, read_condition
from pytest_torchprof.history.sources import notes_in, records_in
from pytest_torchprof.history.store import StoreUnusable, records_of
from pytest_torchprof.history.stores import store_at
from pytest_torchprof.history.taking import take
from pytest_torchprof.history.texts import (
    census_lines,
    event_lines,
    heading_lines,
    log_lines,
    remark_lines,
    when_lines,
)
from pytest_torchprof.history.time_texts import machine_of, time_census_lines, time_event_lines, time_log_lines
from pytest_torchprof.history.times import judged_times, time_events
from pytest_torchprof.history.where import OBJECT_STORES, Where, where_of
from pytest_torchprof.reasons.command_line import OptionTakes, WrongOption
from pytest_torchprof.reasons.errors import TorchprofError
from pytest_torchprof.reasons.history_asked import NoRecordThere, NotMeasuredThere
from pytest_torchprof.reasons.stores import RecordsStay
from pytest_torchprof.system.remote.addresses import protocol_of
from pytest_torchprof.text import counted, printable
from pytest_torchprof.text.tables import on_screen, terminal_width

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from pytest_torchprof.cli import Parser
    from pytest_torchprof.history.points import Point
    from pytest_torchprof.history.series import Series
    from pytest_torchprof.history.times import JudgedTimes

DONE, UNKNOWN = 0, 3
_STATUS: Final = {GateVerdict.UNCHANGED: DONE, GateVerdict.CHANGED: 1, GateVerdict.UNKNOWN: UNKNOWN}
_RETRIES: Final = 3
"""How often a request is made again that finds out whether a source is the run of a fleet."""

_DESCRIPTION: Final = """\
Reads the records that pytest --torchprof-history=STORE has written: one for each run. Kernel counts are exact, so that
a change is named at the commit that made it, without a threshold. Times are not: a step of theirs is named where chance
does not explain it, and how small a step could be seen is said. STORE is a folder, an SQLite file (runs.db, or
sqlite:///PATH), a PostgreSQL database (postgresql+psycopg://USER@HOST/DATABASE; libpq takes the password from
PGPASSWORD or ~/.pgpass), or a prefix of an object store (s3://BUCKET/PREFIX, gs://BUCKET/PREFIX)."""
_EPILOG: Final = """\
examples:
  pytest --torchprof-history=history
  torchprof history changes history --git .
  torchprof history when history tests/test_mlp.py::test_block 'kernels >= 6'
  torchprof history log history tests/test_mlp.py::test_block
  torchprof history import history artifact.zip --only-event push
  torchprof history merge runs.db history s3://bucket/history

exit status: 0 nothing, or done, 1 changes: something under --fail-on, and verify: rows that differ from their record,
2 cannot read, or bad usage, 3 it cannot be told: changes with --fail-on, and when, where the newest commit was not
measured in full, the order of commits is not known, the clone of --git lacks a measured commit of the branch, or a
record is damaged; changes too where all times are too few for any step, when too where a commit beside the one that it
names was not measured, or its runs disagree"""


def add_arguments(parser: Parser) -> None:
    """Declare the arguments of each of its commands."""
    parser.description = _DESCRIPTION
    parser.epilog = _EPILOG
    commands = parser.add_subparsers(metavar="COMMAND", title="commands", required=True)

    def add(name: str, act: Callable[[Namespace], int], purpose: str) -> Parser:
        own: Parser = commands.add_parser(name, help=purpose, description=sentence(purpose))
        own.set_defaults(act=act)
        own.add_argument("store", type=_where, metavar="STORE", help="where the history is kept")
        return own

    changes = add("changes", _changes, "list which commits changed what tests launch")
    log = add("log", _log, "show one test from commit to commit")
    when = add("when", _when, "say since which commit a condition on a number holds")
    for own in (log, when):
        own.add_argument("test", metavar="TEST", help="pytest's node id, such as tests/test_mlp.py::test_block")
    when.add_argument("condition", metavar="CONDITION", help="such as 'kernels >= 6'")
    log.add_argument(
        "--number", default="kernels", choices=EXACT, metavar="NAME", help="the number that is drawn (kernels)"
    )
    log.add_argument(
        "--machine", metavar="M", help="only the GPU or CPU whose name has M in it, or times of the machine M"
    )
    for own in (changes, log, when):
        add_choice_of_runs(own)
    for own, what in ((changes, "changes"), (log, "runs and changes")):
        own.add_argument("--since", type=day, metavar="DATE", help=f"only {what} of this day or later: 2026-05-01")
    changes.add_argument(
        "--fail-on",
        type=_kinds,
        default=frozenset(),
        metavar="counts,times",
        help="exit with 1 if a change of counts, a step of times, or either is listed that still holds",
    )
    changes.add_argument("--json", action="store_true", help="one JSON object")
    taking = add(
        "import",
        _import,
        "add records that other runs have left: files, folders, ZIP archives, other stores, runs of torchprof fleet",
    )
    taking.add_argument(
        "source",
        nargs="+",
        metavar="FILE|DIR|ZIP|STORE",
        help="where the records are; of torchprof fleet the folder of a run, or its address",
    )
    taking.add_argument(
        "--only-event",
        choices=tuple(Event),
        metavar="EVENT",
        help="leave out runs of other events, such as those of forks, which may call their branch as they like: "
        f"{', '.join(Event)}",
    )
    merge = add("merge", _merge, "add all records of other stores, of whatever kind")
    merge.add_argument("source", nargs="+", metavar="OTHER", help="another store")
    merge.set_defaults(only_event=None)
    push = add("push", _push, f"add the records that wait in {OUTBOX}, and remove them there")
    push.add_argument("--rootdir", type=Path, default=Path(), metavar="DIR", help="pytest's root directory (.)")
    for own in (taking, merge, push):
        own.add_argument(
            ANYWAY,
            dest="anyway",
            action="store_true",
            help="also take records of which it is not known whether they are of this history's project: of runs "
            "outside a repository, or in one without a remote of which the history knows no commit",
        )
    history_notes.add_commands(add)
    history_files.add_commands(add)
    history_prune.add_commands(add)
    history_tables.add_commands(add)


def run(arguments: Namespace) -> int:
    """Run the command; return its exit status."""
    status: int = arguments.act(arguments)
    return status


def _where(text: str) -> Where:
    return where_of(text, Path())


def _kinds(value: str) -> frozenset[str]:
    kinds = frozenset(value.split(","))
    if not kinds <= {"counts", "times"}:
        raise UsageError.because(WrongOption("--fail-on", value, OptionTakes.JUDGED))
    return kinds


def _changes(arguments: Namespace) -> int:
    branch, all_series = read_branch(arguments)
    judged = judged_times(branch, all_series)
    events = [event for event in events_of(branch, all_series) if is_since(event.changes[0].after, arguments.since)]
    steps = [event for event in time_events(branch, judged) if is_since(event.steps[0].after, arguments.since)]
    if arguments.json:
        changes = changes_in(branch, events, all_series, steps, judged)
        sys.stdout.write(json.dumps(to_builtins(changes), indent=1) + "\n")
    else:
        width = terminal_width()
        texts = [event_lines(event, branch.notes, width) for event in events] or [["no change of what tests launch"]]
        time_texts = [time_event_lines(event, branch.notes, width) for event in steps] or [["no step of the times"]]
        census = census_lines(all_series, width) + time_census_lines(judged, width)
        for lines in (heading_lines(branch, width), *texts, *time_texts, census):
            sys.stdout.write("\n".join(lines) + "\n\n")
    lacking = any(is_lacking(series, arguments.since) for series in all_series)
    verdicts = set()
    if "counts" in arguments.fail_on:
        verdicts.add(verdict_on_counts(branch, events, lacking=lacking))
    if "times" in arguments.fail_on:
        verdicts.add(verdict_on_times(branch, judged, steps, lacking=lacking))
    return _STATUS[joint_verdict(verdicts)]


def _log(arguments: Namespace) -> int:
    branch, all_series = read_test(arguments)
    # Who asks for one test asks one question: what is more than chance in it does not depend on the others.
    judged = judged_times(branch, all_series)
    if arguments.machine is not None:
        all_series, judged = _on_machine(arguments.machine, all_series, judged)
    width = terminal_width()

    def is_shown(point: Point) -> bool:
        return is_since(point, arguments.since)

    sys.stdout.write("\n".join(heading_lines(branch, width)) + "\n")
    remarks = remark_lines(branch, width)
    sys.stdout.write("".join(f"{line}\n" for line in ["", *remarks] if remarks))
    for series in all_series:
        blocks = [on_screen("\n".join(log_lines(series, arguments.number, width, is_shown)))]
        blocks += [
            "\n".join(event_lines(event, branch.notes, width))
            for event in events_of(branch, [series])
            if is_shown(event.changes[0].after)
        ]
        own = [times for times in judged if times.times.series is series]
        blocks += [on_screen("\n".join(time_log_lines(times, width, is_shown))) for times in own]
        blocks += [
            "\n".join(time_event_lines(step, branch.notes, width, whole=False))
            for step in time_events(branch, own)
            if is_shown(step.steps[0].after)
        ]
        sys.stdout.writelines(f"\n{block}\n" for block in blocks if block)
    return DONE


def _on_machine(
    name: str, all_series: Sequence[Series], judged: Sequence[JudgedTimes]
) -> tuple[list[Series], list[JudgedTimes]]:
    """Return the series on a GPU or CPU, or those with times on a machine, and the times; TorchprofError for none."""
    word = name.lower()
    own = [
        times
        for times in judged
        if word in times.times.key.hardware.lower()
        or times.times.machine.startswith(word)
        or word == machine_of(times.times)
    ]
    timed = {times.times.key for times in own}
    series = [series for series in all_series if word in series.key.hardware.lower() or series.key in timed]
    if not series:
        known = {
            *(series.key.hardware for series in all_series),
            *(machine_of(times.times) for times in judged),
        }
        raise TorchprofError.because(NotMeasuredThere(name, tuple(sorted(known))))
    return series, own


def _when(arguments: Namespace) -> int:
    condition = read_condition(arguments.condition)
    branch, all_series = read_test(arguments)
    width = terminal_width()
    sys.stdout.write("\n".join(heading_lines(branch, width)) + "\n")
    sure = not is_unsure(branch)
    for series in all_series:
        answers = answers_of(series, condition)
        sys.stdout.write("\n".join(when_lines(series, answers, arguments.condition, width)) + "\n")
        sure &= all(answer.is_sure for answer in answers)
    return DONE if sure else UNKNOWN


def _import(arguments: Namespace) -> int:
    return _take(arguments, _some_records_of)


def _take(arguments: Namespace, records_of_source: Callable[[str], Iterable[RunRecord | BadRecord]]) -> int:
    def records() -> Iterable[RunRecord | BadRecord]:
        return chain.from_iterable(map(records_of_source, arguments.source))

    taken = take(store_at(arguments.store), records, arguments.only_event, anyway=arguments.anyway)
    others = f", {taken.of_other_events} of another event left out" if taken.of_other_events else ""
    counts = f"{counted(taken.added, 'record')} added, {taken.known} known{others}, {len(taken.refused)} refused"
    sys.stdout.write(f"{counts}\n")
    for problem in taken.refused:
        sys.stderr.write(f"torchprof history: refused: {printable(str(problem))}\n")
    return UNUSABLE if taken.refused else DONE


def _some_records_of(source: str) -> Iterator[RunRecord | BadRecord]:
    """Yield the records of a source; BadRecord where it has none, since nobody names an empty source on purpose."""
    is_empty = True
    for record in _records_of(source):
        is_empty = False
        yield record
    if is_empty:
        yield BadRecord.because(NoRecordThere(source))


def _records_of(source: str) -> Iterable[RunRecord | BadRecord]:
    from pytest_torchprof.fleet.folder import folder_of_run  # noqa: PLC0415 - slow to import
    from pytest_torchprof.fleet.history import run_records_of  # noqa: PLC0415 - as above

    if "://" in source and protocol_of(source) not in OBJECT_STORES:
        return records_in(source)
    with folder_of_run(source, _RETRIES) as fleet:
        return run_records_of(fleet, _print_note) if fleet.has_list else records_in(source)


def _print_note(line: str) -> None:
    sys.stderr.write(f"torchprof history: {printable(line)}\n")


def _merge(arguments: Namespace) -> int:
    # Another store may well hold nothing yet.
    status = _take(arguments, _records_of)
    store = store_at(arguments.store)
    # Artifacts of others are imported, and may bring records alone: what is known is said by who keeps the history.
    notes = chain.from_iterable(map(notes_in, arguments.source))
    added = sum(map(store.add_note, believed(notes)))
    if added:
        sys.stdout.write(f"{counted(added, 'note')} added\n")
    return status


def _push(arguments: Namespace) -> int:
    store, outbox = store_at(arguments.store), HistoryFolder(arguments.rootdir / OUTBOX)
    sent, refused = 0, 0
    waiting = list(believed(records_of(outbox)))
    try:
        project = HistoryProject(store)
        for record in waiting:
            try:
                project.refuse_other(record, anyway=arguments.anyway)
                store.add(record)
            except BadRecord as problem:
                sys.stderr.write(f"torchprof history: stays in {OUTBOX}: {printable(str(problem))}\n")
                refused += 1
            else:
                project.note(record)
                outbox.remove([record.uuid])
                sent += 1
    except StoreUnusable as problem:
        raise StoreUnusable.of(store.shown, RecordsStay(problem.cause, OUTBOX)) from None
    sys.stdout.write(f"{counted(sent, 'record')} added\n")
    return UNUSABLE if refused else DONE
