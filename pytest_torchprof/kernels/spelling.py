"""Spellings that occur in no recording, with the kernel or operator that is meant.

A limit that forbids them would always hold.
"""

from __future__ import annotations

import re
from typing import Final

from pytest_torchprof.kernels.names.kernelname import TORCHS_DTYPES
from pytest_torchprof.kernels.operator_names import nearest_operator, of_torch

# C++ names contain commas and bars, between brackets or as arguments at the ends of a part of a name.
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
_BARE: Final = re.compile(r"(?:aten::)?(?P<name>\w+)")
_CPPS: Final = re.compile(r"at::(?:native::)?(?P<name>\w+)")
_SCHEMA: Final = re.compile(r"(?P<name>(?P<space>\w+)::\w+)(?:\.\w+)?\(.*", re.DOTALL)
_OVERLOAD: Final = re.compile(
    r"(?P<name>aten::\w+|\w+::\w+(?=\.default$|::default$)|(?!torch\.)\w+(?=\.(?:default|Tensor|Scalar)$))(?:\.|::)\w+"
)
_COLLECTIVE: Final = re.compile(r"(?:torch\.distributed|dist)\.(?P<name>\w+)")

_READ: Final = "a value that is read is 'aten::item' or 'aten::_local_scalar_dense'"
_CONVERTED: Final = "a conversion is 'aten::_to_copy', or 'aten::to' with the calls that convert nothing"
_WAIT: Final = "it leaves no operator; there is a limit for waits: max_syncs"
_ON_HOST: Final = "it leaves no operator of its own; what it reads from a GPU is a wait, for which there is max_syncs"

_CALLS: Final = {
    **dict.fromkeys(("float", "int", "bool"), f"{_READ}, {_CONVERTED}"),
    **dict.fromkeys(("double", "half", "bfloat16", "long", "short", "char", "byte", "cfloat", "cdouble"), _CONVERTED),
    **dict.fromkeys(("cast", "type", "astype"), _CONVERTED),
    **dict.fromkeys(("cpu", "cuda", "xpu"), _CONVERTED),
    **dict.fromkeys(("numpy", "tolist", "print"), _ON_HOST),
    **dict.fromkeys(("sync", "synchronize"), _WAIT),
}
"""The names in recordings of methods and functions that have no operator of their name; as a part of another word they
do not count.
"""

Forms = tuple[tuple[re.Pattern[str], str], ...]
_OF_KERNELS: Final[Forms] = (
    (re.compile(r"[\s.]*"), "it says nothing: expected a part of a kernel's name"),
    (re.compile(r"\d+ x (?P<name>.+)"), "it begins with a count, as in a table: write {name!r}"),
    (
        re.compile(r"(?P<name>.*\S)(?: |(?<=\.{3}))(?P<number>\[\d+\])"),
        (
            "{number} only numbers kernels that a table calls the same: write {name!r} for all of them, or a part of "
            "the raw name of one, which torchprof analyze --json shows"
        ),
    ),
    (re.compile(r"aten::"), "it is a namespace: all of its operators are 'aten::*'"),
    (_OVERLOAD, "in a recording it has no overload: {name!r}"),
    (_COLLECTIVE, "there is a selector for it: communication({name!r})"),
)
_SCRIPTS: Final = re.compile(r"aten::(?:Bool|Complex|Float|Int|Scalar)(?:Implicit)?")
_OF_OPERATORS: Final[Forms] = (
    (
        _SCRIPTS,
        "it is TorchScript's own: in a recording a value that is read is 'aten::item' or 'aten::_local_scalar_dense'",
    ),
    (re.compile(r"[^\w*?]*"), "expected one such as 'aten::addmm'"),
    (re.compile(r"(?P<name>[\w:]+::)"), "it is a namespace: all of its operators are '{name}*'"),
    (
        # Ranges of communication and of optimizers have one colon.
        re.compile(r"(?!(?:nccl|gloo|mpi|ucc):\w|[^:]*#).*(?<!:):(?![:\s]).*"),
        "a namespace ends in two colons, as in 'aten::addmm'",
    ),
    (_OVERLOAD, "in a recording it has no overload: {name!r}"),
    (_COLLECTIVE, "there is a limit for it: collectives={{{name!r}: 1}}"),
)


def no_kernel_text(text: str) -> str | None:
    """Return why no kernel's name contains this text, and the name that is meant; None if one may."""
    if text.startswith("re:"):
        return None
    if text.startswith("torch.") and (dtype := TORCHS_DTYPES.get(text.removeprefix("torch."))) is not None:
        return f"it is a type: write {dtype!r}"
    problem = _not_one_name_text(text) or _advice_text(text, _OF_KERNELS)
    if problem is None and not text.isidentifier() and (problem := python_call_text(text)) is not None:
        return f"it is no kernel: {problem}"
    # The names of kernels do contain C++ such as at::native::gelu(..).
    in_names = _CPPS.fullmatch(text) or _SCHEMA.fullmatch(text) or _CALL.fullmatch(text)
    if problem is None and (text.startswith("aten::") or not in_names) and (meant := _operator_meant(text)) is not None:
        return f"it is an operator, as which ops, forbid_ops and op= ask for it: {meant!r}"
    return problem


def no_operator_text(text: str) -> str | None:
    """Return why no operator of a recording has this name, and the one that is meant; None if one may."""
    if text.startswith("re:"):
        return None
    problem = _not_one_name_text(text) or python_call_text(text) or _advice_text(text, _OF_OPERATORS)
    if problem is None and (meant := _operator_meant(text)) is not None:
        return f"in a recording it is {meant!r}"
    return problem


def python_call_text(text: str) -> str | None:
    """Return a text with the recorded form of a Python call that has no operator of its name; None for all others."""
    forms = (form.fullmatch(text) for form in (_PYTHONS, _CALL, _BARE))
    return next((problem for match in forms if match and (problem := recorded_form(match["name"])) is not None), None)


def _advice_text(text: str, forms: Forms) -> str | None:
    tried = ((form.fullmatch(text), advice) for form, advice in forms)
    return next((advice.format(**match.groupdict()) for match, advice in tried if match is not None), None)


def _not_one_name_text(text: str) -> str | None:
    """Return the problem of a text that is not exactly one name; None if it is one."""
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
    """Return the operator that torch's function, module or overload calls, as Python or C++ spells it; None if none."""
    if (schema := _SCHEMA.fullmatch(text)) is not None:
        return schema["name"]
    if (printed := _PRINTED.fullmatch(text)) is not None:
        return f"{printed['space']}::{printed['name']}"
    for form in (_PYTHONS, _CPPS, _CALL):
        if (match := form.fullmatch(text)) is not None:
            meant = f"aten::{_snake(match['name'])}"
            return meant if meant in of_torch() else nearest_operator(meant, of_torch()) or meant
    return None


def _snake(name: str) -> str:
    """Return the name of a module's class as a function: ``LayerNorm`` is ``layer_norm``, ``ReLU`` is ``relu``."""
    parted = re.sub(r"(?<=[a-z]{2})(?=[A-Z])", "_", name).lower()
    return re.sub(r"(?<=norm)[123]d$", "", parted)


def recorded_form(name: str) -> str | None:
    """Return a text with the recorded form of a call of this name, if torch has no operator of the name; else None."""
    operators = _CALLS.get(name)
    return None if operators is None else f"Python's {name}() is no operator: {operators}"
