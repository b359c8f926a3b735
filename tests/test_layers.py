"""The package's layers run one way, so that a newcomer sees where a change belongs."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "pytest_torchprof"
NAME = "pytest_torchprof"

# From the bottom to the top: a part imports only parts on lines above its own. Parts of one line never meet.
LAYERS = """
devices.base
devices.cpu, devices.cuda
devices
errors, text.escape, recording.two_processes, capture.ranks, text.plural, text.layout
text.units
kernels.names
trace.columns
recording
recording.events, trace.nesting, recording.text, recording.metadata, recording.perfetto
recording.halves
recording.careful, recording.repair
recording.columns
trace.links
trace.trace
analysis.idle, trace.intervals
trace
recording.reader
analysis.compilation.regions
analysis.compilation.graph_breaks, analysis.backward, analysis.operator_kernels, kernels.operands
analysis.source_lines
analysis.compilation.fx_graphs
analysis.parts, analysis.compilation.evidence
analysis.compilation
analysis.gpu_time, analysis.graph_replays
analysis.validity, analysis.step_work
analysis.numbers
kernels.patterns
kernels.kernel
kernels
analysis.launches
analysis.places
analysis.gpu_work, analysis.steps
analysis.efficiency
analysis.facts
analysis.operator_table
analysis.breakdown
analysis
profile
findings
limits
baseline
compare.align, compare.words
compare.difference
compare.changes
compare.numbers, compare.times
compare
report.analysis_data
report
capture.torch_profiler, capture.torch_cuda, capture.torch_dynamo, capture.torch_inductor
capture.compile_watch
capture
doctor
testing
testing.tolerance
testing.settings
testing.session, testing.comparing, testing.leftovers
testing.explaining, testing.against, testing.measured
testing.measure
testing.fixture, testing.judging
testing.expecting
testing.hookspecs, testing.stash, testing.quiet
testing.progress, testing.headline
testing.collecting, testing.closing
plugin
cli
text
"""
RANK = {name.strip(): rank for rank, line in enumerate(LAYERS.strip().splitlines()) for name in line.split(",")}

FOLDERS = {name.rpartition(".")[0] for name in RANK if "." in name}  # their modules have places of their own

# Who may import what of the outside world; anything else of these is a mistake.
OUTSIDE = {
    "torch": {"capture", "doctor", "testing"},
    "pytest": {"testing", "plugin"},
    "tabulate": {"text", "report"},
    "filelock": {"baseline", "capture"},
}

# What a lower layer offers for convenience from a higher one, at the call only: ``profile.expect(...)``.
UPWARD = {
    ("profile", "findings"): "Profile.findings",
    ("profile", "limits"): "Profile.expect",
    ("profile", "compare"): "Profile.diff",
    ("profile", "report"): "Profile.table",
}


def part(dotted: str) -> str:
    """Return the part that a module of the package belongs to: the longest name that has a place of its own."""
    return next((name for length in (3, 2, 1) if (name := ".".join(dotted.split(".")[:length])) in RANK), dotted)


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
        ("kernels.names", "from pytest_torchprof.trace import Trace"),
        ("kernels.names", "from pytest_torchprof import profile"),
        ("devices.base", "import pytest_torchprof.trace.columns"),
        ("trace.columns", "from pytest_torchprof.trace import spans"),
        ("trace.trace", "from pytest_torchprof.trace import Trace"),
        ("analysis.parts", "from pytest_torchprof.analysis.numbers import worst"),
        ("testing.tolerance", "from pytest_torchprof.testing.settings import Settings"),
        ("limits", "def f():\n    from pytest_torchprof.report import table"),
        ("profile", "import torch"),
        ("cli", "def f():\n    import pytest"),
        ("recording", "from pytest import fixture"),
    ],
)
def test_a_forbidden_import_is_found(own, source):
    assert violations(own, source)


def test_an_import_for_type_checking_only_is_none():
    assert not violations("kernels.names", "if TYPE_CHECKING:\n    from pytest_torchprof.profile import Profile")
