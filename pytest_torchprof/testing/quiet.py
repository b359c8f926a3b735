"""Keeps torch's own trace of a compilation out of what pytest shows of a test."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from pytest_torchprof.capture import torch_dynamo

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def without_trace_records() -> Iterator[None]:
    """Take pytest's handlers off the logger of torch's trace for a phase of a test.

    Since version 9.1 pytest listens to the loggers that keep their records to themselves, too. The records of this one
    have no message: each compilation would leave hundreds of empty lines in front of the failure's own text, and torch
    would take the time to make them. A handler that the user asked for (``TORCH_TRACE``) stays.
    """
    logger = torch_dynamo.trace_logger()
    if logger is None:
        yield
        return
    taken = [handler for handler in logger.handlers if type(handler).__module__ == "_pytest.logging"]
    for handler in taken:
        logger.removeHandler(handler)
    try:
        yield
    finally:
        for handler in taken:
            logger.addHandler(handler)
