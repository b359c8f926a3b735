"""How far a run is while it runs: a bar on a terminal, which stays in its line, and a line a minute in a log."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Final, TextIO

from pytest_torchprof.text import counted
from pytest_torchprof.text.cutting import cut
from pytest_torchprof.text.tables import terminal_width
from pytest_torchprof.text.units import show_bytes

if TYPE_CHECKING:
    from collections.abc import Callable

_EACH_S: Final = 0.2
"""How often a bar is drawn anew."""
_EACH_IN_LOG_S: Final = 60.0
_BARS: Final = (20, 10)
"""How long the bar may be."""
_CAN_GO: Final = 3
"""How many parts of the line give way to the others."""
_OPENING_BYTES: Final = 64 << 10
"""The fixed cost of a file, expressed as bytes of content: for small files it is most of the time."""
_ERASE: Final = "\r\x1b[K"


class Progress:
    """Counts files as they are settled, and shows how far the run is."""

    def __init__(
        self, files: int, size_bytes: int, stream: TextIO, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Begin, with so many files of so many bytes together."""
        self._files, self._bytes, self._stream, self._clock = files, size_bytes, stream, clock
        self._on_terminal = stream.isatty() and os.environ.get("TERM") != "dumb"
        self._began = self._shown = clock()
        self._done, self._done_bytes, self._quarantined = 0, 0, 0

    def see(self, size_bytes: int, *, is_quarantined: bool) -> None:
        """Count a file."""
        self._done += 1
        self._done_bytes += size_bytes
        self._quarantined += is_quarantined

    def show(self) -> None:
        """Show how far the run is, unless that has just been shown."""
        now = self._clock()
        if now - self._shown < (_EACH_S if self._on_terminal else _EACH_IN_LOG_S):
            return
        self._shown = now
        took_s = now - self._began
        if self._on_terminal:
            self._stream.write(f"{_ERASE}{self._line(took_s, terminal_width() - 1)}")
        else:
            self._stream.write(f"torchprof fleet: {self._words(took_s)}\n")
        self._stream.flush()

    @property
    def so_far(self) -> str:
        """How many of the files are settled, in words."""
        return f"{self._done:,} of {counted(self._files, 'file')}"

    def end(self) -> None:
        """Leave the line as it was before."""
        if self._on_terminal:
            self._stream.write(_ERASE)
            self._stream.flush()

    @property
    def _share(self) -> float:
        """How much of the work is done."""
        work = self._bytes + _OPENING_BYTES * self._files
        return (self._done_bytes + _OPENING_BYTES * self._done) / work if work else 1.0

    def _line(self, took_s: float, width: int) -> str:
        """Return the bar and what it means; where a terminal is narrow the bar gives way first."""
        words = self._words(took_s)
        lines = [f"{bar} {words}" for bar in map(self._bar, _BARS)]
        lines += [words, *(self._words(took_s, left_out) for left_out in range(1, _CAN_GO + 1))]
        return next((line for line in lines if len(line) <= width), cut(lines[-1], width))

    def _bar(self, length: int) -> str:
        filled = int(length * self._share)
        return f"[{'#' * filled}{'-' * (length - filled)}]"

    def _words(self, took_s: float, left_out: int = 0) -> str:
        """Return all parts, or those without the ones that matter least: bytes per second, files per second, bytes."""
        parts = [(self.so_far, 0), (f"{show_bytes(self._done_bytes)} of {show_bytes(self._bytes)}", 3)]
        if took_s > 0 and self._done:
            left_s = took_s * (1 / self._share - 1)
            parts += [
                (f"{self._done / took_s:,.1f} files/s", 2),
                (f"{show_bytes(round(self._done_bytes / took_s))}/s", 1),
                (f"{self._quarantined:,} quarantined", 0),
                (f"{_time(left_s)} left", 0),
            ]
        return ", ".join(text for text, goes in parts if not 0 < goes <= left_out)


def _time(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s" if minutes else f"{rest} s"
