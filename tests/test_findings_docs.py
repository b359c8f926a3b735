"""The page about findings and the code say the same."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from findings_on_recordings import FINDINGS

from pytest_torchprof.findings import RULES
from pytest_torchprof.findings import ranks as of_ranks
from pytest_torchprof.findings.catalogue import KINDS

pytestmark = pytest.mark.any_torch

PAGE = (Path(__file__).parents[1] / "docs" / "findings.md").read_text()
OF_JOBS = {rule.code for rule in of_ranks.RULES}
"""What only the recordings of several ranks show; tests/test_jobs.py looks for them."""
CODES = {rule.code for rule in RULES} - OF_JOBS
SECTIONS = {
    code: mark
    for code, mark in re.findall(r"^### ([a-z0-9-]+)(?: ([†‡]))?$", PAGE, re.MULTILINE)
    if code not in OF_JOBS
}


def test_each_code_has_a_section_and_a_row_of_the_cheat_sheet():
    sheet = PAGE.split("## How they are made")[0]
    assert set(SECTIONS) == CODES
    assert CODES - set(re.findall(r"`([a-z0-9-]+)`", sheet)) == set()


SEEN = {code for found in FINDINGS.values() for code in found}
HERE = Path(__file__).parent


def asked_for(file):
    """Return the codes that a test file looks for."""
    return CODES & set(re.findall(r'"([a-z0-9-]+)"', (HERE / file).read_text()))


def test_what_no_real_recording_shows_is_marked():
    assert {code for code, mark in SECTIONS.items() if not mark} == SEEN
    assert {code for code, mark in SECTIONS.items() if mark == "‡"} == asked_for("test_findings_compiled.py") - SEEN
    assert {code for code, mark in SECTIONS.items() if mark == "†"} == CODES - SEEN - asked_for(
        "test_findings_compiled.py"
    )


def test_each_code_is_found_somewhere_and_not_found_somewhere_else():
    assert SEEN | asked_for("test_findings_compiled.py") | asked_for("test_findings.py") == CODES
    for code in SEEN:
        assert any(code not in found for found in FINDINGS.values())
    # Where a recording has it, a trace built for it shows the border too.
    assert not CODES - SEEN - asked_for("test_findings.py") - asked_for("test_findings_compiled.py")


def test_each_section_bears_the_title_and_names_the_facts_of_its_row_in_the_catalogue():
    sections = dict(re.findall(r"^### ([a-z0-9-]+)[^\n]*\n(.*?)(?=^##)", PAGE, re.MULTILINE | re.DOTALL))
    for code, kind in KINDS.items():
        assert sections[code].startswith(f"**{kind.TITLE}.** "), code
        told = sections[code].partition("*Evidence:*")[2].partition("\n\n")[0]
        assert set(re.findall(r"`(\w+)`", told)) == set(kind.__struct_fields__) - {"saves_us", "source", "events"}, code


def test_each_section_says_all_that_one_asks():
    sections = dict(re.findall(r"^### ([a-z0-9-]+)[^\n]*\n(.*?)(?=^##)", PAGE, re.MULTILINE | re.DOTALL))
    asked = ("*You see*", "*It means*", "*Do*", "*Computed:*", "*Wrong*")
    assert {code: [words for words in asked if words not in text] for code, text in sections.items()} == {
        code: [] for code in CODES | OF_JOBS
    }
