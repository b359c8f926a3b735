"""Facts travel as data: nothing in the package takes a sentence apart that the package itself has made."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.any_torch

PACKAGE = Path(__file__).parents[1] / "pytest_torchprof"

TAKING_APART = {"partition", "rpartition", "split", "rsplit", "startswith", "endswith", "removeprefix", "removesuffix"}
SENTENCES = {
    "text",
    "message",
    "sentence",
    "words",
    "said",
    "seen",
    "reason",
    "why",
    "why_not",
    "brief",
    "told",
    "remedy",
}
"""What variables and attributes are called that hold sentences."""


def taken_apart(source):
    """Return the lines in which a source asks what stands in a sentence: by words with a blank, or by the name of it."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in TAKING_APART:
            asked, of = node.args[:1], node.func.value
        elif isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.In | ast.NotIn):
            asked, of = [node.left], node.comparators[0]
        else:
            continue
        words = [one.value for one in asked if isinstance(one, ast.Constant) and isinstance(one.value, str)]
        if words and (called(of) in SENTENCES or (" " in words[0].strip("\n") and not isinstance(node, ast.Compare))):
            found.add(node.lineno)
    return sorted(found)


def called(node):
    """Return what is asked about is called: the last name of an expression."""
    if isinstance(node, ast.Call):
        return called(node.args[0]) if node.args and called(node.func) == "str" else called(node.func)
    if isinstance(node, ast.Attribute):
        return called(node.value) if node.attr in {"lower", "strip", "lstrip", "rstrip", "text_of"} else node.attr
    return node.id if isinstance(node, ast.Name) else ""


if __name__ == "__main__":
    for path in sorted(PACKAGE.rglob("*.py")):
        lines = path.read_text().splitlines()
        for at in taken_apart(path.read_text()):
            sys.stdout.write(f"{path.relative_to(PACKAGE)}:{at} {lines[at - 1].strip()}\n")
