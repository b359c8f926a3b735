"""The cookbook: each regression fails with the text that the page shows; tests/test_examples.py holds that its twins pass."""

from __future__ import annotations

import ast
import re
import shutil

import cookbook_samples
import pytest
from cookbook_samples import BLOCKS, EXAMPLES, MUTANTS, PAGE, ROOT

import pytest_torchprof
from pytest_torchprof import MarkerKeywords
from pytest_torchprof.limits import LIMITS, read_limits, settings_of
from pytest_torchprof.testing.marker_options import MARKER_OPTIONS

needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="compiled code on the CPU needs a C++ compiler")
WORDS = {limit.name for limit in LIMITS} | settings_of(LIMITS).keys()
# Times, the names of graphs and places, and the layout with them: what differs from run to run.
_VARIES = re.compile(r"[\d.,]+ (?:us|ms|s)\b|graph_\d+|[- ]{2,}")

# A list of kernels that is cut: which of those that are called as seldom as the last one stand there, times decide.
_CUT = re.compile(r"(?: {9}\d+ x .*\n)* {9}(\d+) x .*\n {9}and \d+ more.*\n")


def steady(text):
    """Return the lines of a text without what differs from run to run, in order where times decide which comes first."""
    text = _CUT.sub(lambda cut: re.sub(rf" {{9}}{cut[1]} x .*\n", "", cut[0]), text)
    return sorted(_VARIES.sub(" ", line).strip() for line in text.splitlines())


@needs_compiler
@pytest.mark.any_torch
@pytest.mark.parametrize("name", MUTANTS)
def test_a_regression_fails_with_the_text_that_the_page_shows(name, tmp_path):
    made = cookbook_samples.make(name, tmp_path)
    assert steady(made) == steady(cookbook_samples.section(name)), "python tests/cookbook_samples.py writes it anew"


@pytest.mark.any_torch
def test_every_twin_has_its_regression_and_its_place_on_the_page():
    assert {mutant.tested_by for mutant in MUTANTS.values()} == {path.name for path in EXAMPLES.glob("test_*.py")}
    listed = (ROOT / "examples" / "README.md").read_text()
    for path in EXAMPLES.glob("test_*.py"):
        assert f"](../examples/cookbook/{path.name})" in PAGE.read_text()
        assert f"`cookbook/{path.name}`" in listed


@pytest.mark.any_torch
def test_every_twin_has_its_test_for_a_gpu():
    """tests/test_typing.py holds that they are typed."""
    assert len(BLOCKS) == len(MUTANTS)


def markers():
    """Yield the keywords of each marker of the page with their values, which are read as pytest would."""
    for node in ast.walk(ast.parse("\n".join(BLOCKS))):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.torchprof":
            yield {one.arg: eval(ast.unparse(one.value), vars(pytest_torchprof)) for one in node.keywords}


@pytest.mark.any_torch
def test_the_markers_for_a_gpu_are_what_pytest_takes():
    found = list(markers())
    assert len(found) > 3
    for marker in found:
        assert marker.keys() <= MarkerKeywords.__annotations__.keys() | WORDS
        read_limits({word: value for word, value in marker.items() if word not in MARKER_OPTIONS})
