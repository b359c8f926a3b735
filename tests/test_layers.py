"""The package's layers run one way, so that a newcomer sees where a change belongs."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "pytest_torchprof"
NAME = "pytest_torchprof"

# From the bottom to the top: a part imports only parts on lines above its own. Parts of one line never meet.
LAYERS = """
errors, printable
units
names
calls, columns
decoding, nesting, pieces, ownkey
careful, repair
folding
linking, regions
trace
idle, spans
recording
breaks, cpukernels, evidence
fxgraphs
parts, compiled
occupation, validity
numbers
patterns
kernels
launching
scene
efficiency
profile
findings
limits
rename
baseline
diff
breakdown
analysis
report
torch_private
compilewatch
capture
tolerance
settings
session, comparing, gone
measure
fixture, judging
hookspecs, stash
progress, headline
collecting, closing
plugin
cli
"""
RANK = {part.strip(): rank for rank, line in enumerate(LAYERS.strip().splitlines()) for part in line.split(",")}

# Who may import what of the outside world; anything else of these is a mistake.
OUTSIDE = {
    "torch": {"torch_private", "compilewatch", "capture", "measure", "fixture"},
    "pytest": {
        "settings", "session", "measure", "judging", "fixture", "hookspecs", "plugin", "stash",
        "collecting", "closing", "headline", "progress",
    },
    "tabulate": {"report"},
    "filelock": {"baseline", "capture"},
}  # fmt: skip

# What a lower layer offers for convenience from a higher one, at the call only: ``profile.expect(...)``.
UPWARD = {
    ("profile", "findings"): "Profile.findings",
    ("profile", "limits"): "Profile.expect",
    ("profile", "diff"): "Profile.diff",
    ("profile", "report"): "Profile.table",
}


def part_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports(source: str) -> set[str]:
    """Return the modules that a source imports when it runs, not those it imports for type checking only."""
    found: set[str] = set()

    def visit(node: ast.AST) -> None:
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            return
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        if isinstance(node, ast.ImportFrom) and node.module:
            is_package = node.module == NAME
            found.update([f"{NAME}.{alias.name}" for alias in node.names] if is_package else [node.module])
        for child in ast.iter_child_nodes(node):
            visit(child)

    visit(ast.parse(source))
    return found


def violations(part: str, source: str) -> list[str]:
    """Return what a part's source imports against the layers."""
    wrong = []
    for module in sorted(imports(source)):
        top, _, rest = module.partition(".")
        other = rest.partition(".")[0]
        if top in OUTSIDE and part not in OUTSIDE[top]:
            wrong.append(f"{part} imports {top}")
        if top == NAME and other and other != part and (part, other) not in UPWARD and RANK[other] >= RANK[part]:
            wrong.append(f"{part} imports {other}, which stands above it or beside it")
    return wrong


SOURCES = sorted(path for path in PACKAGE.rglob("*.py") if path.parent != PACKAGE or path.name != "__init__.py")


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_module_imports_only_from_layers_below_its_own(path):
    assert not violations(part_of(path), path.read_text())


def test_every_part_has_its_place():
    assert {part_of(path) for path in SOURCES} == set(RANK)


@pytest.mark.parametrize(
    ("part", "source"),
    [
        ("names", "from pytest_torchprof.trace import Trace"),
        ("names", "from pytest_torchprof import profile"),
        ("calls", "import pytest_torchprof.columns"),
        ("limits", "def f():\n    from pytest_torchprof.report import table"),
        ("profile", "import torch"),
        ("cli", "def f():\n    import pytest"),
        ("recording", "from pytest import fixture"),
    ],
)
def test_a_forbidden_import_is_found(part, source):
    assert violations(part, source)


def test_an_import_for_type_checking_only_is_none():
    assert not violations("names", "if TYPE_CHECKING:\n    from pytest_torchprof.profile import Profile")
