"""The lock that lets one process at a time measure on the GPU: whether it can be had, and who holds it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pytest_torchprof.capture.gpulock import holding, lock_file
from pytest_torchprof.doctor.answer import OK, WRONG, Answer, first_line, public
from pytest_torchprof.errors import NotMeasured

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_torchprof.doctor.machine import Machine

# A test run gives it back after each measurement.
_WAIT_S = 5.0


def of_lock(machine: Machine) -> Iterator[Answer]:
    """Say whether the GPU's lock is free."""
    uuid = machine.gpu["uuid"]
    path = lock_file(uuid)
    shown = public(str(path))
    try:
        with holding(uuid, wait_s=_WAIT_S):
            yield Answer("GPU lock", OK, f"free, {shown}")
    except NotMeasured as problem:
        machine.profiler_fails = "the GPU's lock is not to be had"
        who = holders(path)
        if who:
            text = f"held by {' and '.join(who)}, {shown}"
            yield Answer("GPU lock", WRONG, text, "end it, or run this again when it is done: nothing else is measured")
        else:
            do = "give every user of the machine the right to read and write it, or set TMPDIR to a folder of your own"
            yield Answer("GPU lock", WRONG, first_line(problem), do)


def holders(path: Path) -> list[str]:
    """Return the processes that hold a lock on a file, by number and program, where the system tells."""
    try:
        inode = path.stat().st_ino
        lines = Path("/proc/locks").read_text(encoding="ascii").splitlines()
    except OSError:
        return []
    found = []
    for line in lines:
        # 1: FLOCK ADVISORY WRITE 1234 08:01:5678 0 EOF; those that wait have an arrow more.
        words = line.split()
        if len(words) == 8 and words[5].rpartition(":")[2] == str(inode):
            found.append(f"process {words[4]}{_program(words[4])}")
    return found


def _program(pid: str) -> str:
    try:
        return f" ({Path('/proc', pid, 'comm').read_text(encoding='utf-8', errors='replace').strip()})"
    except OSError:
        return ""
