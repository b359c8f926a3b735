"""Packages of AOTInductor, whose code leaves no event of its own on the CPU: their calls are marked.

Run with torch 2.13.0 and 2.15.0 on Python 3.11. Where torch has none of the classes, nothing is marked.
"""

from __future__ import annotations

import gc
import sys
from contextlib import contextmanager
from types import MethodType
from typing import TYPE_CHECKING, Any

from pytest_torchprof.analysis.regions import PACKAGE
from pytest_torchprof.capture.living_objects import living_holders

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from contextlib import AbstractContextManager

_RUNNERS = ("AOTIModelPackageLoader", "AOTIModelContainerRunnerCpu")
_CALLS = ("run", "boxed_run")


@contextmanager
def packages_marked() -> Iterator[bool]:
    """Put a range around each call of a package meanwhile; without torch's runners of packages do nothing.

    Yields whether somebody holds a call of a package that was bound before (``run = loader.run``) and leaves no range.
    """
    aoti = getattr(sys.modules.get("torch._C"), "_aoti", None)
    kinds = [kind for name in _RUNNERS if (kind := getattr(aoti, name, None)) is not None]
    before = [(kind, name, call) for kind in kinds for name in _CALLS if (call := vars(kind).get(name)) is not None]
    held = any(_is_bound(vars(kind)) for kind in kinds)
    if before:
        from torch._C._profiler import _RecordFunctionFast

        for kind, name, call in before:
            setattr(kind, name, _marked(call, _RecordFunctionFast))
    try:
        yield held
    finally:
        for kind, name, call in before:
            setattr(kind, name, call)


def _is_bound(methods: Mapping[str, Any]) -> bool:
    """Return whether a bound method of one of the calls exists; besides the class, only that refers to its function."""
    functions = {name: method.__func__ for name, method in methods.items() if hasattr(method, "__func__")}
    counts = dict(zip(functions, map(sys.getrefcount, functions.values()), strict=True))
    least = min(counts.values(), default=0)
    suspects = [name for name in _CALLS if counts.get(name, least) != least]
    if not suspects:
        return False
    # Each takes a twentieth of a second; and objects that are no longer in use may still exist.
    gc.collect()
    return any(living_holders(functions[name], MethodType) for name in suspects)


def _marked(call: Callable[..., Any], mark: Callable[[str], AbstractContextManager[object]]) -> Callable[..., Any]:
    def run(*args: Any, **kwargs: Any) -> Any:
        with mark(PACKAGE):
            return call(*args, **kwargs)

    # As functools.wraps does, which takes several times as long: each measurement replaces these methods.
    run.__wrapped__ = call  # type: ignore[attr-defined]
    run.__name__, run.__qualname__, run.__doc__ = call.__name__, call.__qualname__, call.__doc__
    return run
