"""The search of the built site finds each question by its own words and each code, and leads to the answer."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest
from browser import CHROMIUM

from pytest_torchprof.reasons.articles import articles
from pytest_torchprof.reasons.codes import Code

SITE = Path(os.environ.get("TORCHPROF_SITE", ".site"))
QUESTIONS = re.findall(
    r"^### (.+)$", (Path(__file__).parents[1] / "docs" / "questions.md").read_text(encoding="utf-8"), re.MULTILINE
)
TYPED = {
    "is my test flaky": "is-my-test-flaky",
    "forbid a sync": "how-do-i-forbid-a-sync",
    "my GPU has two users": "my-gpu-has-two-users-what-is-measured",
    **{question: re.sub(r"[^a-z0-9]+", "-", question.lower()).strip("-") for question in QUESTIONS},
}
"""What readers search for, and the answer's heading."""

pytestmark = [
    pytest.mark.any_torch,
    pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium: apt-get install chromium"),
    pytest.mark.skipif(
        not (SITE / "searchindex.js").is_file(),
        reason="needs the site: sphinx-build docs .site, or TORCHPROF_SITE is its folder",
    ),
]
# As the page itself asks; it shows the last result first.
ASKED = """(typed) => typed.map((text) => {
  const [page, , anchor] = Search._performSearch(...Search._parseQuery(text)).at(-1);
  return page + anchor;
})"""


def test_a_question_is_the_first_thing_that_is_found_by_its_own_words(browser):
    browser.call("Page.navigate", url=(SITE / "search.html").resolve().as_uri())
    browser.wait("Search.hasIndex()")
    assert QUESTIONS
    found = browser.run(f"({ASKED})({json.dumps([*TYPED])})")
    assert dict(zip(TYPED, found, strict=True)) == {text: f"questions#{answer}" for text, answer in TYPED.items()}


def test_a_code_is_found_where_it_is_explained(browser):
    browser.call("Page.navigate", url=(SITE / "search.html").resolve().as_uri())
    browser.wait("Search.hasIndex()")
    found = browser.run(f"({ASKED})({json.dumps([*Code])})")
    page_of = {article.word: article.page for article in articles()}
    # One code is a finding's too.
    page_of["lost-kernels"] = "findings"
    assert dict(zip(Code, found, strict=True)) == {code: f"{page_of[code]}#{code}" for code in Code}


def test_what_is_typed_into_the_search_leads_to_the_answer(browser):
    browser.call("Page.navigate", url=f"{(SITE / 'search.html').resolve().as_uri()}?q=is+my+test+flaky%3F")
    browser.wait("document.querySelectorAll('#search-results li a').length > 0")
    first = browser.run("document.querySelector('#search-results li a').getAttribute('href')")
    assert re.fullmatch(r"questions\.html.*#is-my-test-flaky", first)
