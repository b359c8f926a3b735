"""Packages of AOTInductor, whose code leaves no event of its own on the CPU: their calls are marked.

Run with torch 2.13.0 and 2.15.0 on Python 3.11. Where torch has none of the classes, nothing is marked.
"""

from __future__ import annotations

import gc
import sys
from contextlib import contextmanager
from functools import wraps
from types import MethodType
from typing import TYPE_CHECKING, Any

from pytest_torchprof.analysis.regions import PACKAGE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

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
    held = any(_is_bound(vars(kind), call) for kind, _, call in before)
    for kind, name, call in before:
        setattr(kind, name, _marked(call))
    try:
        yield held
    finally:
        for kind, name, call in before:
            setattr(kind, name, call)


def _is_bound(methods: Mapping[str, Any], call: Any) -> bool:
    """Return whether a bound method of this function exists; besides the class, only that refers to the function."""
    functions = [function for method in methods.values() if (function := getattr(method, "__func__", None)) is not None]
    counts = {id(function): sys.getrefcount(function) for function in functions}
    asked = getattr(call, "__func__", None)
    if asked is None or counts[id(asked)] == min(counts.values()):
        return False
    # Each takes a twentieth of a second; and objects that are no longer in use may still exist.
    gc.collect()
    return any(isinstance(holder, MethodType) for holder in gc.get_referrers(asked))


def _marked(call: Callable[..., Any]) -> Callable[..., Any]:
    from torch._C._profiler import _RecordFunctionFast

    @wraps(call)
    def run(*args: Any, **kwargs: Any) -> Any:
        with _RecordFunctionFast(PACKAGE):
            return call(*args, **kwargs)

    return run
