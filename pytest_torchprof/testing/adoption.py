"""``torchprof.adopt``: recordings of other processes become those of a test, and are judged like its own."""

from __future__ import annotations

import math
import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from msgspec import Struct
from msgspec.structs import replace

from pytest_torchprof import capture
from pytest_torchprof.capture.cupti_users import monitor_failures
from pytest_torchprof.limits.rank_limits import ON_ALL_RANKS
from pytest_torchprof.measuring.block import why_nothing_runs
from pytest_torchprof.reasons.adopting import (
    ExportSkipped,
    GpuWorkForCpu,
    NoRecordingLeft,
    NothingOfGpu,
    OtherDevice,
    OtherNumberAdopted,
    SignOfGpu,
    TooFewRecordings,
)
from pytest_torchprof.reasons.errors import NotMeasured, TorchprofError
from pytest_torchprof.reasons.errors import hide_our_frames as __tracebackhide__  # noqa: F401  (read by pytest)
from pytest_torchprof.reasons.misuse import CallWithout, ProducerRunsNothing, Takes, WrongArgument
from pytest_torchprof.reasons.wrong_values import ValueForm
from pytest_torchprof.recording.writer import write_adopted
from pytest_torchprof.testing.believed import as_asked, other_code
from pytest_torchprof.testing.gates import guarded, unmeasured
from pytest_torchprof.testing.left_recordings import left_in, numbers_of, why_mixed, why_stale
from pytest_torchprof.testing.rank_recordings import of_one_job
from pytest_torchprof.testing.replayed import kept_trace
from pytest_torchprof.trace.metadata import Adoption

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pytest_torchprof.profiles import Profile
    from pytest_torchprof.reasons.reason import Reason
    from pytest_torchprof.testing.left_recordings import LeftRecording
    from pytest_torchprof.testing.measurement import Measurement
    from pytest_torchprof.testing.test_run import TestRun
    from pytest_torchprof.trace import Trace

_MOST_FILES = 4096
_CALL = "torchprof.adopt()"


class AdoptionRequest(Struct, frozen=True, kw_only=True):
    """The recordings that a test wants to adopt."""

    source: Callable[[Path], object] | Path
    """The function to call with the folder in which the recordings are to be, or the path where they are."""
    label: str | None
    step: str | None
    files: int | Literal["any"]
    timeout_s: float

    @classmethod
    def read(cls, produce: object, label: object, step: object, files: object, timeout: object) -> AdoptionRequest:
        """Return the request that these arguments make; TorchprofError for arguments that cannot be meant."""
        source = Path(produce) if isinstance(produce, str | os.PathLike) else produce
        if not callable(source) and not isinstance(source, Path):
            raise TorchprofError.because(CallWithout(_CALL, Takes.PRODUCER, repr(produce)))
        if not isinstance(source, Path) and (reason := why_nothing_runs(source)) is not None:
            raise TorchprofError.because(ProducerRunsNothing(reason))
        for name, value in (("label", label), ("step", step)):
            if value is not None and (not isinstance(value, str) or not value):
                raise _wrong(name, ValueForm.TEXT, value)
        if files != "any" and (not isinstance(files, int) or isinstance(files, bool) or files < 1):
            raise _wrong("files", ValueForm.FILES, files)
        number = isinstance(timeout, int | float) and not isinstance(timeout, bool)
        if not number or not 0 <= timeout < math.inf:  # type: ignore[operator]
            raise _wrong("timeout", ValueForm.SECONDS, timeout)
        return cls(source=source, label=label, step=step, files=files, timeout_s=timeout)  # type: ignore[arg-type]


def _wrong(argument: str, expected: ValueForm, got: object) -> TorchprofError:
    return TorchprofError.because(WrongArgument(_CALL, argument, expected, repr(got)))


