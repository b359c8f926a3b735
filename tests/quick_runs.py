"""What runs of pytest in this process ask pytest's own plugins, and of the files on the way to a failure, is asked once.

It is a third of what a short run takes.
"""

from __future__ import annotations

import ast
import sys
import warnings
from functools import cache, lru_cache
from inspect import getattr_static
from types import ModuleType
from typing import TYPE_CHECKING

import pluggy._manager  # None of these has a public name.
from _pytest._code.source import getstatementrange_ast
from _pytest.fixtures import FixtureManager

if TYPE_CHECKING:
    import pytest
    from _pytest._code.source import Source

OF_TESTS = ("test_", "conftest", "outside")
"""How the names of modules begin that only tests have."""

_parsefactories = FixtureManager.parsefactories
# Older ones of pluggy do not have it, and ask less.
_hook_attr = getattr(pluggy._manager, "_static_hook_attr", None)
_known_hook_attr = cache(_hook_attr) if _hook_attr else None


class Modules:
    """What is imported now; when it is restored, what has been imported since stays too, but for modules of tests."""

    def __init__(self) -> None:
        self._before = dict(sys.modules)

    def restore(self) -> None:
        names = self._before.keys()
        for name in [name for name in sys.modules.keys() - names if name.startswith(OF_TESTS)]:
            del sys.modules[name]
        of_tests = {name for name in names if name.startswith(OF_TESTS)}
        sys.modules.update({name: self._before[name] for name in (names - sys.modules.keys()) | of_tests})


def ask_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let runs know of pytest's own modules which fixtures and hooks they have, and of any file where its statements are."""
    monkeypatch.setattr(FixtureManager, "parsefactories", _add_fixtures)
    monkeypatch.setattr(pluggy._manager, "_static_hook_attr", _find_hook, raising=False)
    monkeypatch.setattr("_pytest._code.code.getstatementrange_ast", _range_of_statement)


def _add_fixtures(self: FixtureManager, *args: object, **how: object) -> None:
    holder = how.get("holder")
    kind = holder if isinstance(holder, ModuleType) else type(holder)
    if _is_of_pytest(kind):
        if (fixtures := _fixtures_of(kind)) is None:
            return
        how["holder"] = fixtures if kind is holder else holder
    _parsefactories(self, *args, **how)


@cache
def _fixtures_of(kind: ModuleType | type) -> ModuleType | None:
    """Return the fixtures of a plugin as a module which has nothing else; None where it has no fixture."""
    values = {name: getattr_static(kind, name) for name in dir(kind)}
    # Classes have them below staticmethod, for one.
    found = {name: value for name, value in values.items() if "FixtureFunctionDefinition" in _kinds_of(value)}
    if not found:
        return None
    module = ModuleType("fixtures")
    vars(module).update(found)
    return module


def _kinds_of(value: object) -> set[str]:
    return {type(value).__name__, type(getattr_static(value, "__func__", None)).__name__}


def _find_hook(plugin: object, name: str) -> object:
    is_known = isinstance(plugin, ModuleType) and _is_of_pytest(plugin)
    return (_known_hook_attr if is_known else _hook_attr)(plugin, name)


def _is_of_pytest(kind: ModuleType | type) -> bool:
    name = kind.__name__ if isinstance(kind, ModuleType) else kind.__module__
    return name.startswith("_pytest.")


def _range_of_statement(
    line: int, source: Source, assertion: bool = False, astnode: ast.AST | None = None
) -> tuple[ast.AST, int, int]:
    return getstatementrange_ast(line, source, assertion, astnode or _tree(str(source)))


@lru_cache(64)
def _tree(text: str) -> ast.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(text)
