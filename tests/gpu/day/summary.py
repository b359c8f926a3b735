"""What was found, as a page to read."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from outcomes import FAILED, NOT_REACHED, PASSED, RUNNING, SKIPPED, by_file

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

DONE, LATER = "done", "no time left"
VERBATIM = ("machine", "doctor", "benchmarks/false_alarms")


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


def page(results: Iterable[dict[str, Any]], rows: dict[str, list[str]]) -> str:
    """Return the page: all steps in a table, all files of tests in another one, then what each step has said."""
    results = list(results)
    sections = (line for one in results for line in _section(one, rows))
    return "\n".join([*_table(results), *_files(results), *sections]) + "\n"


def _table(results: list[dict[str, Any]]) -> Iterator[str]:
    device = next((answer["says"] for one in results for answer in one["said"] if "versions" in one["step"]), "")
    ended = sum(one["outcome"] == DONE for one in results)
    yield f"# {device or 'What was asked of a GPU'}"
    yield ""
    yield f"{ended} of {len(results)} steps done, which took {sum(one['took_s'] for one in results):.0f} s in sum. All figures are in"
    yield "`steps.jsonl`, the whole output is in `logs.tar.gz`, recordings in `recordings.tar.gz` and `examples.html`."
    yield ""
    yield "| step | outcome | s | |"
    yield "|---|---|---|---|"
    for one in results:
        first = one["said"][0]["says"] if one["said"] else one["error"]
        shown = first[:120].replace("|", "/")
        yield f"| {one['step']} | {one['outcome']} | {one['took_s']:.0f} | {shown} |"


def _files(results: list[dict[str, Any]]) -> Iterator[str]:
    """Yield for each file of tests how many came to which end, and why those failed that did."""
    files = by_file(test for one in results for test in one.get("tests", ()))
    if not files:
        return
    yield ""
    yield "## Tests by file"
    yield ""
    yield "| file | passed | failed | skipped | running when it was ended | not reached |"
    yield "|---|---|---|---|---|---|"
    for file, tests in files.items():
        counts = " | ".join(str(len(tests.get(outcome, ()))) for outcome in (PASSED, FAILED, SKIPPED))
        running = ", ".join(_test(one) for one in tests.get(RUNNING, ()))
        yield f"| {file} | {counts} | {running} | {len(tests.get(NOT_REACHED, ()))} |"
    failed = [(file, one) for file, tests in files.items() for one in tests.get(FAILED, ())]
    if failed:
        yield ""
        yield from (f"- {file}: {_test(one)}: {one['why']}" for file, one in failed)


def _test(one: dict[str, Any]) -> str:
    return f"`{one['name'].rpartition('::')[2]}`"


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
