"""What was found, as a page to read."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

DONE = "done"
VERBATIM = ("machine", "doctor")


def said_by_question(output: Path) -> list[dict[str, Any]]:
    """Return the answers in a question's output; a line that is none, or was cut, is left out."""
    found = []
    for line in output.read_text(errors="replace").splitlines() if output.exists() else ():
        try:
            answer = json.loads(line)
        except ValueError:
            continue
        if isinstance(answer, dict) and "says" in answer:
            found.append(answer)
    return found


def said_by_pytest(report: Path) -> list[dict[str, Any]]:
    """Return from a JUnit report how many tests passed, which did not and why, and the facts that tests noted."""
    try:
        cases = list(ET.parse(report).iter("testcase"))
    except (OSError, ET.ParseError):
        return []
    found: list[dict[str, Any]] = []
    passed = 0
    for case in cases:
        name = str(case.get("name"))
        wrong = [one for one in case if one.tag in ("failure", "error")]
        skipped = [one for one in case if one.tag == "skipped"]
        passed += not wrong and not skipped
        found += [{"says": f"{one.tag.upper()} {name}: {_first_line(one)}", "figures": one.text} for one in wrong]
        found += [{"says": f"skipped {name}: {_first_line(one)}", "figures": None} for one in skipped]
        found += [
            {"says": f"fact of {name}: {one.get('name')} = {one.get('value')}", "figures": None}
            for one in case.iter("property")
            if not str(one.get("name")).startswith("torchprof.")  # what the plugin notes of each measurement
        ]
    return [{"says": f"{passed} of {len(cases)} passed", "figures": None}, *found]


def _first_line(wrong: ET.Element) -> str:
    lines = (wrong.get("message") or wrong.text or "").strip().splitlines()
    return lines[0][:300] if lines else ""


def rows_by_question(page: Path) -> dict[str, list[str]]:
    """Return for each question the claims and questions of docs/gpu-checks.md that name it."""
    found: dict[str, list[str]] = {}
    for line in page.read_text().splitlines() if page.exists() else ():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        for name in re.findall(r"question `(\w+)`", cells[1]) if line.startswith("|") else ():
            found.setdefault(name, []).append(cells[0])
    return found


def page(results: Iterable[dict[str, Any]], rows: dict[str, list[str]]) -> str:
    """Return the page: all steps in a table, then what each has said."""
    results = list(results)
    return "\n".join([*_table(results), *(line for one in results for line in _section(one, rows))]) + "\n"


def _table(results: list[dict[str, Any]]) -> Iterator[str]:
    device = next((answer["says"] for one in results for answer in one["said"] if "versions" in one["step"]), "")
    ended = sum(one["outcome"] == DONE for one in results)
    yield f"# {device or 'What was asked of a GPU'}"
    yield ""
    yield f"{ended} of {len(results)} steps done, in {sum(one['took_s'] for one in results):.0f} s. All figures are in"
    yield "`steps.jsonl`, the whole output is in `logs.tar.gz`, recordings in `recordings.tar.gz` and `examples.html`."
    yield ""
    yield "| step | outcome | s | |"
    yield "|---|---|---|---|"
    for one in results:
        first = one["said"][0]["says"] if one["said"] else one["error"]
        shown = first[:120].replace("|", "/")
        yield f"| {one['step']} | {one['outcome']} | {one['took_s']:.0f} | {shown} |"


def _section(result: dict[str, Any], rows: dict[str, list[str]]) -> Iterator[str]:
    if not result["said"] and not result["error"]:
        return
    yield ""
    yield f"## {result['step']}{': ' + result['asks'] if result['asks'] else ''}"
    yield ""
    question = result["step"].split("/")[1] if result["step"].startswith("questions/") else None
    yield from (f"> settles: {row}" for row in rows.get(question or "", ()))
    if rows.get(question or ""):
        yield ""
    if result["step"] in VERBATIM:
        yield from ("```", *(answer["says"] for answer in result["said"]), "```")
    else:
        yield from (f"- {answer['says']}" for answer in result["said"])
    if result["error"]:
        yield f"- {result['outcome']}: {result['error']}"
