"""From a finished session to the one recording file: exported, made anonymous, completed, moved into place."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from pytest_torchprof.capture.anonymous import make_anonymous
from pytest_torchprof.recording import write_metadata
from pytest_torchprof.recording.ownkey import KEY

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pytest_torchprof.capture.session import Session


def write_recording(session: Session, path: Path, ours: Mapping[str, object]) -> None:
    """Write what the session holds to `path`, with `ours` under its `torchprof` key; all of it or nothing."""
    unfinished = path.with_name(f".{path.name}.{os.getpid()}.unfinished")
    try:
        session.export(unfinished)
        make_anonymous(unfinished, path.name)
        write_metadata(unfinished, ours)
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


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
