"""What a test measures travels as typed, frozen data, and each module changes its own state alone."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.any_torch

PACKAGE = Path(__file__).parents[1] / "pytest_torchprof"
TESTING = [PACKAGE / "plugin.py", *sorted((PACKAGE / "testing").rglob("*.py"))]
SOURCES = {path.relative_to(PACKAGE).as_posix(): path.read_text() for path in TESTING}
CHANGING = {
    *(
        "add",
        "append",
        "clear",
        "discard",
        "extend",
        "insert",
        "pop",
        "popitem",
        "remove",
        "reverse",
        "setdefault",
        "sort",
    ),
    "update",
}
PYTESTS = {"obj"}
"""What our items share with pytest's, whose function is exchanged for the time of a call."""
COLUMNS, AN_ERROR, PYTHONS, A_REPORT = "columns that it fills", "an error that it makes", "Python's", "pytest's report"
KNOWN = {
    "against/import_path.py": (PYTHONS, "sys"),
    "against/warm_process.py": (PYTHONS, "sys"),
    "analysis/gpu_time.py": (COLUMNS, "every"),
    "analysis/gpu_work.py": (COLUMNS, "parts"),
    "analysis/operator_rows.py": (COLUMNS, "every"),
    "analysis/stacks.py": (COLUMNS, "merged tree"),
    "capture/handed_over.py": ("a function that it makes", "noting"),
    "capture/measurement.py": ("samples that it takes, with the reason that all ranks agree on", "samples"),
    "cli/bisect.py": ("argparse's", "parser"),
    "limits/failure_text.py": (AN_ERROR, "error"),
    "measuring/as_python.py": (PYTHONS, "sys"),
    "reasons/errors.py": (AN_ERROR, "problem"),
    "recording/corrections.py": (COLUMNS, "gpu ops"),
    "recording/events.py": (COLUMNS, "gpu part"),
    "recording/reader.py": (COLUMNS, "columns"),
    "testing/conclusion.py": (AN_ERROR, "error"),
    "testing/ending.py": (AN_ERROR, "error"),
    "testing/judgement.py": (AN_ERROR, "error"),
    "testing/pytest_report.py": (f"{A_REPORT}, and the error in it", "problem report"),
    "testing/rank_ends.py": (A_REPORT, "report"),
    "testing/ranks/inside.py": ("pytest's configuration", "config"),
    "testing/ranks/item.py": (A_REPORT, "report"),
    "trace/captured.py": (COLUMNS, "column self.calls"),
}
"""Who changes what by itself, in all of the package: what it is, and the variables. It made them, or others own them."""
OF_RESULTS = ("compare", "findings/catalogue", "fleet", "history", "limits", "reasons", "report")
"""The folders in which everything is a fact of a result, or its form in a report."""
RESULTS = (
    *(
        path.relative_to(PACKAGE).as_posix()
        for folder in OF_RESULTS
        for path in sorted((PACKAGE / folder).rglob("*.py"))
    ),
    "cli/report_sources.py",
    *("testing/conclusion.py", "testing/handed_over.py", "testing/judgement.py", "testing/outcome.py"),
    *("testing/ranks/task.py", "testing/ranks/launch.py", "testing/ranks/verdict.py"),
)
OPEN = {
    "fleet/judging.py": ("a reason, of which it is asked alone whether it is there", "quarantined"),
    "fleet/records.py": ("the same", "quarantined"),
    "fleet/rules.py": ("limits as users write them into a file of rules", "limits own_limits"),
    "history/changes.py": ("both sides of each fact that moved, whatever its type", "moved"),
    "history/enclosing.py": ("a key", "kind"),
    "history/reported.py": ("of a result's JSON the entries that its measurement does not give", "differing"),
    "history/rows_differ.py": ("both sides of each column that differs, whatever its type", "columns"),
    "history/since.py": ("facts of an environment, whatever their type", "versions"),
    "limits/asked.py": ("values as the user wrote them", "value written settings"),
    "limits/limit.py": ("the function that reads a value as the user wrote it", "read"),
    "report/row_columns.py": ("functions of the rows of any table", "of show bound"),
    "report/page/jobs.py": ("the page's JSON", "facts"),
    "report/perfetto.py": ("ids of events as any recording has them", "id"),
}
"""What is open to anything, and what it is."""


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


