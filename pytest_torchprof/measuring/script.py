"""Measurements outside of tests: in a script or a notebook, through the same capture and with the same limits."""

from __future__ import annotations

import inspect
import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Unpack

from pytest_torchprof import capture
from pytest_torchprof.devices.kinds import kind_of
from pytest_torchprof.limits import (
    GPU,
    Screen,
    check_limits,
    divided,
    error_for,
    needs_flops,
    nothing_known,
    read_limits,
    something_ran,
)
from pytest_torchprof.limits.keywords import LimitsOfProfile
from pytest_torchprof.measuring.block import MeasuredBlock, why_nothing_runs, why_work_not_done
from pytest_torchprof.measuring.explanation import Explanation
from pytest_torchprof.measuring.keyword_values import DEVICE, STEPS, WARMUP, at_least, device_name, read_keyword
from pytest_torchprof.profiles import READABLE_WITHOUT_GPU, Profile
from pytest_torchprof.reasons.asked_wrongly import MeantForEither
from pytest_torchprof.reasons.codes import Code
from pytest_torchprof.reasons.composed import MaybeOfFunction
from pytest_torchprof.reasons.errors import NotMeasured, TorchprofError, UnknownLimit, not_measured
from pytest_torchprof.reasons.errors import hide_our_frames as __tracebackhide__  # noqa: F401  (read by pytest)
from pytest_torchprof.reasons.measuring import NoGpuHere
from pytest_torchprof.reasons.misuse import CallWithout, Takes
from pytest_torchprof.reasons.reason import Reason
from pytest_torchprof.recording.reader import read
from pytest_torchprof.text import printable_line

if TYPE_CHECKING:
    from types import TracebackType

    import torch

    from pytest_torchprof.limits import Asked, Verdict
    from pytest_torchprof.measuring.block import Calls
    from pytest_torchprof.reasons.errors import LimitsMissed

_SCREEN = Screen(rest="")
_STACKS = "recording.stacks.json"
_OPTIONS = {"steps": (at_least(1), STEPS), "warmup": (at_least(0), WARMUP), "device": (device_name, DEVICE)}


def profile(
    function: Callable[..., Any],
    /,
    *args: Any,
    steps: int = STEPS,
    warmup: int = WARMUP,
    device: str | torch.device = DEVICE,
    **limits: Unpack[LimitsOfProfile],
) -> Profile:
    """Call ``function(*args)`` ``warmup + steps`` times and return the Profile of the steps, in a script or notebook.

    Keywords are limits, as in the marker. Keyword arguments of ``function`` are bound to it:
    ``profile(functools.partial(model, mask=mask), x)``. ``profile.result`` is the value that the last call returned.
    The Profile keeps the function, to call it once more if ``profile.expect(...)`` is missed and lines are looked for.

    Raises LimitsMissed or NotMeasured as a test would fail, and any exception of ``function``. Without a GPU, "auto"
    shows only the compiler's work: limits and numbers of the GPU are not measured. "cpu" measures the CPU.
    """
    __tracebackhide__ = True  # noqa: F811 - what the function raises is an error of its own lines, or of those that call this.
    if not callable(function):
        given = printable_line(repr(function), 60)
        raise TorchprofError.because(CallWithout("profile()", Takes.FUNCTION, given, Code.BAD_VALUE))
    block = ScriptBlock(None, limits, steps=steps, warmup=warmup, device=device)
    _refuse_ambiguous(function, {"steps": steps, "warmup": warmup, "device": device, **limits})
    if (reason := why_nothing_runs(function)) is not None:
        raise not_measured(reason)
    result = None
    with block:
        for _ in block.steps():
            result = None  # A result that lived through the next call would count as memory of that call.
            result = function(*args)
    if (reason := why_work_not_done(block.profile, result)) is not None:
        raise not_measured(reason)
    block.can_call(partial(function, *args))
    return block.profile.with_result(result)


def measure(
    label: str | None = None,
    *,
    steps: int = STEPS,
    warmup: int = WARMUP,
    device: str | torch.device = DEVICE,
    **limits: Unpack[LimitsOfProfile],
) -> MeasuredBlock:
    """Return a context manager that measures a block of a script or a notebook; ``m.profile`` is there after it.

    .. code-block:: python

        with pytest_torchprof.measure("prefill", max_kernels=80) as m:
            for _ in m.steps():
                model.prefill(x)

    The label begins the text of errors. Limits, device and errors are as in ``profile``; a missed limit is raised at
    the end of the block.
    """
    return ScriptBlock(label, limits, steps=steps, warmup=warmup, device=device)


def _refuse_ambiguous(function: Callable[..., Any], given: Mapping[str, object]) -> None:
    """Raise UnknownLimit for a keyword that the measured function has too, for which it may be meant."""
    try:
        parameters = set(inspect.signature(function).parameters) - set(getattr(function, "keywords", ()))
    except (TypeError, ValueError):  # Some functions written in C have no signature.
        return
    for name, value in given.items():
        if name in parameters and (name not in _OPTIONS or value != _OPTIONS[name][1]):
            raise UnknownLimit.because(MeantForEither(name, repr(value)))


