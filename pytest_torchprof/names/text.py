"""A raw kernel name cut into the parts the decoders look at, in bounded time."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

# What a kernel is stands in front: names reach 5,000 characters of template arguments, and no decoder needs more.
_HEAD: Final = 2000
_BASE: Final = 400

_ANONYMOUS: Final = ("(anonymous namespace)::", "<unnamed>::", "_GLOBAL__N__::", "{anonymous}::")
_RETURN_TYPE: Final = re.compile(
    r"(?:__global__ |static |void |std::enable_if<[^ ]{0,200}(?: [^ ]{1,100}){0,3}>::type )+"
)
_LENGTH: Final = re.compile(r"\d{1,3}")


@dataclass(frozen=True, slots=True)
class Text:
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
    returned = _RETURN_TYPE.match(head)
    if returned:
        head = head[returned.end() :]
    end = len(head)
    for mark in "<(":
        at = head.find(mark)
        if 0 < at < end:
            end = at
    base = head[:end][:_BASE]
    return Text(raw, head, base, base[base.rfind("::") + 2 :] if "::" in base else base, head[end:], mangled=False)


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
