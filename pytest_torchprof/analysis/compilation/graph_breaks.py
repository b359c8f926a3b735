"""Graph breaks: what several sources say, each source line once."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from msgspec.structs import replace

from pytest_torchprof.recording.metadata import GraphBreak

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pytest_torchprof.analysis.compilation.regions import Region


def nested(inner: Region, outer: Region) -> GraphBreak:
    """Return the break that a compiled region inside another one shows."""
    return GraphBreak(reason=f"{inner.name} ran inside {outer.name}")


def merge(
    reported: Iterable[GraphBreak], ran: Iterable[GraphBreak], skipped: Iterable[GraphBreak]
) -> tuple[GraphBreak, ...]:
    """Return one break per source line.

    `reported` while the code was compiled, `ran` the same of compiled code that ran, `skipped` frames. A break inside
    torch for which Dynamo names no line of the user's is the same as one at that place for which it does.
    """
    sources = [list(reported), list(ran), list(skipped)]
    named = {one.at: one for source in sources for one in source if _names_users_line(one)}
    counts: Counter[tuple[str | None, int | None]] = Counter()
    found: dict[tuple[str | None, int | None], GraphBreak] = {}
    for source in sources:
        breaks = [one if _names_users_line(one) else named.get(one.at, one) for one in source]
        # The same break may be told of by several sources; one that tells of it twice has seen two graphs.
        counts |= Counter(map(_line, breaks))
        for one in breaks:
            known = found.setdefault(_line(one), one)
            if source is sources[2]:
                found[_line(one)] = replace(known, skipped_frame=True)
    return tuple(replace(one, count=counts[line]) for line, one in found.items())


def _line(one: GraphBreak) -> tuple[str | None, int | None]:
    return one.file, one.line


def _names_users_line(one: GraphBreak) -> bool:
    return not one.inferred and one.at != f"{one.file}:{one.line}"
