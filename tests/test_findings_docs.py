"""The page about findings and the code say the same."""

from __future__ import annotations

import re
from pathlib import Path

from findings_on_recordings import FINDINGS

from pytest_torchprof.findings import RULES

PAGE = (Path(__file__).parents[1] / "docs" / "findings.md").read_text()
CODES = {rule.code for rule in RULES}
SECTIONS = dict(re.findall(r"^### ([a-z0-9-]+)(?: ([†‡]))?$", PAGE, re.MULTILINE))


def test_each_code_has_a_section_and_a_row_of_the_cheat_sheet():
    sheet = PAGE.split("## How they are made")[0]
    assert set(SECTIONS) == CODES
    assert CODES - set(re.findall(r"`([a-z0-9-]+)`", sheet)) == set()


def test_what_no_real_recording_shows_is_marked():
    seen = {code for found in FINDINGS.values() for code in found}
    assert {code for code, mark in SECTIONS.items() if not mark} == seen
