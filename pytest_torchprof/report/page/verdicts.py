"""The list of verdicts as HTML, which can be read without a script."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

from pytest_torchprof.analysis.numbers import BY_NAME
from pytest_torchprof.compare.number_changes import GPU_TIME, ratio_of
from pytest_torchprof.compare.number_words import show_factor
from pytest_torchprof.report.columns import TESTS
from pytest_torchprof.report.outcome import Outcome
from pytest_torchprof.report.page.document import text
from pytest_torchprof.report.page.measured import SHOWN, VERDICTS
from pytest_torchprof.report.row_columns import Among

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Iterable, Mapping, Sequence

    from pytest_torchprof.report.page.measured import Measured

_WORDS: Final[Mapping[str, str]] = {
    Outcome.SKIPPED: "not judged",
    Outcome.XFAILED: "failed as expected",
    Outcome.GONE: "only before",
}
Noun = Literal["test", "recording"]
_HEADINGS: Final[Mapping[Noun, tuple[str, str]]] = {
    "test": ("Verdicts", "verdict"),
    "recording": ("Recordings", "state"),
}
"""What the list of measurements is headed, and its first column; recordings have no verdicts."""
_PART: Final = 200
"""How many rows are laid out at a time: a list of thousands would hold up the first paint."""
_TITLES: Final = {column.key: column.page for column in TESTS if column.page}
_FACTS: Final = {column.key: column for column in TESTS if column.page and column.key not in BY_NAME}
"""The columns of what a result holds besides its numbers."""


def worst_first(several: Iterable[tuple[int, Measured]]) -> list[tuple[int, Measured]]:
    """Return the measurements with their numbers, failures first."""
    return sorted(several, key=lambda numbered: VERDICTS.index(numbered[1].verdict))


def row(number: int, measured: Measured, columns: Sequence[str]) -> str:
    """Return the row of a measurement; ``columns`` are shown, the last of which may be a comparison."""
    outcome = measured.verdict
    cells = [
        f'<td class="verdict"><span class="v v-{outcome.replace(" ", "-")}">{_WORDS.get(outcome, outcome)}</span></td>',
        f'<th scope="row" class="name"><a href="#{number}">{_split_name(measured.name)}</a></th>',
        *(_cell(measured, name) for name in columns),
    ]
    return f'<tr id="row-{number}" data-outcome="{outcome}" data-place="{number}">{"".join(cells)}</tr>'


def table(rows: Sequence[str], columns: Sequence[str], verdicts: Counter[str], compared: str, noun: Noun) -> str:
    """Return the whole list with its filters; empty for a single recording without limits."""
    if len(rows) == 1 and verdicts[Outcome.RECORDED]:
        return ""
    heading, first = _HEADINGS[noun]
    titles = {"verdict": first, "name": noun, **_TITLES}
    heads = "".join(
        f'<th scope="col" class="{"left" if name in ("verdict", "name", "baseline") else "number"}"'
        f"{' aria-sort=ascending' if name == 'verdict' else ''}>"
        f'<button type="button" data-sort="{name}">{text(titles.get(name, compared))}</button></th>'
        for name in ("verdict", "name", *columns)
    )
    chips = "".join(
        f'<button type="button" class="chip" aria-pressed="false" data-outcome="{outcome}">'
        f'<span class="dot v-{outcome.replace(" ", "-")}"></span>'
        f"{_WORDS.get(outcome, outcome)} <b>{count:,}</b></button>"
        for outcome in VERDICTS
        if (count := verdicts[outcome])
    )
    return (
        '<section class="verdicts" aria-labelledby="verdicts-title">'
        f'<h2 id="verdicts-title">{heading}</h2><div class="tools" role="group" aria-label="Filter the {noun}s">{chips}'
        f'<input type="search" id="search" placeholder="search {noun}s ( / )" aria-label="Search {noun}s by name" '
        'autocomplete="off" spellcheck="false"></div>'
        f'<p class="hint" id="count" role="status" data-noun="{noun}s"></p>'
        f'<div class="scroll" tabindex="0" role="region" aria-label="All {noun}s"><table id="tests">'
        f"<thead><tr>{heads}</tr></thead>{_bodies(rows)}</table></div></section>"
    )


def _bodies(rows: Sequence[str]) -> str:
    """Return the rows in parts: all but the first wait until the page is painted, where a script can show them."""
    parts = [rows[begin : begin + _PART] for begin in range(0, len(rows), _PART)]
    return "".join(
        f"<tbody{' class=later' if number else ''}>{''.join(part)}</tbody>" for number, part in enumerate(parts)
    )


def columns_of(several: Sequence[Measured], *, two_sides: bool) -> tuple[str, ...]:
    """Return the columns that are not empty; the last one is the comparison with the other side or the run's own."""
    known = [number.name for number in SHOWN if any(measured.decisive(number.name) is not None for measured in several)]
    known += [
        key for key, column in _FACTS.items() if any(column.value(measured.result, Among()) for measured in several)
    ]
    if two_sides:
        return (*known, "ratio")
    return (*known, *(["baseline"] if any(measured.result.baseline for measured in several) else []))


def _split_name(name: str) -> str:
    """Return the name with the file set apart: readers look for the test."""
    file, colons, test = name.partition("::")
    if not colons:
        return f"<bdi>{text(name)}</bdi>"
    return f'<bdi>{text(test)}</bdi> <bdi class="file">{text(file, 120)}</bdi>'


def _baseline_cell(measured: Measured) -> str:
    return f'<td class="told">{text(measured.result.baseline or "-", 80)}</td>'


def _ratio_cell(measured: Measured) -> str:
    """Return how much longer a step's work took than the other side's."""
    if measured.before is None:
        return f'<td class="told" data-v="">{"-" if measured.outcome is Outcome.GONE else "new"}</td>'
    ratio = ratio_of(measured.before.number(GPU_TIME), measured.number(GPU_TIME))
    value, shown = ("", "-") if ratio is None else (ratio, show_factor(ratio))
    return f'<td class="against" data-v="{value}">{shown}</td>'


_CELLS: Final = {"baseline": _baseline_cell, "ratio": _ratio_cell}


def _cell(measured: Measured, name: str) -> str:
    if name in _CELLS:
        return _CELLS[name](measured)
    if name in _FACTS:
        return f'<td class="told">{text(_FACTS[name].shown(measured.result, Among()), 80)}</td>'
    return _number_cell(measured, name)


def _number_cell(measured: Measured, name: str) -> str:
    value = measured.decisive(name)
    number = next(shown for shown in SHOWN if shown.name == name)
    shown = text(number.show(value))
    if measured.before is not None and (was := measured.before.decisive(name)) is not None and was != value:
        shown = f'<span class="was">{text(number.show(was))} &rarr;</span> {shown}'
    return f'<td data-v="{"" if value is None else f"{value:g}"}">{shown}</td>'
