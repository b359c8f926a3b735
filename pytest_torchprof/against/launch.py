"""How pytest is started for one side, once or, where times are taken, again and again."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

_FILE: Final = "launches.json"
_PATIENCE_S: Final = 10


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
        """Return the same with further words, which win over the user's."""
        at = self.words.index("--") if "--" in self.words else len(self.words)
        return replace(self, words=(*self.words[:at], *words, *self.words[at:]))

    def with_variables(self, variables: Mapping[str, str]) -> SideLaunch:
        """Return the same with some variables of the environment set."""
        return replace(self, environment={**self.environment, **variables})

    def run(self, log: Path) -> int:
        """Run it to its end, what it says going to a file, and return its exit status."""
        with log.open("wb") as file:
            process = subprocess.Popen(  # noqa: S603 - pytest, with the user's own words
                [self.python, "-P", "-m", "pytest", *self.words],
                cwd=self.folder,
                env=dict(self.environment),
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
            )
            try:
                return process.wait()
            except BaseException:
                process.terminate()
                with suppress(subprocess.TimeoutExpired):
                    process.wait(_PATIENCE_S)
                process.kill()
                process.wait()
                raise


def write_launches(folder: Path, base: SideLaunch, here: SideLaunch) -> None:
    """Write what ``read_launches`` reads: a file that no other user may read, since an environment has secrets."""
    with os.fdopen(os.open(folder / _FILE, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        json.dump([asdict(base), asdict(here)], file)


def read_launches(folder: Path) -> tuple[SideLaunch, SideLaunch]:
    """Return how the other commit's and the working tree's tests are started."""
    base, here = ({**plain, "words": tuple(plain["words"])} for plain in json.loads((folder / _FILE).read_text()))
    return SideLaunch(**base), SideLaunch(**here)
