"""The differences between two measurements, in words: those of failures, the terminal, pages, JSON and ``diff``."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from msgspec import structs

from pytest_torchprof.analysis.numbers import BY_NAME
from pytest_torchprof.baseline.entry import STRUCTURAL
from pytest_torchprof.compare.family_words import amount, kind_of, noun, number_of
from pytest_torchprof.compare.number_words import movement_words, number_words
from pytest_torchprof.compare.renames import explain_rename
from pytest_torchprof.text import and_more, counted, first_of, path_from_here, printable, printable_line
from pytest_torchprof.text.units import show_us

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pytest_torchprof.analysis.origin import Origin
    from pytest_torchprof.baseline.entry import KernelRecord
    from pytest_torchprof.compare.change import Change, Kind, LostFusion, Undecided
    from pytest_torchprof.reasons.disturbances import Disturbance

_SHOWN: Final = 4
"""The most names, or kinds of changes, that a line has room for."""
_REPLAYED: Final = ", launched by the replay of a CUDA graph, which has no operator"
MOST_PLACES: Final = 5
"""The most places of a kernel that a line names."""


def change_words(change: Change) -> str:
    """Return a change in a few words that fit into a line."""
    if change.kind == "number":
        return (
            _time_words(change) if change.what == "time" else number_words(BY_NAME[change.what], change.old, change.new)
        )
    if change.kind == "reordered":
        return f"another order: {counted(change.times, 'kernel')} moved, first {change.what}"
    if change.kind == "replaced":
        return _replacement_words(change)
    if change.kind in ("changed", "renamed"):
        words = _kernel_words(change.before[0], change.after[0])
    else:
        words = _count_words(change)
    return f"{words}; {_fusion_words(change.lost_fusion)}" if change.lost_fusion else words


def noise_words(change: Change) -> str:
    """Return the change of a number that gates nothing, without the factor: it must not look like a decision."""
    return movement_words(BY_NAME[change.what], change.old, change.new)


def _count_words(change: Change) -> str:
    (kernel,) = change.after or change.before
    launched = f", launched by {printable(kernel.op)}" if kernel.op else _REPLAYED if change.replayed else ""
    per_step = f"{change.old} -> {change.new} per step" if change.kind == "count" else f"{change.times} per step"
    return f"{kernel.short}: {per_step}{launched}"


def _fusion_words(lost: LostFusion) -> str:
    return f"fusion lost: {', '.join(lost.ops[:-1])} and {lost.ops[-1]} ran in this kernel, and now in {lost.kernels}"


def _kernel_words(was: KernelRecord, now: KernelRecord) -> str:
    if _types_differ(was, now):
        return _type_words(was, now)
    how = rename_words(was, now)
    return f"{was.short} -> {now.short}" if how in was.short + now.short else f"{now.short}: {how}"


def rename_words(was: KernelRecord, now: KernelRecord) -> str:
    """Return the difference between the names of two kernels."""
    return printable(explain_rename(was.name, now.name))


def _types_differ(was: KernelRecord, now: KernelRecord) -> bool:
    return (was.dtype, was.layout, was.operands) != (now.dtype, now.layout, now.operands)


def _type_words(was: KernelRecord, now: KernelRecord) -> str:
    """Return "gemm mm: bf16 tn -> fp32 nn, launched by aten::mm": each side with all known facts."""
    facts = [fact for fact in ("dtype", "layout") if getattr(was, fact) or getattr(now, fact)]
    sides = (_side_words(kernel, facts) for kernel in (was, now))
    bare = [structs.replace(kernel, dtype=None, layout=None).short for kernel in (was, now)]
    launched = f", launched by {printable(now.op)}" if now.op else ""
    return f"{' -> '.join(dict.fromkeys(bare))}: {' -> '.join(sides)}{launched}"


def _side_words(kernel: KernelRecord, facts: Sequence[str]) -> str:
    known = " ".join(getattr(kernel, fact) for fact in facts if getattr(kernel, fact))
    if kernel.operands is not None:
        given = [] if kernel.operands == kernel.dtype else [f"given {printable(kernel.operands)}"]
        return ", ".join(filter(None, (known, *given)))
    unknown = [f"{fact} unknown" for fact in facts or ["dtype"] if not getattr(kernel, fact)]
    return ", ".join(filter(None, (known, *unknown)))


def _kinds_words(kernels: Sequence[KernelRecord]) -> str:
    counts = Counter(map(kind_of, kernels))
    if len(counts) > 2:
        return number_of("other", len(kernels))
    return " and ".join(number_of(kind, count) for kind, count in counts.items())


def _replacement_words(change: Change) -> str:
    """Return "two pointwise became one Triton kernel: pointwise gelu, ... -> triton_poi_..."."""
    head = f"{became_words(change)}{times_words(change.times)}"
    if len(change.before) == len(change.after) == 1:
        return f"{head}: {_one_for_one_words(change.before[0], change.after[0])}"
    names = [_list_names(change.before), _list_names(change.after, replayed=change.replayed)]
    return f"{head}: {' -> '.join(filter(None, names))}"


def _one_for_one_words(was: KernelRecord, now: KernelRecord) -> str:
    if _types_differ(was, now):
        return _type_words(was, now)
    how = explain_rename(was.name, now.name)
    names = " -> ".join(_list_names([kernel]) for kernel in (was, now))
    return names if was.short in how else f"{names}: {printable_line(how)}"


def became_words(change: Change) -> str:
    """Return which kernels replaced which: "two pointwise became one Triton kernel", "one GEMM became another"."""
    was, now = _kinds_words(change.before), _kinds_words(change.after)
    if not change.after:
        return f"{was} gone"
    if not change.before:
        return f"{now} more"
    if was == now:
        return f"{was} became {'another' if len(change.before) == 1 else 'others'}"
    return f"{was} became {now}"


def kernels_words(same: Mapping[str, int], changes: Sequence[Change]) -> str:
    """Return the changes of the kernels of two recordings: "same GEMM, two pointwise became one Triton kernel"."""
    parts = [same_words(same)] if same else []
    swapped: Counter[str] = Counter()
    for change in changes:
        if change.before and change.after and change.kind == "replaced":
            swapped[became_words(change)] += change.times
    parts += [text + times_words(count) for text, count in [*swapped.items()][:_SHOWN]]
    if len(swapped) > _SHOWN:
        parts.append(counted(len(swapped) - _SHOWN, "more such change"))
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


def times_words(count: int) -> str:
    """Return " (3x)", or nothing for a count of one."""
    return f" ({count}x)" if count > 1 else ""


def _list_names(kernels: Sequence[KernelRecord], shown: int = 4, *, replayed: bool = False) -> str:
    launchers = [kernel.op or ("graph replay" if replayed else "") for kernel in kernels]
    words = [
        f"{kernel.short}{f' ({launcher})' if launcher and launcher != kernel.short else ''}"
        for kernel, launcher in zip(kernels, launchers, strict=True)
    ]
    return first_of([printable_line(word) for word in words], shown)


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


def _time_words(change: Change) -> str:
    after = show_us(change.new)
    if change.old is None or (change.undecided and change.undecided.why == "other conditions"):
        return f"time {after}, not compared: {_undecided_words(change.undecided)}"
    moved = (change.new or 0) / change.old - 1 if change.old else 0.0
    words = f"time {show_us(change.old)} -> {after} ({moved:+.1%})"
    return f"{words}: {_undecided_words(change.undecided)}" if change.undecided else words


def _undecided_words(undecided: Undecided | None) -> str:
    if undecided is None or undecided.why == "no samples":
        return "it has none; --torchprof-baseline=update keeps them"
    if undecided.why == "not confirmed":
        return "measured once, not confirmed"
    if undecided.why == "close samples":
        return "the samples do not tell"
    sides = (
        ", ".join(f"{name} {'unknown' if value is None else value}" for name, value in side)
        for side in (
            [(name, old) for name, old, _ in undecided.conditions],
            [(name, new) for name, _, new in undecided.conditions],
        )
    )
    return "its samples were taken with {}, this run's with {}".format(*sides)


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
