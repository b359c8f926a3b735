"""How pytest is started for one side, once or, where times are taken, again and again."""

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

_FILE: Final = "launches.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class SideLaunch:
    """One side's pytest."""

    words: tuple[str, ...]
    """Its command line, after the Python."""
    folder: str
    """Where it is started."""
    environment: Mapping[str, str]
    python: str = sys.executable

    def with_words(self, words: Sequence[str]) -> SideLaunch:
        """Return a launch with further words, which win over the user's."""
        return replace(self, words=with_words(self.words, words))

    def with_variables(self, variables: Mapping[str, str]) -> SideLaunch:
        """Return a launch with some variables of the environment set."""
        return replace(self, environment={**self.environment, **variables})

    def run(self, log: Path) -> int:
        """Run it to its end, what it says going to a file, and return its exit status."""
        with (
            log.open("wb") as file,
            running(
                [self.python, "-P", "-m", "pytest", *self.words],
                cwd=self.folder,
                env=dict(self.environment),
                stdout=file,
                stderr=subprocess.STDOUT,
            ) as process,
        ):
            return process.wait()


@contextmanager
def ended_in_order() -> Iterator[None]:
    """Let a request to end leave this block as an exception does: what was started ends, what was made is removed."""

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


def with_words(words: tuple[str, ...], more: Sequence[str]) -> tuple[str, ...]:
    """Return the words of a command line with further options, which win over those that stand there."""
    at = words.index("--") if "--" in words else len(words)
    return (*words[:at], *more, *words[at:])


def write_launches(folder: Path, base: SideLaunch, here: SideLaunch) -> None:
    """Write what ``read_launches`` reads: a file that no other user may read, since an environment has secrets."""
    with os.fdopen(os.open(folder / _FILE, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        json.dump([asdict(base), asdict(here)], file)


def read_launches(folder: Path) -> tuple[SideLaunch, SideLaunch]:
    """Return how the other commit's and the working tree's tests are started."""
    base, here = ({**plain, "words": tuple(plain["words"])} for plain in json.loads((folder / _FILE).read_text()))
    return SideLaunch(**base), SideLaunch(**here)
