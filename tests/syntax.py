"""What tests ask the syntax tree of a source for."""

from __future__ import annotations

import ast


def statements(source: str) -> list[ast.AST]:
    """Return all statements of a source, wherever they stand, without going into their expressions: most of a tree are these."""
    found: list[ast.AST] = [ast.parse(source)]
    for one in found:
        for part in ("body", "handlers", "orelse", "finalbody", "cases"):
            found += getattr(one, part, ())
    return found
