"""What runs of pytest in this process ask pytest's own plugins, and of the files on the way to a failure, is asked once.

It is half of what a short run takes. What torch times in each, for its own log alone, is not timed.
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
    from collections.abc import Sequence

    import pytest
    from _pytest._code.source import Source

OF_TESTS = ("test_", "conftest", "outside")
"""How the names of modules begin that only tests have."""

WORDS_OF_PLUGINS = {
    "rerunfailures": ("rerun",),
    "logging": ("log",),
    "xdist": ("xdist", "-n"),
    "xdist.looponfail": ("-f",),
}
"""Plugins that take time in each run, by what tests or options have in them that use one."""

_parsefactories = FixtureManager.parsefactories
_verify_hook = pluggy.PluginManager._verify_hook
# Older ones of pluggy do not have it, and ask less.
_hook_attr = getattr(pluggy._manager, "_static_hook_attr", None)
_known_hook_attr = cache(_hook_attr) if _hook_attr else None


class Modules:
    """What is imported now; when it is restored, what has been imported since stays too, but for modules of tests."""

    def __init__(self) -> None:
        self._before = dict(sys.modules)

    def restore(self) -> None:
        for name in [name for name in sys.modules if name.startswith(OF_TESTS)]:
            del sys.modules[name]
        sys.modules.update({name: self._before[name] for name in self._before.keys() - sys.modules.keys()})


def without_unasked(*texts: str) -> list[str]:
    """Return the options for a run that these tests and options are all of: no plugin that takes time and that none of them uses."""
    unasked = [
        name for name, words in WORDS_OF_PLUGINS.items() if not any(word in text for word in words for text in texts)
    ]
    return [word for name in unasked for word in ("-p", f"no:{name}")]


def ask_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let runs know of pytest's own modules which fixtures and hooks they have, and of any file where its statements are."""
    monkeypatch.setattr(FixtureManager, "parsefactories", _add_fixtures)
    monkeypatch.setattr(pluggy._manager, "_static_hook_attr", _find_hook, raising=False)
    monkeypatch.setattr(pluggy._manager, "dir", _names, raising=False)
    monkeypatch.setattr(pluggy.PluginManager, "_verify_hook", _verify_foreign_hook)
    monkeypatch.setattr("_pytest._code.code.getstatementrange_ast", _range_of_statement)


def leave_guards_unmeasured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out what Dynamo does for its log: it times the guards of all that it compiles, with the cache emptied first, 30 ms each."""
    if (guards := sys.modules.get("torch._dynamo.guards")) is not None:
        monkeypatch.setattr(guards, "profile_guard_manager", lambda *_: 0.0, raising=False)


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


def _names(plugin: object) -> Sequence[str]:
    """Return the names in a plugin that may be hooks: of pytest's own modules and classes the same each time."""
    kind = plugin if isinstance(plugin, ModuleType) else type(plugin)
    return _names_of(kind) if _is_of_pytest(kind) else dir(plugin)


@cache
def _names_of(kind: ModuleType | type) -> tuple[str, ...]:
    return tuple(name for name in dir(kind) if name.startswith("pytest_"))


def _verify_foreign_hook(self: pluggy.PluginManager, hook: pluggy.HookCaller, implementation: pluggy.HookImpl) -> None:
    """Let it be as pytest's own plugins have it."""
    plugin = implementation.plugin
    if not _is_of_pytest(plugin if isinstance(plugin, ModuleType) else type(plugin)):
        _verify_hook(self, hook, implementation)


def _is_of_pytest(kind: ModuleType | type) -> bool:
    if isinstance(kind, ModuleType):
        return kind.__name__.startswith("_pytest.")
    # A class within a function is another one each time, and knows what is around it.
    return kind.__module__.startswith("_pytest.") and "<locals>" not in kind.__qualname__


def _range_of_statement(
    line: int, source: Source, assertion: bool = False, astnode: ast.AST | None = None
) -> tuple[ast.AST, int, int]:
    return getstatementrange_ast(line, source, assertion, astnode or _tree(str(source)))


@lru_cache(64)
def _tree(text: str) -> ast.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(text)
