"""The differences between two measurements, in words: those of failures, the terminal, pages, JSON and ``diff``."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from msgspec import structs

from pytest_torchprof.analysis.numbers import BY_NAME
from pytest_torchprof.baseline.entry import STRUCTURAL
from pytest_torchprof.baseline.family_times import MEMORY
from pytest_torchprof.compare.number_changes import ratio_of
from pytest_torchprof.compare.renames import explain_rename
from pytest_torchprof.kernels.names import decode
from pytest_torchprof.kernels.names.kernelname import DTYPES, FAMILY_NOT_KNOWN, LAYOUTS
from pytest_torchprof.text import (
    and_more,
    counted,
    first_of,
    numbered,
    path_from_here,
    plural,
    printable,
    printable_line,
    show_us,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pytest_torchprof.analysis.numbers import Number
    from pytest_torchprof.analysis.source_lines import Origin
    from pytest_torchprof.baseline.entry import KernelRecord
    from pytest_torchprof.compare.change import Change, Kind, LostFusion, OtherEnvironment, Undecided
    from pytest_torchprof.compare.cost import Cost, Shift

_NOUNS: Final = {
    "gemm": "GEMM",
    "conv": "convolution",
    "attention": "attention kernel",
    "pointwise": "pointwise",
    "reduction": "reduction",
    "copy": "copy",
    "communication": "collective",
    "triton": "Triton kernel",
    "other": "kernel",
    "memcpy": "memory copy",
    "memset": "memory fill",
}
_SPELLED: Final = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
_HANDFUL: Final = 10
"""Counts below it are shown without their ratio."""
_SWITCHES: Final[dict[object, str]] = {None: "unknown", True: "on", False: "off"}
_SPOKEN: Final = {"cuda": "CUDA", "rocm": "ROCm", "cudnn": "cuDNN", "triton": "Triton"}
_MAIN: Final = 0.4
"""A dtype that at least this share of the calls has is named for all of them."""
_EXCHANGES: Final = 6
_WORTH_NAMING: Final = 0.005
"""The share of the GPU time below which a family's change is in no sentence."""
_STILL: Final = 0.02
"""If no family's time changed by this share of the GPU time, there is nothing to explain."""
_ENOUGH: Final = 0.9
_NAMED: Final = 3
"""A sentence names families until they make up this share of the difference, but at most this many."""
_WORTH_TELLING_OF: Final = 0.02
"""The share of the GPU time below which a family's change is left out."""
_FAMILIES: Final = 5
"""The most families that a line names."""
_SHOWN: Final = 4
"""The most names, or kinds of changes, that a line has room for."""
_REPLAYED: Final = ", launched by the replay of a CUDA graph, which has no operator"
MOST_PLACES: Final = 5
"""The most places of a kernel that a line names."""
STALE: Final = "the test was edited after its baseline was recorded (stale)"


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


def number_words(number: Number, was: float | None, now: float | None, *, called: str | None = None) -> str:
    """Return "syncs 1 -> 2", "busy 1.2 ms -> 9.4 ms, 7.8x": counts by their name, other numbers by their title."""
    factor = factor_words(number, was, now)
    return movement_words(number, was, now, called=called) + (f", {factor}" if factor else "")


def movement_words(number: Number, was: float | None, now: float | None, *, called: str | None = None) -> str:
    """Return the number before and after, without the factor: "busy 1.2 ms -> 9.4 ms"."""
    before, after = ("not recorded" if value is None else number.show(value) for value in (was, now))
    name = called or (number.name if number.exact else number.noun_anywhere or number.noun)
    return f"{name} {before} -> {after}"


def factor_words(number: Number, was: float | None, now: float | None) -> str:
    """Return the factor of a change, "7.8x"; empty if it is obvious, or if there is none."""
    ratio = ratio_of(was, now)
    # The factor of small counts is obvious, and a share is already a ratio.
    obvious = number.unit in ("share", "ratio") or (number.unit == "count" and max(was or 0, now or 0) < _HANDFUL)
    return "" if ratio is None or obvious else show_factor(ratio)


def show_factor(ratio: float) -> str:
    """Return "7.5x", "0.44x", "1.03x"."""
    if ratio and 0.9 < ratio < 1.1:
        return f"{ratio:.2f}x"
    return f"{ratio:,.0f}x" if ratio >= 9.95 else f"{ratio:.1f}x" if ratio > 1 else f"{ratio:.2g}x"


def disturbance_words(disturbed: tuple[Sequence[str], Sequence[str]]) -> Iterator[str]:
    """Yield the disturbances of the machine while the times of either side were taken."""
    for whose, side in zip(("the baseline's samples", "the samples"), disturbed, strict=True):
        yield from (f"during {whose} {disturbance}" for disturbance in side)


