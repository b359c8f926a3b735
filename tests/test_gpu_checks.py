"""docs/gpu-checks.md says of each claim where it was seen: it names tests and questions that exist, and claims no more."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.any_torch

ROOT = Path(__file__).parents[1]
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in (ROOT / "docs/gpu-checks.md").read_text().splitlines()
    if line.startswith("|") and "---" not in line
]
ROWS = [row for row in ROWS if row[2:] != ["seen", "simulated"]]


def gpu_tests():
    """Return for each test of tests/gpu whether it is marked as needing a real GPU."""
    return {
        node.name: any("real_gpu" in ast.unparse(decorator) for decorator in node.decorator_list)
        for path in (ROOT / "tests/gpu").glob("test_*.py")
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    }


NEEDS_A_REAL_ONE = gpu_tests()


def named_in(cell):
    """Return the tests that a cell names; a name may be cut short by an ellipsis."""
    for name, cut in re.findall(r"`(test_\w+)(…?)`", cell):
        (found,) = [test for test in NEEDS_A_REAL_ONE if test == name or (cut and test.startswith(name))]
        yield found


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0][:60])
def test_a_row_names_tests_that_exist_and_when_they_were_seen_to_pass(row):
    _, how, seen, simulated = row
    named = list(named_in(how))
    assert seen == "not yet" or "simulated" not in seen
    assert re.fullmatch(r"not yet|needs a real one|\d{4}-\d\d-\d\d, torch \d\.\d+\.\d+(, .+)?", simulated)
    if named and all(NEEDS_A_REAL_ONE[test] for test in named):
        assert simulated == "needs a real one"
    if simulated.startswith("2") and "every test" not in how:
        assert named


def test_every_claim_that_only_a_real_gpu_can_show_has_its_row():
    named = {test for row in ROWS for test in named_in(row[1])}
    assert {test for test, real in NEEDS_A_REAL_ONE.items() if real} <= named


def test_each_question_of_the_day_settles_a_row_and_each_row_names_questions_that_are_asked(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "tests/gpu/day")
    from questions import QUESTIONS

    assert {name for row in ROWS for name in re.findall(r"question `(\w+)`", row[1])} == set(QUESTIONS)
