"""Shares as bars if a terminal can show them, otherwise as a sentence."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TextIO

from pytest_torchprof.text import printable
from pytest_torchprof.text.cutting import cut_inside, width_of
from pytest_torchprof.text.tables import lined_up
from pytest_torchprof.text.units import show_share
from pytest_torchprof.text.wrapping import wrapped

if TYPE_CHECKING:
    from collections.abc import Sequence

_EIGHTHS: Final = " ▏▎▍▌▋▊▉█"
_COLOUR, _PLAIN = "\033[36m", "\033[0m"
_LONGEST: Final = 40
_SHORTEST: Final = 8
_NAME: Final = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Bars:
    """How a terminal draws bars."""

    blocks: bool
    """Whether its encoding has block characters; otherwise bars consist of ``#``."""
    colour: bool


def bars_on(stream: TextIO) -> Bars | None:
    """Return how bars are drawn on a stream, None if it is no terminal and no colours are forced.

    Colours follow pytest's rules: PY_COLORS, NO_COLOR and FORCE_COLOR decide, in this order, then what the stream is.
    """
    terminal = stream.isatty() and os.environ.get("TERM") != "dumb"
    asked = {"1": True, "0": False}.get(os.environ.get("PY_COLORS", ""))
    if asked is None:
        asked = False if os.environ.get("NO_COLOR") else True if os.environ.get("FORCE_COLOR") else None
    if not terminal and not asked:
        return None
    try:
        _EIGHTHS.encode(stream.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return Bars(blocks=False, colour=terminal if asked is None else asked)
    return Bars(blocks=True, colour=terminal if asked is None else asked)


def share_lines(heading: str, shares: Sequence[tuple[str, float]], bars: Bars | None, width: int) -> list[str]:
    """Return shares, 0..1, under a heading, with a bar for each; as a sentence if there are no bars or no room."""
    names = [cut_inside(printable(name), _NAME) for name, _ in shares]
    percents = [show_share(share) for _, share in shares]
    room = min(width - max(map(width_of, names), default=0) - 12, _LONGEST)
    if bars is None or room < _SHORTEST:
        sentence = ", ".join(
            f"{printable(name)} {percent}" for (name, _), percent in zip(shares, percents, strict=True)
        )
        return wrapped(f"{heading}: {sentence}", "  ", width=width)
    drawn = [_bar(share, room, bars) for _, share in shares]
    lines = lined_up([*zip(names, percents, drawn, strict=True)], ("left", "right", "left"))
    return [*wrapped(f"{heading}:", "  ", width=width), *(f"  {line}" for line in lines)]


def _bar(share: float, room: int, bars: Bars) -> str:
    eighths = round(8 * room * min(max(share, 0.0), 1.0))
    blocks = _EIGHTHS[8] * (eighths // 8) + _EIGHTHS[eighths % 8]
    bar = blocks.rstrip() if bars.blocks else "#" * round(eighths / 8)
    return f"{_COLOUR}{bar}{_PLAIN}" if bars.colour and bar else bar