def clock_words(sampled: tuple[bool, bool]) -> str:
    """Return why times are not compared, if a side was recorded at locked clocks; else an empty text."""
    if not any(sampled):
        return ""
    which = "both" if all(sampled) else "the first" if sampled[0] else "the second"
    return f"times are not compared: in {which} the GPU's units were sampled (PM sampling), at locked clocks"


def environment_words(other: OtherEnvironment) -> str:
    """Return both devices if they differ, else the software and precision flags that differ."""
    first, second = other.sides
    if other.is_other_device:
        return f"{first} was recorded on {_device_words(other.old)}, {second} used {_device_words(other.new)}"
    old, new = (_software_words(side, other.keys) for side in (other.old, other.new))
    return f"{first} was recorded with {old}, {second} has {new}: names may differ, structure is compared"


def _software_words(environment: Mapping[str, str | bool], keys: Sequence[str]) -> str:
    values = ((_SPOKEN.get(key, key), environment.get(key)) for key in keys)
    return printable(" / ".join(f"{name} {_SWITCHES.get(value, value)}" for name, value in values))


def _device_words(environment: Mapping[str, str | bool]) -> str:
    gpu, capability = environment.get("gpu"), environment.get("compute_capability")
    return printable(f"{gpu} ({capability})" if capability else str(gpu or "the CPU"))


def kind_of(kernel: KernelRecord) -> str:
    """Return the kind by which a kernel is counted: its family, or that Triton generated it."""
    if kernel.family not in STRUCTURAL and decode(kernel.name).triton is not None:
        return "triton"
    return kernel.family if kernel.family is not None and kernel.family in _NOUNS else "other"


def family_noun(family: str) -> str:
    """Return the noun for one kernel of a family."""
    return _NOUNS.get(family) or (_NOUNS["other"] if family == FAMILY_NOT_KNOWN else f"{family} kernel")


def noun(kind: str, count: int) -> str:
    """Return the noun for ``count`` kernels of a kind."""
    return numbered(count, _NOUNS[kind])


def number_of(kind: str, count: int) -> str:
    """Return "two GEMMs", "12 pointwise"."""
    return f"{amount(count)} {noun(kind, count)}"


def amount(count: int) -> str:
    """Return a number as prose writes it, with small ones spelled out."""
    return _SPELLED[count] if count < len(_SPELLED) else str(count)


def calls_words(row: Shift) -> str:
    """Return "the same 51 GEMMs fp32", "1,281 GEMMs fp32 -> 929 GEMMs bf16", "12 copies more", "GEMMs"."""
    (before, after), (was, now) = row.calls, _dtypes(row)
    noun = family_noun(row.family)
    if not before and not after:
        return plural(noun)
    if not before or not after:
        there = max(before, after)
        return f"{counted(round(there), noun)}{was or now} {'more' if after else 'gone'}"
    if was != now:
        return f"{counted(round(before), noun)}{was} -> {counted(round(after), noun)}{now}"
    if before != after:
        return f"{before:,g} -> {after:,g} {numbered(after, noun)}{now}"
    there = round(after)
    return f"the same {noun if there == 1 else counted(there, noun)}{now}"


def _dtypes(row: Shift) -> tuple[str, str]:
    """Return the dtypes of both sides, " fp32"; for other families only if they differ and both sides know theirs."""
    was, now = (
        [kind for kind, count in kinds.items() if count >= _MAIN * calls]
        for kinds, calls in zip(row.kinds, row.calls, strict=True)
    )
    if row.family not in STRUCTURAL and (was == now or not (was and now)):
        was, now = (["Triton"] if side == ["Triton"] and was != now else [] for side in (was, now))
    return _of(was), _of(now)


def _of(kinds: Sequence[str]) -> str:
    return " by Triton" if kinds == ["Triton"] else f" {'/'.join(kinds)}" if kinds else ""


def exchange_words(families: Iterable[Shift]) -> str | None:
    """Return the kernels that came and went, by family: "1,281 GEMMs fp32 -> 929 GEMMs bf16"; None without any."""
    moved = [row for row in families if row.family not in MEMORY.values()]
    changed = [calls_words(row) for row in moved if row.calls[0] != row.calls[1] or len({*_dtypes(row)}) > 1]
    return first_of(changed, _EXCHANGES, "family", between="; ") or None


def exchange_line(families: Sequence[Shift]) -> str | None:
    """Return "pointwise kernels: 1 -> 21" where one family alone runs more or less often; else None."""
    moved = [row for row in families if row.calls[0] != row.calls[1] or len({*_dtypes(row)}) > 1]
    if len(moved) != 1 or not all(moved[0].calls) or len({*_dtypes(moved[0])}) > 1:
        return None
    (row,) = moved
    return f"{row.family} kernels{_dtypes(row)[1]}: {row.calls[0]:,g} -> {row.calls[1]:,g}"


