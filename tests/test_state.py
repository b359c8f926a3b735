"""What a test measures travels as typed, frozen data, and each module changes its own state alone."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.any_torch

PACKAGE = Path(__file__).parents[1] / "pytest_torchprof"
TESTING = [PACKAGE / "plugin.py", *sorted((PACKAGE / "testing").rglob("*.py"))]
SOURCES = {path.relative_to(PACKAGE).as_posix(): path.read_text() for path in TESTING}
CHANGING = {"add", "append", "clear", "discard", "extend", "insert", "pop", "popitem", "remove", "setdefault", "update"}
PYTESTS = {"obj"}
"""What our items share with pytest's, whose function is exchanged for the time of a call."""
RESULTS = (
    *("report/result.py", "report/__init__.py", "report/page/measured.py", "cli/report_sources.py"),
    *("testing/handed_over.py", "testing/judgement.py", "testing/ranks/task.py", "testing/ranks/launch.py"),
)


def is_frozen(found: ast.ClassDef) -> bool:
    made = [keyword for call in found.decorator_list if isinstance(call, ast.Call) for keyword in call.keywords]
    return any(keyword.arg == "frozen" for keyword in [*found.keywords, *made])


def fields_of(found: ast.ClassDef) -> set[str]:
    """Return what a class declares, and what its methods assign to ``self``."""
    declared = {
        one.target.id for one in found.body if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name)
    }
    stored = (one for one in ast.walk(found) if isinstance(one, ast.Attribute) and isinstance(one.ctx, ast.Store))
    return declared | {one.attr for one in stored if is_own(one)}


def is_own(attribute: ast.Attribute) -> bool:
    return isinstance(attribute.value, ast.Name) and attribute.value.id == "self"


def state_of(sources: dict[str, str]) -> dict[str, set[str]]:
    """Return the fields of classes that are not frozen, with the modules that have one of this name."""
    found: dict[str, set[str]] = {}
    for module, source in sources.items():
        for one in ast.walk(ast.parse(source)):
            if isinstance(one, ast.ClassDef) and not is_frozen(one):
                for name in fields_of(one) - PYTESTS:
                    found.setdefault(name, set()).add(module)
    return found


def changed(node: ast.AST) -> ast.expr | None:
    """Return what a node changes: ``a.b = 1``, ``a.b[0] = 1``, ``del a.b``, ``a.b.append(1)``, ``a.b.setdefault(0, c).add(1)``."""
    if isinstance(node, ast.Attribute | ast.Subscript) and isinstance(node.ctx, ast.Store | ast.Del):
        return node.value if isinstance(node, ast.Subscript) else node
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in CHANGING:
        return node.func.value
    return None


def holder(changed: ast.expr) -> ast.expr:
    """Return the field that a value lies in."""
    while isinstance(changed, ast.Subscript | ast.Call):
        inner = changed.value if isinstance(changed, ast.Subscript) else changed.func
        changed = inner.value if isinstance(changed, ast.Call) and isinstance(inner, ast.Attribute) else inner
    return changed


def writes_from_outside(sources: dict[str, str]) -> list[str]:
    """Return where a module changes a field that only classes of other modules have."""
    state, found = state_of(sources), set()
    for module, source in sources.items():
        for node in ast.walk(ast.parse(source)):
            field = (one := changed(node)) and holder(one)
            if isinstance(field, ast.Attribute) and not is_own(field) and module not in state.get(field.attr, {module}):
                found.add(f"{module}:{node.lineno}: {ast.unparse(field)}")
    return sorted(found)


def untyped_results(source: str) -> list[str]:
    """Return the annotated fields that are mappings to anything: nobody can say what is in them."""
    fields = (
        one
        for found in ast.walk(ast.parse(source))
        if isinstance(found, ast.ClassDef)
        for one in found.body
        if isinstance(one, ast.AnnAssign)
    )
    written = {ast.unparse(one.target): ast.unparse(one.annotation) for one in fields}
    return [name for name, kind in written.items() if re.search(r"\b(Any|object)\b", kind)]


def test_no_module_of_the_plugin_changes_the_state_of_another():
    assert writes_from_outside(SOURCES) == []


STATE = """
@dataclass
class Run:
    labels: list[str]
    told: dict[str, list[str]]
    error: str | None
    def fail(self, error):
        self.error = error
"""


@pytest.mark.parametrize(
    "line",
    [
        "run.error = 'none'",
        "state.run.error, other = 1, 2",
        "run.labels.append('a')",
        "run.labels[0] = 'a'",
        "run.told.setdefault('a', []).append('b')",
        "run.told['a'].append('b')",
        "del run.told['a']",
        "run.labels += ['a']",
    ],
)
def test_a_write_from_outside_is_found(line):
    assert len(writes_from_outside({"run.py": STATE, "other.py": line})) == 1
    assert writes_from_outside({"run.py": STATE + line}) == []


@pytest.mark.parametrize("module", RESULTS)
def test_what_a_result_holds_has_a_type(module):
    assert untyped_results((PACKAGE / module).read_text()) == []


def test_an_untyped_field_is_found():
    source = "class Result(Struct):\n    limits: tuple[Verdict, ...]\n    summary: Mapping[str, Any]\n    told: dict[str, object]"
    assert untyped_results(source) == ["summary", "told"]