def by_name(node: ast.AST) -> ast.Attribute | None:
    """Return the field that ``setattr``, ``delattr`` or ``vars`` changes by its name."""
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store | ast.Del):
        holding = node.value
        of_vars = isinstance(holding, ast.Call) and isinstance(holding.func, ast.Name) and holding.func.id == "vars"
        of_dict = isinstance(holding, ast.Attribute) and holding.attr == "__dict__"
        if (of_vars or of_dict) and isinstance(node.slice, ast.Constant):
            owner = holding.args[0] if isinstance(holding, ast.Call) else holding.value
            return ast.Attribute(owner, str(node.slice.value), ast.Store())
    if isinstance(node, ast.Call) and len(node.args) > 1 and isinstance(node.args[1], ast.Constant):
        called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if called in {"setattr", "delattr", "__setattr__", "__delattr__"}:
            return ast.Attribute(node.args[0], str(node.args[1].value), ast.Store())
    return None


def aliases(tree: ast.AST) -> dict[tuple[ast.AST, str], ast.Attribute]:
    """Return the variables, by their functions, to which a field itself is assigned."""
    found = {}
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            for node in ast.walk(function):
                value = node.value if isinstance(node, ast.Assign | ast.NamedExpr) else None
                targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
                for target in targets if isinstance(value, ast.Attribute) else []:
                    if isinstance(target, ast.Name):
                        found[function, target.id] = value
    return found


def changes_in(source: str) -> Iterator[tuple[int, ast.Attribute]]:
    """Yield the line and the field of each change to a field: at itself, by its name, or by a variable that holds it."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        field = by_name(node) or ((one := changed(node)) and holder(one))
        if isinstance(field, ast.Attribute):
            yield node.lineno, field
    for (function, variable), field in aliases(tree).items():
        for node in ast.walk(function):
            one = changed(node)
            # A variable that is assigned anew changes nothing; what it holds may be changed.
            if one is not None and isinstance(inner := holder(one), ast.Name) and inner.id == variable:
                yield node.lineno, field


def outside_changes(sources: dict[str, str]) -> Iterator[tuple[str, int, ast.Attribute]]:
    """Yield module, line and field where a module changes a field that only classes of other modules have."""
    state = state_of(sources)
    for module, source in sources.items():
        for line, field in changes_in(source):
            if not is_own(field) and module not in state.get(field.attr, {module}):
                yield module, line, field


def writes_from_outside(sources: dict[str, str]) -> list[str]:
    """Return where a module changes a field that only classes of other modules have."""
    return sorted({f"{module}:{line}: {ast.unparse(field)}" for module, line, field in outside_changes(sources)})


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


def test_elsewhere_a_module_changes_what_it_has_made_or_what_others_own_alone():
    """A class that changes has a method for it; who is listed fills columns, words an error, or serves pytest."""
    everywhere = {path.relative_to(PACKAGE).as_posix(): path.read_text() for path in sorted(PACKAGE.rglob("*.py"))}
    changing: dict[str, set[str]] = {}
    for module, _, field in outside_changes(everywhere):
        changing.setdefault(module, set()).add(ast.unparse(field.value))
    assert changing == {module: set(variables.split()) for module, (_, variables) in KNOWN.items()}


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
        "setattr(run, 'error', 'none')",
        "object.__setattr__(run, 'error', 'none')",
        "vars(run)['error'] = 'none'",
        "run.__dict__['error'] = 'none'",
        "def hide(run):\n    labels = run.labels\n    labels.append('a')",
        "def hide(run):\n    if told := run.told:\n        del told['a']",
    ],
)
def test_a_write_from_outside_is_found(line):
    assert len(writes_from_outside({"run.py": STATE, "other.py": line})) == 1
    assert writes_from_outside({"run.py": STATE + line}) == []


@pytest.mark.parametrize("module", RESULTS)
def test_what_a_result_holds_has_a_type(module):
    _, known = OPEN.get(module, ("", ""))
    assert untyped_results((PACKAGE / module).read_text()) == known.split()


def test_an_untyped_field_is_found():
    source = "class Result(Struct):\n    limits: tuple[Verdict, ...]\n    summary: Mapping[str, Any]\n    told: dict[str, object]"
    assert untyped_results(source) == ["summary", "told"]