def adopt(run: TestRun, request: AdoptionRequest, limits: Mapping[str, object]) -> Profile | list[Profile]:
    """Make the recordings those of the test, and return their profiles; a list where several may be meant.

    Raises NotMeasured where they are missing, are not what was asked for, or cannot be believed.
    """
    options = run.test.state.options
    with run.taking(run.start(request.label, limits)) as asked:
        try:
            if not options.enabled:
                profiles = _unmeasured(run, asked, request)
            elif options.replay is not None:
                profiles = _kept_profiles(run, asked.label, request)
            else:
                profiles = _left_profiles(run, asked.label, request)
        except NotMeasured as problem:
            if asked.label in run.measurements:
                raise run.put(run.measurements[asked.label].refused(problem.reason)).error from None
            raise
    return profiles[0] if request.files == 1 else profiles


def _unmeasured(run: TestRun, asked: Measurement, request: AdoptionRequest) -> list[Profile]:
    """Call the function that produces the recordings, look at none, and return empty profiles."""
    if not isinstance(request.source, Path):
        with tempfile.TemporaryDirectory(prefix="torchprof-", ignore_cleanup_errors=True) as folder, run.alone():
            request.source(Path(folder))
    profiles = _profiles_of(run.put(unmeasured(asked, readable=frozenset())))
    return profiles * (1 if request.files == "any" else request.files)


def _left_profiles(run: TestRun, label: str | None, request: AdoptionRequest) -> list[Profile]:
    if isinstance(request.source, Path):
        return _take_left(run, label, request, request.source, began_ns=None)
    folder = run.test.state.recordings.new_folder()
    try:
        # By the clock of the files: that of the process may be ahead of it.
        began_ns = folder.stat().st_mtime_ns
        with monitor_failures() as failures:
            with run.alone():
                request.source(folder)
            try:
                return _take_left(run, label, request, folder, began_ns=began_ns)
            except NotMeasured as problem:
                raise _why_missing(problem, failures) from None
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _why_missing(problem: NotMeasured, failures: Sequence[str]) -> NotMeasured:
    """Return why recordings are missing: torch's own monitor of CUPTI made none, where it said so."""
    match problem.reason:
        case NoRecordingLeft(after_s=after_s) if failures:
            return NotMeasured(ExportSkipped(failures[-1], 0, after_s))
        case TooFewRecordings(after_s=after_s, files=files) if failures:
            return NotMeasured(ExportSkipped(failures[-1], len(files), after_s))
    return problem


def _take_left(
    run: TestRun, label: str | None, request: AdoptionRequest, place: Path, began_ns: int | None
) -> list[Profile]:
    files = left_in(place, request.files, timeout_s=request.timeout_s, patient=began_ns is not None)
    reasons = (why_stale(file, began_ns) for file in files if began_ns is not None)
    if reason := next((reason for reason in reasons if reason is not None), why_mixed(files)):
        raise NotMeasured(reason)
    numbers = numbers_of(files) if request.files != 1 else ()
    taken = {
        own: _written(run, own, request, file, numbers)
        for own, file in zip(_labels(run, label, numbers), files, strict=True)
    }
    return _judged(run, taken, request, live=True)


def _written(
    run: TestRun, label: str | None, request: AdoptionRequest, file: LeftRecording, numbers: tuple[int, ...]
) -> Trace:
    """Return the recording as it is kept: in a file of its own that says which test it belongs to."""
    test, trace = run.test, file.trace
    adoption = Adoption(
        nodeid=test.nodeid, label=label, step=request.step, device_asked=test.options.device, numbers=numbers
    )
    path = str(test.state.recordings.new_file(test.nodeid, label))
    write_adopted(trace, path, adoption)
    return replace(trace, path=path, adoption=adoption)


def _kept_profiles(run: TestRun, label: str | None, request: AdoptionRequest) -> list[Profile]:
    """Return the profiles of a replay's recordings, with the range that the test names now."""
    numbers: tuple[int, ...] = ()
    if request.files != 1:
        recordings, nodeid = run.test.state.recordings, run.test.nodeid
        each = (_numbered(label, number) for number in range(_MOST_FILES))
        first = kept_trace(run.test, recordings.numbered(nodeid, each) or _numbered(label, 0))
        numbers = first.adoption.numbers if first.adoption is not None else ()
        if request.files not in ("any", len(numbers)):
            raise NotMeasured(OtherNumberAdopted(len(numbers), str(request.files)))
    taken = {own: kept_trace(run.test, own) for own in _labels(run, label, numbers)}
    for own, trace in taken.items():
        adoption = trace.adoption or Adoption(nodeid=run.test.nodeid, label=own)
        taken[own] = replace(trace, adoption=replace(adoption, step=request.step))
    return _judged(run, taken, request, live=False)


