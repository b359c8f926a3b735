"""The runs of a few tests, asked of the tables: only their measurements are read, and the head of each record."""

from __future__ import annotations

from array import array
from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct
from sqlalchemy import select

from pytest_torchprof.history.reading import HistoryRun, RunTimes
from pytest_torchprof.history.record import (
    BEGINNING_BYTES,
    CommitRecord,
    KernelCount,
    MeasurementRecord,
    RunHead,
    head_in,
)
from pytest_torchprof.history.series import EXACT
from pytest_torchprof.history.sql.beginnings import beginnings
from pytest_torchprof.history.sql.rows import environment_id
from pytest_torchprof.history.sql.schema import MEASUREMENT, STRUCTURE, TEST

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sqlalchemy import Connection, Row

    from pytest_torchprof.history.reading import Conditions

_MEASURED: Final = ("label", "rank", "ranks", "device", "outcome", "code", "source")
_FACTS: Final = ("environment", *_MEASURED, *EXACT)
"""What a row of the table says of a measurement, besides its test and its structure."""
_USUAL_BYTES: Final = 8 << 10
"""How much of a record holds the head of a run that knows 200 commits before its own."""


class TestRuns(Struct, frozen=True, kw_only=True):
    """All runs of a history, each with its measurements of some tests alone."""

    __test__ = False

    runs: Sequence[HistoryRun]
    kernels: Mapping[str, tuple[KernelCount, ...]]
    """The kernels of each structure that these tests launch."""


class TestTables:
    """The queries to the tables of a history, within one transaction."""

    __test__ = False

    def __init__(self, connection: Connection) -> None:
        """Ask nothing yet."""
        self._connection = connection
        self._heads: Sequence[RunHead] | None = None

    def tests(self) -> Mapping[str, str]:
        """Return the id of each test by its node id."""
        return {nodeid: key for key, nodeid in self._connection.execute(select(TEST.c.id, TEST.c.nodeid))}

    def runs_of(self, tests: Mapping[str, str]) -> TestRuns | None:
        """Return all runs with their measurements of these tests, ids by node ids; None if a head cannot be read."""
        heads = self._all_heads()
        if heads is None:
            return None
        measured = _Measured(heads, {key: nodeid for nodeid, key in tests.items()})
        columns = [
            MEASUREMENT.c[name]
            for name in ("run", "test", "structure", *_FACTS, "gpu_busy_us", "time_median_us", "time")
        ]
        chosen = select(*columns).where(MEASUREMENT.c.test.in_(tests.values()))
        for row in self._connection.execute(chosen.order_by(MEASUREMENT.c.run, MEASUREMENT.c.position)):
            measured.add(row)
        ids = measured.structures
        structures = select(STRUCTURE.c.id, STRUCTURE.c.name, STRUCTURE.c.kernels).where(STRUCTURE.c.id.in_(ids))
        return measured.runs({key: (name, kernels) for key, name, kernels in self._connection.execute(structures)})

    def _all_heads(self) -> Sequence[RunHead] | None:
        if self._heads is None:
            # Few heads are longer than the first of these, and most of the time goes with what is read.
            for most_bytes in (_USUAL_BYTES, BEGINNING_BYTES):
                stored = beginnings(self._connection, most_bytes)
                heads = [head_in(content, uuid, _HEADS) for uuid, content in stored]
                known = [head for head in heads if head is not None]
                if len(known) == len(heads):
                    self._heads = known
                    break
        return self._heads


class _Measured:
    """Measurements that are being put together from rows, with those of a run in their order."""

    def __init__(self, heads: Sequence[RunHead], tests: Mapping[str, str]) -> None:
        self._heads, self._tests = heads, tests
        shared: dict[tuple[Any, ...], tuple[Any, ...]] = {}
        self._environments = {head.uuid: shared.setdefault(head.environments, head.environments) for head in heads}
        self._indices = {
            own: {environment_id(environment): index for index, environment in enumerate(own)} for own in shared
        }
        self._numbers: dict[tuple[Any, ...], int] = {}
        self._rows: defaultdict[str, list[tuple[int, float, int]]] = defaultdict(list)
        self._conditions: dict[Conditions, int] = {(): 0}
        self.structures: set[str] = set()

    def add(self, row: Row[Any]) -> None:
        run, test, structure, environment, *facts, busy_us, median_us, time = tuple(row)
        index = None if environment is None else self._indices[self._environments[run]][environment]
        number = self._numbers.setdefault((test, structure, index, *facts), len(self._numbers))
        if structure is not None:
            self.structures.add(structure)
        under: Conditions = () if time is None else tuple(sorted(time["conditions"].items()))
        condition = self._conditions.setdefault(under, len(self._conditions))
        self._rows[run].append((number, (busy_us if median_us is None else median_us) or 0.0, condition))

    def runs(self, structures: Mapping[str, tuple[str, Any]]) -> TestRuns:
        measurements = [self._measurement(known, structures) for known in self._numbers]
        conditions = [*self._conditions]
        runs = []
        for head in self._heads:
            rows = self._rows[head.uuid]
            times = RunTimes(
                us=array("d", [us for _, us, _ in rows]),
                under=array("I", [under for _, _, under in rows]),
                conditions=conditions,
            )
            known = {name: getattr(head, name) for name in RunHead.__struct_fields__}
            known["environments"] = self._environments[head.uuid]
            numbers = array("I", [number for number, _, _ in rows])
            runs.append(HistoryRun(**known, rows=numbers, measurements=measurements, times=times))
        kernels = {name: msgspec.convert(own, tuple[KernelCount, ...]) for name, own in structures.values()}
        return TestRuns(runs=runs, kernels=kernels)

    def _measurement(self, known: tuple[Any, ...], structures: Mapping[str, tuple[str, Any]]) -> MeasurementRecord:
        test, structure, environment, *facts = known
        own = dict(zip(_FACTS[1:], facts, strict=True))
        return msgspec.convert(
            {
                "test": self._tests[test],
                **{name: own[name] for name in _MEASURED},
                "environment": environment,
                "structure": None if structure is None else structures[structure][0],
                "counts": {name: own[name] for name in EXACT if own[name] is not None},
            },
            MeasurementRecord,
        )


class _StoredCommit(CommitRecord, frozen=True, kw_only=True):
    """A commit whose hashes were looked at when its record was taken."""

    sha: str
    parents: tuple[str, ...]
    ancestors: tuple[str, ...]


class _StoredHead(RunHead, frozen=True, kw_only=True):
    """The head of a record that was believed when it was taken."""

    commit: _StoredCommit | None = None


_HEADS: Final = msgspec.json.Decoder(_StoredHead)
