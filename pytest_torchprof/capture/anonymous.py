"""Takes the machine's name and the folder out of an exported trace: recordings are committed and passed around."""

from __future__ import annotations

import re
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

# Both stand outside the events, which may be many: the one before them, the other behind.
_MARGIN = 64 * 1024
_STRING = rb'"(?:[^"\\]|\\.)*"'
_HOST = re.compile(rb'"host_name":\s*' + _STRING + rb"\s*,")
_NAME = re.compile(rb'"traceName":\s*(' + _STRING + rb")")


def make_anonymous(path: Path, name: str) -> None:
    """Blank out `host_name` and call the trace `name`, which must not be longer than its path; in place."""
    with path.open("r+b") as file:
        head = file.read(_MARGIN)
        host = _HOST.search(head.partition(b'"traceEvents"')[0])
        if host:
            _overwrite(file, host.start(), b"", len(host[0]))
        tail = max(0, file.seek(0, 2) - _MARGIN)
        file.seek(tail)
        named = list(_NAME.finditer(file.read()))
        if named:
            start, end = named[-1].span(1)
            _overwrite(file, tail + start, b'"%s"' % _quoted(name), end - start)


def _overwrite(file: IO[bytes], at: int, text: bytes, length: int) -> None:
    if len(text) <= length:
        file.seek(at)
        file.write(text.ljust(length))


def _quoted(name: str) -> bytes:
    return re.sub(r'[^ -~]|["\\]', "_", name).encode()
