"""``torchprof history accept|alias|note``: what people say of a history, which its answers show and keep to."""

from __future__ import annotations

import sys
from collections import defaultdict
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from pytest_torchprof.cli.history_read import (
    add_choice_of_runs,
    believed,
    no_such_test,
    read_branch,
    store_that_is_there,
)
from pytest_torchprof.history.changes import events_of
from pytest_torchprof.history.event_ids import SHOWN, change_id, changes_id, step_id, time_event_id
from pytest_torchprof.history.notes import ALL_OF, LONGEST, NoteKind, note_now, notes_by_subject
from pytest_torchprof.history.project import project_at
from pytest_torchprof.history.series import all_lacking, all_stopped
from pytest_torchprof.history.store import heads_of, records_of
from pytest_torchprof.history.times import judged_times, time_events
from pytest_torchprof.reasons.errors import TorchprofError
from pytest_torchprof.reasons.history_asked import TooFewDigits
from pytest_torchprof.reasons.history_asked_notes import (
    NameOfNoTest,
    NameTakenBack,
    NoRecordOfProject,
    NoRemote,
    NothingOfId,
    OneForMany,
    SeveralOfId,
    TextLength,
    TwoTests,
)
from pytest_torchprof.text import counted, printable
from pytest_torchprof.text.suggestions import near

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable, Collection

    from pytest_torchprof.cli import Parser
    from pytest_torchprof.history.changes import SeriesChange
    from pytest_torchprof.history.points import SeriesKey
    from pytest_torchprof.history.runs import BranchRuns
    from pytest_torchprof.history.series import Series
    from pytest_torchprof.history.store import Store

_SHORTEST: Final = 4
"""How many digits name a commit or an event at least."""


def add_commands(add: Callable[[str, Callable[[Namespace], int], str], Parser]) -> None:
    """Declare the commands."""
    accept = add("accept", _accept, "mark a change as known: --fail-on passes it from now on")
    accept.add_argument("event", metavar="EVENT", help="its id, as torchprof history changes prints it")
    accept.add_argument("reason", metavar="REASON", help="why it may stay, which is shown beside it")
    alias = add(
        "alias",
        _alias,
        "join the series of a test that was renamed with those under its new name, or the records of a renamed project",
    )
    alias.add_argument("old", metavar="OLD", help="the node id that it had; FILE::* and FILE::CLASS::* are all below")
    alias.add_argument("new", metavar="NEW", help="the node id that it has now; OLD again takes the alias back")
    alias.add_argument(
        "--project",
        action="store_true",
        help="OLD and NEW are no tests, but the address of the repository's remote before it was renamed, and now",
    )
    note = add("note", _note, "add a remark on a commit or a change, which log, changes and the page show")
    note.add_argument("subject", metavar="COMMIT|EVENT", help="a commit's hash or a change's id, or their beginning")
    note.add_argument("text", metavar="TEXT", help="the remark")
    for own in (accept, note):
        add_choice_of_runs(own)


def _accept(arguments: Namespace) -> int:
    store = store_that_is_there(arguments.store)
    reason = _limited(arguments.reason, "REASON")
    branch, all_series = read_branch(arguments)
    subjects = _subjects(branch, all_series)
    event = _the_one(arguments.event, subjects)
    subject = subjects[event]
    for part in subject.parts:
        store.add_note(note_now(NoteKind.ACCEPTED, part, reason))
    sys.stdout.write(f"{event[:SHOWN]}: known from now on, in {counted(len(subject.tests), 'test')}\n")
    return 0


class _Subject(Struct, frozen=True):
    """The subject that can be accepted or remarked on under one id."""

    parts: frozenset[str]
    """The ids of its changes, or of its steps of times."""
    tests: frozenset[str]


def _subjects(branch: BranchRuns, all_series: list[Series]) -> dict[str, _Subject]:
    """Return all that ``changes`` and ``log`` show with an id, by this id."""
    subjects: dict[str, _Subject] = {}
    for event in events_of(branch, all_series):
        of_series: defaultdict[SeriesKey, list[SeriesChange]] = defaultdict(list)
        for change in event.changes:
            of_series[change.key].append(change)
        # log shows the changes of a series by themselves, and changes --json each of them.
        for changes in (event.changes, *of_series.values(), *([change] for change in event.changes)):
            parts = frozenset(map(change_id, changes))
            subjects[changes_id(changes)] = _Subject(parts, frozenset(change.key.test for change in changes))
    for steps in time_events(branch, judged_times(branch, all_series)):
        tests = frozenset(step.times.key.test for step in steps.steps)
        subjects[time_event_id(steps)] = _Subject(frozenset(map(step_id, steps.steps)), tests)
    for stopped in all_stopped(all_series):
        tests = frozenset(series.key.test for series in all_series if series.stopped == stopped)
        subjects[stopped.id] = _Subject(frozenset([stopped.id]), tests)
    for lacking in all_lacking(all_series):
        subjects[lacking.id] = _Subject(frozenset([lacking.id]), frozenset([lacking.key.test]))
    return subjects


