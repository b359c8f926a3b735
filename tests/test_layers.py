"""The package's layers run one way, so that a newcomer sees where a change belongs."""

from __future__ import annotations

import ast
import re
from collections import Counter
from functools import cache
from itertools import chain
from pathlib import Path

import pytest
import syntax

pytestmark = pytest.mark.any_torch

PACKAGE = Path(__file__).parents[1] / "pytest_torchprof"
NAME = "pytest_torchprof"

# From the bottom to the top: a part imports only parts on lines above its own. Parts of one line never meet.
LAYERS = """
text
reasons
errors
system
devices
trace
kernels
recording
analysis
findings, baseline
limits, limits.keywords, compare
report
profiles, capture
measuring
against
history
fleet
cli.doctor_checks, testing
cli
plugin
"""
RANK = {name.strip(): rank for rank, line in enumerate(LAYERS.strip().splitlines()) for name in line.split(",")}

# Who may import what of the outside world; anything else of these is a mistake.
OUTSIDE = {
    "torch": {"capture", "cli.doctor_checks", "limits.keywords", "measuring", "testing"},
    "pytest": {"against", "testing", "plugin"},
    "filelock": {"against", "baseline", "testing"},
    "tabulate": {"text"},
    "alembic": {"history"},
    "distributed": {"fleet"},
    "fsspec": {"system"},
    "sqlalchemy": {"history"},
}

SOURCES = {
    ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted(PACKAGE.rglob("*.py"))
}


def part(module: str) -> str:
    """Return the part that a module of the package belongs to: the innermost that has a place of its own."""
    names = module.removeprefix(NAME).lstrip(".").split(".")
    around = (".".join(names[:count]) for count in range(len(names), 0, -1))
    return next((own for own in around if own in RANK), names[0])


@cache
def imports(source: str) -> frozenset[str]:
    """Return the modules that a source imports, those for type checking and those inside functions too."""
    found: set[str] = set()
    for node in syntax.nodes(source, ast.Import, ast.ImportFrom):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        if isinstance(node, ast.ImportFrom) and node.module:
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            found.update(name if name in SOURCES else node.module for name in names)
    return frozenset(found)


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


def test_a_module_imports_only_from_layers_below_its_own():
    wrong = {module: violations(part(module), path.read_text()) for module, path in SOURCES.items() if module != NAME}
    assert {module: those for module, those in wrong.items() if those} == {}


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
        name for path in SOURCES.values() for name in re.findall(r"^\s*class (\w+)[(:]", path.read_text(), re.MULTILINE)
    )
    assert [name for name, count in names.items() if count > 1] == []


# Where torch's private names may stand; each says with which versions it was run.
PRIVATE = [
    *sorted((PACKAGE / "capture").glob("torch_*.py")),
    PACKAGE / "capture/devices/cuda.py",
    PACKAGE / "kernels/operator_names.py",
    PACKAGE / "measuring/annotation.py",
    # torch's own process group for tests.
    PACKAGE / "testing/ranks/group.py",
]
ASKING = {"import_module", "get"}
"""The functions, by their last name, that are given a module's name as text: ``sys.modules.get`` is one."""


def is_private(name: str) -> bool:
    first, *others = name.split(".")
    return first == "torch" and any(one.startswith("_") and not one.startswith("__") for one in others)


def last_name(function: ast.expr) -> str | None:
    """Return the last name of what is called, if it has one."""
    return getattr(function, "attr", None) or getattr(function, "id", None)


def private_names(source: str) -> set[str]:
    """Return torch's private names that a source uses: modules, what is imported of them, and attributes of torch's."""
    found: set[str] = set()
    body = syntax.tree(source).body
    # A type alone is asked of nobody.
    typing = [one for one in body if isinstance(one, ast.If) and ast.unparse(one.test) == "TYPE_CHECKING"]
    for node in chain.from_iterable(syntax.below(one) for one in body if one not in typing):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
        # What lies below a private name is an attribute of another node that is looked at.
        elif isinstance(node, ast.Attribute) and node.attr.startswith("_"):
            found.add(ast.unparse(node))
        elif isinstance(node, ast.Call) and last_name(node.func) in ASKING:
            found.update(one.value for one in node.args if isinstance(one, ast.Constant) and isinstance(one.value, str))
    return {name for name in found if is_private(name)}


