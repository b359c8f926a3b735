"""Objects of this process that nobody keeps a list of, as the garbage collector knows them.

It looks through its own lists, and ``gc.freeze()``, by which servers keep it from what they have loaded, takes out of
them all that there is. Those objects are looked for from the modules on.
"""

from __future__ import annotations

import gc
import sys
from functools import cache
from typing import TYPE_CHECKING, Any
from weakref import ref

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType


def living_holders(held: object, kind: type) -> list[Any]:
    """Return every living object of exactly this type that refers to another one, as those of a class do to it."""
    frozen = _frozen(held, kind)
    # To ask for what refers to something is three times as fast as to look at all objects.
    shown = gc.get_referrers(held, frozen.is_shown)
    if not any(holder is frozen.mark for holder in shown) and gc.get_freeze_count():
        frozen.look()
    in_sight = {id(holder): holder for holder in shown if type(holder) is kind}
    return list((in_sight | {id(holder): holder for holder in frozen.holders()}).values())


@cache
def _frozen(held: object, kind: type) -> _Frozen:
    return _Frozen(held, kind)


class _Frozen:
    """The holders of something that were frozen; to look for them takes a second: it is done once after each freeze."""

    def __init__(self, held: object, kind: type) -> None:
        self._held, self._kind = held, kind
        self._holders: list[ref[Any]] = []
        self.is_shown = object()
        self.mark: list[object] | None = None
        """What refers to `is_shown` and is younger than what was looked through: the next freeze hides it too."""

    def holders(self) -> list[Any]:
        return [holder for reference in self._holders if (holder := reference()) is not None]

    def look(self) -> None:
        candidates = _reachable(self._kind)
        self._holders = [
            ref(holder) for holder in candidates if any(other is self._held for other in gc.get_referents(holder))
        ]
        self.mark = [self.is_shown]


def _reachable(kind: type) -> list[Any]:
    """Return the objects of a type to which a way leads from a module or from a function that runs."""
    seen: set[int] = set()
    of_kind = []
    layer: list[Any] = [sys.modules, *_variables()]
    while layer:
        refers_to = gc.get_referents(*layer)
        layer = []
        for item in refers_to:
            # What is not tracked refers to nothing that is.
            if id(item) not in seen and gc.is_tracked(item):
                seen.add(id(item))
                layer.append(item)
                if type(item) is kind:
                    of_kind.append(item)
    return of_kind


def _variables() -> Iterator[dict[str, Any]]:
    """Yield the variables of all functions that run; a frame that runs shows the collector nothing."""
    for innermost in sys._current_frames().values():  # noqa: SLF001 - documented
        frame: FrameType | None = innermost
        while frame is not None:
            # From Python 3.13 on they are no dictionary by themselves.
            yield dict(frame.f_locals)
            yield frame.f_globals
            frame = frame.f_back
