"""The results of a run as one HTML file that opens anywhere: verdicts, changes, timelines and tables."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from pytest_torchprof.analysis.analysis import Analysis
from pytest_torchprof.reasons.errors import TorchprofError
from pytest_torchprof.recording.reader import read
from pytest_torchprof.report.page.build import Heading, page
from pytest_torchprof.report.page.jobs import parts_beside
from pytest_torchprof.report.page.measured import MOST_DRAWN, Measured, in_page
from pytest_torchprof.report.terminal import better_words, count_outcomes, describe_environment
from pytest_torchprof.text import printable_line

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_torchprof.report import RunResults
    from pytest_torchprof.report.result import Result

_NOT_KEPT: Final = "no timeline: the recording was not kept; pytest --torchprof-save=DIR keeps it"
_ELSEWHERE: Final = "no timeline: the record of a run holds no recordings; this one was kept as {recording}"
_ENOUGH: Final = (
    f"no timeline: the page has those of the first {MOST_DRAWN} recordings, failures first; "
    "torchprof report RECORDING shows this one"
)


def render(run: RunResults) -> str:
    """Return the page of a run."""
    lines = [describe_environment(run.environment)] if run.environment else []
    lines += [f"against {run.against.shown}"] if run.against is not None else []
    lines += [better] if (better := better_words(run)) else []
    lines += [run.gone_words] if run.gone_words else []
    lines += [f"{unused.file}: {unused.words}" for unused in run.unused]
    compared = "baseline" if run.against is None else "against"
    return page(_measured(run), Heading(title=count_outcomes(run), lines=tuple(lines), compared=compared))


def _measured(run: RunResults) -> Iterator[Measured]:
    """Yield the measurements in the order of the run, with the recordings that are available."""
    drawn = in_page(run.results)
    for result in run.results:
        if result.recording is None:
            yield Measured(result=result, missing=_NOT_KEPT)
        elif run.rootdir is None:
            yield Measured(result=result, missing=_ELSEWHERE.format(recording=printable_line(result.recording)))
        elif id(result) not in drawn:
            yield Measured(result=result, missing=_ENOUGH)
        else:
            yield _with_recording(result, Path(run.rootdir, result.recording))


def _with_recording(result: Result, recording: Path) -> Measured:
    try:
        analysis = Analysis(read(recording))
    except TorchprofError as problem:
        return Measured(result=result, missing=f"no timeline: {problem}")
    return Measured(result=result, analysis=analysis, other_ranks=parts_beside(analysis))
