"""A raw kernel name cut into the parts the decoders look at, in bounded time; expressions compiled when first used."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


class Expression:
    """A regular expression that is compiled at its first use (compiling all of them took 20 ms of every start)."""

    __slots__ = ("_compiled", "text")

    def __init__(self, text: str) -> None:
        """Keep the expression's text."""
        self.text: Final = text
        self._compiled: re.Pattern[str] | None = None

    def compiled(self) -> re.Pattern[str]:
        """Return the compiled expression."""
        if self._compiled is None:
            self._compiled = re.compile(self.text)
        return self._compiled

    def match(self, text: str, start: int = 0) -> re.Match[str] | None:
        """Match at ``start``."""
        return self.compiled().match(text, start)

    def search(self, text: str, start: int = 0) -> re.Match[str] | None:
        """Find the first match from ``start`` on."""
        return self.compiled().search(text, start)

    def finditer(self, text: str, start: int = 0) -> Iterator[re.Match[str]]:
        """Iterate over all matches from ``start`` on."""
        return self.compiled().finditer(text, start)

    def findall(self, text: str) -> list[str]:
        """Return all matches, or their one group."""
        return self.compiled().findall(text)


def contains(text: str, words: Iterable[str]) -> bool:
    """Tell whether any of ``words`` is in ``text``."""
    # A loop: a generator expression costs twice as much, and this is where the time goes.
    for word in words:  # noqa: SIM110
        if word in text:
            return True
    return False


def looked_up(text: str, table: Iterable[tuple[str, str]]) -> str | None:
    """Return what the first word of ``table`` that is in ``text`` stands for."""
    for word, meaning in table:
        if word in text:
            return meaning
    return None


# What a kernel is stands in front: names reach 5,000 characters of template arguments, and no decoder needs more.
_HEAD: Final = 1600
_BASE: Final = 160

_ANONYMOUS: Final = ("(anonymous namespace)::", "<unnamed>::", "_GLOBAL__N__::", "{anonymous}::")
_RETURN_TYPES: Final = ("__global__ ", "static ", "void ")
_LENGTH: Final = Expression(r"\d{1,3}")


class Text(Struct, frozen=True):
    """One name: ``head`` cleaned, ``base`` the qualified function, ``last`` its last part, ``args`` what follows."""

    raw: str
    head: str
    base: str
    last: str
    args: str
    mangled: bool


def parse(raw: str) -> Text:
    """Cut ``raw`` into its parts; works on any string."""
    head = raw[:_HEAD]
    if head.endswith((".kd", " [clone .kd]")):
        head = head.removesuffix(" [clone .kd]").removesuffix(".kd")
    if head.startswith("_Z"):
        return _parse_mangled(raw, head)
    if "(int)" in head:  # as Nsight prints template arguments
        head = head.replace("(int)", "")
    for mark in _ANONYMOUS:
        if mark in head:
            head = head.replace(mark, "")
    head = _without_return_type(head)
    end = len(head)
    for mark in "<(":
        at = head.find(mark)
        if 0 < at < end:
            end = at
    base = head[:end][:_BASE]
    return Text(raw, head, base, base[base.rfind("::") + 2 :] if "::" in base else base, head[end:], mangled=False)


def _without_return_type(head: str) -> str:
    while head.startswith(_RETURN_TYPES):
        head = head[head.index(" ") + 1 :]
    if head.startswith("std::enable_if<"):
        # std::enable_if<(..)>::type vllm::fused_add_rms_norm_kernel<..>(..)
        head = head[head.find(">::type ", 0, 400) + 8 :] if ">::type " in head[:400] else head
    return head


def _parse_mangled(raw: str, head: str) -> Text:
    """Cut an Itanium-mangled name: its length-prefixed identifiers are the base, the rest the arguments."""
    at = 2
    while at < len(head) and head[at] in "NKLS":
        at += 2 if head[at] == "S" else 1
    parts: list[str] = []
    while len(parts) < 12 and (found := _LENGTH.match(head, at)):
        length = int(found[0])
        part = head[found.end() : found.end() + length]
        at = found.end() + length
        if not part.startswith("_GLOBAL__N"):
            parts.append(part)
    base = "::".join(parts)[:_BASE] or head[:_BASE]
    return Text(raw, head, base, parts[-1] if parts else base, head[at:].removeprefix("I"), mangled=True)
