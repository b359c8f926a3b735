"""From a finished session to the one recording file: exported, made anonymous, completed, moved into place."""

from __future__ import annotations

import os
import re
from mmap import mmap
from typing import TYPE_CHECKING

from pytest_torchprof.analysis.source_lines import EXPORTED_MARK, MARK
from pytest_torchprof.capture.anonymous import make_anonymous
from pytest_torchprof.recording import write_metadata
from pytest_torchprof.recording.metadata import KEY

# A mark as torch exports it; what takes its place is as long, so that nothing has to move.
_EXPORTED = re.compile(rb'"cat": "cpu_op",(\s*)"name": "%s' % EXPORTED_MARK.encode())
_AS_FRAME = b'"cat": "python_function",%%b"name": "%b' % MARK.encode()
_UNUSED = b'"cat": "unused",%%b"name": "%b' % EXPORTED_MARK.encode()

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pytest_torchprof.capture.session import Session


def write_recording(session: Session, path: Path, ours: Mapping[str, object]) -> None:
    """Write what the session holds to `path`, with `ours` under its `torchprof` key; all of it or nothing."""
    unfinished = path.with_name(f".{path.name}.{os.getpid()}.unfinished")
    try:
        session.export(unfinished)
        if session.marked:
            _settle_marks(unfinished, keep=session.told["lines"] is True)
        make_anonymous(unfinished, path.name)
        write_metadata(unfinished, ours)
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


def _settle_marks(path: Path, *, keep: bool) -> None:
    """Make the marks of lines what frames are, so that nobody takes them for operators; in place.

    Where some are missing, none is kept: they get a category that no reader asks for.
    """
    with path.open("r+b") as file, mmap(file.fileno(), 0) as text:
        for mark in _EXPORTED.finditer(text):
            start, end = mark.span()
            text[start:end] = (_AS_FRAME if keep else _UNUSED) % mark[1]


def replace_metadata(path: Path, ours: Mapping[str, object]) -> None:
    """Write `ours` in place of what the recording at `path` has under its `torchprof` key; all of it or nothing."""
    unfinished = path.with_name(f".{path.name}.{os.getpid()}.unfinished")
    try:
        # The key is the file's last, and the only one of its line: text in JSON has no line ends.
        trace, _, _ = path.read_bytes().rpartition(b',\n"%s": ' % KEY.encode())
        unfinished.write_bytes(trace + b"\n}\n")
        write_metadata(unfinished, ours)
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)
