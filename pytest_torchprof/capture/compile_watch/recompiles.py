"""Which compilations of a measurement are recompiles, as the user sees them."""

from __future__ import annotations

import gc
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pytest_torchprof.capture import torch_dynamo
from pytest_torchprof.capture.compile_watch.graph_breaks import first_line
from pytest_torchprof.recording.metadata import Recompile

if TYPE_CHECKING:
    import weakref
    from collections.abc import Iterable

    from pytest_torchprof.capture.torch_dynamo import CodeLine


@dataclass(frozen=True, slots=True, kw_only=True)
class Compilation:
    """One forward compilation during the measurement."""

    frame: int
    """Equal for compilations of the same code object."""
    place: CodeLine | None
    module: weakref.ref[Any] | None
    """Whose forward it is, or which module torch's wrapper is around; one module has one and the same reference."""
    call: int
    """During which call of the measured code, from 1."""
    known_before: bool
    """The code object had been compiled before the measurement."""
    guard: str | None
    """What failed in the compilations there were; None for a first one."""

    def because(self, guard: str | None) -> Compilation:
        return replace(self, guard=guard)


def recompiles(compilations: Iterable[Compilation]) -> list[Recompile]:
    """Return those that came because a guard failed, of a frame that was compiled before in this measurement.

    Two modules of one class, and all modules under torch's wrapper, share a code object: the first compilation for a
    module is none, unless it comes in a later call and takes the place of a module that is gone, as with a model that
    is built anew for each call.
    """
    earlier: dict[int, list[Compilation]] = {}
    found = []
    for one in compilations:
        before = earlier.setdefault(one.frame, [])
        if one.guard is not None and _again(one, before):
            found.append(_recompiled(one))
        before.append(one)
    return found


def _again(one: Compilation, before: list[Compilation]) -> bool:
    if one.module is not None and before:
        return any(other.module is one.module for other in before) or _replaces(one, before)
    if before:
        return not torch_dynamo.is_module_wrapper(one.place)
    # Compiled by an earlier test, it ran from the cache in the first call.
    return one.known_before and one.call > 1 and not torch_dynamo.is_module_wrapper(one.place)


def _replaces(one: Compilation, before: list[Compilation]) -> bool:
    others = [other.module for other in before if other.module is not None and other.call < one.call]
    if others and all(module() is not None for module in others):
        # Compiled modules are part of cycles: the ones that nobody has any more may still be there.
        gc.collect()
    return any(module() is None for module in others)


def _recompiled(one: Compilation) -> Recompile:
    reason = re.sub(r"^\d+/\d+: ", "", first_line(one.guard or ""))
    place = one.place
    return Recompile(
        reason=reason,
        function=torch_dynamo.name_in_source(place.function) if place else None,
        file=place.file if place else None,
        line=place.line if place else None,
    )