class ScriptBlock(MeasuredBlock):
    """A measured block outside of tests: judged at its end."""

    _KEYWORDS_OF_CODE: ClassVar[bool] = True
    """Whether a keyword that is no limit may be meant for the measured code."""

    def __init__(self, label: str | None, limits: Mapping[str, object], **options: object) -> None:
        super().__init__("measure()" if label is None else repr(label), "pytest_torchprof.measure")
        self._label = label
        self._own_kernels, limits = divided(limits)
        self._asked = self._read_limits(limits)
        self._options: dict[str, Any] = {name: read_option(name, value) for name, value in options.items()}
        self._device = ""
        self._measured: Profile | None = None
        # Every view of the Profile refers to this too: the recording's folder is removed with it.
        self._own = Explanation(screen=_SCREEN)

    def _read_limits(self, given: Mapping[str, object]) -> tuple[Asked, ...]:
        try:
            return read_limits(given)
        except UnknownLimit as problem:
            if problem.code is not Code.UNKNOWN_KEYWORD or not self._KEYWORDS_OF_CODE:
                raise
            raise UnknownLimit.because(MaybeOfFunction(problem.reason)) from None

    def _begin(self) -> None:
        self._device = device_for(self._asked, self._options["device"])

    @property
    def _stands_in(self) -> bool:
        return stands_in(self._options["device"], self._device)

    def _calls(self) -> Calls:
        plan = capture.Plan(
            device=self._device,
            asked=self._options["device"],
            warmup=self._options["warmup"],
            steps=self._options["steps"],
            record=frozenset(),
            nodeid=None,
            label=self._label,
            count_flops=needs_flops(self._asked),
        )
        folder = Path(tempfile.mkdtemp(prefix="torchprof-"))
        weakref.finalize(self._own, shutil.rmtree, folder, ignore_errors=True)
        measured: Profile | None = None

        def check(recording: Path) -> Reason | None:
            nonlocal measured
            measured = Profile.from_trace(read(recording)).with_own_kernels(self._own_kernels)
            return measured.doubt

        capture.tell_slow_export(self._device)
        try:
            with closing(capture.iterations(plan, folder / "recording.json", check)) as calls:
                yield from calls
        except NotMeasured as problem:
            raise not_measured(problem.reason, ask_the_doctor=problem.reason.for_the_doctor) from None
        if measured is None:
            return
        self._measured = measured
        self._own.made_by(plan)
        wants_lines = any(verdict.wants_lines for verdict in self._judge(measured))
        if wants_lines and not measured.launching.origins.recorded:
            yield from self._own.calls(plan, folder / _STACKS)

    def can_call(self, function: Callable[[], object]) -> None:
        """Let a missed limit of a later request be explained by another call of the measured code."""
        if self._measured is not None and self._measured.trace.path is not None:
            stacks = Path(self._measured.trace.path).with_name(_STACKS)
            self._own.call_by(partial(_call_again, stacks, function))

    @property
    def _explanation(self) -> Explanation:
        return self._own

    @property
    def _profile(self) -> Profile | None:
        if self._measured is None:
            return None
        gate = _refuse_gpu_numbers if self._stands_in else None
        return self._measured.with_context(rules=None, gate=gate).with_explainer(self._own)

    def _left(self, reason: Reason) -> None:
        raise not_measured(reason)

    def _judge(self, measured: Profile) -> tuple[Verdict, ...]:
        return judge(measured, self._asked, stands_in=self._stands_in)

    def _with_lines(self) -> Profile | None:
        """Return the recorded profile with the lines that a repeat found, without a gate that refuses numbers."""
        measured, repeat = self._measured, self._own.repeat
        return measured if measured is None or repeat is None else measured.with_repeat(repeat)

    def _problem(self) -> LimitsMissed | NotMeasured | None:
        if (measured := self._with_lines()) is None:
            return None
        problem = problem_of(self._judge(measured), measured)
        return problem if problem is None or self._label is None else type(problem)(f"{self._label}: {problem}")

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        super().__exit__(kind, value, traceback)
        stands = kind is None or value is self._own.raised
        if stands and (problem := self._problem()) is not None:
            raise problem from None


def device_for(asked: Sequence[Asked], device: str) -> str:
    """Return the device that is measured for the requested ``device``; NotMeasured if these limits need another."""
    picked = capture.pick_device(device)
    if stands_in(device, picked) and (names := [wanted.limit.name for wanted in asked if wanted.limit.needs == GPU]):
        raise not_measured(NoGpuHere(capture.no_gpu(), limits=tuple(names)))
    return picked


def stands_in(asked: str, device: str) -> bool:
    """Return whether the CPU is measured only because there is no GPU."""
    return asked == DEVICE and not kind_of(device).has_launches


def judge(measured: Profile, asked: Sequence[Asked], *, stands_in: bool) -> tuple[Verdict, ...]:
    """Return the verdicts on limits; without limits the verdict that it is not known whether anything ran, if so."""
    if asked:
        return check_limits(measured, asked)
    unknown = None if stands_in else nothing_known(measured, ())
    return (something_ran(unknown),) if unknown else ()


def problem_of(
    verdicts: Iterable[Verdict], measured: Profile, screen: Screen = _SCREEN
) -> LimitsMissed | NotMeasured | None:
    """Return the error for verdicts that do not hold; None if all do."""
    return error_for(verdicts, measured, measured.why_missed, screen=screen)


def _call_again(path: Path, function: Callable[[], object], explanation: Explanation) -> None:
    def call() -> None:
        try:
            function()
        except Exception as problem:  # noqa: BLE001 - it is only a reason why there are no lines
            explanation.call_raised(problem)

    explanation.call_again(path, call)


def read_option(name: str, value: object) -> Any:
    """Return the value of steps, warmup or device; UnknownLimit for an invalid one."""
    return read_keyword(name, value, _OPTIONS[name][0])


def _refuse_gpu_numbers(name: str) -> None:
    """Raise NotMeasured for the name of a number that only a GPU has."""
    if name not in READABLE_WITHOUT_GPU:
        raise not_measured(NoGpuHere(capture.no_gpu(), number=name))
