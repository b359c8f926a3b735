"""Notes of people in a history: a renamed test, an accepted event, a remark on a commit or an event."""

from __future__ import annotations

from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Final

import msgspec
from msgspec import Meta, Struct

from pytest_torchprof.history.digest import digest_of
from pytest_torchprof.history.record import BadRecord, Moment
from pytest_torchprof.reasons.records import NoNote

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

NOTE_SUFFIX: Final = ".note.json"
ALL_OF: Final = "::*"
"""The end of a name that stands for all tests of a file or a class."""
LONGEST: Final = 4000
"""How many characters a name or a text of a note may have."""
Text = Annotated[str, Meta(max_length=LONGEST)]


class NoteKind(StrEnum):
    """The kind of a note."""

    ACCEPTED = "accepted"
    """The change of one test is accepted."""
    ALIAS = "alias"
    """A test has another name now, or all tests of a file or a class have: "old.py::*"."""
    PROJECT = "project"
    """The project has another name now: its repository was renamed, or moved."""
    REMARK = "remark"
    """Something to know of a commit, a change or a step of times."""


class Note(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A note as stores keep it, beside the records."""

    kind: NoteKind
    about: Text
    """The id of a change or of a step of times, a test's or a project's earlier name, or the full hash of a commit."""
    text: Text
    """Why it is known, the name now, or the remark."""
    when: Moment

    @property
    def key(self) -> str:
        """The key of the note: a later note with the same key replaces it."""
        several = [self.text] if self.kind is NoteKind.REMARK else []
        return digest_of([self.kind, self.about, *several])


class Notes(Struct, frozen=True, kw_only=True):
    """The notes of a history by what they are about."""

    accepted: Mapping[str, str] = {}
    """Why a change is known, by its id."""
    aliases: Mapping[str, str] = {}
    """The later node id by the earlier one; these go before ``moved``."""
    moved: Mapping[str, str] = {}
    """How node ids began before, such as "old.py::", with how they begin now, the longest first."""
    projects: Mapping[str, str] = {}
    """The later name of the project by the earlier one."""
    remarks: Mapping[str, tuple[str, ...]] = {}
    """By the hash of a commit or the id of a change or of a step of times, oldest first."""

    def name_now(self, test: str) -> str:
        """Return the node id that a test has now; of names that lead to each other, the one that was given."""
        renamings = len(self.aliases) + len(self.moved)
        return latest_name(test, self.later_name, renamings) if renamings else test

    def project_now(self, project: str) -> str:
        """Return the name that a project has now; of names that lead to each other, the one that was given."""
        return latest_name(project, lambda name: self.projects.get(name, name), len(self.projects))

    def names_of(self, test: str) -> list[str]:
        """Return the node ids that a test has now and had before."""
        names = latest = [test]
        # Each renaming was made once: what came from a file into a class of it was in no such class before.
        for _ in range(len(self.aliases) + len(self.moved)):
            before = dict.fromkeys(old for name in latest for old in self._names_before(name))
            latest = [old for old in before if old not in names and self.name_now(old) == test]
            names = [*names, *latest]
        return names

    def _names_before(self, name: str) -> Iterator[str]:
        yield from (old for old, new in self.aliases.items() if new == name)
        yield from (old + name.removeprefix(new) for old, new in self.moved.items() if name.startswith(new))

    def later_name(self, test: str) -> str:
        """Return the node id that a test got next; its own where it kept that."""
        old, new = self.renaming_of(test)
        return new + test.removeprefix(old)

    def later_names(self, test: str) -> list[str]:
        """Return the node ids that a test got, one after the other, without the one that is given."""
        names = [test]
        while (name := self.later_name(names[-1])) not in names:
            names.append(name)
        return names[1:]

    def renaming_of(self, test: str) -> tuple[str, str]:
        """Return how the node id of a test began before it got the next one, and then; empty where it kept it."""
        if test in self.aliases:
            return test, self.aliases[test]
        # What has moved from a file into a class of it begins as before, and has moved.
        moved = (
            (old, new)
            for old, new in self.moved.items()
            if test.startswith(old) and not (new.startswith(old) and test.startswith(new))
        )
        return next(moved, ("", ""))


def latest_name(given: str, later: Callable[[str], str], most: int) -> str:
    """Return to which name a name leads, by the later one of each; of those that lead to each other, the given one.

    ``most``: how many renamings there are, of which none counts twice.
    """
    name, seen = given, {given}
    while (following := later(name)) != name:
        if following in seen or len(seen) > most:
            return given
        seen.add(following)
        name = following
    return name


def note_now(kind: NoteKind, about: str, text: str) -> Note:
    """Return a note with the present time."""
    return Note(kind=kind, about=about, text=text, when=datetime.now(UTC))


def notes_by_subject(notes: Iterable[Note]) -> Notes:
    """Return notes by what they are about."""
    in_time = sorted(notes, key=lambda note: (note.when, note.key))
    remarks: dict[str, tuple[str, ...]] = {}
    for note in in_time:
        if note.kind is NoteKind.REMARK:
            remarks[note.about] = (*remarks.get(note.about, ()), note.text)
    names = {note.about: note.text for note in in_time if note.kind is NoteKind.ALIAS}
    moved = {old[:-1]: new[:-1] for old, new in names.items() if old.endswith(ALL_OF)}
    return Notes(
        accepted={note.about: note.text for note in in_time if note.kind is NoteKind.ACCEPTED},
        aliases={old: new for old, new in names.items() if not old.endswith(ALL_OF)},
        moved=dict(sorted(moved.items(), key=lambda row: -len(row[0]))),
        projects={note.about: note.text for note in in_time if note.kind is NoteKind.PROJECT},
        remarks=remarks,
    )


def encode_note(note: Note) -> bytes:
    """Return the content of a note's file."""
    return msgspec.json.encode(note)


def decode_note(name: str, data: bytes) -> Note | BadRecord:
    """Return the note in a file's content, or the fault of the file of this name."""
    try:
        return msgspec.json.decode(data, type=Note)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        return BadRecord.of(name, NoNote(str(error)))
