"""Graph breaks: what several sources say, each source line once."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pytest_torchprof.analysis.compilation.regions import Region


class GraphBreak(Struct, frozen=True, kw_only=True):
    """A place where compiled code ends; file, line and function are None where only the trace shows it."""

    reason: str
    """The first line of Dynamo's reason."""
    file: str | None
    line: int | None
    function: str | None
    explanation: str | None = None
    """What Dynamo says behind its reason."""
    count: int = 1
    """How many graphs end there."""
    skipped_frame: bool = False
    """The whole frame is left uncompiled."""


def nested(inner: Region, outer: Region) -> GraphBreak:
    """Return the break that a compiled region inside another one shows."""
    return GraphBreak(reason=f"{inner.name} ran inside {outer.name}", file=None, line=None, function=None)


def merge(
    reported: Iterable[Mapping[str, Any]], ran: Iterable[Mapping[str, Any]], skipped: Iterable[Mapping[str, Any]]
) -> tuple[GraphBreak, ...]:
    """Return one break per source line.

    `reported` while the code was compiled, `ran` the same of compiled code that ran, `skipped` frames. A break inside
    torch for which Dynamo names no line of the user's is the same as one at that place for which it does.
    """
    sources = [list(reported), list(ran), list(skipped)]
    named = {item.get("at"): item for source in sources for item in source if _names_users_line(item)}
    counts: Counter[tuple[Any, Any]] = Counter()
    found: dict[tuple[Any, Any], GraphBreak] = {}
    for source in sources:
        items = [item if _names_users_line(item) else named.get(item.get("at"), item) for item in source]
        # The same break may be told of by several sources; one that tells of it twice has seen two graphs.
        counts |= Counter(map(_line, items))
        for item in items:
            one = found.setdefault(_line(item), _break(item))
            if source is sources[2]:
                found[_line(item)] = replace(one, skipped_frame=True)
    return tuple(replace(one, count=counts[line]) for line, one in found.items())


def _line(item: Mapping[str, Any]) -> tuple[Any, Any]:
    return item.get("file"), item.get("line")


def _names_users_line(item: Mapping[str, Any]) -> bool:
    return not item.get("inferred") and item.get("at") != f"{item.get('file')}:{item.get('line')}"


def _break(item: Mapping[str, Any]) -> GraphBreak:
    return GraphBreak(
        reason=str(item.get("reason")),
        file=item.get("file"),
        line=item.get("line"),
        function=item.get("function"),
        explanation=item.get("explanation"),
    )
