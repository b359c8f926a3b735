"""The items that limits count besides kernels: copies, fills and blocking calls, and their rows."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from msgspec import Struct

from pytest_torchprof.analysis.waits import blocking_calls
from pytest_torchprof.limits.evidence import WorkRow
from pytest_torchprof.limits.limit import longest_first, numbered_in_order, place_fields
from pytest_torchprof.text import printable
from pytest_torchprof.trace.columns import ABSENT

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence

    from pytest_torchprof.analysis.analysis import Analysis
    from pytest_torchprof.analysis.origin import Origin, Work
    from pytest_torchprof.analysis.steps import StepProfile


class Item(Struct, frozen=True, kw_only=True, eq=False):
    """One copy, fill or blocking call of a step."""

    name: str
    op_name: str | None
    op: int
    """The innermost operator around the call that made it; ABSENT without one."""
    call: int
    """The call that made it; ABSENT if it is not recorded."""
    gpu_op: int = ABSENT
    """The GPU operation of a copy or fill."""
    time_us: float
    size_bytes: int = 0
    in_copies_us: float = 0.0
    """Of a blocking call: how much of that passed in the copies before it."""
    asked_by: str | None = None
    """The operator that the program called, if one inside it made the wait."""
    origin: Origin | None = None
    """Where it comes from; from a repeat, the origin of the item in the same position."""
    is_placed: bool = False
    """Whether the origin is certain: a repeat had the same number of the kind."""

    @property
    def made_by(self) -> tuple[str | None, ...]:
        """The operators that made it; first the one that the program called."""
        return self.asked_by, self.op_name


def waits_of(analysis: Analysis, step: StepProfile) -> list[Item]:
    """Return the step's blocking calls, each with the time for which the CPU waited.

    A copy from or to memory that is not pinned waits in its own call, and the blocking call after it returns at once:
    that wait is counted with the call.
    """
    trace, calls, op_name = analysis.trace, analysis.trace.calls, analysis.launching.op_name
    enclosing = trace.nesting.around_each(calls, blocking_calls(trace, step.part.calls))
    kinds = [(trace.names[calls.name[call]], op_name(op)) for call, op in enclosing.items()]
    in_copies = _waits_in_copies(analysis, enclosing)
    return [
        Item(
            name=name,
            op_name=made_by,
            op=op,
            call=call,
            time_us=(calls.end[call] - calls.start[call] + in_copies[call]) / 1000,
            in_copies_us=in_copies[call] / 1000,
            asked_by=analysis.launching.called_operator(op) if op >= 0 else None,
            origin=origin,
            is_placed=is_placed,
        )
        for (call, op), (name, made_by), (origin, is_placed) in zip(
            enclosing.items(), kinds, _origins(step, kinds), strict=True
        )
    ]


def _waits_in_copies(analysis: Analysis, enclosing: Mapping[int, int]) -> Mapping[int, int]:
    """Return by blocking call how long, in ns, the copies waited that its operator made since its last such call."""
    calls, copies_of = analysis.trace.calls, analysis.gpu_work.waiting_copies_of
    waited: Counter[int] = Counter()
    taken: dict[int, int] = {}
    for call, op in sorted(enclosing.items(), key=lambda made: calls.start[made[0]]):
        since = taken.get(op, 0)
        for copy in copies_of.get(op, ()):
            if since <= calls.start[copy] and calls.end[copy] <= calls.start[call]:
                waited[call] += calls.end[copy] - calls.start[copy]
        taken[op] = calls.end[call]
    return waited


def moves_of(analysis: Analysis, step: StepProfile, kind: int) -> list[Item]:
    """Return the step's copies or fills."""
    trace, gpu, launching = analysis.trace, analysis.trace.gpu, analysis.launching
    moves = [i for i in step.part.gpu_ops if gpu.kind[i] == kind]
    kinds = [(trace.names[gpu.name[i]], launching.op_name(launching.op_of[i])) for i in moves]
    return [
        Item(
            name=name,
            op_name=made_by,
            op=launching.op_of[i],
            call=trace.links.call_of[i],
            gpu_op=i,
            time_us=analysis.gpu_work.time_us([i]),
            size_bytes=max(gpu.size[i], 0),
            origin=origin,
            is_placed=is_placed,
        )
        for i, (name, made_by), (origin, is_placed) in zip(moves, kinds, _origins(step, kinds), strict=True)
    ]


def _origins(step: StepProfile, work: Sequence[Work]) -> Iterator[tuple[Origin | None, bool]]:
    """Yield for each piece of work where it comes from, and whether that is certain."""
    known, done = step.places.work, Counter(work)
    origins = {call: iter(known.get(call, ())) for call in done}
    for call in work:
        yield next(origins[call], None), len(known.get(call, ())) == done[call]


def rows_of_waits(items: Sequence[Item], allowed_by: tuple[str, ...] = ()) -> tuple[WorkRow, ...]:
    """Return one row per blocking call and the operators that made it, the longest wait first."""
    return longest_first(_rows(items, lambda item: (item.name, item.op_name, item.asked_by), allowed_by))


def rows_of_moves(items: Sequence[Item], allowed_by: tuple[str, ...] = ()) -> tuple[WorkRow, ...]:
    """Return one row per name (direction and memories) of copies or fills, the most calls first."""
    return _rows(items, lambda item: item.name, allowed_by)


def _rows(items: Sequence[Item], key: Callable[[Item], Hashable], allowed_by: tuple[str, ...]) -> tuple[WorkRow, ...]:
    by_key: dict[Hashable, list[Item]] = defaultdict(list)
    for item in items:
        by_key[key(item)].append(item)
    rows = (_row(members, allowed_by) for members in by_key.values())
    return numbered_in_order(rows)


def _row(members: Sequence[Item], allowed_by: tuple[str, ...]) -> WorkRow:
    origins = Counter(item.origin for item in members if item.origin is not None)
    name = printable(members[0].name)
    return WorkRow(
        count=len(members),
        name=name,
        full=name,
        time_us=sum(item.time_us for item in members),
        size_bytes=sum(item.size_bytes for item in members),
        in_copies_us=sum(item.in_copies_us for item in members),
        allowed_by=allowed_by,
        ops=tuple(printable(op) for op in dict.fromkeys(op for item in members for op in item.made_by) if op),
        **place_fields([(count, origin) for origin, count in origins.most_common()]),
    )
