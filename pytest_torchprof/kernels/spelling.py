"""How people write kernels and operators where no recording has them so, and what they mean: to forbid it would hold."""

from __future__ import annotations

import re
from typing import Final

from pytest_torchprof.kernels.operator_names import nearest_operator, of_torch

# C++ has commas and bars in its names, between brackets or as arguments that a piece of a name begins or ends with.
_CPP: Final = re.compile(
    r"[<>()]|\b(?:true|false|void|float|double|int|long|unsigned|char|short|bool|half|__half|__nv_bfloat16)\b"
    r"|(?:^|,)\s*\d+\s*(?:,|$)|operator"
)
_SEVERAL: Final = re.compile(r"\s*[,;|]\s*")
_NAMES: Final = re.compile(r"[\w.]+::[\w.*?]+(?:\s+[\w.]+::[\w.*?]+)+")
_QUOTED: Final = re.compile(r"(['\"`])(?P<inside>.*)\1", re.DOTALL)
_LIST: Final = re.compile(r"[\[({]\s*['\"].*['\"]\s*[\])}]", re.DOTALL)
# An overload as torch prints it, a function or module of Python's, a call, a function of C++, a schema.
_PRINTED: Final = re.compile(
    r"(?:torch\.ops\.)?(?P<space>aten|prims|(?<=ops\.)\w+|\w+(?=\.\w+\.default$))\.(?P<name>\w+)(?:\.\w+)?"
)
_PYTHONS: Final = re.compile(
    r"(?:(?:torch|F|nn|functional|Tensor)\.(?:\w+\.)*|\w*\.(?=\w+\())(?P<name>\w+)(?:\(.*)?", re.DOTALL
)
_CALL: Final = re.compile(r"(?P<name>\w+)\([^#]*")
_CPPS: Final = re.compile(r"at::(?:native::)?(?P<name>\w+)")
_SCHEMA: Final = re.compile(r"(?P<name>(?P<space>\w+)::\w+)(?:\.\w+)?\(.*", re.DOTALL)
_OVERLOAD: Final = re.compile(r"(?P<name>aten::\w+|\w+::\w+(?=\.default$|::default$))(?:\.|::)\w+")
_COLLECTIVE: Final = re.compile(r"(?:torch\.distributed|dist)\.(?P<name>\w+)")
_ROW: Final = re.compile(r"\d+ x (?P<name>.+)")
_NUMBER: Final = re.compile(r"(?P<name>.*\S) (?P<number>\[\d+\])")


def no_kernel(text: str) -> str | None:
    """Return why no kernel's name holds this text, and what is meant; None where one may."""
    if text.startswith("re:"):
        return None
    if (said := _common(text)) is not None:
        return said
    if not re.search(r"[^\s.]", text):
        return "it says nothing: expected a part of a kernel's name"
    if row := _ROW.fullmatch(text):
        return f"it begins with a count, as in a table: write {row['name']!r}"
    if number := _NUMBER.fullmatch(text):
        return (
            f"{number['number']} only numbers kernels that a table calls the same: write {number['name']!r} for all of "
            "them, or a part of the raw name of one, which torchprof analyze --json shows"
        )
    if text == "aten::":
        return "it is a namespace: all of its operators are 'aten::*'"
    if (overload := _OVERLOAD.fullmatch(text)) is not None:
        return f"in a recording it has no overload: {overload['name']!r}"
    if (collective := _COLLECTIVE.fullmatch(text)) is not None:
        return f"there is a selector for it: communication({collective['name']!r})"
    # What C++ writes so, at::native::gelu(..), is in the names of kernels.
    if text.startswith("aten::") or not (_CPPS.fullmatch(text) or _SCHEMA.fullmatch(text) or _CALL.fullmatch(text)):
        meant = _operator_meant(text)
        if meant is not None:
            return f"it is an operator, as which ops, forbid_ops and op= ask for it: {meant!r}"
    return None


def no_operator(text: str) -> str | None:
    """Return why no operator of a recording is called so, and what is meant; None where one may be."""
    if text.startswith("re:"):
        return None
    if (said := _common(text)) is not None:
        return said
    if not re.search(r"[\w*?]", text):
        return "expected one such as 'aten::addmm'"
    if re.fullmatch(r"[\w:]+::", text):
        return f"it is a namespace: all of its operators are {f'{text}*'!r}"
    if re.search(r"(?<!:):(?![:\s])", text) and not re.match(r"(?:nccl|gloo|mpi|ucc):\w|[^:]*#", text):
        return "a namespace ends in two colons, as in 'aten::addmm'"
    if (overload := _OVERLOAD.fullmatch(text)) is not None:
        return f"in a recording it has no overload: {overload['name']!r}"
    if (collective := _COLLECTIVE.fullmatch(text)) is not None:
        return f"there is a limit for it: collectives={{{collective['name']!r}: 1}}"
    if (meant := _operator_meant(text)) is not None:
        return f"in a recording it is {meant!r}"
    return None


def _common(text: str) -> str | None:
    """Return what is wrong with a text in which more stands than one name."""
    if text.strip() and text.strip() != text:
        return f"it has a blank at its {'beginning' if text[0].isspace() else 'end'}: write {text.strip()!r}"
    if (quoted := _QUOTED.fullmatch(text)) is not None:
        return f"it has quotes in it: write {quoted['inside']!r}"
    if _LIST.fullmatch(text):
        return "it is a list written as a text: take the outer quotes away"
    pieces = text.split() if _NAMES.fullmatch(text) else [text] if _CPP.search(text) else _SEVERAL.split(text)
    if len(pieces) > 1:
        names = [piece for piece in pieces if piece]
        meant = repr(names) if len(names) != 1 else repr(names[0])
        return f"a text is one name and no list: write {meant}"
    return None


def _operator_meant(text: str) -> str | None:
    """Return the operator that a function, a module or an overload of torch's calls, as Python or C++ writes it."""
    if (schema := _SCHEMA.fullmatch(text)) is not None:
        return schema["name"]
    if (printed := _PRINTED.fullmatch(text)) is not None:
        return f"{printed['space']}::{printed['name']}"
    for form in (_PYTHONS, _CPPS, _CALL):
        if (found := form.fullmatch(text)) is not None:
            meant = f"aten::{_snake(found['name'])}"
            return meant if meant in of_torch() else nearest_operator(meant, of_torch()) or meant
    return None


def _snake(name: str) -> str:
    """Return what a module's class is called as a function: ``LayerNorm`` is ``layer_norm``, ``ReLU`` is ``relu``."""
    parted = re.sub(r"(?<=[a-z]{2})(?=[A-Z])", "_", name).lower()
    return re.sub(r"(?<=norm)[123]d$", "", parted)
