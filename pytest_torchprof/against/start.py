"""The start of pytest for one side: once or, if times are taken, again and again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Final, NoReturn

from pytest_torchprof.system.processes import running

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

_FILE: Final = "starts.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class SideStart:
    """One side's pytest."""

    arguments: tuple[str, ...]
    """Its command line, after the Python."""
    folder: str
    """The folder in which it is started."""
    environment: Mapping[str, str]
    python: str = sys.executable

    def with_arguments(self, arguments: Sequence[str]) -> SideStart:
        """Return a start with further arguments, which win over the user's."""
        return replace(self, arguments=with_arguments(self.arguments, arguments))

    def with_variables(self, variables: Mapping[str, str]) -> SideStart:
        """Return a start with some variables of the environment set."""
        return replace(self, environment={**self.environment, **variables})

    def run(self, log: Path) -> int:
        """Run it to its end, with its output in a file, and return its exit status."""
        with (
            log.open("wb") as file,
            running(
                [self.python, "-P", "-m", "pytest", *self.arguments],
                cwd=self.folder,
                env=dict(self.environment),
                stdout=file,
                stderr=subprocess.STDOUT,
            ) as process,
        ):
            return process.wait()


@contextmanager
def ended_in_order() -> Iterator[None]:
    """Let SIGTERM leave this block like an exception: started processes end, and files that were made are removed."""

    def leave(number: int, _frame: object) -> NoReturn:
        raise SystemExit(128 + number)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def with_arguments(arguments: tuple[str, ...], more: Sequence[str]) -> tuple[str, ...]:
    """Return the arguments of a command line with further options, which win over its own."""
    at = arguments.index("--") if "--" in arguments else len(arguments)
    return (*arguments[:at], *more, *arguments[at:])


def write_starts(folder: Path, base: SideStart, here: SideStart) -> None:
    """Write the file that ``read_starts`` reads, and no other user may read, since an environment has secrets."""
    with os.fdopen(os.open(folder / _FILE, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        json.dump([asdict(base), asdict(here)], file)


def read_starts(folder: Path) -> tuple[SideStart, SideStart]:
    """Return the starts of the other commit's and the working tree's tests."""
    base, here = (
        {**plain, "arguments": tuple(plain["arguments"])} for plain in json.loads((folder / _FILE).read_text())
    )
    return SideStart(**base), SideStart(**here)
