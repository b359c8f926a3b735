"""From measurements to the page: what each measurement adds, and how much of it fits."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from msgspec import Struct, structs

from pytest_torchprof.analysis.rank_parts import named_part
from pytest_torchprof.compare.change import TWO_FILES
from pytest_torchprof.report.page.details import details_of, in_job
from pytest_torchprof.report.page.document import as_json, compressed, document, text
from pytest_torchprof.report.page.jobs import RankOnPage, jobs_among
from pytest_torchprof.report.page.lead import lead_of_job, lead_of_pairs
from pytest_torchprof.report.page.marks import marks_of
from pytest_torchprof.report.page.measured import with_lines
from pytest_torchprof.report.page.packing import pack
from pytest_torchprof.report.page.verdicts import columns_of, row, table, worst_first
from pytest_torchprof.text import counted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pytest_torchprof.analysis.analysis import Analysis
    from pytest_torchprof.compare.change import Sides
    from pytest_torchprof.findings import Finding
    from pytest_torchprof.findings.catalogue.headlines import Headline
    from pytest_torchprof.report.page.details import Details
    from pytest_torchprof.report.page.jobs import JobOnPage
    from pytest_torchprof.report.page.measured import Measured
    from pytest_torchprof.report.page.verdicts import Noun

_ROOM_BYTES: Final = 4_500_000
"""The room for compressed recordings: a page of 2,000 tests stays below 10 MB."""
_NOTHING: Final = (
    '<p class="lead">No test was measured.</p><p>A test is measured with '
    "<code>@pytest.mark.torchprof(max_kernels=3)</code>, by the fixture <code>torchprof</code>, or, all of them, with "
    "<code>pytest --torchprof</code>; tests that were deselected or skipped are not.</p>"
)
_TOGETHER: Final = 24
"""Details of so many tests are compressed together: they are alike."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Heading:
    """The heading above all measurements."""

    title: str
    lines: tuple[str, ...] = ()
    """The lines below it: where it was measured, what it is compared with, what else the run has to say."""
    sides: Sides | None = None
    """The names of the measurement before and of this one, where two are compared."""
    compared: str = "baseline"
    """The title of the column of comparisons."""
    noun: Noun = "test"
    """The noun for its measurements."""


class _Index(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the page's script needs at first: how many measurements there are, and how to come by their details."""

    count: int
    together: int
    """Details of so many are in one payload."""
    compared: str
    sides: Sides | None = None


def page(several: Iterable[Measured], heading: Heading) -> str:
    """Return the page; measurements come one at a time, so that no two recordings have to be in memory."""
    shown: list[Measured] = []
    details: list[Details] = []
    recordings: dict[str, bytes] = {}
    headlines: list[Headline | None] = []
    ranks: list[RankOnPage] = []
    for measured in several:
        # The first one is drawn however large it is.
        room = _ROOM_BYTES - sum(map(len, recordings.values())) if recordings else math.inf
        detail, headline, drawn = _details_and_recordings(measured, heading.sides or TWO_FILES, room=room)
        names = tuple(f"recording-{len(shown)}{side}" for side in ("", "-before"))[: len(drawn)]
        recordings.update(zip(names, drawn, strict=True))
        details.append(structs.replace(detail, drawn=names))
        headlines.append(headline)
        ranks += _ranks_of(measured, len(shown))
        shown.append(_without_recording(measured))
    on_page = jobs_among(ranks)
    jobs = _with_jobs(details, [measured.result.findings for measured in shown], headlines, on_page)
    columns = columns_of(shown, two_sides=heading.sides is not None)
    rows = [row(number, measured, columns) for number, measured in worst_first(enumerate(shown))]
    verdicts = Counter(measured.verdict for measured in shown)
    pairs = lead_of_pairs(details, heading.noun) if heading.sides is not None and len(shown) > 1 else ""
    lines = "".join(f"<p>{text(line)}</p>" for line in heading.lines) + pairs + lead_of_job(on_page, len(shown))
    body = (
        f'<a class="skip" href="#details">Skip to the measurement</a>'
        f'<header><h1><span class="brand">torchprof</span> {text(heading.title)}</h1>{lines}</header>'
        f"<noscript><p>What is below the list needs JavaScript.</p></noscript>"
        f"<main>{table(rows, columns, verdicts, heading.compared, heading.noun) if shown else _NOTHING}"
        f'<div id="details" tabindex="-1"></div></main>'
    )
    index = _Index(count=len(details), together=_TOGETHER, compared=heading.compared, sides=heading.sides)
    payloads = {"index": compressed(as_json(index)), **dict(_chunks(details)), **jobs, **recordings}
    return document(title=f"torchprof: {heading.title}", body=body, payloads=payloads)


def _details_and_recordings(
    measured: Measured, sides: Sides, *, room: float
) -> tuple[Details, Headline | None, list[bytes]]:
    """Return the details, the headline, and the recordings, compressed, of the measurement and of the earlier side.

    No recordings if they do not fit.
    """
    analysis = measured.analysis
    if analysis is None:
        return details_of(measured, sides=sides), None, []
    marks = marks_of(analysis, measured.result.findings)
    # Without its events, of which there may be many.
    headline = structs.replace(marks.headline, events=None)
    details = details_of(measured, marks, sides)
    drawn = [
        compressed(pack(side, marks.events if number == 0 else ())) for number, side in enumerate(_sides(measured))
    ]
    if sum(map(len, drawn)) > room:
        events = counted(analysis.trace.events, "event")
        missing = f"no timeline: {events} would make the page too large"
        return structs.replace(details, missing=missing), headline, []
    return details, headline, drawn


def _ranks_of(measured: Measured, number: int) -> Iterator[RankOnPage]:
    own = None if measured.analysis is None else named_part(measured.analysis)
    if own is not None:
        yield RankOnPage(own, number)
        yield from (RankOnPage(other, None) for other in measured.other_ranks)


def _with_jobs(
    details: list[Details],
    findings: Sequence[Sequence[Finding]],
    headlines: Sequence[Headline | None],
    jobs: Sequence[JobOnPage],
) -> dict[str, bytes]:
    """Let the details of each rank name its job, and return the page's payloads of the jobs by these names."""
    payloads = {}
    for count, each in enumerate(jobs):
        name, ranks = f"job-{count}", each.ranks
        if each.is_all_of(len(details)):
            ranks = structs.replace(ranks, above=True)
        payloads[name] = compressed(as_json(ranks))
        for number in each.numbers:
            of_rank = details[number]
            if each.job is not None:
                of_rank = in_job(of_rank, findings[number], headlines[number], each.job)
            details[number] = structs.replace(of_rank, job=name)
    return payloads


def _sides(measured: Measured) -> list[Analysis]:
    both = [side.analysis for side in (measured, measured.before) if side is not None]
    return [with_lines(analysis) for analysis in both if analysis is not None]


def _without_recording(measured: Measured) -> Measured:
    before = measured.before
    return replace(
        measured, analysis=None, other_ranks=(), before=None if before is None else replace(before, analysis=None)
    )


def _chunks(details: list[Details]) -> Iterator[tuple[str, bytes]]:
    for begin in range(0, len(details), _TOGETHER):
        yield f"details-{begin // _TOGETHER}", compressed(as_json(details[begin : begin + _TOGETHER]))
