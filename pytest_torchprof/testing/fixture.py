"""The object that the ``torchprof`` fixture gives a test."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from functools import partial
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Unpack, overload

from pytest_torchprof import capture
from pytest_torchprof.limits.keywords import Limits
from pytest_torchprof.measuring.annotation import mark
from pytest_torchprof.measuring.block import MeasuredBlock, why_nothing_runs
from pytest_torchprof.profiles import Profile
from pytest_torchprof.reasons.errors import TorchprofError
from pytest_torchprof.reasons.errors import hide_our_frames as __tracebackhide__  # noqa: F401  (read by pytest)
from pytest_torchprof.reasons.misuse import CallWithout, KeywordHandedOver, Takes
from pytest_torchprof.reasons.reason import Reason
from pytest_torchprof.reasons.wrong_calls import refusing_wrong_calls
from pytest_torchprof.testing.marker_options import MARKER_OPTIONS
from pytest_torchprof.testing.measured_calls import measure_function, measured_calls
from pytest_torchprof.testing.ranks.place import Ranks
from pytest_torchprof.text import printable_line

if TYPE_CHECKING:
    from types import TracebackType

    import torch

    from pytest_torchprof.measuring.explanation import Explanation
    from pytest_torchprof.testing.measurement import Measurement
    from pytest_torchprof.testing.test_run import TestRun

Producer = Callable[[Path], object] | str | PathLike[str]


def _takes(function: Callable[..., Any], word: str) -> bool:
    """Return whether a function takes a keyword; of what does not say what it takes, too."""
    from inspect import Parameter, signature  # noqa: PLC0415 - few calls have such a keyword

    try:
        # The call of a module takes all that its forward may take.
        taken = signature(getattr(function, "forward", function)).parameters
    except (TypeError, ValueError):
        return True
    return word in taken or any(each.kind is Parameter.VAR_KEYWORD for each in taken.values())


class Torchprof:
    """Measures calls and blocks of one test; call it with a function and its arguments."""

    def __init__(self, run: TestRun) -> None:
        self._run = run

    def __repr__(self) -> str:
        """Return the text that pytest shows of it above the lines of a test that has failed."""
        return f"<torchprof of {self._run.test.nodeid.rpartition('::')[2]}>"

    @property
    def device(self) -> torch.device:
        """The device that this test is measured on; in a replay, what this machine has."""
        import torch  # noqa: PLC0415  (a replay without it never pays for torch)

        replay = self._run.test.state.options.replay is not None
        return torch.device(capture.pick_device("auto" if replay else self._run.test.options.device))

    @property
    def ranks(self) -> Ranks:
        """The job that this test runs in, and which of its ranks this is: ``rank``, ``world_size``, ``device``.

        The first look initializes the process group for the whole run, unless the test did: NCCL for GPUs, gloo for
        the CPU. Raises TorchprofError where there is no job: ``ranks=2`` in the marker starts one.
        """
        from pytest_torchprof.testing.ranks.group import join  # noqa: PLC0415 - only who asks pays

        state = self._run.test.state
        return join(self.device, state, replays=state.options.replay is not None)

    def _misused(self, title: str, problem: TorchprofError) -> TorchprofError:
        """Return the error of a call that cannot be met; the run knows of it, since the test may catch the error."""
        self._run.refuse(None, title, problem)
        return problem

    mark = mark
    """A range of the test's or the library's code: ``with torchprof.mark("decode"):``."""

    @refusing_wrong_calls("torchprof()", "torchprof(model, x)", _misused)
    def __call__(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Profile:
        """Call ``function`` as often as the measurement takes (3 + 5 times by default) and return its Profile.

        Raises NotMeasured if the recording cannot be believed after three attempts.
        """
        __tracebackhide__ = True  # noqa: F811 - what the function raises is an error of its own lines, or of those that call this.
        if not callable(function):
            why = CallWithout("torchprof()", Takes.FUNCTION, printable_line(repr(function), 60))
            raise self._misused("torchprof()", TorchprofError.because(why))
        if (word := next(filter({*MARKER_OPTIONS, *Limits.__annotations__}.__contains__, kwargs), None)) and not _takes(
            function, word
        ):
            raise self._misused("torchprof()", TorchprofError.because(KeywordHandedOver(word)))
        with self._run.taking(self._run.start(None, {})) as asked:
            if self._run.test.state.options.enabled and (reason := why_nothing_runs(function)):
                raise self._run.put(asked.refused(reason)).error
            result = measure_function(self._run, asked, partial(function, *args, **kwargs))
        measurement = self._run.measurements[asked.label]
        if measurement.profile is None:
            raise measurement.error
        return measurement.profile.with_result(result)

    @refusing_wrong_calls("torchprof.measure()", 'torchprof.measure("prefill")', _misused)
    def measure(self, label: str, **limits: Unpack[Limits]) -> TestBlock:
        """Return a context manager for a block under ``label``; ``limits`` hold for it beside the marker's.

        .. code-block:: python

            with torchprof.measure("prefill", max_kernels=80) as m:
                for _ in m.steps():
                    model.prefill(x)
        """
        if not isinstance(label, str) or not label:
            why = CallWithout("torchprof.measure()", Takes.LABEL, repr(label))
            raise self._misused("torchprof.measure()", TorchprofError.because(why))
        self._run.announce(label)
        return TestBlock(self._run, label, limits)

    @refusing_wrong_calls("torchprof.limits()", "torchprof.limits(max_kernels=5)", _misused)
    def limits(self, **limits: Unpack[Limits]) -> None:
        """Set limits for every later measurement of this test, such as limits that depend on a parameter.

        They win over the marker's of the same name and over what was set before, and a block's own win over them.
        Raises UnknownLimit for what is no limit or cannot hold beside the others.

        .. code-block:: python

            torchprof.limits(max_kernels=2 * layers)
            profile = torchprof(model, x)
        """
        self._run.set_limits(limits)

    @overload
    def adopt(  # type: ignore[overload-overlap]  # 1 is the one number of files that gives no list
        self,
        produce: Producer,
        label: str | None = None,
        *,
        step: str | None = None,
        files: Literal[1] = 1,
        timeout: float = 60,
        **limits: Unpack[Limits],
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
        **limits: Unpack[Limits],
    ) -> list[Profile]: ...

    @refusing_wrong_calls("torchprof.adopt()", 'torchprof.adopt(produce, "decode")', _misused)  # type: ignore[misc]  # its keywords come through unchanged
    def adopt(
        self,
        produce: Producer,
        label: str | None = None,
        *,
        step: str | None = None,
        files: int | Literal["any"] = 1,
        timeout: float = 60,
        **limits: Unpack[Limits],
    ) -> Profile | list[Profile]:
        """Make recordings of other processes the test's own; return the Profile, or a list unless ``files`` is 1.

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

        try:
            request = AdoptionRequest.read(produce, label, step, files, timeout)
        except TorchprofError as problem:
            raise self._misused("torchprof.adopt()", problem) from None
        return adopt(self._run, request, limits)


