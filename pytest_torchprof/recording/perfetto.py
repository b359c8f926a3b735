"""Recognizes a recording in Perfetto's own format, which torch can write since 2.14, so that the refusal says so."""

from __future__ import annotations

import re

REFUSAL = (
    "it is in Perfetto's own format (.pftrace), not JSON. Write it again under a name in which .pftrace does not "
    'occur: profiler.export_chrome_trace("trace.json.gz").'
)

_PACKET = re.compile(rb"\n([\x80-\xff]{0,9}[\x00-\x7f])")
"""The first field of the file's one message, a packet, and its length."""
_NOT_IN_JSON = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f]")


def is_native(text: bytes) -> bool:
    """Whether the file is a list of Perfetto's packets, to its end or as far as it was written."""
    first = _PACKET.match(text)
    if first is None or not _NOT_IN_JSON.search(text, 0, 4096):
        return False
    length = sum((byte & 0x7F) << (7 * place) for place, byte in enumerate(first[1]))
    behind = first.end() + length
    return behind >= len(text) or _PACKET.match(text, behind) is not None
