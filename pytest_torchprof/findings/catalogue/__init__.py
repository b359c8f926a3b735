"""All findings, a row for each code: its title, its sentence with the facts in braces, what to do, and the facts.

The modules of the folder above know when there is a finding, and the facts of it; what it reads like stands here.
"""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003  (the type of a field, which msgspec looks up)
from typing import TYPE_CHECKING, Any, Final, TypeAlias, Union

from msgspec import ValidationError, convert

from pytest_torchprof.findings.catalogue import (  # noqa: F401 - their rows
    compiling,
    costs,
    fusible,
    graphs,
    kernels,
    products,
    queued,
    ranks,
    recordings,
    silence,
    syncs,
    waiting,
)
from pytest_torchprof.findings.finding import Fact, Finding, Severity


class OtherFinding(Finding, frozen=True, kw_only=True, tag="other"):
    """A finding of another plugin, which brings its own words."""

    code: str
    title: str
    message: str
    remedy: str = ""
    severity: Severity = "warning"
    facts: Mapping[str, Fact] = {}

    @property
    def evidence(self) -> dict[str, Fact]:
        return dict(self.facts) if self.source is None else {**self.facts, "source": self.source}


def _rows(kind: type[Finding]) -> list[type[Finding]]:
    return [kind, *(row for sub in kind.__subclasses__() for row in _rows(sub))]


KINDS: Final[Mapping[str, type[Finding]]] = {
    str(kind.__struct_config__.tag): kind for kind in _rows(Finding) if hasattr(kind, "TITLE")
}
"""The findings by their codes."""


def from_words(words: Any) -> Any:
    """Return the mapping that ``Finding.in_words`` gave as msgspec takes it for an `AnyFinding`.

    What this version does not know, or knows with other facts, keeps its words.
    """
    if not isinstance(words, dict) or not isinstance(facts := words.get("evidence"), dict):
        return words
    known = {**facts, "finding": words.get("code"), "saves_us": words.get("saves_us")}
    try:
        convert(known, AnyFinding)
    except (UnicodeError, ValidationError):
        own = {name: fact for name, fact in facts.items() if name != "source"}
        return {**words, "finding": OtherFinding.__struct_config__.tag, "facts": own, "source": facts.get("source")}
    return known


if TYPE_CHECKING:
    AnyFinding: TypeAlias = Finding
else:
    AnyFinding = Union[(OtherFinding, *KINDS.values())]
    """The type as which msgspec decodes a finding that it has encoded."""
