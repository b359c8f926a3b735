"""Kernels of a family, and how many of them two measurements have, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pytest_torchprof.baseline.entry import STRUCTURAL
from pytest_torchprof.baseline.family_times import MEMORY
from pytest_torchprof.kernels.names import decode
from pytest_torchprof.kernels.names.kernelname import FAMILY_NOT_KNOWN
from pytest_torchprof.text import counted, first_of, more_text, numbered, plural
from pytest_torchprof.text.units import show_us

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pytest_torchprof.baseline.entry import KernelRecord
    from pytest_torchprof.compare.cost import Shift


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
_MAIN: Final = 0.4
"""A dtype that at least this share of the calls has is named for all of them."""
_EXCHANGES: Final = 6
_WORTH_TELLING_OF: Final = 0.02
"""The share of the GPU time below which a family's change is left out."""
_FAMILIES: Final = 5
"""The most families that a line names."""


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
    (before, after), (was, now) = row.calls, dtype_words(row)
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


def dtype_words(row: Shift) -> tuple[str, str]:
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
    changed = [calls_words(row) for row in moved if row.calls[0] != row.calls[1] or len({*dtype_words(row)}) > 1]
    return first_of(changed, _EXCHANGES, "family", between="; ") or None


def exchange_line(families: Sequence[Shift]) -> str | None:
    """Return "pointwise kernels: 1 -> 21" where one family alone runs more or less often; else None."""
    moved = [row for row in families if row.calls[0] != row.calls[1] or len({*dtype_words(row)}) > 1]
    if len(moved) != 1 or not all(moved[0].calls) or len({*dtype_words(moved[0])}) > 1:
        return None
    (row,) = moved
    return f"{row.family} kernels{dtype_words(row)[1]}: {row.calls[0]:,g} -> {row.calls[1]:,g}"


def family_words(shifts: Sequence[Shift]) -> list[str]:
    """Return the change of the time and the calls, for each of the few families in which the time changed most."""
    words = [f"{_times(shift)}{_calls(shift)}" for shift in _worth_telling(shifts)]
    if len(words) > _FAMILIES:
        words[_FAMILIES - 1 :] = [more_text(len(words) - _FAMILIES + 1, "family")]
    return words


def family_times(shifts: Sequence[Shift]) -> list[str]:
    """Return the change of the time, for each of the families in which it changed much."""
    return [*map(_times, _worth_telling(shifts))]


def _worth_telling(shifts: Sequence[Shift]) -> list[Shift]:
    total = max((sum(shift.time_us[side] for shift in shifts) for side in (0, 1)), default=0.0)
    return [shift for shift in shifts if abs(shift.difference_us) >= _WORTH_TELLING_OF * total]


def _calls(shift: Shift) -> str:
    return "" if shift.family in MEMORY.values() or not any(shift.calls) else f" ({calls_words(shift)})"


def _times(shift: Shift) -> str:
    return f"{shift.family} {' -> '.join(show_us(time) if time else '0 us' for time in shift.time_us)}"
