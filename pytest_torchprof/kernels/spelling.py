"""Spellings that occur in no recording, with the kernel or operator that is meant.

A limit that forbids them would always hold.
"""

from __future__ import annotations

import re
from typing import Final

from pytest_torchprof.kernels.names.kernelname import TORCHS_DTYPES
from pytest_torchprof.kernels.operator_names import nearest_operator, of_torch
from pytest_torchprof.reasons.wrong_patterns import NotSpelledSo, Spelling

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

_CALLS: Final = {
    **dict.fromkeys(("float", "int", "bool"), Spelling.READS),
    **dict.fromkeys(
        ("double", "half", "bfloat16", "long", "short", "char", "byte", "cfloat", "cdouble"), Spelling.CONVERTS
    ),
    **dict.fromkeys(("cast", "type", "astype"), Spelling.CONVERTS),
    **dict.fromkeys(("cpu", "cuda", "xpu"), Spelling.CONVERTS),
    **dict.fromkeys(("numpy", "tolist", "print"), Spelling.ON_HOST),
    **dict.fromkeys(("sync", "synchronize"), Spelling.WAITS),
}
"""The names in recordings of methods and functions that have no operator of their name; as a part of another word they
do not count.
"""

Forms = tuple[tuple[re.Pattern[str], Spelling], ...]
_OF_KERNELS: Final[Forms] = (
    (re.compile(r"[\s.]*"), Spelling.NOTHING),
    (re.compile(r"\d+ x (?P<name>.+)"), Spelling.COUNT),
    (re.compile(r"(?P<name>.*\S)(?: |(?<=\.{3}))(?P<number>\[\d+\])"), Spelling.NUMBER),
    (re.compile(r"(?P<name>aten::)"), Spelling.NAMESPACE),
    (_OVERLOAD, Spelling.OVERLOAD),
    (_COLLECTIVE, Spelling.OF_SELECTOR),
)
_OF_OPERATORS: Final[Forms] = (
    (re.compile(r"aten::(?:Bool|Complex|Float|Int|Scalar)(?:Implicit)?"), Spelling.TORCHSCRIPT),
    (re.compile(r"[^\w*?]*"), Spelling.NO_LETTER),
    (re.compile(r"(?P<name>[\w:]+::)"), Spelling.NAMESPACE),
    (
        # Ranges of communication and of optimizers have one colon.
        re.compile(r"(?!(?:nccl|gloo|mpi|ucc):\w|[^:]*#).*(?<!:):(?![:\s]).*"),
        Spelling.ONE_COLON,
    ),
    (_OVERLOAD, Spelling.OVERLOAD),
    (_COLLECTIVE, Spelling.OF_LIMIT),
)


def why_no_kernel(text: str) -> NotSpelledSo | None:
    """Return why no kernel's name contains this text, with the name that is meant; None if one may."""
    if text.startswith("re:"):
        return None
    if text.startswith("torch.") and (dtype := TORCHS_DTYPES.get(text.removeprefix("torch."))) is not None:
        return NotSpelledSo(text, False, Spelling.TYPE, (dtype,))
    no_name = _not_one_name(text) or _advised(text, _OF_KERNELS) or (None if text.isidentifier() else _called(text))
    if no_name is not None:
        return NotSpelledSo(text, False, *no_name)
    # The names of kernels do contain C++ such as at::native::gelu(..).
    in_names = _CPPS.fullmatch(text) or _SCHEMA.fullmatch(text) or _CALL.fullmatch(text)
    if (text.startswith("aten::") or not in_names) and (meant := _operator_meant(text)) is not None:
        return NotSpelledSo(text, False, Spelling.OPERATOR, (meant,))
    return None


def why_no_operator(text: str) -> NotSpelledSo | None:
    """Return why no operator of a recording has this name, with the one that is meant; None if one may."""
    if text.startswith("re:"):
        return None
    no_name = _not_one_name(text) or _called(text) or _advised(text, _OF_OPERATORS)
    if no_name is not None:
        return NotSpelledSo(text, True, *no_name)
    if (meant := _operator_meant(text)) is not None:
        return NotSpelledSo(text, True, Spelling.ELSEWHERE, (meant,))
    return None


Advice = tuple[Spelling, tuple[str, ...], str]
"""How a text is spelled, what is meant, and the number that stands in it."""


def _called(text: str) -> Advice | None:
    """Return how a Python call is spelled that has no operator of its name; None for all other texts."""
    names = (match["name"] for form in (_PYTHONS, _CALL, _BARE) if (match := form.fullmatch(text)) is not None)
    return next(((_CALLS[name], (name,), "") for name in names if name in _CALLS), None)


def _advised(text: str, forms: Forms) -> Advice | None:
    tried = ((form.fullmatch(text), how) for form, how in forms)
    return next(((how, _names(match), match.groupdict().get("number", "")) for match, how in tried if match), None)


def _names(match: re.Match[str]) -> tuple[str, ...]:
    return (match["name"],) if "name" in match.groupdict() else ()


def _not_one_name(text: str) -> Advice | None:
    """Return how a text is spelled that is not exactly one name; None if it is one."""
    if text.strip() and text.strip() != text:
        return Spelling.BLANK_BEFORE if text[0].isspace() else Spelling.BLANK_BEHIND, (text.strip(),), ""
    if (quoted := _QUOTED.fullmatch(text)) is not None:
        return Spelling.QUOTED, (quoted["inside"],), ""
    if _LIST.fullmatch(text):
        return Spelling.LIST, (), ""
    pieces = text.split() if _NAMES.fullmatch(text) else [text] if _CPP.search(text) else _SEVERAL.split(text)
    return (Spelling.SEVERAL, tuple(filter(None, pieces)), "") if len(pieces) > 1 else None


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
