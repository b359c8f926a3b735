"""Graph breaks: what several sources say, each source line once."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pytest_torchprof.regions import Region


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphBreak:
    """A place where compiled code ends; file, line and function are None where only the trace shows it."""

    reason: str
    """The first line of Dynamo's reason."""
    file: str | None
    line: int | None
    function: str | None
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
    torch for which no user's line is known is the same as one at that place for which it is.
    """
    sources = [list(reported), list(ran), list(skipped)]
    users_line = {
        item.get("at"): _line(item) for source in sources for item in source if _place(item) != item.get("at")
    }
    counts: Counter[tuple[Any, Any]] = Counter()
    first: dict[tuple[Any, Any], GraphBreak] = {}
    for source in sources:
        here = Counter(_line_of(item, users_line) for item in source)
        # The same break may be told of by several sources; one that tells of it twice has seen two graphs.
        counts |= here
        for item in source:
            line = _line_of(item, users_line)
            if line not in first or (_place(item) != item.get("at") and first[line].file != line[0]):
                first[line] = _break(item, skipped_frame=source is sources[2])
            elif source is sources[2]:
                first[line] = replace(first[line], skipped_frame=True)
    return tuple(replace(one, count=counts[line]) for line, one in first.items())


def _line(item: Mapping[str, Any]) -> tuple[Any, Any]:
    return item.get("file"), item.get("line")


def _line_of(item: Mapping[str, Any], users_line: Mapping[Any, tuple[Any, Any]]) -> tuple[Any, Any]:
    return users_line.get(item.get("at"), _line(item)) if _place(item) == item.get("at") else _line(item)


def _place(item: Mapping[str, Any]) -> str:
    return f"{item.get('file')}:{item.get('line')}"


def _break(item: Mapping[str, Any], *, skipped_frame: bool) -> GraphBreak:
    return GraphBreak(
        reason=str(item.get("reason")),
        file=item.get("file"),
        line=item.get("line"),
        function=item.get("function"),
        skipped_frame=skipped_frame,
    )
