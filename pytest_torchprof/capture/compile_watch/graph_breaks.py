"""Places where a graph ended or a frame was given up, as they go into the recording."""

from __future__ import annotations

import ast
import linecache
import re
from typing import TYPE_CHECKING

from pytest_torchprof.capture import torch_dynamo
from pytest_torchprof.recording.metadata import GraphBreak

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import CodeType

    from pytest_torchprof.capture.torch_dynamo import Attempt, CodeLine, Reason


def of_reason(reason: Reason, caller: Iterable[CodeLine] = ()) -> GraphBreak:
    """Return a graph break; one with no code of the user's around it is placed on the last line of `caller` that is."""
    text = reason.text
    if text.startswith("generic_jump"):
        text = f"Data-dependent branching: {text}"
    innermost = reason.stack[-1] if reason.stack else None
    place = _user_place(reason.stack)
    inferred = None if place else _user_place(caller)
    return _break(text, place or inferred or innermost, innermost, inferred=inferred is not None)


def of_failure(attempt: Attempt, code: CodeType | None) -> GraphBreak:
    """Return the frame that an attempt gave up, placed where the attempt failed."""
    frame = attempt.frame
    if frame is None and code is not None:
        frame = torch_dynamo.CodeLine(code.co_filename, code.co_firstlineno, code.co_name)
    place = frame
    if attempt.failed_at:
        file, line = attempt.failed_at
        place = torch_dynamo.CodeLine(file, line, _function_at(file, line) or (frame.function if frame else "?"))
    # The failure may lie in torch's code that was traced from the user's frame.
    user = _user_place(one for one in (frame, place) if one)
    return _break(attempt.failure or "", user or place, place, inferred=False)


def of_code(reason: str, code: CodeType) -> GraphBreak:
    """Return a break of a code object as a whole."""
    place = torch_dynamo.CodeLine(code.co_filename, code.co_firstlineno, code.co_name)
    return _break(reason, place, place, inferred=False)


def first_line(text: str) -> str:
    """Return the first line of a reason, and the second where the first only announces it."""
    lines = [" ".join(line.split()) for line in text.splitlines() if line.strip()]
    if not lines:
        return "no reason given"
    return " ".join(lines[:2]) if lines[0].endswith(":") else lines[0]


def _explanation(text: str) -> str | None:
    """Return what Dynamo says behind its reason, which alone often does not name the culprit."""
    match = re.search(r"\bExplanation: (.*?)(?:\n\s*(?:Hint|Developer debug context):|\n\s*\n|\Z)", text, re.DOTALL)
    return " ".join(match[1].split()) if match else None


def _break(text: str, place: CodeLine | None, at: CodeLine | None, *, inferred: bool) -> GraphBreak:
    return GraphBreak(
        reason=first_line(text),
        explanation=_explanation(text),
        file=place.file if place else None,
        line=place.line if place else None,
        function=torch_dynamo.name_in_source(place.function) if place else None,
        at=f"{at.file}:{at.line}" if at else first_line(text),
        inferred=inferred,
    )


def _user_place(stack: Iterable[CodeLine]) -> CodeLine | None:
    own = [place for place in stack if not torch_dynamo.is_library_file(place.file)]
    return own[-1] if own else None


def _function_at(file: str, line: int) -> str | None:
    """Return the innermost function around a line; the metrics of a failure name the line only."""
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError):
        return None
    around = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.lineno <= line <= (node.end_lineno or 0)
    ]
    return max(around, key=lambda node: node.lineno).name if around else None
