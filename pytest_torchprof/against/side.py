"""One side of a comparison with a commit, as the processes that run it are told of it."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_torchprof.against import VARIABLE, is_side
from pytest_torchprof.report import Reference

if TYPE_CHECKING:
    import pytest


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """Where the code of one side is, and where what the base measured is kept."""

    is_base: bool
    """Whether it is the other commit, and not the working tree."""
    reference: Reference
    tree: Path
    """The root of its files."""
    other: Path
    """The root of the other side's files."""
    caches: Path
    """The folder for what compilers keep."""
    roots: tuple[Path, ...]
    """The folders of its tree that modules are imported from, the first one first."""
    results: Path
    """The folder with what the base has measured."""
    starter: int
    """The process that started both sides."""

    @property
    def entries(self) -> Path:
        """The folder with the base's measurements, as baselines."""
        return self.results / "entries"

    def write(self, path: Path) -> None:
        """Write what ``this_side`` reads."""
        path.write_text(json.dumps(asdict(self), default=os.fspath), encoding="utf-8")


def this_side(config: pytest.Config) -> Side | None:
    """Return the side that this process runs; None where it is not one of two."""
    if not is_side(config):
        return None
    plain = json.loads(Path(os.environ[VARIABLE]).read_text(encoding="utf-8"))
    return Side(
        is_base=plain["is_base"],
        reference=Reference(**plain["reference"]),
        tree=Path(plain["tree"]),
        other=Path(plain["other"]),
        caches=Path(plain["caches"]),
        roots=tuple(map(Path, plain["roots"])),
        results=Path(plain["results"]),
        starter=plain["starter"],
    )
