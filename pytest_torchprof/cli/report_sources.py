"""The input of ``torchprof report``: recordings, folders of them, and JSON reports with their recordings."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pytest_torchprof.cli import UsageError
from pytest_torchprof.cli.report_file import is_report, read_report
from pytest_torchprof.profiles import load_each, load_file
from pytest_torchprof.reasons.errors import TorchprofError
from pytest_torchprof.recording.files import is_stacks_name
from pytest_torchprof.recording.text import is_special
from pytest_torchprof.report.outcome import Outcome
from pytest_torchprof.report.page.build import Heading
from pytest_torchprof.report.page.jobs import parts_beside
from pytest_torchprof.report.page.measured import Measured, in_page, of_recording
from pytest_torchprof.report.result import Result
from pytest_torchprof.report.terminal import describe_environment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pytest_torchprof.report.page.verdicts import Noun
    from pytest_torchprof.trace.metadata import Environment

Key = tuple[str, str | None]
_BESIDE: Final = "torchprof-recordings"


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A file or folder on the command line."""

    path: Path
    device: str | None
    results: tuple[Result, ...] | None = None
    """The results of a JSON report; None for recordings."""
    environment: Environment | None = None

    @property
    def is_single(self) -> bool:
        """Whether it is a single recording, which is compared with another one whatever their names are."""
        return self.results is None and not self.path.is_dir()

    def measurements(self) -> Iterator[Measured]:
        """Yield its measurements, with one recording in memory at a time."""
        if self.results is not None:
            yield from self._of_report()
        elif self.is_single:
            yield of_recording(load_file(str(self.path), device=self.device), self.path.name)
        else:
            for profile in load_each(self.path, device=self.device):
                name = str(profile.trace.path)
                if not is_stacks_name(name):
                    yield of_recording(profile, Path(name).relative_to(self.path).as_posix())

    def _of_report(self) -> Iterator[Measured]:
        results = self.results or ()
        drawn = in_page(results)
        for result in results:
            if result.recording is None:
                yield Measured(result=result, missing="no timeline: the run did not keep the recording")
            elif id(result) not in drawn:
                yield Measured(
                    result=result, missing="no timeline: failures come first; torchprof report RECORDING shows it"
                )
            else:
                yield self._with_recording(result)

    def _with_recording(self, result: Result) -> Measured:
        name = Path(str(result.recording))
        candidates = (self.path.parent / _BESIDE / name.name, self.path.parent / name, name)
        kept = next((path for path in candidates if path.is_file()), None)
        if kept is None:
            return Measured(result=result, missing=f"no timeline: there is no {name} beside the report")
        try:
            analysis = load_file(str(kept), device=self.device)
        except TorchprofError as problem:
            return Measured(result=result, missing=f"no timeline: {problem}")
        return Measured(result=result, analysis=analysis, other_ranks=parts_beside(analysis))

    def by_key(self) -> dict[Key, Callable[[], Measured]]:
        """Return a function for each measurement that returns it; of several recordings it reads its own again."""
        return {_key(measured): self._again(measured) for measured in self.measurements()}

    def _again(self, measured: Measured) -> Callable[[], Measured]:
        if self.is_single or measured.analysis is None:
            return lambda: measured
        if self.results is not None:
            return partial(self._with_recording, measured.result)
        path, name = str(measured.analysis.trace.path), str(measured.result.recording)
        return lambda: of_recording(load_file(path, device=self.device), name)


def opened(path: Path, device: str | None) -> Source:
    """Return a source; TorchprofError for a path that is neither a recording, a folder nor a report."""
    if is_special(path):
        from pytest_torchprof.reasons.files_asked import NoRegularFile  # noqa: PLC0415 - only a mistake needs it

        raise TorchprofError.because(NoRegularFile(str(path)))
    if path.is_dir() or not is_report(path):
        return Source(path=path, device=device)
    if device is not None:
        from pytest_torchprof.reasons.command_line import DeviceNotAsked, SaysDevice  # noqa: PLC0415 - as above

        raise UsageError.because(DeviceNotAsked(SaysDevice.REPORT))
    results, environment = read_report(path)
    return Source(path=path, device=None, results=results, environment=environment)


def compared(source: Source, before: Source | None) -> Iterator[Measured]:
    """Yield the measurements of a source, each with the same test's one before, and those only in ``before``."""
    if before is None:
        yield from source.measurements()
        return
    others = before.by_key()
    if source.is_single and before.is_single:
        (only,) = source.measurements()
        yield replace(only, before=next(iter(others.values()))())
        return
    for measured in source.measurements():
        other = others.pop(_key(measured), None)
        yield measured if other is None else replace(measured, before=other())
    for other in others.values():
        gone = other()
        yield Measured(
            result=Result(nodeid=gone.result.nodeid, label=gone.result.label, outcome=Outcome.GONE),
            missing="measured only before",
            before=replace(gone, analysis=None),
        )


def heading_of(source: Source, before: Source | None) -> Heading:
    """Return the heading of the page."""
    lines = [describe_environment(source.environment)] if source.environment else []
    noun: Noun = "recording" if source.results is None else "test"
    if before is None:
        return Heading(title="report" if source.is_single else source.path.name, lines=tuple(lines), noun=noun)
    sides = _distinct_names(before.path, source.path)
    return Heading(
        title=f"{sides[1]} against {sides[0]}", lines=tuple(lines), sides=sides, compared="against", noun=noun
    )


def _distinct_names(first: Path, second: Path) -> tuple[str, str]:
    """Return the names of two files with as much of their folders as distinguishes them."""
    parts = [path.resolve().parts for path in (first, second)]
    if parts[0] == parts[1]:
        return first.name, second.name
    count = 1
    while parts[0][-count:] == parts[1][-count:] and count < min(map(len, parts)):
        count += 1
    return "/".join(parts[0][-count:]), "/".join(parts[1][-count:])


def _key(measured: Measured) -> Key:
    return measured.result.nodeid, measured.result.label
