"""The lock of a GPU, at which the processes of all accounts of a machine meet.

A file of another account in a folder like ``/tmp`` may not be opened for writing, and not with ``O_CREAT`` either
(``fs.protected_regular``). So it is opened for reading, which is enough for ``flock``. The process that holds it notes
what it does in a file of its own account beside it.
"""

from __future__ import annotations

import fcntl
import os
import stat
import tempfile
import threading
import time
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_torchprof.reasons.errors import NotMeasured
from pytest_torchprof.reasons.gpu_trouble import GpuInUse, LockHolder, LockUnopened, in_words

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

WAIT_S = 3600.0
"""Long enough for many workers' turns, each with its compilation."""
_LOOK_S = 0.1
_EVERYBODYS = Path("/run/lock")
"""The local folder of Linux for locks of all accounts; the temporary folder may differ between accounts."""
_LONGEST = 200


def lock_file(uuid: str) -> Path:
    """Return the lock file of all processes that measure on the GPU with this UUID."""
    with suppress(OSError):
        if _EVERYBODYS.stat().st_mode & 0o1777 == 0o1777 and os.access(_EVERYBODYS, os.W_OK):
            return _EVERYBODYS / f"torchprof-{uuid}.lock"
    return Path(tempfile.gettempdir(), f"torchprof-{uuid}.lock")


@contextmanager
def holding(uuid: str, announce: Callable[[str], None], *, wait_s: float = WAIT_S, doing: str = "") -> Iterator[None]:
    """Hold the lock of the GPU with this UUID; a thread that holds it already gets it at once. NotMeasured without it.

    ``announce`` gets the text of a wait, at once; ``doing``, such as a test, is shown to those who wait: the text of
    the first time, if a thread holds it several times.
    """
    lock = _lock(lock_file(uuid))
    try:
        if not lock.acquire(0):
            announce(f"waits for the GPU, up to {wait_s / 60:.0f} minutes: {in_words(lock.holders())}")
            if not lock.acquire(wait_s):
                raise NotMeasured(GpuInUse(wait_s, str(lock.path), lock.holders()))
    except OSError as error:
        raise NotMeasured(LockUnopened(str(lock.path), str(error.strerror or error))) from None
    try:
        lock.note(doing)
        yield
    finally:
        lock.release()


@cache
def _lock(path: Path) -> _Lock:
    return _Lock(path)


class _Lock:
    """A file's lock, which the system frees when its holder ends in any way."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._threads = threading.RLock()
        self._depth = 0
        self._file = -1

    def acquire(self, wait_s: float) -> bool:
        """Return whether it could be acquired in this time; OSError if the file cannot be used."""
        until = time.monotonic() + wait_s
        if not self._threads.acquire(timeout=wait_s):
            return False
        try:
            while not self._depth and not self._try():
                if time.monotonic() >= until:
                    self._threads.release()
                    return False
                time.sleep(_LOOK_S)
        except BaseException:
            self._threads.release()
            raise
        self._depth += 1
        return True

    def release(self) -> None:
        """Release it, once for each time that it was acquired."""
        self._depth -= 1
        if not self._depth:
            fcntl.flock(self._file, fcntl.LOCK_UN)  # Also of the forks that have the open file.
            os.close(self._file)
        self._threads.release()

    def _try(self) -> bool:
        file = _open(self.path)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # A cleaner of the folder may have removed the file that was opened.
            held = os.path.samestat(os.fstat(file), self.path.stat())
        except (BlockingIOError, FileNotFoundError):
            held = False
        except BaseException:
            os.close(file)
            raise
        if held:
            self._file = file
        else:
            os.close(file)
        return held

    def note(self, doing: str) -> None:
        """Note for those who wait which process holds it, and for what it was acquired first."""
        if self._depth > 1:
            return
        with suppress(OSError):
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
            with os.fdopen(os.open(self._note_file(os.getuid()), flags, 0o644), "w", encoding="utf-8") as file:
                os.fchmod(file.fileno(), 0o644)
                file.write(f"{os.getpid()} {doing}")

    def _note_file(self, account: int) -> Path:
        return self.path.with_suffix(f".{account}")

    def holders(self) -> tuple[LockHolder, ...]:
        """Return the processes that hold it, as far as they are known."""
        return tuple(map(self._holder, _holders(self.path)))

    def _holder(self, process: int) -> LockHolder:
        program, doing = None, None
        with suppress(OSError):
            program = Path(f"/proc/{process}/comm").read_text(encoding="utf-8", errors="replace").strip()
        with suppress(OSError):
            noted = self._note_file(Path(f"/proc/{process}").stat().st_uid)
            with os.fdopen(_regular(noted), encoding="utf-8", errors="replace") as file:
                number, _, work = file.read(_LONGEST).partition(" ")
            doing = work if number == str(process) and work else None
        return LockHolder(process, program, doing)


def _holders(path: Path) -> list[int]:
    try:
        inode = path.stat().st_ino
        lines = Path("/proc/locks").read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
    # 1: FLOCK ADVISORY WRITE 1234 08:01:5678 0 EOF; those that wait have an arrow more.
    rows = (line.split() for line in lines)
    return [int(fields[4]) for fields in rows if len(fields) == 8 and fields[5].rpartition(":")[2] == str(inode)]


def _open(path: Path) -> int:
    """Open the file for reading; the first process creates it."""
    with suppress(FileNotFoundError, PermissionError):
        return _regular(path)
    with suppress(FileExistsError):
        file = os.open(path, os.O_RDONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644)
        # Every account must be able to read it, whatever this one's umask is.
        os.fchmod(file, 0o644)
        return file
    time.sleep(_LOOK_S)  # Until the other account has made it readable.
    return _regular(path)


def _regular(path: Path) -> int:
    """Open a file of any account for reading; OSError for a pipe or a device, which might never end."""
    file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise OSError(f"{path} is no file")
    return file
