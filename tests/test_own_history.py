"""The page of this repository's own examples in the docs is one that today's code draws.

    python tests/test_own_history.py

draws it anew from what it holds, where the style or the scripts of pages have changed; benchmarks/own_history.py
measures it anew.
"""

from __future__ import annotations

import base64
import html
import json
import re
import zlib
from pathlib import Path

import pytest
from histories import launched, run_of, write

from pytest_torchprof.cli import main
from pytest_torchprof.history.page import page_of

pytestmark = pytest.mark.any_torch

PAGE = Path(__file__).parents[1] / "docs" / "own-history.html"


def index_of(page):
    """Return what the scripts of a page draw."""
    packed = re.search(r'id="index">([^<]*)<', page)[1]
    return json.loads(zlib.decompress(base64.b64decode(packed)))


def drawn_anew(page):
    (head,) = re.findall(r"<header>.*</header>", page, re.DOTALL)
    branch = re.search(r"History of ([^<]*)<", head)[1]
    return page_of(branch, [html.unescape(own) for own in re.findall(r"<p>([^<]*)</p>", head)], index_of(page))


def test_the_page_in_the_docs_is_drawn_as_pages_are_today():
    page = PAGE.read_text(encoding="utf-8")
    assert drawn_anew(page) == page


def test_what_the_page_in_the_docs_draws_has_the_form_that_a_history_has_today(tmp_path):
    test, now = "test_m.py::test_a", {"a": 6}
    folder = write(tmp_path / "history", [run_of(at, launched(test, {"a": 5} if at < 3 else now)) for at in range(6)])
    assert main(["history", "page", str(folder), "-o", str(tmp_path / "page.html")]) == 0
    theirs, ours = (index_of(path.read_text(encoding="utf-8")) for path in (PAGE, tmp_path / "page.html"))
    assert theirs.keys() == ours.keys()
    for part in ("series", "events"):
        assert theirs[part]
        assert all(own.keys() == ours[part][0].keys() for own in theirs[part])
    assert len(theirs["commits"]) == len(theirs["dates"]) == 20


if __name__ == "__main__":
    PAGE.write_text(drawn_anew(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
