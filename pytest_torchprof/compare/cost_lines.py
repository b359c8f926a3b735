"""What a difference costs, as lines for people: numbers with their ratio, where the time is, what came and went."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from pytest_torchprof.analysis.numbers import BY_NAME
from pytest_torchprof.baseline.entry import STRUCTURAL
from pytest_torchprof.baseline.family_times import MEMORY
from pytest_torchprof.compare.changes import family_noun, number_words
from pytest_torchprof.compare.ratios import GPU_TIME, follows_gpu_time, ratio_of, show_factor, size_of
from pytest_torchprof.kernels.names.kernelname import DTYPES, LAYOUTS
from pytest_torchprof.tables import Column, table_lines
from pytest_torchprof.text import counted, cut_inside, numbered, plural, printable, show_us, wrapped

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pytest_torchprof.compare.cost import Cost, Shift
    from pytest_torchprof.compare.ratios import Pair

ROWS: Final = 7
"""How many kernels a screen shows of those whose time moved."""
_WORTH_A_LINE: Final = 0.10
"""Numbers that moved by less share a line, and so do shares of something, whatever they did."""
_WORTH_A_ROW: Final = 0.005
"""Of the GPU time: what moved by less is left to the data."""
_STILL: Final = 0.02
"""Where no family moved by so much of the GPU time, there is nothing to explain."""
_MAIN: Final = 0.4
"""So many of the calls have a dtype that is named for all of them."""
_EXCHANGES: Final = 6
_OPERATOR: Final = 22
_ENOUGH: Final = 0.9
_NAMED: Final = 3
"""A sentence names families until they make up so much of the difference, but no more than these."""


def number_lines(numbers: Mapping[str, Pair], cost: Cost) -> list[str]:
    """Return the numbers that changed, those that moved most first, each with its ratio; the small ones in a line."""
    large, small = (list(side.values()) for side in sort_changes(numbers, cost))
    return [*large, *(["also: " + "; ".join(small)] if small else [])]


def sort_changes(numbers: Mapping[str, Pair], cost: Cost) -> tuple[dict[str, str], dict[str, str]]:
    """Return what to say of each number that changed, by its name: of those worth a line, and of the small ones."""
    told = _without_echoes(numbers)
    large: dict[str, str] = {}
    small: dict[str, str] = {}
    for name, values in told.items():
        number = BY_NAME[name]
        if len({number.show(value) for value in values}) == 1:
            continue
        words = number_words(number, *values, called=cost.noun if name == GPU_TIME else None)
        minor = size_of(name, values) < _WORTH_A_LINE or number.unit in ("share", "ratio")
        (small if minor and name != GPU_TIME else large)[name] = words
    return large, small


def _without_echoes(numbers: Mapping[str, Pair]) -> dict[str, Pair]:
    """Return the numbers without those that only follow the GPU time: as a rule the busy time and the span do."""
    lead = ratio_of(*numbers.get(GPU_TIME, (1.0, 1.0)))
    return {
        name: values
        for name, values in numbers.items()
        if not (follows_gpu_time(name) and _is_about(ratio_of(*values), lead))
    }


def _is_about(ratio: float | None, lead: float | None) -> bool:
    return ratio is not None and lead is not None and abs(ratio - lead) <= 0.02 * lead


def cost_lines(cost: Cost, *, width: int, every: bool = False) -> list[str]:
    """Return where the GPU time is: a sentence, a table by family, one by kernel; nothing where it is still."""
    explanation = explain_cost(cost)
    if explanation is None:
        return []
    total = max(cost.time_us)
    worth = [row for row in cost.families if every or abs(row.difference_us) >= _WORTH_A_ROW * total]
    shown = [row for row in cost.kernels if every or abs(row.difference_us) >= _WORTH_A_ROW * total]
    shown = shown if every else shown[:ROWS]
    return [
        *wrapped(f"{explanation}:", "  ", width=width),
        *_table(cost, "family", worth, width),
        *_table(cost, "kernel", shown, width),
    ]


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
        if share > _WORTH_A_ROW:
            explained += share
            parts.append(f"{share:.0%} {'' if parts else 'is '}in {calls_words(row)}{_each(row)}")
    way = "more" if all_of_it > 0 else "less"
    return f"of the {show_us(abs(all_of_it))} {way}, {'; '.join(parts)}"


def _each(row: Shift) -> str:
    ratio = _mean_ratio(row)
    if ratio is None or 0.95 < ratio < 1.05:
        return ""
    return f", {'on average ' if max(row.calls) > 1 else ''}{show_factor(ratio)} as long"


def _mean_ratio(row: Shift) -> float | None:
    if not all(row.calls):
        return None
    before, after = (time / calls for time, calls in zip(row.time_us, row.calls, strict=True))
    return ratio_of(before, after)


def calls_words(row: Shift) -> str:
    """Return "the same 51 GEMMs fp32", "1,281 GEMMs fp32 -> 929 GEMMs bf16", "12 copies more", "GEMMs"."""
    (before, after), (was, now) = row.calls, _kinds(row)
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


def _kinds(row: Shift) -> tuple[str, str]:
    """Return what both sides are of, " fp32": of the other families only what differs, where both sides say it."""
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
    """Return what came and went by family: "1,281 GEMMs fp32 -> 929 GEMMs bf16; 12 copies more"; None for nothing."""
    moved = [row for row in families if row.family not in MEMORY.values()]
    changed = [calls_words(row) for row in moved if row.calls[0] != row.calls[1] or len({*_kinds(row)}) > 1]
    more = len(changed) - _EXCHANGES
    return "; ".join(changed[:_EXCHANGES] + [f"and {counted(more, 'other family')}"] * (more > 0)) or None


class _Row(NamedTuple):
    label: str
    calls: tuple[float, ...]
    """None in a row of others."""
    time_us: tuple[float, float]
    operator: str = ""
    mean: str = ""

    @property
    def difference_us(self) -> float:
        return self.time_us[1] - self.time_us[0]


def _table(cost: Cost, title: str, shown: Sequence[Shift], width: int) -> list[str]:
    """Return the rows as a table that adds up: what is left out is a row of its own."""
    whole = cost.families if title == "family" else cost.kernels
    rows = [_Row(label_shift(row), row.calls, row.time_us, _operator(row), _show_mean(row)) for row in shown]
    if rest := whole[len(shown) :]:
        rows.append(_sum(rest, f"{len(rest)} others" if rows else title))
    columns = [
        Column(title, lambda row: row.label, "left"),
        Column("before", lambda row: show_us(row.time_us[0] or None), leaves=4),
        Column("after", lambda row: show_us(row.time_us[1] or None)),
        Column("difference", lambda row: _signed(row.difference_us)),
        Column("calls", lambda row: _show_calls(row.calls), leaves=2),
        Column("each", lambda row: row.mean, leaves=1),
    ]
    if 2 * sum(bool(row.operator) for row in rows) > len(rows):
        columns.append(Column("launched by", lambda row: cut_inside(row.operator, _OPERATOR), "left", leaves=3))
    return [f"  {line}" for line in table_lines(rows, columns, width - 2)]


def _sum(rows: Sequence[Shift], label: str) -> _Row:
    before, after = (sum(row.time_us[side] for row in rows) for side in (0, 1))
    return _Row(label, (), (before, after))


def label_shift(row: Shift) -> str:
    """Return what a row is of: "gemm fp32 tn -> bf16 tn", a kernel before and after where they differ, or a family."""
    if not any(row.kernels):
        was, now = _kinds(row)
        return f"{row.family}{was}" + (f" ->{now}" if was != now and all(row.calls) else now if not was else "")
    before, after = (_words_of(names, row) for names in row.kernels)
    if not (before and after) or before == after:
        return " ".join(before or after)
    same = next((at for at, pair in enumerate(zip(before, after, strict=False)) if len({*pair}) > 1), 0)
    return " ".join([*before, "->", *after[same:]])


def _words_of(names: Sequence[str], row: Shift) -> list[str]:
    """Return the words of a side: of a GEMM with several names dtype and layout alone, on both sides."""
    if not names:
        return []
    words = names[0].split()
    several = max(map(len, row.kernels)) > 1
    if several and row.family in STRUCTURAL:
        return [word for word in words[:3] if word in (row.family, *DTYPES, *LAYOUTS)]
    return [*words, f"and {len(names) - 1} more"] if len(names) > 1 else words


def _operator(row: Shift) -> str:
    ops = row.ops[1] or row.ops[0]
    return printable(ops[0] + (f" and {len(ops) - 1} more" if len(ops) > 1 else "")) if ops else ""


def _show_mean(row: Shift) -> str:
    ratio = _mean_ratio(row)
    return "" if ratio is None else show_factor(ratio)


def _show_calls(calls: tuple[float, ...]) -> str:
    return " -> ".join(dict.fromkeys(f"{count:,g}" for count in calls))


def _signed(time_us: float) -> str:
    return f"{'-' if time_us < 0 else '+'}{show_us(abs(time_us))}"
