"""The page of questions: each is a heading, which the site's search finds, and its answer leads to what there is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pytest_torchprof.cli import COMMANDS
from pytest_torchprof.limits.keywords import MarkerKeywords

pytestmark = pytest.mark.any_torch

DOCS = Path(__file__).parents[1] / "docs"
PAGE = (DOCS / "questions.md").read_text(encoding="utf-8")
ANSWERS = dict(re.findall(r"^### (.+)\n\n((?:(?!#).*\n)+)", PAGE, re.MULTILINE))


@pytest.mark.parametrize("question", ANSWERS)
def test_a_question_is_answered_with_words_that_exist(question, pytestconfig):
    answer = ANSWERS[question]
    options = {name for group in pytestconfig._parser._groups for option in group.options for name in option.names()}
    keywords = {keyword for code in re.findall(r"`([^`]+)`", answer) for keyword in re.findall(r"^(\w+)=", code)}
    assert re.search(r"`|\]\(", answer)
    assert set(re.findall(r"--torchprof-[a-z-]+", answer)) <= options
    assert set(re.findall(r"`torchprof (\w+)", answer)) <= set(COMMANDS)
    assert keywords <= MarkerKeywords.__annotations__.keys()


def test_each_heading_of_the_lowest_level_asks():
    headings = re.findall(r"^### (.+)", PAGE, re.MULTILINE)
    assert list(ANSWERS) == headings
    assert [heading for heading in headings if "?" not in heading] == []
