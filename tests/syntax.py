"""What tests ask the syntax tree of a source for: a source is parsed once in a process, whoever asks."""

from __future__ import annotations

import ast
from functools import cache
from itertools import chain
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
WITHOUT_PARTS = frozenset({ast.Name, ast.Constant, ast.alias, ast.Load, ast.Store, ast.Del, ast.Pass})
"""Kinds of nodes that have none below them which says anything: four of five are these."""

tree = cache(ast.parse)


def parts(node: ast.AST) -> list[ast.AST]:
    """Return the nodes right below one, but for those that only say whether a name is read or written."""
    if type(node) in WITHOUT_PARTS:
        return []
    found: list[ast.AST] = []
    for name in node._fields:
        value = getattr(node, name, None)
        if isinstance(value, list):
            found += [one for one in value if isinstance(one, ast.AST)]
        elif isinstance(value, ast.AST) and not isinstance(value, ast.expr_context):
            found.append(value)
    return found


def below(node: ast.AST) -> list[ast.AST]:
    """Return a node and all below it, as ``ast.walk`` does: from the outside to the inside."""
    found = [node]
    for one in found:
        found += parts(one)
    return found


def in_functions(source: str, *kinds: type[ast.AST]) -> Iterator[tuple[ast.AST, str]]:
    """Return the nodes of these kinds, or all, each with the name of the innermost function around it: its own, if it is one."""
    found = _by_kind(source)
    return chain.from_iterable(found.get(kind, ()) for kind in kinds or found)


def nodes(source: str, *kinds: type[ast.AST]) -> Iterator[ast.AST]:
    """Return the nodes of these kinds, or all, kind by kind: those of one from the outside to the inside."""
    return (node for node, _ in in_functions(source, *kinds))


@cache
def _by_kind(source: str) -> dict[type[ast.AST], list[tuple[ast.AST, str]]]:
    found: dict[type[ast.AST], list[tuple[ast.AST, str]]] = {}
    level: list[tuple[ast.AST, str]] = [(tree(source), "")]
    for node, around in level:
        name = node.name if isinstance(node, FUNCTIONS) else around
        found.setdefault(type(node), []).append((node, name))
        level += [(one, name) for one in parts(node)]
    return found
