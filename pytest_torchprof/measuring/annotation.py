"""A range of the user's code that recordings show, and that may stay in the code: without a profiler it does nothing.

Only private names show whether a profiler runs: run with torch 2.13.0 and 2.15.0.
"""

from __future__ import annotations

import sys
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

P = ParamSpec("P")
R = TypeVar("R")


def _is_capturing(torch: Any) -> bool:
    """Return whether the current stream is being captured: a replay of the graph shows the ranges of its capture."""
    return bool(torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing())


class mark:  # noqa: N801 - it is used as ``with mark("decode"):``
    """A range of this name around a block or a function, as ``torch.profiler.record_function`` makes it.

    .. code-block:: python

        with mark("decode"):
            tokens = model(x)

        @mark("sample")
        def sample(logits): ...

    It costs a lookup if no profiler runs, and imports nothing: a library can keep it. Inside code that torch.compile
    compiles it leaves no range, and breaks no graph: put it around the call of that code.
    """

    __slots__ = ("_open", "name")

    def __init__(self, name: str) -> None:
        """Take the name under which limits and reports know the range."""
        self.name = name
        self._open: tuple[Any, Any] | None = None
        """The open range, and those open around it: one object may be entered inside itself."""

    def __enter__(self) -> None:
        torch = sys.modules.get("torch")
        # Dynamo drops ranges, and breaks the graph at a query of the profiler.
        if torch is None or torch.compiler.is_dynamo_compiling():
            return
        if not torch.autograd._profiler_enabled() and not _is_capturing(torch):  # noqa: SLF001 - nothing public tells
            return
        range_ = torch.profiler.record_function(self.name)
        range_.__enter__()
        self._open = range_, self._open

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._open is not None:
            range_, self._open = self._open
            range_.__exit__(kind, value, traceback)

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        """Return the function with the range around each call."""

        @wraps(function)
        def within(*args: P.args, **kwargs: P.kwargs) -> R:
            with mark(self.name):
                return function(*args, **kwargs)

        return within
