"""What a test measures travels as typed, frozen data, and each module changes its own state alone."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import TYPE_CHECKING, get_type_hints

import pytest
import syntax

from pytest_torchprof.compare import Comparison
from pytest_torchprof.compare.comparison_json import ComparisonJson
from pytest_torchprof.limits import Verdict
from pytest_torchprof.report.verdicts import VerdictJson

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
WALKING = {"enumerate", "list", "reversed", "sorted", "tuple", "zip"}
"""Calls over whose result a loop goes through what lies in their arguments."""
HANDING_OUT = {"get", "items", "setdefault", "values"}
"""Methods that return what lies in a field."""
PYTESTS = {"obj"}
"""What our items share with pytest's, whose function is exchanged for the time of a call."""
COLUMNS, PYTHONS, A_REPORT = "columns that it fills", "Python's", "pytest's report"
TORCHS, CONFIGURATION = "torch's, of which it replaces a method for a while", "pytest's configuration"
KNOWN = {
    "against/import_path.py": (PYTHONS, "sys"),
    "against/inside.py": (CONFIGURATION, "config.option"),
    "against/warm_process.py": (PYTHONS, "sys"),
    "analysis/gpu_time.py": (COLUMNS, "every"),
    "analysis/gpu_work.py": (COLUMNS, "parts"),
    "analysis/operator_rows.py": (COLUMNS, "every"),
    "analysis/range_rows.py": (COLUMNS, "modules"),
    "analysis/stacks.py": (COLUMNS, "merged tree"),
    "analysis/steps.py": ("what a view has worked out, as cached_property keeps it", "view"),
    "capture/handed_over.py": (f"a function that it makes, and {TORCHS}", "noting owner"),
    "capture/measurement.py": ("samples that it takes, with the reason that all ranks agree on", "samples"),
    "capture/observers.py": (TORCHS, "kind"),
    "capture/torch_graphs.py": (TORCHS, "dynamo"),
    "capture/torch_packages.py": (f"a function that it makes, and {TORCHS}", "kind run"),
    "capture/torch_profiler_calls.py": (TORCHS, "holder"),
    "cli/__init__.py": ("argparse's, and Python's", "arguments sys"),
    "cli/bisect.py": ("argparse's", "parser"),
    "measuring/as_python.py": (PYTHONS, "sys"),
    "plugin.py": (A_REPORT, "report"),
    "recording/corrections.py": (COLUMNS, "gpu ops"),
    "recording/events.py": (COLUMNS, "gpu part"),
    "recording/reader.py": (COLUMNS, "columns"),
    "testing/body.py": ("unittest's, where it looks up a coroutine method", "original.__self__"),
    "testing/pytest_report.py": (f"{A_REPORT}, and what lies in it", "crash entries[-1] report"),
    "testing/rank_ends.py": (A_REPORT, "report"),
    "testing/ranks/inside.py": (CONFIGURATION, "config config.option"),
    "testing/ranks/item.py": (A_REPORT, "report"),
    "testing/testcases.py": ("unittest's, whose attribute users read", "instance"),
    "testing/uncut.py": (A_REPORT, "report"),
    "trace/captured.py": (COLUMNS, "column self.calls"),
}
"""Who changes what by itself, in all of the package: what it is, and the variables. It made them, or others own them."""
OF_RESULTS = ("cli/doctor_checks", "compare", "findings/catalogue", "fleet", "history", "limits", "reasons", "report")
"""The folders in which everything is a fact of a result, or its form in a report."""
RESULTS = (
    *(
        path.relative_to(PACKAGE).as_posix()
        for folder in OF_RESULTS
        for path in sorted((PACKAGE / folder).rglob("*.py"))
    ),
    *("against/bisection_json.py", "cli/diff_json.py", "cli/doctor_json.py", "cli/report_sources.py"),
    *("testing/accounts.py", "testing/conclusion.py", "testing/failure.py", "testing/handed_over.py"),
    *("testing/judgement.py", "testing/judging.py", "testing/misses.py", "testing/outcome.py"),
    *("testing/ranks/task.py", "testing/ranks/launch.py", "testing/ranks/verdict.py"),
)
OPEN = {
    "cli/doctor_checks/machine.py": ("what NVML answers, whatever its type", "value"),
    "fleet/rules.py": ("limits as users write them into a file of rules", "limits own_limits"),
    "history/changes.py": ("both sides of each fact that moved, whatever its type", "moved"),
    "history/enclosing.py": ("a key", "kind"),
    "history/reported.py": ("of a result's JSON the entries that its measurement does not give", "differing"),
    "history/rows_differ.py": ("both sides of each column that differs, whatever its type", "columns"),
    "history/since.py": ("facts of an environment, whatever their type", "versions"),
    "limits/asked.py": ("values as the user wrote them", "value written settings"),
    "limits/limit.py": ("the function that reads a value as the user wrote it", "read"),
    "report/analysis_json.py": ("facts of a finding, which are others for each code", "evidence"),
    "report/ranks_json.py": ("rows, whose fields are the columns of a table", "ranks"),
    "report/row_columns.py": ("functions of the rows of any table", "of show bound"),
    "report/page/details.py": ("facts of an environment, whatever their type", "environment"),
    "report/perfetto.py": ("ids of events as any recording has them", "id"),
}
"""What is open to anything, and what it is."""
BY_HAND = {
    "baseline/form.py": "texts of a file, one line for each kernel",
    "cli/schema.py": "schemas",
    "cli/schema_of_analysis.py": "schemas",
    "recording/writer.py": "what a recording already has, and more",
    "report/analysis_json.py": "rows, whose fields are the columns of tables",
    "report/history.py": "rows, whose fields are those of a table",
    "report/json_report.py": "results, which are typed, with the words for them",
}
"""The modules that still put a document together from its parts, and what these are."""


