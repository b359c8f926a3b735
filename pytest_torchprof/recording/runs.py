"""Runs of pieces of a trace file that are alike, and the types that only they need, which are decoded faster."""

from __future__ import annotations

from functools import cache
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Union

import msgspec

from pytest_torchprof.recording.event_args import AllArgs, FewArgs, part_of
from pytest_torchprof.recording.kinds import FRAME, IDENTITY, NOTE, OWN, RANGE, ROLES, USUAL, complete, others

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from msgspec import Struct

    from pytest_torchprof.recording.kinds import Kinds

_LENGTH = 6
"""After so many pieces that are alike it is worth making types for the next ones."""
_FEW = 32
"""How many ids of processes and threads are listed at most."""

_OF_RANGES = frozenset(name for name in USUAL if ROLES.get(name.lower()) in (RANGE, NOTE, FRAME, OWN))
_OPERANDS = frozenset({"dims", "types", "settings", "strides"})
"""The fields of ``args`` that are read of ranges on the CPU alone."""
_OF_WORK = frozenset(
    {
        *("stream", "correlation", "registers", "shared", "blocks_per_sm", "grid", "block", "occupancy", "size"),
        *("ran_on", "graph", "node", "scope", "bare_scope", "first_scope", "module", "phase"),
    }
)
"""Those that are not read of ranges on the CPU."""


class Run(NamedTuple):
    """The last pieces of the file, as far as they are alike."""

    categories: frozenset[str] = frozenset()
    """The categories of which their events are."""
    only: str | None = None
    """The category if all events are complete and of this one."""
    processes: frozenset[int | str] = frozenset()
    threads: frozenset[int | str] = frozenset()
    """The ids in the pieces that completed a run, this one or those before it: most files have few."""
    ids_hold: bool = True
    """Whether types with these ids have always held so far."""
    pieces: int = 0

    @property
    def is_complete(self) -> bool:
        """Whether it is as long as to expect more of its kind."""
        return self.pieces == _LENGTH

    def with_piece(self, members: Mapping[str, Sequence[Any]], events: int) -> Run:
        """Return the run that a piece continues or begins: its complete events by category, and the number of all.

        A piece that continues a run that was complete was refused by the types made for it. Its categories are those of
        the run, so that it has other ids, and a new run of the same kind begins.
        """
        only = next((name for name, those in members.items() if len(members) == 1 and len(those) == events), None)
        categories = frozenset(members) if only is not None else _like(frozenset(members))
        if categories != self.categories:
            return self._replace(categories=categories, only=only, pieces=1)
        if self.is_complete:
            return self._replace(ids_hold=False, pieces=1)
        pieces = self.pieces + 1
        seen = [*chain(*members.values())] if pieces == _LENGTH else []
        processes, threads = {event.pid for event in seen}, {event.tid for event in seen}
        return self._replace(pieces=pieces, processes=self.processes | processes, threads=self.threads | threads)


def _like(given: frozenset[str]) -> frozenset[str]:
    """Return the categories of which a piece that has these may have more: those with operands, the others, or all."""
    return next((part for part in (_OF_RANGES, USUAL - _OF_RANGES) if given <= part), USUAL)


def narrowed(types: Kinds, run: Run) -> Kinds:
    """Return types for a list of events like those of a run, which are decoded in a tenth less time.

    They refuse events of other categories, phases or ids. Fields of ``args`` that are not read of such events are not
    looked at, whatever stands there.
    """
    category, stamps, ids = Literal[*run.categories], types.stamps, (run.processes, run.threads)
    identities: Any = (IDENTITY, IDENTITY)
    thread: int | str | None = None
    if run.ids_hold and all(0 < len(some) <= _FEW for some in ids):
        identities = tuple(Literal[*some] for some in ids)
        thread = next(iter(run.threads)) if len(run.threads) == 1 else None
    args = _args_of(run.categories, all_args=types.all_args)
    event = complete(stamps, category, identities, args, alone=run.only is not None)
    listed: Any = event if run.only is not None else Union[event, *others(stamps, any_category=False).values()]
    return types._replace(event=event, events=msgspec.json.Decoder(list[listed]), only=run.only, only_thread=thread)


@cache
def _args_of(categories: frozenset[str], *, all_args: bool) -> type[Struct]:
    args = AllArgs if all_args else FewArgs
    if categories == USUAL:
        return args
    return part_of(args, without=_OF_WORK if categories <= _OF_RANGES else _OPERANDS)