def new_words(changes: Iterable[Change]) -> str:
    """Return "20 new pointwise kernels: no longer fused, or added"; empty where a step runs none more often."""
    of_step: dict[int, Counter[str | None]] = {}
    for change in changes:
        if change.fails and change.kind in ("added", "count"):
            of_step.setdefault(change.step, Counter())[change.after[0].family] += change.times
    families = max(of_step.values(), key=Counter.total, default=Counter())
    noun = f"new {next(iter(families))} kernel" if len(families) == 1 and None not in families else "new kernel"
    why = ": no longer fused, or added" if [*families] == ["pointwise"] else ""
    return f"{counted(families.total(), noun)}{why}" if families else ""


def family_words(shifts: Sequence[Shift]) -> list[str]:
    """Return the change of the time, for each of the few families in which it changed most."""
    total = max((sum(shift.time_us[side] for shift in shifts) for side in (0, 1)), default=0.0)
    words = [_family_words(shift) for shift in shifts if abs(shift.difference_us) >= _WORTH_TELLING_OF * total]
    if len(words) > _FAMILIES:
        words[_FAMILIES - 1 :] = [and_more(len(words) - _FAMILIES + 1, "family").lstrip()]
    return words


def _family_words(shift: Shift) -> str:
    calls = "" if shift.family in MEMORY.values() or not any(shift.calls) else f" ({calls_words(shift)})"
    times = " -> ".join(show_us(time) if time else "0 us" for time in shift.time_us)
    return f"{shift.family} {times}{calls}"


def explain_cost(cost: Cost) -> str | None:
    """Return "of the 147 ms more, 68% is in the same 51 GEMMs fp32, on average 8.0x as long"; None if none moved."""
    all_of_it, total = cost.difference_us, max(cost.time_us)
    if not cost.families or abs(cost.families[0].difference_us) < _STILL * total:
        return None
    if abs(all_of_it) < _STILL * total:
        return f"as much {cost.noun} as before, spent in other places"
    parts: list[str] = []
    explained = 0.0
    for row in cost.families:
        if explained >= _ENOUGH or len(parts) == _NAMED:
            break
        share = row.difference_us / all_of_it
        if share > _WORTH_NAMING:
            explained += share
            parts.append(f"{share:.0%} {'' if parts else 'is '}in {calls_words(row)}{_each_words(row)}")
    way = "more" if all_of_it > 0 else "less"
    return f"of the {show_us(abs(all_of_it))} {way}, {'; '.join(parts)}"


def _each_words(row: Shift) -> str:
    ratio = mean_ratio(row)
    if ratio is None or 0.95 < ratio < 1.05:
        return ""
    return f", {'on average ' if max(row.calls) > 1 else ''}{show_factor(ratio)} as long"


def mean_ratio(row: Shift) -> float | None:
    """Return how many times as long a call takes on average; None if a side has no calls."""
    if not all(row.calls):
        return None
    before, after = (time / calls for time, calls in zip(row.time_us, row.calls, strict=True))
    return ratio_of(before, after)


def label_shift(row: Shift) -> str:
    """Return a row's label: "gemm fp32 tn -> bf16 tn", a kernel before and after if they differ, or a family."""
    if not any(row.kernels):
        was, now = _dtypes(row)
        return f"{row.family}{was}" + (f" ->{now}" if was != now and all(row.calls) else now if not was else "")
    before, after = (_label_words(names, row) for names in row.kernels)
    if not (before and after) or before == after:
        return " ".join(before or after)
    same = next((at for at, pair in enumerate(zip(before, after, strict=False)) if len({*pair}) > 1), 0)
    return " ".join([*before, "->", *after[same:]])


def _label_words(names: Sequence[str], row: Shift) -> list[str]:
    """Return the label of a side: for a GEMM with several names only dtype and layout, on both sides."""
    if not names:
        return []
    words = names[0].split()
    several = max(map(len, row.kernels)) > 1
    if several and row.family in STRUCTURAL:
        return [word for word in words[:3] if word in (row.family, *DTYPES, *LAYOUTS)]
    return [*words, *and_more(len(names) - 1).split()]


def place_lines(change: Change, below: int = 0) -> Iterator[str]:
    """Yield the places at which the user's code launched the kernels of a change, a line each.

    ``below``: the number of changes below it whose kernels it launched there, too.
    """
    if (launched := change.launched) is not None:
        from_words = "from" if launched.certain else "from one of"
        what = f"{change.what} and the {'one' if below == 1 else below} below" if below else change.what
        yield f"    {what} {from_words}: {_places_words(launched.places)}"
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