def is_frozen(found: ast.ClassDef) -> bool:
    made = [keyword for call in found.decorator_list if isinstance(call, ast.Call) for keyword in call.keywords]
    return any(keyword.arg == "frozen" for keyword in [*found.keywords, *made])


def fields_of(found: ast.ClassDef) -> set[str]:
    """Return what a class declares, and what its methods assign to ``self``."""
    declared = {
        one.target.id for one in found.body if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name)
    }
    stored = (one for one in syntax.below(found) if isinstance(one, ast.Attribute) and isinstance(one.ctx, ast.Store))
    return declared | {one.attr for one in stored if is_own(one)}


def is_own(attribute: ast.Attribute) -> bool:
    return isinstance(attribute.value, ast.Name) and attribute.value.id == "self"


def state_of(sources: dict[str, str]) -> dict[str, set[str]]:
    """Return the fields of classes that are not frozen, with the modules that have one of this name."""
    found: dict[str, set[str]] = {}
    for module, source in sources.items():
        for one in syntax.nodes(source, ast.ClassDef):
            if not is_frozen(one):
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


def asked_by_name(value: ast.AST) -> ast.Attribute | None:
    """Return the field that ``getattr`` returns."""
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id == "getattr":
        return ast.Attribute(value.args[0], written(value.args[1]), ast.Load())
    return None


def holder(changed: ast.expr) -> ast.expr:
    """Return the field that a value lies in."""
    while isinstance(changed, ast.Subscript | ast.Call):
        if (field := asked_by_name(changed)) is not None:
            return field
        inner = changed.value if isinstance(changed, ast.Subscript) else changed.func
        changed = inner.value if isinstance(changed, ast.Call) and isinstance(inner, ast.Attribute) else inner
    return changed


CHANGES = (ast.Attribute, ast.Subscript, ast.Call)
"""Nodes that may change a field."""
ANY = "*"
"""The name of a field that cannot be told from the code: one that ``setattr`` gets in a variable."""


def by_name(node: ast.AST) -> ast.Attribute | None:
    """Return the field that ``setattr``, ``delattr`` or ``vars`` changes by its name."""
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store | ast.Del):
        holding = node.value
        of_vars = isinstance(holding, ast.Call) and isinstance(holding.func, ast.Name) and holding.func.id == "vars"
        of_dict = isinstance(holding, ast.Attribute) and holding.attr == "__dict__"
        if of_vars or of_dict:
            owner = holding.args[0] if isinstance(holding, ast.Call) else holding.value
            return ast.Attribute(owner, written(node.slice), ast.Store())
    if isinstance(node, ast.Call) and len(node.args) > 1:
        called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if called in {"setattr", "delattr", "__setattr__", "__delattr__"}:
            return ast.Attribute(node.args[0], written(node.args[1]), ast.Store())
    return None


def written(name: ast.expr) -> str:
    """Return a field's name as a constant has it; ``ANY`` for one in a variable."""
    return str(name.value) if isinstance(name, ast.Constant) else ANY


def field_in(value: ast.expr) -> ast.Attribute | None:
    """Return the field that an expression is or lies in: ``a.b``, ``a.b[0]``, ``a.b.get(0)``, ``getattr(a, "b")``."""
    if (field := asked_by_name(value)) is not None or isinstance(value, ast.Attribute):
        return field or value
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr in HANDING_OUT:
        return field_in(value.func.value)
    return field_in(value.value) if isinstance(value, ast.Subscript) else None


