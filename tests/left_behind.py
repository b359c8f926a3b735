"""What jobs of several ranks leave behind: processes, sockets that listen, locks that are held, folders."""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from pathlib import Path


def left_in(folder: Path, *ports: int) -> dict[str, object]:
    """Return what jobs that were called in a folder, which is their TMPDIR, have left; nothing at all is empty."""
    found = {
        "processes": processes(folder),
        "sockets": [port for port in ports if listens(port)],
        "locks": _locks(folder),
        "folders": list(folder.glob("torchprof-job-*")),
    }
    return {name: things for name, things in found.items() if things}


def processes(folder: Path) -> dict[int, str]:
    """Return what runs in a folder or below, with its words."""
    found = {}
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if (process / "cwd").resolve().is_relative_to(folder.resolve()):
                found[int(process.name)] = (process / "cmdline").read_text().replace("\0", " ")
    return found


def listens(port: int) -> bool:
    """Whether anybody on this machine takes connections there."""
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) == 0


def _locks(folder: Path) -> list[Path]:
    """Return the files below a folder that somebody holds a lock on."""
    table = Path("/proc/locks")
    lines = table.read_text().splitlines() if table.exists() else ()
    held = {line.split()[-3].rpartition(":")[2] for line in lines}
    found = []
    for above, _, names in os.walk(folder):  # What is cleared up meanwhile is no error for it.
        for name in names:
            with suppress(OSError):
                if str((path := Path(above, name)).stat().st_ino) in held:
                    found.append(path)
    return found
