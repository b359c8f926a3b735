"""Selectors written as text, as on the command line; nothing is evaluated."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Final

from pytest_torchprof.errors import UnknownLimit
from pytest_torchprof.patterns.selectors import SIGNATURES, build

if TYPE_CHECKING:
    from pytest_torchprof.patterns.selectors import Selector

_CALL: Final = re.compile(rf"\s*(?:{'|'.join(SIGNATURES)})\s*\(.*\)\s*", re.DOTALL)


def parse_selector(text: str) -> Selector | None:
    """Return the selector that ``text`` writes (``gemm(layout="tn")``), None if it is no selector call.

    Raises UnknownLimit where it is a call but its arguments are not literals, or not the selector's.
    """
    if len(text) > 1000 or not _CALL.fullmatch(text):
        return None
    wrong = UnknownLimit(f"{text!r} is no selector: expected one such as gemm(layout='tn', dtype='bf16')")
    try:
        call = ast.parse(text.strip(), mode="eval").body
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
            raise wrong
        positional = tuple(ast.literal_eval(node) for node in call.args)
        keywords = {node.arg: ast.literal_eval(node.value) for node in call.keywords if node.arg}
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        raise wrong from None
    if len(keywords) != len(call.keywords):
        raise wrong
    return build(call.func.id, positional, keywords)