class TestBlock(MeasuredBlock):
    """A measured block of a test: one of its measurements, judged with the others when the body has passed."""

    __test__ = False

    def __init__(self, run: TestRun, label: str, limits: Mapping[str, object]) -> None:
        super().__init__(repr(label), "torchprof.measure")
        self._run = run
        self._label = label
        self._limits = limits
        self._last: Measurement | None = None

    def _begin(self) -> None:
        self._run.enter(self._label)
        self._last = self._run.start(self._label, self._limits)

    def _calls(self) -> Generator[None, None, None]:
        return measured_calls(self._run, self._run.measurements[self._label])

    @property
    def _measurement(self) -> Measurement | None:
        """The measurement, as far as it is known; None before the block is entered."""
        # The run drops what it has judged, and a block may be looked at later.
        if self._last is not None:
            self._last = self._run.measurements.get(self._label, self._last)
        return self._last

    @property
    def _explanation(self) -> Explanation | None:
        return None if (measurement := self._measurement) is None else measurement.explanation

    @property
    def _profile(self) -> Profile | None:
        return None if (measurement := self._measurement) is None else measurement.profile

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if isinstance(value, Exception):
            self._run.stop(self._label, value)
        super().__exit__(kind, value, traceback)

    def _left(self, reason: Reason) -> None:
        if (measurement := self._measurement) is not None and measurement.is_open:
            raise self._run.put(measurement.refused(reason)).error