def _alias(arguments: Namespace) -> int:
    store = store_that_is_there(arguments.store)
    old, new = _limited(arguments.old, "OLD"), _limited(arguments.new, "NEW")
    if arguments.project:
        old, new = _project(old, "OLD"), _project(new, "NEW")
        _refuse_unknown_project(store, old)
        kind = NoteKind.PROJECT
    else:
        _warn_of_unknown(new, _refuse_two_tests(store, old, new) - {old})
        kind = NoteKind.ALIAS
    note = note_now(kind, old, new)
    # Whatever this note replaces leads nowhere any more.
    others = notes_by_subject([*(own for own in believed(store.notes()) if own.key != note.key)])
    now = others.project_now if arguments.project else others.name_now
    if old != new and now(new) == old:
        raise TorchprofError.because(NameTakenBack(old, new))
    store.add_note(note)
    answer = f"{old}: no other name any more" if old == new else f"{old} is {new} now"
    sys.stdout.write(f"{printable(answer)}\n")
    return 0


def _project(address: str, name: str) -> str:
    project = project_at(address)
    if project is None:
        raise TorchprofError.because(NoRemote(name, address))
    return project


def _refuse_unknown_project(store: Store, name: str) -> None:
    """Raise TorchprofError for a project that no record names."""
    commits = (head.commit for head in believed(heads_of(store)))
    names = {commit.project for commit in commits if commit is not None and commit.project is not None}
    if name not in names:
        raise TorchprofError.because(NoRecordOfProject(name, tuple(sorted(names))))


def _refuse_two_tests(store: Store, old: str, new: str) -> set[str]:
    """Return the tests of all runs; TorchprofError for an old name that none has, and where a run has both."""
    if old.endswith(ALL_OF) != new.endswith(ALL_OF):
        raise TorchprofError.because(OneForMany(old, new))
    renamed = notes_by_subject([note_now(NoteKind.ALIAS, old, new)])
    names: set[str] = set()
    both = None
    for record in believed(records_of(store)):
        tests = {measured.test for measured in record.measurements}
        names |= tests
        for test in tests:
            if (later := renamed.later_name(test)) != test and later in tests:
                both = record.uuid, test, later
    for name in (old, new):
        if "::" not in name and name not in names:
            raise TorchprofError.because(NameOfNoTest(name, is_file=name.endswith(".py")))
    if not any(_is_meant(old, test) for test in names):
        raise no_such_test(old, names)
    if both is not None:
        raise TorchprofError.because(TwoTests(*both))
    return names


def _is_meant(name: str, test: str) -> bool:
    """Whether a test is the one of this name, or one of those that it stands for."""
    return test == name or (name.endswith(ALL_OF) and test.startswith(name[:-1]))


def _warn_of_unknown(new: str, names: Collection[str]) -> None:
    """Say that no run has a test yet that others are to be joined with; it may still come."""
    if not any(_is_meant(new, test) for test in names):
        meant = near(new, names)
        hint = "" if meant is None else f"; did you mean {meant!r}?"
        sys.stderr.write(f"torchprof history: {printable(f'no run has measured {new} yet{hint}')}\n")


def _note(arguments: Namespace) -> int:
    store = store_that_is_there(arguments.store)
    text = _limited(arguments.text, "TEXT")
    branch, all_series = read_branch(arguments)
    subjects = _subjects(branch, all_series)
    subject = _the_one(arguments.subject, [*subjects, *branch.commits], or_commit=True)
    # An event has another id as soon as it has another test: what is said is said of its parts.
    for part in subjects[subject].parts if subject in subjects else [subject]:
        store.add_note(note_now(NoteKind.REMARK, part, text))
    sys.stdout.write(f"{'event' if subject in subjects else 'commit'} {subject[:SHOWN]}: noted\n")
    return 0


def _the_one(beginning: str, ids: Collection[str], *, or_commit: bool = False) -> str:
    """Return the id that begins so; TorchprofError for none and for several."""
    known = sorted({known for known in ids if known.startswith(beginning.lower())})
    if len(beginning) < _SHORTEST:
        raise TorchprofError.because(TooFewDigits(beginning, _SHORTEST))
    if not known:
        raise TorchprofError.because(NothingOfId(beginning, or_commit=or_commit))
    if len(known) > 1:
        raise TorchprofError.because(SeveralOfId(beginning, len(known)))
    return known[0]


def _limited(text: str, name: str) -> str:
    if not text.strip() or len(text) > LONGEST:
        raise TorchprofError.because(TextLength(name, len(text) if text.strip() else 0, LONGEST))
    # What is no UTF-8 on a command line is a lone surrogate, which JSON does not have.
    return text.encode(errors="backslashreplace").decode()
