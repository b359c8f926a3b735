"""The results that a process hands over to the one for which it runs tests: a worker of pytest-xdist, or a rank."""

from __future__ import annotations

import json

from msgspec import Struct, convert, to_builtins

from pytest_torchprof.baseline import EntryFields  # noqa: TC001 - msgspec reads the annotations
from pytest_torchprof.reasons import decoding  # noqa: TC001 - msgspec reads the annotations
from pytest_torchprof.report.result import Result  # noqa: TC001 - msgspec reads the annotations
from pytest_torchprof.testing.renames import Gone, NewTest  # noqa: TC001 - msgspec reads the annotations
from pytest_torchprof.testing.suite_rules import SuiteSeen  # noqa: TC001 - msgspec reads the annotations


class HandedBaselines(Struct, frozen=True, kw_only=True):
    """The process's notes of baselines; files by their paths."""

    updates: dict[str, dict[str, EntryFields | None]] = {}
    """Baseline file -> key -> entry; None removes one."""
    collected: dict[str, tuple[str, ...]] = {}
    """Test file -> its test ids, of files that were collected as a whole."""
    passed: dict[str, str] = {}
    """Test id -> its test file."""
    compared: dict[str, tuple[str, ...]] = {}
    """Baseline file -> the keys of the entries that were compared."""
    untold: dict[str, tuple[str, ...]] = {}
    """Baseline file -> the keys of entries that say less of their kernels than was measured."""
    formers: tuple[tuple[NewTest, tuple[tuple[str | None, tuple[Gone, ...]], ...]], ...] = ()
    """The former names that new tests may have had, by label."""


class Selection(Struct, frozen=True, kw_only=True):
    """The tests that were selected in a run that leaves none out."""

    below: tuple[str, ...]
    """The folders and files in which all were, as node ids name them; "" is the root directory."""
    tests: tuple[str, ...]
    """The ids of those that are to be measured."""


class ProcessResults(Struct, frozen=True, kw_only=True):
    """The results that the process hands over: at its end, or with the last report of a test."""

    test: str | None = None
    """The id of the test whose last run these are all results of; None at the end of the process."""
    results: tuple[Result, ...] = ()
    of_ranks: tuple[Result, ...] = ()
    """The results of each rank by itself, where one above is of several together; only for the record of a run."""
    baselines: HandedBaselines = HandedBaselines()
    replayed: tuple[str, ...] = ()
    """Names of the recordings that a test judged."""
    problems: tuple[decoding.AnyReason, ...] = ()
    """Problems, for the terminal."""
    lacks_gpu: bool = False
    """A GPU was required, and a selected test could not be measured on one."""
    suite_seen: SuiteSeen | None = None
    """The tests that the suite's rules reach, as it saw them when it collected the tests."""
    selection: Selection | None = None
    """All tests that the project has; None where some may have been left out, or where it was given its tests."""
    slow_export: bool = False
    """torch could not be asked for the file alone, so that measurements on a GPU took longer than they need to."""

    def to_json(self) -> str:
        """Return it as JSON."""
        # Python's own writer: ids of tests may hold lone surrogates.
        return json.dumps(to_builtins(self, enc_hook=str))

    @classmethod
    def from_json(cls, text: str) -> ProcessResults:
        """Return the results of which ``to_json`` made this text."""
        return convert(json.loads(text), cls)
