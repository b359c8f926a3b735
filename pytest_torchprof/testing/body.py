"""The body of a test as the measured step: it is called as often as the measurement takes."""

from __future__ import annotations

import inspect
from contextlib import contextmanager, nullcontext
from functools import partial, wraps
from typing import TYPE_CHECKING, Any

from pytest_torchprof.reasons.errors import hide_our_frames as __tracebackhide__  # noqa: F401  (read by pytest)
from pytest_torchprof.testing.measured_calls import measure_function

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    import pytest

    from pytest_torchprof.testing.test_run import TestRun


@contextmanager
def measured_body(
    run: TestRun, item: pytest.Item, around: Callable[[], AbstractContextManager[None]] = nullcontext
) -> Iterator[None]:
    """Around the call of the test: where the body is the step, call it as often as it takes.

    ``around`` is entered around the body itself, inside everything that the test's framework does.
    """
    # Every item that a marker measures has one.
    original = item.obj  # type: ignore[attr-defined]

    # unittest looks at what a method is marked with, such as an expected failure.
    @wraps(original)
    def body(*args: Any, **kwargs: Any) -> Any:
        with around():
            if not run.body_is_step:
                return original(*args, **kwargs)
            with run.taking(run.start_body()) as asked:
                return measure_function(run, asked, partial(original, *args, **kwargs))

    @wraps(original)
    async def async_body(*args: Any, **kwargs: Any) -> Any:
        with around():
            return await original(*args, **kwargs)

    # unittest looks a coroutine method up by itself.
    looked_up = around is not nullcontext and inspect.iscoroutinefunction(original)
    if looked_up:
        setattr(original.__self__, item.name, async_body)
    elif run.body_is_step or around is not nullcontext:
        item.obj = body  # type: ignore[attr-defined]
    try:
        yield
    finally:
        item.obj = original  # type: ignore[attr-defined]
        if looked_up:
            delattr(original.__self__, item.name)
