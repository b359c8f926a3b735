"""Patterns on kernels: strings and selectors alike, what writes them, and advice where one matches nothing."""

from __future__ import annotations

import ast
import re
from collections import Counter
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING, Final, Protocol

from pytest_torchprof.codes import Code
from pytest_torchprof.errors import UnknownLimit
from pytest_torchprof.kernels.carried import told_operators
from pytest_torchprof.kernels.names.kernelname import LAYOUTS, shortened
from pytest_torchprof.kernels.names.text import word_table
from pytest_torchprof.kernels.selectors import (
    SIGNATURES,
    Selector,
    TextPattern,
    build,
    checked_text,
    compile_text,
    is_expression,
)
from pytest_torchprof.text import counted, nearest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_torchprof.kernels.kernel import Kernel


class Pattern(Protocol):
    """What a string pattern and a selector have in common; ``str()`` prints it as it was written."""

    def matches(self, kernel: Kernel) -> bool:
        """Tell whether the kernel surely matches."""

    def verdict(self, kernel: Kernel) -> bool | None:
        """Tell whether the kernel matches; None where neither its name nor its launch tells."""


@dataclass(frozen=True, slots=True, repr=False)
class NamePattern(TextPattern):
    """A string pattern on the raw kernel name."""

    _regex: re.Pattern[str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        checked_text(self.written, "a kernel name, a glob, re:EXPRESSION, or a selector such as gemm(layout='tn')")
        object.__setattr__(self, "_regex", compile_text(self.written))

    def verdict(self, kernel: Kernel) -> bool | None:
        """Tell whether the kernel's raw name matches; None for one that has no name."""
        if not kernel.name.strip():
            return None
        # A piece of a C++ name may have an asterisk of its own.
        return self._regex.search(kernel.name) is not None or self.written in kernel.name

    def matches(self, kernel: Kernel) -> bool:
        """Tell whether the kernel's raw name matches."""
        return self.verdict(kernel) is True


# What stands beside the kernels in a recording: no pattern on kernels would ever match it.
_NO_KERNELS = re.compile(
    r"(?P<max_memcpys>Memcpy(?: |$))|(?P<max_memsets>Memset(?: |$))"
    r"|(?P<max_launches>(?:cudaLaunch|cuLaunch|hipLaunch|hipModuleLaunch)\w*$)"
    r"|(?P<max_syncs>(?:cuda|hip)(?:Stream|Device|Event)Synchronize$)"
)


_CALLS: Final = {"family": "family('reduction')", "library": "library('cublas')"}


def compile_pattern(value: object) -> Pattern:
    """Return the pattern that a string or selector stands for; anything else is an UnknownLimit."""
    if isinstance(value, NamePattern | Selector):
        return value
    if isinstance(value, str):
        kind, bracket, rest = value.strip().partition("(")
        if kind in SIGNATURES and bracket and rest.endswith(")"):
            raise UnknownLimit(
                f"{value!r} is a selector written as a text, which no kernel's name holds: take the quotes away, and "
                f"write from pytest_torchprof import {kind}",
                Code.BAD_PATTERN,
            )
        if advice := _NO_KERNELS.match(value):
            raise UnknownLimit(
                f"{value!r} is no kernel's name; there is a limit for it: {advice.lastgroup}", Code.BAD_PATTERN
            )
        return NamePattern(value)
    if (call := selector_call(value)) is not None:
        said = f"{call.partition('(')[0]} is the function that makes a selector; call it: {call}"
        raise UnknownLimit(said, Code.BAD_PATTERN)
    raise UnknownLimit(
        f"expected a kernel name, a glob, re:EXPRESSION, or a selector such as gemm(layout='tn'), got {value!r}",
        Code.BAD_PATTERN,
    )


def selector_call(value: object) -> str | None:
    """Return how to call a function that makes selectors, "gemm()"; None for what is none."""
    name = str(getattr(value, "__name__", ""))
    return _CALLS.get(name, f"{name}()") if name in SIGNATURES else None


def unfused_lines(kernels: Sequence[Kernel]) -> list[str]:
    """Return one line per kernel in launch order: its display name and the operators it carries or was launched by.

    Kernels that follow each other and read the same are one line with a count.
    """
    counts = ((line, len(list(same))) for line, same in groupby(map(_describe_ops, kernels)))
    return [line if count == 1 else f"{line}  x{count}" for line, count in counts]


def _describe_ops(kernel: Kernel) -> str:
    carried = told_operators(kernel)
    return f"{kernel.short}  " + (f"carries {', '.join(carried)}" if carried else f"launched by {kernel.op or '?'}")


_FORMS: Final = 'gemm(layout="tn"), [gemm(), "name"] or {"name": 3}'


def parse_value(text: str) -> object:
    """Return what ``text`` writes: a literal, a selector call, or a list, tuple or dict of them.

    Raises UnknownLimit for anything else, with what is wrong.
    """
    try:
        return _evaluate(ast.parse(text.strip(), mode="eval").body)
    except (SyntaxError, ValueError, MemoryError, RecursionError, TypeError):
        shown = text if len(text) <= 60 else f"{text[:57]}..."
        said = f"{shown!r} cannot be read: expected literals and selectors such as {_FORMS}"
        raise UnknownLimit(f"{said}; quote what is meant as a text", Code.BAD_PATTERN) from None


def _evaluate(node: ast.expr) -> object:
    if isinstance(node, ast.List | ast.Tuple):
        values = [_evaluate(entry) for entry in node.elts]
        return values if isinstance(node, ast.List) else tuple(values)
    if isinstance(node, ast.Dict):
        # A key that is None stands for what ** would unpack.
        pairs = zip(node.keys, node.values, strict=True)
        return {_evaluate(key or ast.Name("**")): _evaluate(value) for key, value in pairs}
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        return _evaluate_selector(node.func.id, node)
    if isinstance(node, ast.Name) and node.id in _JSON:
        return _JSON[node.id]
    return ast.literal_eval(node)


_JSON: Final = {"true": True, "false": False, "null": None}


def _evaluate_selector(kind: str, call: ast.Call) -> Selector:
    if kind not in SIGNATURES:
        said = f"there is no selector {kind}(): {nearest(kind, SIGNATURES)}; quote what is meant as a text"
        raise UnknownLimit(said, Code.BAD_PATTERN)
    positional = tuple(ast.literal_eval(node) for node in call.args)
    keywords = {node.arg: ast.literal_eval(node.value) for node in call.keywords if node.arg}
    if len(keywords) != len(call.keywords):
        raise ValueError
    return build(kind, positional, keywords)


# What people look for in raw names -> the field and value they mean.
_DTYPES: Final = dict(
    word_table(
        """
        bf16: bf16 bfloat16
        fp16: fp16 f16 half hgemm
        tf32: tf32
        fp8: fp8 e4m3
        fp32: fp32 f32 sgemm
        fp64: dgemm
        """
    )
)
_TENSOR_CORES: Final = ("s16816", "s1688", "s884", "h16816", "h1688", "h884", "tensorop", "hmma", "wgmma")
_FAMILIES: Final = word_table(
    """
    gemm: gemm nvjet cijk cutlass ampere matmul
    attention: flash fmha attention sdpa
    conv: conv fprop
    communication: nccl allreduce
    triton: triton_poi triton
    """
)
_NOUNS: Final = {"gemm": "GEMM", "conv": "convolution", "attention": "attention kernel", "triton": "Triton kernel"}


def hint(pattern: object, kernels: Sequence[Kernel]) -> str | None:
    """Return advice for a string ``pattern`` that matches none of ``kernels``, None where there is none to give."""
    if not isinstance(pattern, NamePattern) or any(pattern.matches(kernel) for kernel in kernels):
        return None
    selector = _guess_selector(pattern.written)
    found = [kernel for kernel in kernels if selector.matches(kernel)] if selector else []
    if selector is None or not found:
        return None
    noun = _NOUNS.get(selector.kind, "communication kernel")
    asked = [f"{name} {value}" for name, value in selector.fields if name in ("layout", "dtype")]
    verb = "have" if len(found) > 1 else "has"
    says = (
        f"{counted(len(found), noun)} {verb} {' and '.join(asked)}"
        if asked
        else f"there {'are' if len(found) > 1 else 'is'} {counted(len(found), noun)}"
    )
    tried = f"{'matches' if is_expression(pattern.written) else 'contains'} `{pattern.written}`"
    return f"no kernel name {tried}; {says} ({_list_names(found)}): use {selector}"


def _guess_selector(written: str) -> Selector | None:
    """Return the selector whose fields the words of a string pattern ask for, None if none does."""
    text = written.removeprefix("re:").lower()
    words = [word for word in re.split(r"[^a-z0-9]+", text) if word]
    asked: dict[str, object] = {}
    for word in words:
        if word in LAYOUTS and "layout" not in asked:
            asked["layout"] = word
        if word in _DTYPES and "dtype" not in asked:
            asked["dtype"] = _DTYPES[word]
    kind = next((kind for word, kind in _FAMILIES if word in text), "gemm" if asked else None)
    if kind is None and any(word in text for word in _TENSOR_CORES):
        kind = "gemm"
    if kind == "gemm" and any(word in text for word in _TENSOR_CORES):
        asked["tensor_core"] = True
    if kind is None:
        return None
    if kind != "gemm":
        asked.pop("layout", None)
    if kind in ("triton", "communication"):
        asked.clear()
    return build(kind, (), asked)


def _list_names(kernels: Sequence[Kernel], shown: int = 3) -> str:
    counts = Counter(kernel.name for kernel in kernels)
    parts = [f"{shortened(_elide_tuning(name), 60)} x{count}" for name, count in counts.most_common(shown)]
    return ", ".join(parts) + (f", {counted(len(counts) - shown, 'more name')}" if len(counts) > shown else "")


def _elide_tuning(name: str) -> str:
    """Return an nvjet name with what tunes it left out, every other name as it is."""
    found = re.match(r"(nvjet(?:_sm\d+)?_[a-z]+(?:_tf32)?_\d+x\d+)_.+_([NT]{3})$", name)
    return f"{found[1]}_..._{found[2]}" if found else name