def test_private_names_of_torch_have_their_own_modules():
    sources = {module: path.read_text() for module, path in SOURCES.items() if path not in PRIVATE}
    names = {module: private_names(source) for module, source in sources.items() if re.search(r"\btorch\b", source)}
    assert {module: those for module, those in names.items() if those} == {}


@pytest.mark.parametrize("path", PRIVATE, ids=lambda path: path.stem)
def test_who_uses_private_names_of_torch_says_with_which_versions_that_was_run(path):
    assert re.search(r"[Rr]un with\s+torch 2\.1", path.read_text())


@pytest.mark.parametrize(
    "source",
    [
        "import torch._dynamo",
        "from torch import _dynamo",
        "from torch.profiler.profiler import _KinetoProfile",
        "def f(): return torch.cuda._sleep",
        "import_module('torch._C')",
        "sys.modules.get('torch._dynamo')",
    ],
)
def test_a_private_name_is_found(source):
    assert private_names(source)


# What is done in one way, and where that stands: who needs it asks this module, which knows what goes wrong with it.
ONE_WAY = {
    "subprocess.": {"system/processes.py"},
    "os.replace": {"system/replacing.py"},
    "os.link": set(),
    ".hardlink_to": {"system/replacing.py"},
    "os.fsync": {"system/replacing.py"},
    "tempfile.NamedTemporaryFile": set(),
    "tempfile.mkstemp": set(),
    "tabulate.tabulate": {"text/tables.py"},
    "argparse.ArgumentParser": {"cli/__init__.py"},
    "os.fork": {"against/warm_process.py", "measuring/program.py"},
    "concurrent.futures.ProcessPoolExecutor": {"system/spawned_pool.py"},
}
NO_CALLS = {"subprocess.PIPE", "subprocess.DEVNULL", "subprocess.STDOUT", "subprocess.TimeoutExpired"}


@cache
def outside_names(source: str) -> frozenset[str]:
    """Return the names of other modules that a source uses, whole, whichever way it imports them; methods as ".name"."""
    full = {alias.asname or alias.name: alias.name for node in syntax.nodes(source, ast.Import) for alias in node.names}
    for node in syntax.nodes(source, ast.ImportFrom):
        full.update({alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names})
    used = {full[node.id] for node in syntax.nodes(source, ast.Name) if node.id in full}
    for node in syntax.nodes(source, ast.Attribute):
        known = isinstance(node.value, ast.Name) and node.value.id in full
        used.add(f"{full[node.value.id]}.{node.attr}" if known else f".{node.attr}")
    return frozenset(used - NO_CALLS)


@pytest.mark.parametrize("mechanism", ONE_WAY)
def test_what_is_done_in_one_way_stands_in_one_place(mechanism):
    name = mechanism.strip(".").rpartition(".")[2]
    likely = (path for path in SOURCES.values() if name in path.read_text())
    using = {
        path.relative_to(PACKAGE).as_posix()
        for path in likely
        if any(one.startswith(mechanism) for one in outside_names(path.read_text()))
    }
    assert using == ONE_WAY[mechanism]


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("import subprocess\nsubprocess.run(['git'])", "subprocess.run"),
        ("from subprocess import Popen as start\nstart(['git'])", "subprocess.Popen"),
        ("import os\ndef f(): os.replace('a', 'b')", "os.replace"),
        ("path.hardlink_to(other)", ".hardlink_to"),
    ],
)
def test_another_way_is_noticed(source, name):
    assert name in outside_names(source)
