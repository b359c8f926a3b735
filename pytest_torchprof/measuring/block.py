"""A block of code that is measured by its own loop: entered once, run to its end, or not measured."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterator
from itertools import starmap
from types import AsyncGeneratorType, CoroutineType, GeneratorType
from typing import TYPE_CHECKING, Any, NoReturn, Self

from pytest_torchprof.limits.asked import idle_step
from pytest_torchprof.profiles import Profile
from pytest_torchprof.reasons.errors import TorchprofError
from pytest_torchprof.reasons.errors import hide_our_frames as __tracebackhide__  # noqa: F401  (read by pytest)
from pytest_torchprof.reasons.measuring import OnlyMakesAnObject, ReturnsWork, StepsLeft, StepsNotStarted
from pytest_torchprof.reasons.misuse import EnteredTwice, ProfileTooEarly, StepsOutside, StepsTwice
from pytest_torchprof.reasons.reason import Reason
from pytest_torchprof.reasons.wrong_calls import refusing_wrong_calls

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import TracebackType

    from pytest_torchprof.measuring.explanation import Explanation

Calls = Generator[None, None, None]
_ONLY_MAKE_AN_OBJECT = (inspect.iscoroutinefunction, inspect.isgeneratorfunction, inspect.isasyncgenfunction)


def why_nothing_runs(function: Callable[..., Any]) -> Reason | None:
    """Return why a call of the function runs none of its code; None if it does run it."""
    if not any(is_kind(function) for is_kind in _ONLY_MAKE_AN_OBJECT):
        return None
    return OnlyMakesAnObject(repr(function))


def why_work_not_done(measured: Profile, returned: object) -> Reason | None:
    """Return why a measurement in which nothing ran is none: the call returned work that is to be done later.

    It may be in a list or a tuple. None for any other measurement. A function of a kind that returns such work is
    refused by ``why_nothing_runs`` before it is called; a lambda may return it as well.
    """
    if not isinstance(returned, list | tuple) and not _is_work(returned):
        return None
    if idle_step(measured, ()) is None or (work := next(filter(_is_work, _values(returned)), None)) is None:
        return None
    kind = type(work).__name__.replace("_", " ")
    return ReturnsWork(f"{kind} {getattr(work, '__qualname__', 'object')}")


def _values(returned: object) -> Iterable[object]:
    """Return the values of a list or a tuple, of whatever class, without its own code; any other value alone."""
    match returned:
        case list():
            return list.__iter__(returned)
        case tuple():
            return tuple.__iter__(returned)
        case _:
            return (returned,)


def _is_work(returned: object) -> bool:
    """Return whether a value calls functions when it is driven, and nobody has begun that as far as can be seen."""
    match returned:
        case GeneratorType():
            return inspect.getgeneratorstate(returned) == inspect.GEN_CREATED
        case CoroutineType():
            return inspect.getcoroutinestate(returned) == inspect.CORO_CREATED
        case _:
            return isinstance(returned, AsyncGeneratorType | map | filter | starmap)


class MeasuredBlock(ABC):
    """A measured block; ``steps()`` yields once for each call of the measured code."""

    def __init__(self, title: str, call: str) -> None:
        """Take the block's name in messages, and the call that makes such a block."""
        self._title = title
        self._call = call
        self._entered = False
        self._steps: Calls | None = None
        self._count = 0

    # For type checkers a block has what it has.
    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            """Say where it is that a block lacks and its profile has; AttributeError in any case."""
            __tracebackhide__ = True  # it is the test's line that asks
            text = f"{type(self).__name__!r} object has no attribute {name!r}"
            if not name.startswith("_") and hasattr(Profile, name):
                text = f"the measured block has no {name!r}, its profile has: m.profile.{name}"
            raise AttributeError(text, name=name, obj=self)

    @abstractmethod
    def _begin(self) -> None:
        """Begin the measurement, or raise the reason for which there can be none."""

    @abstractmethod
    def _calls(self) -> Calls:
        """Yield once for each call of the measured code, and leave a profile behind."""

    @property
    @abstractmethod
    def _explanation(self) -> Explanation | None:
        """The explanation of a missed limit; None before the block is entered."""

    @property
    @abstractmethod
    def _profile(self) -> Profile | None:
        """The profile of the measurement; None if nothing was measured."""

    @abstractmethod
    def _left(self, reason: Reason) -> None:
        """Raise the reason for which the block that was left measured nothing, unless it is known already."""

    def __enter__(self) -> Self:
        if self._entered:
            raise TorchprofError.because(EnteredTwice(self._title, self._call))
        self._begin()
        self._entered = True
        return self

    @refusing_wrong_calls("m.steps()", "for _ in m.steps():", lambda _, __, problem: problem)
    def steps(self) -> Iterator[None]:
        """Yield for every warm-up and measured call of the block; run through it once, to its end."""
        if not self._entered:
            raise TorchprofError.because(StepsOutside(self._call))
        if self._steps is not None:
            raise TorchprofError.because(StepsTwice(self._title))
        self._steps = self._counted()
        return self._steps

    def _counted(self) -> Calls:
        iterations = self._calls()
        try:
            for _ in iterations:
                self._count += 1
                yield
        finally:
            iterations.close()

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if not self._entered:
            return
        explanation = self._explanation
        if value is not None and explanation is not None and explanation.running:
            # The measurement stands: an exception in its repeat is no failure.
            explanation.call_raised(value)
        if self._steps is not None:
            # An exception leaves the loop's generator suspended, and with it the profiler running.
            self._steps.close()
        if kind is None and self._profile is None:
            is_started = self._steps is not None
            self._left(StepsLeft(self._title, self._count) if is_started else StepsNotStarted(self._title))

    @property
    def profile(self) -> Profile:
        """The block's Profile, after the block."""
        if (profile := self._profile) is None:
            raise TorchprofError.because(ProfileTooEarly(self._title))
        return profile
