"""docs/trust.md names tests that are there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.any_torch

TESTS = Path(__file__).parent
PAGE = (TESTS.parent / "docs" / "trust.md").read_text()
ROWS = [line for line in PAGE.splitlines() if line.startswith("| ") and "what goes wrong" not in line]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[2:50])
def test_each_row_has_tests_that_are_there_and_says_on_what_they_ran(row):
    _, outcome, tests, on, gpu = (cell.strip() for cell in row[2:-1].split("|"))
    assert outcome
    assert on
    assert re.fullmatch(r"|not yet|\d{4}-\d\d-\d\d, \w+", gpu)
    names = re.findall(r"`([a-z_/]+\.py)(?:::(\w+))?`", tests)
    assert names
    for file, test in names:
        source = (TESTS / file).read_text()
        assert not test or f"def {test}(" in source, f"{file}::{test}"
