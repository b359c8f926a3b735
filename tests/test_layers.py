"""The package's layers run one way, so that a newcomer sees where a change belongs."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "pytest_torchprof"
NAME = "pytest_torchprof"

# From the bottom to the top: a part imports only parts on lines above its own. Parts of one line never meet.
LAYERS = """
errors, printable, forking, blocking, ranks, words
units
names
trace.calls, trace.columns
recording.decoding, trace.nesting, recording.pieces, recording.ownkey, recording.perfetto
recording.halves
recording.careful, recording.repair
recording.folding
trace.linking, compiled.regions
trace.model
numbers.idle, trace.spans
trace
recording.reading
recording
compiled.breaks, numbers.backward, numbers.cpukernels, evidence
origins
compiled.fxgraphs
numbers.parts, compiled.model
compiled
numbers.occupation, numbers.replays
numbers.validity
numbers.model
numbers
patterns
kernels
launching
places
scene, steps
efficiency
facts
profile
findings
limits
rename
baseline
diff.item
diff.model, diff.pairing
diff
optable
breakdown
analysis
report
torch_private
compilewatch
capture
doctor
run
run.tolerance
run.settings
run.session, run.comparing, run.leftovers
run.explaining, run.against, run.measured
run.measure
run.fixture, run.judging
run.expecting
run.hookspecs, run.stash, run.quiet
run.progress, run.headline
run.collecting, run.closing
plugin
cli
"""
RANK = {name.strip(): rank for rank, line in enumerate(LAYERS.strip().splitlines()) for name in line.split(",")}

FOLDERS = {name.partition(".")[0] for name in RANK if "." in name}  # their modules have places of their own

# Who may import what of the outside world; anything else of these is a mistake.
OUTSIDE = {
    "torch": {"torch_private", "compilewatch", "capture", "doctor", "run"},
    "pytest": {"run", "plugin"},
    "tabulate": {"report"},
    "filelock": {"baseline", "capture"},
}

# What a lower layer offers for convenience from a higher one, at the call only: ``profile.expect(...)``.
UPWARD = {
    ("profile", "findings"): "Profile.findings",
    ("profile", "limits"): "Profile.expect",
    ("profile", "diff"): "Profile.diff",
    ("profile", "report"): "Profile.table",
}


def part(dotted: str) -> str:
    """Return the part that a module of the package belongs to: the longest name that has a place of its own."""
    return next(
        (name for name in (".".join(dotted.split(".")[:2]), dotted.split(".", maxsplit=1)[0]) if name in RANK), dotted
    )


def part_of(path: Path) -> str:
    return part(".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__"))


def imports(source: str) -> set[str]:
    """Return the modules that a source imports when it runs, not those it imports for type checking only."""
    found: set[str] = set()

    def visit(node: ast.AST) -> None:
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            return
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        if isinstance(node, ast.ImportFrom) and node.module:
            inside = node.module == NAME or node.module.removeprefix(f"{NAME}.") in FOLDERS
            found.update([f"{node.module}.{alias.name}" for alias in node.names] if inside else [node.module])
        for child in ast.iter_child_nodes(node):
            visit(child)

    visit(ast.parse(source))
    return found


def violations(own: str, source: str) -> list[str]:
    """Return what a part's source imports against the layers."""
    wrong = []
    for module in sorted(imports(source)):
        top, _, rest = module.partition(".")
        other = part(rest)
        if top in OUTSIDE and own.partition(".")[0] not in OUTSIDE[top]:
            wrong.append(f"{own} imports {top}")
        if top == NAME and other and other != own and (own, other) not in UPWARD and RANK[other] >= RANK[own]:
            wrong.append(f"{own} imports {other}, which stands above it or beside it")
    return wrong


SOURCES = sorted(path for path in PACKAGE.rglob("*.py") if path.parent != PACKAGE or path.name != "__init__.py")


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_module_imports_only_from_layers_below_its_own(path):
    assert not violations(part_of(path), path.read_text())


def test_every_part_has_its_place():
    assert {part_of(path) for path in SOURCES} == set(RANK)


@pytest.mark.parametrize(
    ("own", "source"),
    [
        ("names", "from pytest_torchprof.trace import Trace"),
        ("names", "from pytest_torchprof import profile"),
        ("trace.calls", "import pytest_torchprof.trace.columns"),
        ("trace.columns", "from pytest_torchprof.trace import spans"),
        ("trace.model", "from pytest_torchprof.trace import Trace"),
        ("numbers.parts", "from pytest_torchprof.numbers import worst"),
        ("run.tolerance", "from pytest_torchprof.run.settings import Settings"),
        ("limits", "def f():\n    from pytest_torchprof.report import table"),
        ("profile", "import torch"),
        ("cli", "def f():\n    import pytest"),
        ("recording", "from pytest import fixture"),
    ],
)
def test_a_forbidden_import_is_found(own, source):
    assert violations(own, source)


def test_an_import_for_type_checking_only_is_none():
    assert not violations("names", "if TYPE_CHECKING:\n    from pytest_torchprof.profile import Profile")
