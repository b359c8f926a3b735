"""The body of a test as the measured step: it is called as often as the measurement takes."""

from __future__ import annotations

import inspect
from contextlib import contextmanager, nullcontext
from functools import partial, wraps
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from pytest_torchprof.reasons.errors import NotMeasured
from pytest_torchprof.reasons.errors import hide_our_frames as __tracebackhide__  # noqa: F401  (read by pytest)
from pytest_torchprof.testing.measured_calls import measure_function

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    import pytest

    from pytest_torchprof.testing.test_run import TestRun


def _measured(run: TestRun, function: Callable[[], Any]) -> Any:
    """Call the body as often as it takes, and return what the last call returned.

    Where a rule of the suite only warns, a test runs also if it cannot be measured.
    """
    calls = _BodyCalls(function)
    try:
        with run.taking(run.start_body()) as asked:
            return measure_function(run, asked, calls)
    except NotMeasured:
        if not run.test.options.warns_of("") or calls.raised:
            raise
        return calls.result if calls.made else function()


class _BodyCalls(Struct):
    """Calls a function, and knows what became of that."""

    function: Callable[[], Any]
    made: int = 0
    raised: bool = False
    result: Any = None

    def __call__(self) -> Any:
        self.made += 1
        self.result, self.raised = None, True
        result = self.function()
        self.result, self.raised = result, False
        return result


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
            return _measured(run, partial(original, *args, **kwargs))

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
