"""The package's layers run one way, so that a newcomer sees where a change belongs."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

import pytest

pytestmark = pytest.mark.any_torch

PACKAGE = Path(__file__).parents[1] / "pytest_torchprof"
NAME = "pytest_torchprof"

# From the bottom to the top: a part imports only parts on lines above its own. Parts of one line never meet.
LAYERS = """
annotation, codes, processes, replacing, text
reasons, tables
documentation, errors, devices
trace
kernels
keywords, recording
analysis
findings, baseline
limits, compare
report
profiles, capture
measuring
against
doctor, testing
cli
plugin
"""
RANK = {name.strip(): rank for rank, line in enumerate(LAYERS.strip().splitlines()) for name in line.split(",")}

# Who may import what of the outside world; anything else of these is a mistake.
OUTSIDE = {
    "torch": {"capture", "doctor", "keywords", "measuring", "testing"},
    "pytest": {"against", "testing", "plugin"},
    "filelock": {"against", "baseline", "testing"},
    "tabulate": {"tables"},
}

SOURCES = {
    ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted(PACKAGE.rglob("*.py"))
}


def part(module: str) -> str:
    """Return the part that a module of the package belongs to: itself where it has a place of its own, or its folder."""
    own = module.removeprefix(NAME).lstrip(".")
    return own if own in RANK else own.partition(".")[0]


def imports(source: str) -> set[str]:
    """Return the modules that a source imports, those for type checking and those inside functions too."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        if isinstance(node, ast.ImportFrom) and node.module:
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            found.update(name if name in SOURCES else node.module for name in names)
    return found


def violations(own: str, source: str) -> list[str]:
    """Return what a source of this part imports against the layers."""
    wrong = []
    for module in sorted(imports(source)):
        other = part(module)
        if (top := module.partition(".")[0]) in OUTSIDE and own not in OUTSIDE[top]:
            wrong.append(f"{own} imports {top}")
        if top == NAME and other not in ("", own) and RANK[other] >= RANK[own]:
            wrong.append(f"{own} imports {other}, which stands above it or beside it")
    return wrong


def circles(graph: dict[str, set[str]]) -> list[set[str]]:
    """Return the sets of modules that all reach one another."""
    reached = {module: set(others) for module, others in graph.items()}
    for through in graph:
        for others in reached.values():
            if through in others:
                others.update(reached[through])
    found = {frozenset(one for one in others if module in reached[one]) for module, others in reached.items()}
    return [set(circle) for circle in found if circle]


@pytest.mark.parametrize("module", [module for module in SOURCES if module != NAME])
def test_a_module_imports_only_from_layers_below_its_own(module):
    assert not violations(part(module), SOURCES[module].read_text())


def test_every_part_has_its_place():
    assert {part(module) for module in SOURCES} - {""} == set(RANK)


@pytest.mark.parametrize(
    ("own", "source"),
    [
        ("trace", "from pytest_torchprof.recording.reader import read"),
        ("trace", "import pytest_torchprof.kernels.kernel"),
        ("analysis", "from pytest_torchprof import profiles"),
        ("findings", "if TYPE_CHECKING:\n    from pytest_torchprof.limits import Limit"),
        ("limits", "def f():\n    from pytest_torchprof.report import tables"),
        ("profiles", "import torch"),
        ("cli", "def f():\n    import pytest"),
        ("recording", "from pytest import fixture"),
    ],
)
def test_a_forbidden_import_is_found(own, source):
    assert violations(own, source)


def test_no_modules_import_one_another_in_a_circle():
    graph = {
        module: {other for other in imports(path.read_text()) if other in SOURCES and other != module}
        for module, path in SOURCES.items()
    }
    assert circles(graph) == []


def test_a_circle_is_found():
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": set()}) == [{"b", "c"}]


def test_no_class_name_occurs_twice():
    names = Counter(
        node.name
        for path in SOURCES.values()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef)
    )
    assert [name for name, count in names.items() if count > 1] == []
