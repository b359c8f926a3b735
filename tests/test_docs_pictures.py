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


def test_each_picture_is_on_a_page_and_says_in_words_what_it_shows():
    pages = [*DOCS.glob("*.md"), DOCS.parent / "README.md"]
    shown = [
        found for page in pages for found in re.findall(r"!\[([^\]]+)\]\((?:docs/)?static/(\S+)\)", page.read_text())
    ]
    pictures = [file for file in Path(DOCS, "static").iterdir() if file.suffix in (".svg", ".png")]
    assert {name for _, name in shown} == {file.name for file in pictures}
    assert all(len(alternative.split()) >= 8 for alternative, _ in shown)
    assert max(file.stat().st_size for file in pictures) < SIZE_BYTES
