"""Of which project a history is, and whether a record is of it: kernels of one project are no points of another's.

A record names its project, by its remote. Where it or the history names none, a commit that both know tells that they
are of one repository. A run outside of one may be of any project: its record is taken where somebody says so.
"""

from __future__ import annotations

from contextlib import closing
from functools import cached_property
from typing import TYPE_CHECKING

from pytest_torchprof.history.notes import Note, notes_by_subject
from pytest_torchprof.history.record import BEGINNING_BYTES, BadRecord, head_in
from pytest_torchprof.history.store import heads_of
from pytest_torchprof.reasons.records import OfOtherProject, ProjectUnknown

if TYPE_CHECKING:
    from pytest_torchprof.history.notes import Notes
    from pytest_torchprof.history.record import CommitRecord, RunHead
    from pytest_torchprof.history.store import Store
    from pytest_torchprof.reasons.reason import Reason

ANYWAY = "--without-project"
"""The option that takes records whose project is not known."""


class HistoryProject:
    """The project of a history, as far as its records tell it."""

    def __init__(self, store: Store) -> None:
        """Read as many beginnings of records as tell it; StoreUnusable."""
        self._store = store
        self._added: set[str] = set()
        self.name = _name_of(store)
        """The project that its records name."""
        self.is_new = self.name is None and not self._heads
        """Whether it has no record yet that can be believed."""

    @cached_property
    def _heads(self) -> list[RunHead]:
        """Which runs its records are of; read where no record names a project, or one is to be compared with all."""
        return [head for head in heads_of(self._store) if not isinstance(head, BadRecord)]

    @cached_property
    def _commits(self) -> set[str]:
        """The commits that its records know; without any, no run of it was in a repository."""
        return {sha for head in self._heads for sha in _known_to(head.commit)}

    @cached_property
    def _notes(self) -> Notes:
        """The notes on its project's names; read where a record has another one."""
        return notes_by_subject(note for note in self._store.notes() if isinstance(note, Note))

    def _now(self, name: str | None) -> str | None:
        return None if name is None else self._notes.project_now(name)

    def note(self, head: RunHead) -> None:
        """Take note of a record that it has from now on."""
        self.is_new = False
        self.name = self.name or (None if head.commit is None else head.commit.project)
        self._added.update(_known_to(head.commit))

    def refuse_other(self, head: RunHead, *, anyway: bool = False) -> None:
        """Raise BadRecord for a record of another project, or, but ``anyway``, of one that is not known.

        What the history has under its id may be anything: to keep the record once more adds nothing.
        """
        project = None if head.commit is None else head.commit.project
        if self.is_new or (project is not None and project == self.name):
            return
        if project is not None and self._now(project) == self._now(self.name):
            return
        why: Reason
        if project is not None and (own := self._now(self.name)) is not None:
            why = OfOtherProject(project, own)
        elif anyway or self._is_of_one_repository(head.commit):
            return
        else:
            why = ProjectUnknown(ANYWAY, project, self.name, in_repository=head.commit is not None)
        if not self._has(head.uuid):
            refusal = BadRecord.of(head.uuid, why)
            raise refusal.unless_anyway() if None in (project, self.name) else refusal

    def _has(self, uuid: str) -> bool:
        with closing(self._store.packed({uuid}, most_bytes=1)) as known:
            return next(known, None) is not None

    def _is_of_one_repository(self, commit: CommitRecord | None) -> bool:
        commits = self._commits | self._added
        return not commits if commit is None else not commits.isdisjoint(_known_to(commit))


def _name_of(store: Store) -> str | None:
    """Return the project that the first record names that names one; None where no beginning of one does."""
    with closing(store.packed(most_bytes=BEGINNING_BYTES)) as beginnings:
        names = (None if isinstance(beginning, BadRecord) else _named_in(*beginning) for beginning in beginnings)
        return next((name for name in names if name is not None), None)


def _named_in(name: str, content: bytes) -> str | None:
    try:
        head = head_in(content, name)
    except BadRecord:
        return None
    return None if head is None or head.commit is None else head.commit.project


def _known_to(commit: CommitRecord | None) -> tuple[str, ...]:
    return () if commit is None else (commit.sha, *commit.parents, *commit.ancestors)
