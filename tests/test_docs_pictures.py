"""The pictures of terminals on the documentation's pages show what the pages themselves say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from docs_pictures import DOCS, PICTURES
from terminal_picture import text_in

pytestmark = pytest.mark.any_torch
SIZE_BYTES = 250_000


@pytest.mark.parametrize("shown", PICTURES, ids=lambda shown: shown.page)
def test_a_picture_shows_what_its_page_has_as_text(shown):
    assert text_in(shown.file.read_text()) == shown.text
    assert f"(static/{shown.file.name})" in (DOCS / f"{shown.page}.md").read_text()


SCREENS = {
    "adopt": "a limit that another process misses",
    "against": "a failure against another commit",
    "analyze": "what the command prints",
    "baselines": "a failure against a baseline",
    "ci": "the log of a job",
    "compile": "a graph break",
    "cookbook": "failures of several recipes",
    "doctor": "what the command prints",
    "export": "what the command prints",
    "fleet": "a run, and its page",
    "history": "what the command prints, and its page",
    "not-measured": "a code that is explained",
    "ranks": "the page of a job",
    "report": "the page of a run",
    "suite": "a run",
    "tutorial": "a first failure",
}
"""The pages that speak of what somebody sees, and of what."""
_OUTPUT = re.compile(r"^```console\n\$ .*\n[^$]", re.MULTILINE)


def test_a_page_that_speaks_of_a_screen_has_a_picture_of_it():
    pages = {page.stem: page.read_text() for page in DOCS.glob("*.md")}
    assert {page for page, text in pages.items() if _OUTPUT.search(text)} <= SCREENS.keys()
    assert {page for page, text in pages.items() if "](static/" in text} == SCREENS.keys()


def test_each_picture_is_on_a_page_and_says_in_words_what_it_shows():
    pages = [*DOCS.glob("*.md"), DOCS.parent / "README.md"]
    shown = [
        found for page in pages for found in re.findall(r"!\[([^\]]+)\]\((?:docs/)?static/(\S+)\)", page.read_text())
    ]
    pictures = [file for file in Path(DOCS, "static").iterdir() if file.suffix in (".svg", ".png")]
    assert {name for _, name in shown} == {file.name for file in pictures}
    assert all(len(alternative.split()) >= 8 for alternative, _ in shown)
    assert max(file.stat().st_size for file in pictures) < SIZE_BYTES
