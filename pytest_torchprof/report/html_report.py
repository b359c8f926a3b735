"""The run's results as one HTML file that opens anywhere: verdicts, what changed, timelines and tables."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from pytest_torchprof.analysis.analysis import Analysis
from pytest_torchprof.errors import TorchprofError
from pytest_torchprof.recording.reader import read
from pytest_torchprof.report.page.build import Heading, page
from pytest_torchprof.report.page.measured import MOST_DRAWN, Measured, in_page
from pytest_torchprof.report.terminal import better_words, count_outcomes, describe_environment

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from pytest_torchprof.report import RunResults

_NOT_KEPT: Final = "no timeline: the recording was not kept; pytest --torchprof-save=DIR keeps it"
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
    """Yield the measurements in the order of the run, with the recordings that are at hand."""
    results = [asdict(result) for result in run.results]
    drawn = in_page(results)
    for told in results:
        if id(told) in drawn:
            yield _with_recording(told, run.rootdir)
        else:
            yield Measured(told=told, missing=_ENOUGH if told["recording"] else _NOT_KEPT)


def _with_recording(told: Mapping[str, Any], rootdir: Path) -> Measured:
    try:
        return Measured(told=told, analysis=Analysis(read(rootdir / told["recording"])))
    except TorchprofError as problem:
        return Measured(told=told, missing=f"no timeline: {problem}")


FORMATS = {".html": render}
