"""What the ``torchprof`` fixture gives a test."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, Self

from pytest_torchprof.errors import TorchprofError
from pytest_torchprof.errors import hide_our_frames as __tracebackhide__  # noqa: F401  (read by pytest)
from pytest_torchprof.text.plural import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Mapping
    from types import TracebackType

    import torch

    from pytest_torchprof.profile import Profile
    from pytest_torchprof.testing.measure import TestRun
    from pytest_torchprof.testing.measured import Measured


class Torchprof:
    """Measures calls and blocks of one test; call it with a function and its arguments."""

    def __init__(self, run: TestRun) -> None:
        self._run = run

    @property
    def device(self) -> torch.device:
        """The device that this test is measured on, as this machine has it."""
        return self._run.device

    def __call__(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Profile:
        """Call ``function`` as often as the measurement takes (3 + 5 times by default) and return its Profile.

        Raises NotMeasured where the recording cannot be believed after three attempts.
        """
        measured = self._run.start(None, {})
        if _only_makes_an_object(function):
            measured.why_not = (
                f"calling {function!r} only makes an object and runs none of its code; measure what drives it"
            )
            raise measured.error
        result = self._run.repeat(measured, function, args, kwargs)
        return _profile_of(measured).with_result(result)

    def measure(self, label: str, **limits: object) -> Measurement:
        """Return a context manager for a block under ``label``; ``limits`` hold for it beside the marker's.

        .. code-block:: python

            with torchprof.measure("prefill", max_kernels=80) as m:
                for _ in m.steps():
                    model.prefill(x)
        """
        if not isinstance(label, str) or not label:
            raise TorchprofError(f"torchprof.measure() takes a label, a text that is not empty; got {label!r}")
        self._run.announced.append(label)
        return Measurement(self._run, label, limits)


class Measurement:
    """A measured block; ``steps()`` yields once for each call of the measured code."""

    def __init__(self, run: TestRun, label: str, limits: Mapping[str, object]) -> None:
        self._run = run
        self._label = label
        self._limits = limits
        self._measured: Measured | None = None
        self._steps: Generator[None, None, None] | None = None
        self._count = 0

    def __enter__(self) -> Self:
        if self._measured is not None:
            raise TorchprofError(
                f"the block {self._label!r} is entered twice; each block has its own: with torchprof.measure(...) as m"
            )
        self._measured = self._run.start(self._label, self._limits)
        self._run.announced.remove(self._label)
        return self

    def steps(self) -> Iterator[None]:
        """Yield for every warm-up and measured call of the block; run through it once, to its end."""
        if self._measured is None:
            raise TorchprofError("m.steps() is used inside the block: with torchprof.measure(...) as m")
        if self._steps is not None:
            raise TorchprofError(f"m.steps() was asked for twice in the block {self._label!r}; one block, one loop")
        self._steps = self._counted(self._measured)
        return self._steps

    def _counted(self, measured: Measured) -> Generator[None, None, None]:
        iterations = self._run.iterations(measured)
        try:
            for _ in iterations:
                self._count += 1
                yield
        finally:
            iterations.close()

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        measured = self._measured
        if measured is None:
            return
        if value is not None and measured.explaining.running:
            # The measurement stands: what is raised when it is repeated does not fail the test by itself.
            measured.explaining.raised(value)
            self._run.raised_again = value
        if self._steps is not None:
            # An exception leaves the loop's generator suspended, and with it the profiler running.
            self._steps.close()
        if kind is None and measured.profile is None and measured.why_not is None:
            after = f"was left after {counted(self._count, 'call')}" if self._steps is not None else "was never started"
            measured.why_not = f"m.steps() of {self._label!r} {after}: run `for _ in m.steps():` to its end"
            raise measured.error

    @property
    def profile(self) -> Profile:
        """The block's Profile, after the block."""
        if self._measured is None or self._measured.profile is None:
            raise TorchprofError(f"m.profile of {self._label!r} is there after the block, when its steps have run")
        return _profile_of(self._measured)


def _only_makes_an_object(function: Callable[..., Any]) -> bool:
    kinds = (inspect.iscoroutinefunction, inspect.isgeneratorfunction, inspect.isasyncgenfunction)
    return any(is_kind(function) for is_kind in kinds)


def _profile_of(measured: Measured) -> Profile:
    if measured.profile is None:
        raise measured.error
    return measured.profile
