"""How large a recording may be; a larger file is no recording, and would take all memory or hours to read.

The largest recordings that people keep, with stacks and shapes, have some three million events in a gigabyte of text.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_torchprof.reasons.errors import UnreadableRecording
from pytest_torchprof.reasons.errors import hide_our_frames as __tracebackhide__  # noqa: F401  (read by pytest)
from pytest_torchprof.reasons.unreadable import TooLarge

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pytest_torchprof.reasons.unreadable import Excess, WhyUnreadable

MIB = 1024**2
UNPACKED = 1024 * MIB
"""Bytes of text in a gzip-compressed file; the size of a plain one shows how much memory and time it takes."""
MEMBERS = 100_000
"""Parts of a gzip-compressed file, each packed by itself."""
UNCUT = 32 * MIB
"""Bytes of text that are decoded at once if the text cannot be cut between its events."""
AROUND = 16 * MIB
"""Bytes before the list of events, after it, and of one event."""
EVENTS = 3_000_000
GPU_OPERATIONS = 500_000
STEPS = 100_000
DISTINCT = 256 * MIB
"""Bytes of memory for values of which each is kept once: names, operands, threads, streams."""
LARGEST = 2**63 - 1
"""The largest value of a number that is not a time: ids, sizes, graphs."""
LATEST_US = 2**64
"""The largest time stamp; CUPTI writes half of it for a time that it does not know."""
DEVICES = 1000
KERNEL_NAMES = 10_000
"""Fewer names than kernels.names keeps decoded: with more, each kernel would be decoded anew."""


class RefusedError(UnreadableRecording):
    """The file holds something that no recording holds; the caller adds which file it is."""

    cause: WhyUnreadable

    def __init__(self, cause: WhyUnreadable) -> None:
        super().__init__(cause.sentence, cause.CODE)
        self.cause = cause


def too_large(excess: Excess, most: int) -> RefusedError:
    """Return the error for a file that exceeds one of these bounds."""
    return RefusedError(TooLarge(excess, most))


def bounded(parts: Iterable[bytes], most: int, excess: Excess) -> Iterator[bytes]:
    """Yield the parts of a text; RefusedError as soon as they exceed ``most`` bytes together."""
    size = 0
    for part in parts:
        size += len(part)
        if size > most:
            raise too_large(excess, most // MIB)
        yield part
