"""String patterns: a substring, a glob on the whole name, or ``re:`` and a regular expression."""

from __future__ import annotations

import fnmatch
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pytest_torchprof.errors import UnknownLimit

if TYPE_CHECKING:
    from pytest_torchprof.kernels.kernel import Kernel


def _compiled(text: str) -> re.Pattern[str]:
    """Return what ``text`` means as a regular expression, to be used with ``search``."""
    if text.startswith("re:"):
        try:
            return re.compile(text[3:])
        except re.error as error:
            raise UnknownLimit(f"{text!r} is no regular expression: {error}") from None
    if "*" in text or "?" in text:
        # Square brackets stand in kernel names and operator types, so only * and ? are special.
        return re.compile(r"\A" + fnmatch.translate(text.replace("[", "[[]")), re.DOTALL)
    return re.compile(re.escape(text))


def checked_text(value: object, what: str) -> str:
    """Return ``value`` if it is a text that is not empty, else raise UnknownLimit."""
    if not isinstance(value, str) or not value.removeprefix("re:"):
        raise UnknownLimit(f"expected {what}, got {value!r}")
    return value


@dataclass(frozen=True, slots=True)
class NamePattern:
    """A string pattern on the raw kernel name."""

    written: str
    _regex: re.Pattern[str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        checked_text(self.written, "a kernel name, a glob, re:EXPRESSION, or a selector such as gemm(layout='tn')")
        object.__setattr__(self, "_regex", _compiled(self.written))

    def verdict(self, kernel: Kernel) -> bool | None:
        """Tell whether the kernel's raw name matches; None for one that has no name."""
        if not kernel.name.strip():
            return None
        # A piece of a C++ name may have an asterisk of its own.
        return self._regex.search(kernel.name) is not None or self.written in kernel.name

    def matches(self, kernel: Kernel) -> bool:
        """Tell whether the kernel's raw name matches."""
        return self.verdict(kernel) is True

    def __str__(self) -> str:
        return self.written

    def __repr__(self) -> str:
        return repr(self.written)


@dataclass(frozen=True, slots=True)
class Operator:
    """A pattern on operator names.

    With a namespace (``aten::mm``) the whole name; without one whole words of it: ``layer_norm`` is in
    ``aten::native_layer_norm``, ``mm`` is not in ``aten::addmm``. Globs and ``re:`` work on the whole name.
    """

    written: str
    _regex: re.Pattern[str] | None = field(init=False, repr=False, compare=False)
    _words: tuple[str, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        checked_text(self.written, "an operator name such as 'aten::addmm', a glob or re:EXPRESSION")
        if advice := _no_operator(self.written):
            raise UnknownLimit(f"{self.written!r} is no operator's name: {advice}")
        special = self.written.startswith("re:") or "*" in self.written or "?" in self.written
        object.__setattr__(self, "_regex", _compiled(self.written) if special else None)
        object.__setattr__(self, "_words", _words(self.written))

    def matches_op(self, name: str) -> bool:
        """Tell whether the operator called ``name`` (``aten::addmm``) is meant."""
        if self._regex is not None:
            return self._regex.search(name) is not None
        if "::" in self.written:
            return name == self.written
        words = _words(name.rpartition("::")[2])
        length = len(self._words)
        return any(words[at : at + length] == self._words for at in range(len(words) - length + 1))

    def __str__(self) -> str:
        return self.written

    def __repr__(self) -> str:
        return repr(self.written)


def _no_operator(text: str) -> str | None:
    """Return what is wrong with a text that can be no operator's name: to forbid it would always hold."""
    if text.startswith("re:"):
        return None
    if not re.search(r"[\w*?]", text):
        return "expected one such as 'aten::addmm'"
    if re.search(r"(?<!:):(?![:\s])", text):
        return "a namespace ends in two colons, as in 'aten::addmm'"
    if re.fullmatch(r"aten::\w+\.\w+", text):
        return f"in a recording it has no overload: {text.partition('.')[0]!r}"
    return "it has no parentheses" if text.endswith("()") else None


def _words(name: str) -> tuple[str, ...]:
    return tuple(word for word in name.split("_") if word) or (name,)


def compile_op_pattern(value: object) -> Operator:
    """Return the pattern on operator names that a string stands for; anything else is an UnknownLimit."""
    if isinstance(value, Operator):
        return value
    return Operator(checked_text(value, "an operator name such as 'aten::addmm', a glob or re:EXPRESSION"))