def bound(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Yield what a node gives values to, with the values: by an assignment, or as the variable of a loop."""
    if isinstance(node, ast.Assign):
        yield from ((target, node.value) for target in node.targets)
    elif isinstance(node, ast.AnnAssign | ast.NamedExpr) and node.value is not None:
        yield node.target, node.value
    elif isinstance(node, ast.For | ast.AsyncFor | ast.comprehension):
        yield from ((node.target, value) for value in walked(node.iter))


def walked(value: ast.expr) -> list[ast.expr]:
    """Return what a loop goes through: the value itself, or the arguments of such a call as ``reversed()``."""
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id in WALKING:
        return value.args
    return [value]


def aliases(nodes: list[ast.AST]) -> dict[str, ast.Attribute]:
    """Return the variables of a function that hold a field itself, or what lies in one."""
    found = {}
    for target, value in (pair for node in nodes for pair in bound(node)):
        # What is assigned to a.b and a[0] is found where that is changed.
        if isinstance(target, ast.Name | ast.Tuple) and (field := field_in(value)) is not None:
            found |= {one.id: field for one in syntax.below(target) if isinstance(one, ast.Name)}
    return found


def changes_in(source: str) -> Iterator[tuple[int, ast.Attribute]]:
    """Yield the line and the field of each change to a field: at itself, by its name, or by a variable that holds it."""
    for node in syntax.nodes(source, *CHANGES):
        field = by_name(node) or ((one := changed(node)) and holder(one))
        if isinstance(field, ast.Attribute):
            yield node.lineno, field
    for function in syntax.nodes(source, *syntax.FUNCTIONS):
        inside = syntax.below(function)
        # A variable that is assigned anew changes nothing; what it holds may be changed.
        if fields := aliases(inside):
            held = ((node.lineno, holder(one)) for node in inside if (one := changed(node)) is not None)
            yield from ((line, fields[one.id]) for line, one in held if isinstance(one, ast.Name) and one.id in fields)


def outside_changes(sources: dict[str, str]) -> Iterator[tuple[str, int, ast.Attribute]]:
    """Yield module, line and field where a module changes a field that only classes of other modules have."""
    state = state_of(sources)
    for module, source in sources.items():
        for line, field in changes_in(source):
            if not is_own(field) and (field.attr == ANY or module not in state.get(field.attr, {module})):
                yield module, line, field


def writes_from_outside(sources: dict[str, str]) -> list[str]:
    """Return where a module changes a field that only classes of other modules have."""
    return sorted({f"{module}:{line}: {ast.unparse(field)}" for module, line, field in outside_changes(sources)})


def untyped_results(source: str) -> list[str]:
    """Return the annotated fields that are mappings to anything: nobody can say what is in them."""
    fields = (
        one for found in syntax.nodes(source, ast.ClassDef) for one in found.body if isinstance(one, ast.AnnAssign)
    )
    written = {ast.unparse(one.target): ast.unparse(one.annotation) for one in fields}
    return [name for name, kind in written.items() if re.search(r"\b(Any|object)\b", kind)]


def test_no_module_of_the_plugin_changes_the_state_of_another():
    found = [
        f"{module}:{line}: {ast.unparse(field)}"
        for module, line, field in outside_changes(SOURCES)
        if ast.unparse(field.value) not in KNOWN.get(module, ("", ""))[1].split()
    ]
    assert found == []


def test_elsewhere_a_module_changes_what_it_has_made_or_what_others_own_alone():
    """A class that changes has a method for it; who is listed fills columns, or serves pytest."""
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
        "def hide(run):\n    told: list[str] = run.told['a']\n    told.append('b')",
        "def hide(run):\n    for told in run.told.values():\n        told.append('a')",
        "def hide(run):\n    for at, (_, told) in enumerate(run.told.items()):\n        told[at] = 'a'",
        "def hide(runs):\n    for run in runs:\n        run.error = 'none'",
        "getattr(run, 'labels').append('a')",
        "def hide(run):\n    labels = getattr(run, 'labels', [])\n    labels.append('a')",
    ],
)
def test_a_write_from_outside_is_found(line):
    assert len(writes_from_outside({"run.py": STATE, "other.py": line})) == 1
    assert writes_from_outside({"run.py": STATE + line}) == []


@pytest.mark.parametrize(
    "line",
    [
        "for name in names: setattr(run, name, 'none')",
        "delattr(run, NAME)",
        "vars(run)[name] = 'none'",
        "for name in names: getattr(run, name).clear()",
        "def hide(run, name):\n    labels = getattr(run, name)\n    labels.append('a')",
    ],
)
def test_a_write_by_a_name_that_the_code_does_not_tell_is_found_in_any_module(line):
    assert len(writes_from_outside({"other.py": line})) == 1
    assert writes_from_outside({"own.py": line.replace("run", "self")}) == []


@pytest.mark.parametrize(
    "line",
    [
        "def show(run):\n    labels = list(run.labels)\n    labels.append('a')",
        "def show(run):\n    labels = [run.labels]\n    labels[0] = 'a'",
        "def show(run, columns):\n    for at, label in enumerate(run.labels):\n        columns[at] = label",
    ],
)
def test_a_copy_is_changed_by_whoever_made_it(line):
    assert writes_from_outside({"run.py": STATE, "other.py": line}) == []


@pytest.mark.parametrize("module", RESULTS)
def test_what_a_result_holds_has_a_type(module):
    _, known = OPEN.get(module, ("", ""))
    assert untyped_results((PACKAGE / module).read_text()) == known.split()


def test_an_untyped_field_is_found():
    source = "class Result(Struct):\n    limits: tuple[Verdict, ...]\n    summary: Mapping[str, Any]\n    told: dict[str, object]"
    assert untyped_results(source) == ["summary", "told"]


PAGE = sorted((PACKAGE / "report" / "page").rglob("*.py"))
MAPPINGS = {"dict", "defaultdict", "Mapping", "MutableMapping"}


def untyped_mappings(source: str) -> list[int]:
    """Return the lines with a mapping to anything: nobody checks what is asked for by key.

    The fields of classes are left to ``untyped_results``.
    """
    declared = (one for found in syntax.nodes(source, ast.ClassDef) for one in found.body)
    fields = {id(part) for one in declared if isinstance(one, ast.AnnAssign) for part in syntax.below(one.annotation)}
    asked = syntax.nodes(source, ast.Subscript)
    return [node.lineno for node in asked if is_untyped_mapping(node) and id(node) not in fields]


def is_untyped_mapping(node: ast.Subscript) -> bool:
    if not isinstance(node.slice, ast.Tuple):
        return False
    return ast.unparse(node.value) in MAPPINGS and ast.unparse(node.slice.elts[-1]) in {"Any", "object"}


@pytest.mark.parametrize("module", [path.name for path in PAGE])
def test_what_goes_to_the_page_is_asked_by_attribute(module):
    assert untyped_mappings((PACKAGE / "report" / "page" / module).read_text()) == []


@pytest.mark.parametrize(
    "line",
    [
        "def details_of(measured: Measured) -> dict[str, Any]: ...",
        "def lead_of(details: Sequence[Mapping[str, object]]) -> str: ...",
        "async def rows(*, of: dict[str, list[dict[str, Any]]]) -> None: ...",
        "Table = dict[str, Any]",
        "class Page:\n    def index(self) -> dict[str, Any] | None: ...",
        "def page():\n    details: list[dict[str, Any]] = []",
    ],
)
def test_a_mapping_to_anything_is_found(line):
    assert len(untyped_mappings(line)) == 1


def test_a_mapping_to_something_is_none_to_anything():
    source = "class Details(Struct):\n    environment: Mapping[str, object]\ndef tables(key: object) -> dict[str, Table]: ..."
    assert untyped_mappings(source) == []


def documents_by_hand(source: str) -> list[int]:
    """Return the lines of dictionaries that have the version of a schema: documents without a type."""
    return [
        found.lineno
        for found in syntax.nodes(source, ast.Dict)
        for key, value in zip(found.keys, found.values, strict=True)
        if isinstance(key, ast.Constant) and key.value == "schema" and not is_text(value)
    ]


def is_text(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and isinstance(value.value, str)


def test_documents_have_types():
    sources = {path.relative_to(PACKAGE).as_posix(): path.read_text() for path in PACKAGE.rglob("*.py")}
    assert sorted(module for module, source in sources.items() if documents_by_hand(source)) == [*BY_HAND]


@pytest.mark.parametrize(
    "source", ['return {"schema": SCHEMA, "test": test}', 'head = {**more, "schema": 1}', 'dict(told, **{"schema": 2})']
)
def test_a_document_without_a_type_is_found(source):
    assert documents_by_hand(f"def told():\n    {source}") == [2]


@pytest.mark.parametrize(("facts", "document"), [(Verdict, VerdictJson), (Comparison, ComparisonJson)])
def test_a_document_has_each_fact_by_its_type_and_in_its_order(facts, document):
    """But changes, which have their words there."""
    assert document.__struct_fields__[: len(facts.__struct_fields__)] == facts.__struct_fields__
    known, written = (
        {name: kind for name, kind in get_type_hints(one).items() if name in facts.__struct_fields__}
        for one in (facts, document)
    )
    assert {name for name, kind in known.items() if written[name] != kind} <= {"changes"}
