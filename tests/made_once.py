"""What many tests ask for, and what always comes out alike, is made once in a process."""

from __future__ import annotations

import importlib
import os
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pytest


def make_once(monkeypatch: pytest.MonkeyPatch, folders: Sequence[Path]) -> None:
    """Read each recording of these folders, to which no test writes, once; make articles of messages and parsers once."""
    profiles = importlib.import_module("pytest_torchprof.profiles")
    read, read_once = profiles.read, cache(profiles.read)

    def read_if_new(path: object) -> object:
        __tracebackhide__ = True
        is_kept = isinstance(path, (str, os.PathLike)) and any(map(Path(path).is_relative_to, folders))
        return (read_once if is_kept else read)(path)

    explain = importlib.import_module("pytest_torchprof.cli.explain")
    articles = explain.of_messages
    monkeypatch.setattr(profiles, "read", read_if_new)
    monkeypatch.setattr(explain, "of_messages", cache(lambda: tuple(articles())))
    cli = importlib.import_module("pytest_torchprof.cli")
    monkeypatch.setattr(cli, "parser_of", cache(cli.parser_of))
