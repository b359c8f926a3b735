"""The events of a recording that a finding is of."""

from __future__ import annotations

from collections.abc import Sequence  # noqa: TC003  (the type of a field, which msgspec looks up)
from typing import TYPE_CHECKING

from msgspec import Struct

from pytest_torchprof.trace.columns import where

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pytest_torchprof.trace import Span, Trace


class Events(Struct, frozen=True, kw_only=True):
    """The events, as indices into the columns of the trace."""

    gpu_ops: tuple[int, ...] = ()
    calls: tuple[int, ...] = ()
    ops: tuple[int, ...] = ()
    annotations: tuple[int, ...] = ()
    overheads: tuple[int, ...] = ()
    idled: tuple[Sequence[int], Sequence[int], Sequence[int]] = ((), (), ())
    """Times in which a device idled: from, to (in ns), and the GPU operation that ended it, as columns.

    -1 instead of it says that no event of any kind ran meanwhile, on CPU or GPU. There may be tens of thousands, which
    most readers of a finding do not look at.
    """
    chains: tuple[int, ...] = ()
    """Of GPU operations that belong together, how many in a row do; empty where each stands for itself."""

    @property
    def gaps(self) -> tuple[tuple[int, int, int], ...]:
        """The times in which a device idled, one by one."""
        return tuple(zip(*self.idled, strict=True))


def events_of_spans(trace: Trace, spans: Iterable[Span]) -> Events:
    """Return the operators and user annotations with these spans."""
    wanted = {(span.name, span.start_ns, span.end_ns, span.tid, span.category) for span in spans}
    names = {name for name, *_ in wanted}
    indices = {i for i, name in enumerate(trace.names) if name in names}

    def among(category: str) -> tuple[int, ...]:
        part = trace.ops if category == "cpu_op" else trace.annotations
        keys = (
            (i, (trace.names[part.name[i]], part.start[i], part.end[i], trace.threads[part.thread[i]], category))
            for i in where(part.name, indices)
        )
        return tuple(i for i, key in keys if key in wanted)

    return Events(ops=among("cpu_op"), annotations=among("user_annotation"))


def events_of_steps(trace: Trace, names: Iterable[str | None]) -> Events:
    """Return the ranges of the steps with these names."""
    wanted = set(names)
    ranges = {(step.name, step.start_ns, step.end_ns) for step in trace.steps if step.name in wanted}
    notes = trace.annotations
    return Events(
        annotations=tuple(
            i for i in range(len(notes)) if (trace.names[notes.name[i]], notes.start[i], notes.end[i]) in ranges
        )
    )
