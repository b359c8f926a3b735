"""docs/contributing.md: each of its patches does what it says, and touches no more files than it says."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import fresh
import pytest
from builder import TraceBuilder
from test_facts import made_of_texts

pytestmark = pytest.mark.any_torch

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs/contributing.md").read_text()
EXAMPLES = {
    name: (patch, code)
    for name, patch, code in re.findall(
        r"<!-- example: ([\w ]+) -->\n```diff\n(.*?)```\n\n```python\n(.*?)```", PAGE, re.DOTALL
    )
}
# How many files each touches that are there already, and by how many lines in all; besides it one new file, two or none.
COSTS = {
    "limit": (1, 1, 0),
    "number": (2, 4, 0),
    "kernel library": (1, 1, 1),
    "reason": (2, 13, 0),
    "code": (3, 16, 0),
    "wording": (1, 1, 0),
    "failure": (1, 1, 0),
    "baseline failure": (1, 1, 0),
    "change": (1, 1, 0),
    "finding": (2, 12, 1),
    "column": (1, 1, 0),
    "result": (2, 5, 0),
    "report format": (1, 1, 1),
    "device": (2, 11, 2),
    "command": (1, 1, 1),
}
# A fork has imported the package, unpatched.
AFRESH = """
import sys

for name in [name for name in sys.modules if name.partition(".")[0] == "pytest_torchprof"]:
    del sys.modules[name]
"""
HELP = """
import contextlib, importlib, io, re, sys
from pathlib import Path
from pytest_torchprof import LimitsMissed, NotMeasured, load
from pytest_torchprof.cli import main

recording = sys.argv[1]

def expect(path, **limits):
    try:
        load(path).expect(**limits)
    except LimitsMissed:
        return "missed"
    return "holds"

def torchprof(*words):
    with contextlib.redirect_stdout(io.StringIO()) as text:
        assert main(list(words)) == 0
    return text.getvalue()

def pytest(*options, test, status=0):
    sys.modules.pop("test_it", None)
    Path("test_it.py").write_text("import pytest, torch\\nx = torch.ones(3)\\n" + test + "\\n")
    with contextlib.redirect_stdout(io.StringIO()) as text:
        assert importlib.import_module("pytest").main(["-p", "no:cacheprovider", *options]) == status
    return text.getvalue()
"""


def applied(patch, folder):
    """Apply a patch whose hunks are found by their context; return the files changed and made, and the lines added."""
    changed, made, added = set(), set(), 0
    for part in re.split(r"^(?=--- )", patch, flags=re.MULTILINE)[1:]:
        head, *hunks = re.split(r"^@@ .*? @@\n", part, flags=re.MULTILINE)
        path = folder / re.search(r"^\+\+\+ b/(.*)$", head, re.MULTILINE)[1]
        if head.startswith("--- /dev/null"):
            path.write_text("".join(line[1:] + "\n" for line in hunks[0].splitlines()))
            made.add(path)
            continue
        text = path.read_text()
        for hunk in hunks:
            lines = hunk.splitlines()
            before = "".join(line[1:] + "\n" for line in lines if line[0] in " -")
            assert text.count(before) == 1, f"{path}: the context\n{before}is there {text.count(before)} times"
            text = text.replace(before, "".join(line[1:] + "\n" for line in lines if line[0] in " +"))
            added += sum(line[0] == "+" for line in lines)
        path.unlink()  # It may be a link to the file of the checkout.
        path.write_text(text)
        changed.add(path)
    return changed, made, added


def linked(file, other):
    """Link a file, or copy it where it lies on another disk: a thousand take a second to copy."""
    try:
        os.link(file, other)
    except OSError:
        shutil.copy2(file, other)


@pytest.fixture
def recording(tmp_path):
    """A recording of our own: two kernels, a copy and a fill in a step."""
    builder = TraceBuilder()
    builder.own(steps=1)
    builder.step(0, 0, 900)
    builder.launched("copied", 10)
    builder.launched("squared", 40)
    builder.memcpy("DtoD", 100, 5, builder.call("cudaMemcpyAsync", 90), size=64)
    builder.memset(150, 5, builder.call("cudaMemsetAsync", 140))
    builder.sync(1100, 50)
    return builder.write(tmp_path / "recording.json")


def test_every_example_is_carried_out_below():
    assert set(EXAMPLES) == set(COSTS)
    assert PAGE.count("```diff") == len(COSTS)


@pytest.mark.parametrize(("begins", "folder", "least"), [("a test was", "testing", 5), ("a single limit was", "", 3)])
def test_who_asks_why_something_is_not_measured_is_led_to_modules_that_know_it(begins, folder, least):
    (paragraph,) = re.findall(rf"^\*\*Why {begins} not measured\*\*.*?\n\n", PAGE, re.MULTILINE | re.DOTALL)
    modules = re.findall(r"`([\w/]+\.py)`", paragraph)
    assert len(modules) >= least
    there = ROOT / "pytest_torchprof" / folder
    knows = r"NotMeasured|why_no|unmeasured|Reason"
    assert [name for name in modules if not re.search(knows, (there / name).read_text())] == []


@pytest.mark.parametrize("name", COSTS)
def test_an_example_does_what_it_says(name, tmp_path, recording):
    patch, code = EXAMPLES[name]
    # With its bytecode, which is of use until a patch changes the file; but not with what another process is writing.
    package = tmp_path / "pytest_torchprof"
    shutil.copytree(ROOT / package.name, package, copy_function=linked, ignore=shutil.ignore_patterns("*.pyc.*"))
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    changed, made, added = applied(patch, tmp_path)
    assert (len(changed), added, len(made)) == COSTS[name]
    assert {path.name: found for path in made if (found := made_of_texts(path.read_text(), {"TorchprofError"}))} == {}
    # The folder where it runs comes before everything that is installed.
    done = fresh.run_python("-c", AFRESH + HELP + code, str(recording), folder=tmp_path, environment=os.environ)
    assert done.returncode == 0, done.stdout
