"""What two measurements have in common and what differs, in words, and the places of changes."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from pytest_torchprof.baseline.entry import STRUCTURAL
from pytest_torchprof.compare.change_words import became_words, times_words
from pytest_torchprof.compare.family_words import amount, kind_of, noun, number_of
from pytest_torchprof.text import and_more, first_of, path_from_here, printable, printable_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pytest_torchprof.analysis.origin import Origin
    from pytest_torchprof.compare.change import Change, Kind
    from pytest_torchprof.reasons.disturbances import Disturbance

_SHOWN: Final = 4
"""The most names, or kinds of changes, that a line has room for."""
MOST_PLACES: Final = 5
"""The most places of a kernel that a line names."""


def kernels_words(same: Mapping[str, int], changes: Sequence[Change]) -> str:
    """Return the changes of the kernels of two recordings: "same GEMM, two pointwise became one Triton kernel"."""
    parts = [same_words(same)] if same else []
    swapped: Counter[str] = Counter()
    for change in changes:
        if change.before and change.after and change.kind == "replaced":
            swapped[became_words(change)] += change.times
    pairs = [text + times_words(count) for text, count in swapped.items()]
    parts += filter(None, [first_of(pairs, _SHOWN, "such change")])
    parts += one_sided_words([change for change in changes if change.kind == "replaced"])
    renamed, moved = (_count(changes, kind) for kind in ("renamed", "reordered"))
    parts += [f"{renamed} renamed"] if renamed else []
    parts += [f"{moved} in another place"] if moved else []
    return ", ".join(parts) or "no kernels in either"


def brief_words(same: Mapping[str, int], changes: Sequence[Change]) -> str:
    """Return how many kernels stayed, went and came in two recordings, if naming them would fill the screen."""
    replaced = [change for change in changes if change.kind == "replaced"]
    went, came = (sum(len(getattr(change, side)) * change.times for change in replaced) for side in ("before", "after"))
    return (
        f"kernel by kernel: {sum(same.values()):,} the same ({_count(changes, 'renamed'):,} of them renamed, "
        f"{_count(changes, 'reordered'):,} in another place), {went:,} gone, {came:,} more"
    )


def _count(changes: Iterable[Change], kind: Kind) -> int:
    return sum(change.times for change in changes if change.kind == kind)


def same_words(same: Mapping[str, int]) -> str:
    """Return the unchanged kernels: "same three GEMMs, one copy and all 12 other kernels"."""
    named = {kind: count for kind, count in same.items() if kind in (*STRUCTURAL, "communication")}
    if named and len(same) - len(named) <= 2:
        named = {**named, **same}
    rest = sum(same.values()) - sum(named.values())
    # Without "all" these might be different from those before.
    others = [f"all {amount(rest)} other {noun('other', rest)}"] if rest and named else []
    if not named:
        named = {next(iter(same)) if len(same) == 1 else "other": rest}
    parts = [noun(kind, 1) if count == 1 else number_of(kind, count) for kind, count in named.items()] + others
    return "same " + ", ".join(parts[:-1]) + (" and " if len(parts) > 1 else "") + parts[-1]


def one_sided_words(replaced: Iterable[Change]) -> list[str]:
    """Return the kernels that came and went, by kind: "12 GEMMs more", "one copy gone"."""
    sides: dict[str, Counter[str]] = {"more": Counter(), "gone": Counter()}
    for change in replaced:
        if not (change.before and change.after):
            for kernel in change.before or change.after:
                sides["gone" if change.before else "more"][kind_of(kernel)] += change.times
    return [f"{number_of(kind, count)} {side}" for side, counts in sides.items() for kind, count in counts.items()]


def place_lines(change: Change, more: int = 0) -> Iterator[str]:
    """Yield the places at which the user's code launched the kernels of a change, a line each.

    ``more``: the number of changes below it whose kernels it launched there, too.
    """
    if (launched := change.launched) is not None:
        from_words = "from" if launched.certain else "from one of"
        # Not all of them may find room.
        yield f"    {change.what}{and_more(more)} {from_words}: {_places_words(launched.places)}"
        if launched.others:
            or_another = f"or another of these {launched.alike}, which cannot be told apart"
            yield f"      {or_another}: {_places_words(launched.others)}"


def break_lines(change: Change) -> Iterator[tuple[str, str]]:
    """Yield the places at which the user's code broke its graph, a line each, and each place by itself."""
    for graph_break in change.breaks[:MOST_PLACES]:
        place = f"{path_from_here(graph_break.file or '')}:{graph_break.line}"
        where = f"{place} in {graph_break.function}" if graph_break.function else place
        yield f"  graph break at: {printable_line(f'{where}: {graph_break.reason}')}", place


def _places_words(places: Sequence[Origin]) -> str:
    return first_of([printable(str(place)) for place in places], MOST_PLACES, between="; ")


def disturbance_words(disturbed: tuple[Sequence[Disturbance | str], Sequence[Disturbance | str]]) -> Iterator[str]:
    """Yield the disturbances of the machine while the times of either side were taken."""
    for whose, side in zip(("the baseline's samples", "the samples"), disturbed, strict=True):
        yield from (f"during {whose} {disturbance}" for disturbance in side)