def _numbered(label: str | None, number: int) -> str:
    return f"{label or ''}[{number}]"


def _labels(run: TestRun, label: str | None, numbers: Sequence[int]) -> list[str | None]:
    """Return a label for each recording; each of several is a measurement, in place of the one asked for."""
    if not numbers:
        return [label]
    limits = run.measurements[label].limits
    # What is asked of all ranks together is reported once, with the first.
    of_others = tuple(asked for asked in limits if asked.limit.name not in ON_ALL_RANKS)
    first, *others = (_numbered(label, number) for number in numbers)
    run.divide(label, {first: limits, **dict.fromkeys(others, of_others)})
    return [first, *others]


def _judged(run: TestRun, taken: Mapping[str | None, Trace], request: AdoptionRequest, *, live: bool) -> list[Profile]:
    """Add the measurements to the run, and return their profiles; NotMeasured where one of them cannot be believed."""
    problems: list[NotMeasured] = []
    believed: dict[str | None, Profile] = {}
    for label, trace in taken.items():
        measurement = run.put(replace(run.measurements[label], recording=Path(str(trace.path))))
        reason, asked = _as_asked(run, trace, live=live)
        profile = run.test.profile_of(asked)
        if reason := reason or profile.doubt or other_code(run.test.state.options.against, elsewhere=True):
            problems.append(run.put(measurement.refused(reason)).error)
            continue
        believed[label] = profile
    try:
        believed = believed if problems else of_one_job(believed, with_all=request.files == "any")
    except NotMeasured as mixed:
        problems = [run.put(run.measurements[label].refused(mixed.reason)).error for label in believed]
        believed = {}
    taken_over = [
        run.put(guarded(run.test, as_asked(run.test, replace(run.measurements[label], profile=profile))))
        for label, profile in believed.items()
    ]
    if problems:
        raise problems[0]
    return _profiles_of(*taken_over)


def _profiles_of(*measurements: Measurement) -> list[Profile]:
    return [measurement.profile for measurement in measurements if measurement.profile is not None]


def _as_asked(run: TestRun, trace: Trace, *, live: bool) -> tuple[Reason | None, Trace]:
    """Return the trace as a recording of the device that the test asks for, with the reason if it is not one."""
    asked, name = run.test.options.device, Path(str(trace.path)).name
    operations = len(trace.gpu) or len(trace.links.launches)
    on_cpu = not trace.device_kind.has_launches
    if trace.metadata is not None or (on_cpu and not operations):
        measured = trace.device_kind.name
        if asked in ("auto", measured) or (asked != "cpu" and not on_cpu):
            return None, trace
        return OtherDevice(name, measured, asked), trace
    if operations:
        return GpuWorkForCpu(name) if asked == "cpu" else None, replace(trace, taken_for=None)
    if asked == "cpu":
        return None, replace(trace, taken_for="cpu")
    if sign := _sign_of_gpu(run, trace, live=live):
        return NothingOfGpu(name, sign, asked if sign is SignOfGpu.ASKED else None), trace
    return None, replace(trace, taken_for="cpu")


def _sign_of_gpu(run: TestRun, trace: Trace, *, live: bool) -> SignOfGpu | None:
    """Return why work of a GPU should be in the recording; None where there may have been no GPU."""
    options = run.test.options
    if options.device != "auto":
        return SignOfGpu.ASKED
    if run.test.state.options.require_gpu:
        return SignOfGpu.REQUIRED
    if trace.header.get("deviceProperties"):
        return SignOfGpu.IN_RECORDING
    if live and capture.pick_device("auto") != "cpu":
        return SignOfGpu.HERE
    return None
