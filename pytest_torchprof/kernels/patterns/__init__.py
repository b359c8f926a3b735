"""Patterns: what a test may say about kernels and operators."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Protocol

from pytest_torchprof.errors import UnknownLimit
from pytest_torchprof.kernels.patterns.hints import hint
from pytest_torchprof.kernels.patterns.selectors import (
    SIGNATURES,
    Selector,
    attention,
    communication,
    conv,
    family,
    fused_match,
    gemm,
    is_nameless,
    library,
    parse_value,
    triton,
    unfused_lines,
)
from pytest_torchprof.kernels.patterns.strings import NamePattern, Operator, compile_op_pattern

if TYPE_CHECKING:
    from pytest_torchprof.kernels.kernel import Kernel

__all__ = [
    "Operator",
    "Pattern",
    "Selector",
    "attention",
    "communication",
    "compile_op_pattern",
    "compile_pattern",
    "conv",
    "family",
    "fused_match",
    "gemm",
    "hint",
    "is_nameless",
    "library",
    "parse_value",
    "triton",
    "unfused_lines",
]


class Pattern(Protocol):
    """What a string pattern and a selector have in common; ``str()`` prints it as it was written."""

    def matches(self, kernel: Kernel) -> bool:
        """Tell whether the kernel surely matches."""

    def verdict(self, kernel: Kernel) -> bool | None:
        """Tell whether the kernel matches; None where neither its name nor its launch tells."""


# What stands beside the kernels in a recording: no pattern on kernels would ever match it.
_NO_KERNELS = re.compile(
    r"(?P<max_memcpys>Memcpy(?: |$))|(?P<max_memsets>Memset(?: |$))"
    r"|(?P<max_launches>(?:cudaLaunch|cuLaunch|hipLaunch|hipModuleLaunch)\w*$)"
    r"|(?P<max_syncs>(?:cuda|hip)(?:Stream|Device|Event)Synchronize$)"
)


def compile_pattern(value: object) -> Pattern:
    """Return the pattern that a string or selector stands for; anything else is an UnknownLimit."""
    if isinstance(value, NamePattern | Selector):
        return value
    if isinstance(value, str):
        kind, bracket, rest = value.strip().partition("(")
        if kind in SIGNATURES and bracket and rest.endswith(")"):
            raise UnknownLimit(
                f"{value!r} is a selector written as a text, which no kernel's name holds: take the quotes away, and "
                f"write from pytest_torchprof import {kind}"
            )
        if advice := _NO_KERNELS.match(value):
            raise UnknownLimit(f"{value!r} is no kernel's name; there is a limit for it: {advice.lastgroup}")
        return NamePattern(value)
    raise UnknownLimit(
        f"expected a kernel name, a glob, re:EXPRESSION, or a selector such as gemm(layout='tn'), got {value!r}"
    )
