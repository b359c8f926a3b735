"""What the ``torchprof`` fixture gives a test."""

from __future__ import annotations

import inspect
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Self, overload

from pytest_torchprof import capture
from pytest_torchprof.codes import Code, coded
from pytest_torchprof.errors import TorchprofError
from pytest_torchprof.errors import hide_our_frames as __tracebackhide__  # noqa: F401  (read by pytest)
from pytest_torchprof.testing.test_run import measure_function, measured_calls
from pytest_torchprof.text import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Mapping
    from os import PathLike
    from pathlib import Path
    from types import TracebackType

    import torch

    from pytest_torchprof.profiles import Profile
    from pytest_torchprof.testing.measurement import Measurement
    from pytest_torchprof.testing.test_run import TestRun

    Producer = Callable[[Path], object] | str | PathLike[str]

_ONLY_MAKE_AN_OBJECT = (inspect.iscoroutinefunction, inspect.isgeneratorfunction, inspect.isasyncgenfunction)


class Torchprof:
    """Measures calls and blocks of one test; call it with a function and its arguments."""

    def __init__(self, run: TestRun) -> None:
        self._run = run

    @property
    def device(self) -> torch.device:
        """The device that this test is measured on; in a replay, what this machine has."""
        import torch  # noqa: PLC0415  (a replay without it never pays for torch)

        replay = self._run.test.state.options.replay is not None
        return torch.device(capture.pick_device("auto" if replay else self._run.test.options.device))

    def __call__(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Profile:
        """Call ``function`` as often as the measurement takes (3 + 5 times by default) and return its Profile.

        Raises NotMeasured where the recording cannot be believed after three attempts.
        """
        label = self._run.start(None, {})
        enabled = self._run.test.state.options.enabled
        if enabled and any(is_kind(function) for is_kind in _ONLY_MAKE_AN_OBJECT):
            raise self._run.change(
                label,
                why_not=coded(
                    f"calling {function!r} only makes an object and runs none of its code; measure what drives it",
                    Code.NOTHING_MEASURED,
                ),
            ).error
        result = measure_function(self._run, label, partial(function, *args, **kwargs))
        measurement = self._run.measurements[label]
        if measurement.profile is None:
            raise measurement.error
        return measurement.profile.with_result(result)

    def measure(self, label: str, **limits: object) -> MeasuredBlock:
        """Return a context manager for a block under ``label``; ``limits`` hold for it beside the marker's.

        .. code-block:: python

            with torchprof.measure("prefill", max_kernels=80) as m:
                for _ in m.steps():
                    model.prefill(x)
        """
        if not isinstance(label, str) or not label:
            raise TorchprofError(
                f"torchprof.measure() takes a label, a text that is not empty; got {label!r}", Code.FIXTURE_MISUSE
            )
        self._run.announced.append(label)
        return MeasuredBlock(self._run, label, limits)

    @overload
    def adopt(  # type: ignore[overload-overlap]  # 1 is the one number of files that gives no list
        self,
        produce: Producer,
        label: str | None = None,
        *,
        step: str | None = None,
        files: Literal[1] = 1,
        timeout: float = 60,
        **limits: object,
    ) -> Profile: ...

    @overload
    def adopt(
        self,
        produce: Producer,
        label: str | None = None,
        *,
        step: str | None = None,
        files: int | Literal["any"],
        timeout: float = 60,
        **limits: object,
    ) -> list[Profile]: ...

    def adopt(
        self,
        produce: Producer,
        label: str | None = None,
        *,
        step: str | None = None,
        files: int | Literal["any"] = 1,
        timeout: float = 60,
        **limits: object,
    ) -> Profile | list[Profile]:
        """Make recordings of other processes the test's own; return the Profile, a list for other ``files`` than 1.

        ``produce(folder)`` is called once, and lets whoever measures leave ``.json`` or ``.json.gz`` files of
        torch.profiler in the empty folder; a path says where some are. A replay judges what was kept and calls nothing.
        ``step`` names a range on the CPU, such as a ``record_function``, whose outermost occurrences are the steps.
        ``timeout``: seconds to wait, once it has returned, for files that are still being written.

        Raises NotMeasured where the recordings are missing, incomplete, older than the call or not to be believed.

        .. code-block:: python

            def serve(folder):
                subprocess.run([sys.executable, "train.py", f"--profile-to={folder}"], check=True)

            profile = torchprof.adopt(serve, "decode", step="forward", max_syncs=0)
        """
        from pytest_torchprof.testing.adoption import AdoptionRequest, adopt  # noqa: PLC0415 - only who asks pays

        return adopt(self._run, AdoptionRequest.read(produce, label, step, files, timeout), limits)


class MeasuredBlock:
    """A measured block; ``steps()`` yields once for each call of the measured code."""

    def __init__(self, run: TestRun, label: str, limits: Mapping[str, object]) -> None:
        self._run = run
        self._label = label
        self._limits = limits
        self._last: Measurement | None = None
        self._steps: Generator[None, None, None] | None = None
        self._count = 0

    def __enter__(self) -> Self:
        if self._last is not None:
            raise TorchprofError(
                f"the block {self._label!r} is entered twice; each block has its own: with torchprof.measure(...) as m",
                Code.FIXTURE_MISUSE,
            )
        self._run.start(self._label, self._limits)
        self._last = self._run.measurements[self._label]
        self._run.announced.remove(self._label)
        return self

    @property
    def _measurement(self) -> Measurement | None:
        """What is known of the measurement; None before the block is entered."""
        # The run drops what it has judged, and a block may be looked at later.
        if self._last is not None:
            self._last = self._run.measurements.get(self._label, self._last)
        return self._last

    def steps(self) -> Iterator[None]:
        """Yield for every warm-up and measured call of the block; run through it once, to its end."""
        if self._last is None:
            said = "m.steps() is used inside the block: with torchprof.measure(...) as m"
            raise TorchprofError(said, Code.FIXTURE_MISUSE)
        if self._steps is not None:
            said = f"m.steps() was asked for twice in the block {self._label!r}; one block, one loop"
            raise TorchprofError(said, Code.FIXTURE_MISUSE)
        self._steps = self._counted()
        return self._steps

    def _counted(self) -> Generator[None, None, None]:
        iterations = measured_calls(self._run, self._label)
        try:
            for _ in iterations:
                self._count += 1
                yield
        finally:
            iterations.close()

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if (measurement := self._measurement) is None:
            return
        if value is not None and measurement.explanation.running:
            # The measurement stands: what is raised when it is repeated does not fail the test by itself.
            measurement.explanation.call_raised(value)
        elif isinstance(value, Exception):
            self._run.stopped(self._label, value)
        if self._steps is not None:
            # An exception leaves the loop's generator suspended, and with it the profiler running.
            self._steps.close()
        if kind is None and measurement.profile is None and measurement.why_not is None:
            after = f"was left after {counted(self._count, 'call')}" if self._steps is not None else "was never started"
            reason = f"m.steps() of {self._label!r} {after}: run `for _ in m.steps():` to its end"
            raise self._run.change(self._label, why_not=coded(reason, Code.NOT_RUN_TO_END)).error

    @property
    def profile(self) -> Profile:
        """The block's Profile, after the block."""
        if (measurement := self._measurement) is None or measurement.profile is None:
            said = f"m.profile of {self._label!r} is there after the block, when its steps have run"
            raise TorchprofError(said, Code.FIXTURE_MISUSE)
        return measurement.profile
