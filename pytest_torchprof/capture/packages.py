"""Packages of AOTInductor, whose code leaves no event of its own on the CPU: their calls are marked."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Any

from pytest_torchprof.analysis.regions import PACKAGE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_RUNNERS = ("AOTIModelPackageLoader", "AOTIModelContainerRunnerCpu")
_CALLS = ("run", "boxed_run")


@contextmanager
def packages_marked() -> Iterator[None]:
    """Put a range around each call of a package meanwhile; without torch's runners of packages do nothing."""
    aoti = getattr(sys.modules.get("torch._C"), "_aoti", None)
    kinds = [kind for name in _RUNNERS if (kind := getattr(aoti, name, None)) is not None]
    before = [(kind, name, call) for kind in kinds for name in _CALLS if (call := vars(kind).get(name)) is not None]
    for kind, name, call in before:
        setattr(kind, name, _marked(call))
    try:
        yield
    finally:
        for kind, name, call in before:
            setattr(kind, name, call)


def _marked(call: Callable[..., Any]) -> Callable[..., Any]:
    from torch._C._profiler import _RecordFunctionFast

    @wraps(call)
    def run(*args: Any, **kwargs: Any) -> Any:
        with _RecordFunctionFast(PACKAGE):
            return call(*args, **kwargs)

    return run
