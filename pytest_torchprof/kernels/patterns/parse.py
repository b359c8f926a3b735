"""Values of limits written as text, as on the command line; nothing is evaluated."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Final

from pytest_torchprof.errors import UnknownLimit
from pytest_torchprof.kernels.patterns.selectors import SIGNATURES, build, nearest

if TYPE_CHECKING:
    from pytest_torchprof.kernels.patterns.selectors import Selector

_FORMS: Final = 'gemm(layout="tn"), [gemm(), "name"] or {"name": 3}'


def parse_value(text: str) -> object:
    """Return what ``text`` writes: a literal, a selector call, or a list, tuple or dict of them.

    Raises UnknownLimit for anything else, with what is wrong.
    """
    try:
        return _value(ast.parse(text.strip(), mode="eval").body)
    except (SyntaxError, ValueError, MemoryError, RecursionError, TypeError):
        shown = text if len(text) <= 60 else f"{text[:57]}..."
        raise UnknownLimit(
            f"{shown!r} cannot be read: expected literals and selectors such as {_FORMS}; quote what is meant as a text"
        ) from None


def _value(node: ast.expr) -> object:
    if isinstance(node, ast.List | ast.Tuple):
        values = [_value(entry) for entry in node.elts]
        return values if isinstance(node, ast.List) else tuple(values)
    if isinstance(node, ast.Dict):
        # A key that is None stands for what ** would unpack.
        pairs = zip(node.keys, node.values, strict=True)
        return {_value(key or ast.Name("**")): _value(value) for key, value in pairs}
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        return _selector(node.func.id, node)
    if isinstance(node, ast.Name) and node.id in _JSON:
        return _JSON[node.id]
    return ast.literal_eval(node)


_JSON: Final = {"true": True, "false": False, "null": None}


def _selector(kind: str, call: ast.Call) -> Selector:
    if kind not in SIGNATURES:
        raise UnknownLimit(f"there is no selector {kind}(): {nearest(kind, SIGNATURES)}; quote what is meant as a text")
    positional = tuple(ast.literal_eval(node) for node in call.args)
    keywords = {node.arg: ast.literal_eval(node.value) for node in call.keywords if node.arg}
    if len(keywords) != len(call.keywords):
        raise ValueError
    return build(kind, positional, keywords)
