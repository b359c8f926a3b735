"""Entries of compiled functions: the setting of torch.compile in force, and whether they run uncompiled.

Run with torch 2.10.0, 2.13.0 and 2.15.0 on Python 3.11. Where a private name is missing, no entry is noted.
"""

from __future__ import annotations

import sys
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

from pytest_torchprof.reasons.uncompiled import CompilingDisabled, MarkedSkip, OnlyRun, StanceSet, UnderMode

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_torchprof.reasons.uncompiled import AnySetting


def why_nothing_compiles() -> AnySetting | None:
    """Return the setting that keeps torch.compile from compiling right now; None if there is none."""
    stance = getattr(getattr(import_module("torch._dynamo.eval_frame"), "_stance", None), "stance", "default")
    if stance != "default":
        return StanceSet(str(stance))
    if _is_disabled():
        return CompilingDisabled()
    return None


def _mode_without_compiling() -> str | None:
    """Return the name of the dispatch mode in force that lets Dynamo leave frames alone; None if there is none."""
    modes_in_force = getattr(import_module("torch.utils._python_dispatch"), "_get_current_dispatch_mode_stack", tuple)
    for mode in modes_in_force():
        if not any(getattr(mode, name, bool)() for name in ("is_infra_mode", "ignore_compile_internals")):
            return type(mode).__name__
    return None


@cache
def _modes_leave_for_good() -> bool:
    """Return whether what Dynamo leaves alone under a mode stays uncompiled.

    So it is with torch 2.13, and no longer with 2.15; versions between are taken to be like the older one.
    """
    return bool(import_module("torch").__version__ < (2, 15))


def _is_disabled() -> bool:
    return bool(getattr(import_module("torch._dynamo.config"), "disable", False))


class NoteEntry(Protocol):
    """The function that is called when a compiled function is entered."""

    def __call__(self, function: object, setting: AnySetting | None, *, eagerly: bool) -> None:
        """Take the function, the setting in force, and whether the function runs uncompiled because of it."""


@contextmanager
def entries_noted(note: NoteEntry) -> Iterator[None]:
    """Call `note` each time that a compiled function is entered meanwhile, from any thread."""
    module = import_module("torch._dynamo.eval_frame")
    ask = getattr(module, "_callback_from_stance", None)
    if ask is None:
        yield
        return

    def noting(callback: Any) -> Any:
        chosen = ask(callback)
        if callable(callback) or callback is False:
            # The function is a variable of the wrapper that asks.
            function = sys._getframe(1).f_locals.get("fn")
            marked, mode = _mark_of(function), _mode_without_compiling()
            under = UnderMode(mode) if mode else None
            stays = marked is not None or (mode is not None and _modes_leave_for_good())
            note(
                function,
                why_nothing_compiles() or under or (OnlyRun() if callback is False else marked),
                eagerly=chosen is None or _is_disabled() or stays,
            )
        return chosen

    vars(module)["_callback_from_stance"] = noting
    try:
        yield
    finally:
        vars(module)["_callback_from_stance"] = ask


def _mark_of(function: object) -> AnySetting | None:
    """Return the mark of a function that is entered to stay uncompiled, though its callees may be compiled.

    torch.compile looks through ``torch.compiler.disable``, but not through Dynamo's own ``skip``.
    """
    wrapped = getattr(function, "__wrapped__", None)
    if not _has_mark(function) or _has_mark(wrapped):
        # functools.wraps copies the mark of the function that it wraps.
        return None
    code = getattr(function, "__code__", None)
    if not code:
        return MarkedSkip(repr(function), None, None)
    return MarkedSkip(code.co_name, code.co_filename, code.co_firstlineno)


def _has_mark(function: object) -> bool:
    return bool(getattr(function, "__dict__", {}).get("_torchdynamo_disable"))
