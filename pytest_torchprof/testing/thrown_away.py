"""Errors that Python reports and throws away: of ``__del__``, of bare threads, of tasks that nobody awaits."""

from __future__ import annotations

import logging
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pytest_torchprof.reasons.errors import TorchprofError

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def kept_in(thrown_away: list[TorchprofError]) -> Iterator[None]:
    """Add our errors that are thrown away meanwhile to the list; they are reported as ever."""

    def keep(problem: BaseException | None) -> None:
        if isinstance(problem, TorchprofError):
            thrown_away.append(problem)

    def report(unraisable: sys.UnraisableHookArgs) -> None:
        keep(unraisable.exc_value)
        before(unraisable)

    def look(record: logging.LogRecord) -> bool:
        keep(record.exc_info[1] if record.exc_info else None)
        return True

    before, sys.unraisablehook = sys.unraisablehook, report
    asyncios = logging.getLogger("asyncio")
    asyncios.addFilter(look)
    try:
        yield
    finally:
        asyncios.removeFilter(look)
        sys.unraisablehook = before
