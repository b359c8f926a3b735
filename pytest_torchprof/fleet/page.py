"""The page of a run: one file that opens anywhere, with what all of its records tell."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec import to_builtins

from pytest_torchprof.fleet.texts import census_lines, divided_line, left_line
from pytest_torchprof.report.page.document import as_json, compressed, document, text

if TYPE_CHECKING:
    from pytest_torchprof.fleet.report import FleetReport

_MOST_SHOWN: Final = 200
"""So many files that are unlike their group, and so many that were not judged, are on the page."""


def fleet_page(report: FleetReport, name: str) -> str:
    """Return the page of the run with this name."""
    lines = census_lines(report.summary, report.left)
    if report.left:
        lines.append(left_line(report.left, report.summary.listed))
    body = (
        '<a class="skip" href="#fleet">Skip to the files</a>'
        f'<header><h1><span class="brand">torchprof</span> Fleet {text(name)}</h1>'
        f"{''.join(f'<p>{text(line)}</p>' for line in lines)}</header>"
        "<noscript><p>What is below needs JavaScript.</p></noscript>"
        '<main id="fleet" tabindex="-1"></main>'
    )
    return document(
        title=f"torchprof: fleet {name}",
        body=body,
        payloads={"report": compressed(as_json(_shown(report)))},
        scripts=("words.js", "table.js", "fleet.js"),
        styles=("style.css", "fleet.css"),
    )


def _shown(report: FleetReport) -> dict[str, Any]:
    plain: dict[str, Any] = to_builtins(report)
    plain["divided"] = [divided_line(group) for group in report.divided]
    for name in ("other_structures", "divided", "not_judged"):
        plain[f"more_{name}"] = max(len(plain[name]) - _MOST_SHOWN, 0)
        plain[name] = plain[name][:_MOST_SHOWN]
    return plain
