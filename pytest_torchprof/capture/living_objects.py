"""Objects of this process that nobody keeps a list of, as the garbage collector knows them.

It looks through its own lists, and ``gc.freeze()``, by which servers keep it from what they have loaded, takes out of
them all that there is. Those objects are looked for from modules and variables on, which takes a second.
"""

from __future__ import annotations

import contextvars
import gc
import inspect
import sys
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import FrameType


def living_holders(held: object, kind: type) -> list[Any]:
    """Return every living object of exactly this type that refers to another one, as those of a class do to it.

    Of frozen ones, those that only code in C or another task of asyncio holds are not found.
    """
    # To ask for what refers to something is three times as fast as to look at all objects.
    shown = gc.get_referrers(held, *sys.orig_argv[:1])
    holders = {id(holder): holder for holder in shown if type(holder) is kind and _refers(holder, held)}
    # Python 3.12 freezes some objects by itself; this list it does not, which is as old as the process, or as the fork
    # that stands for one (`against.warm_process`) and may well keep what was there before.
    if gc.get_freeze_count() and not any(holder is sys.orig_argv for holder in shown):
        variables = _variables(sys._getframe(1))  # noqa: SLF001 - documented
        frozen = _reachable(kind, (sys.modules, contextvars.copy_context(), *variables))
        holders |= {id(holder): holder for holder in frozen if _refers(holder, held)}
    return list(holders.values())


def _refers(holder: object, held: object) -> bool:
    return any(other is held for other in gc.get_referents(holder))


def _reachable(kind: type, roots: Iterable[object]) -> list[Any]:
    """Return the objects of a type to which a way leads from these."""
    seen: set[int] = set()
    of_kind = []
    layer = list(roots)
    while layer:
        refers_to = gc.get_referents(*layer)
        layer = []
        for item in refers_to:
            # Most of what is not tracked is numbers and texts.
            if id(item) not in seen and gc.is_tracked(item):
                seen.add(id(item))
                layer.append(item)
                if type(item) is kind:
                    of_kind.append(item)
    return of_kind


def _variables(here: FrameType | None) -> list[object]:
    """Return the variables of this thread's functions from ``here`` on, and of other threads'.

    A frame that runs shows the collector nothing.
    """
    innermost: dict[int, FrameType | None] = {**sys._current_frames(), threading.get_ident(): here}  # noqa: SLF001 - documented
    everything: list[object] = []
    for frame in innermost.values():
        running = frame
        while running is not None:
            everything.append(running.f_globals)
            variables = running.f_locals
            if running.f_code.co_flags & inspect.CO_OPTIMIZED:
                everything.append(dict(variables))
                # Before Python 3.13 it would keep them alive as long as the function runs, whatever it deletes. Where
                # somebody else has asked for it, besides the frame, this variable and the call, it is theirs.
                if type(variables) is dict and sys.getrefcount(variables) <= 3:
                    variables.clear()
            else:
                everything.append(variables)  # Of a module or a class, which may be any mapping.
            running = running.f_back
    return everything
