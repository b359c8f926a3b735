"""What is installed is read once: each run of pytest in this process asks all packages what they bring and how they are called."""

from __future__ import annotations

import importlib.metadata
import sys
from functools import cache
from typing import Any

_distributions = importlib.metadata.distributions


class _Asked:
    """An installed package that takes itself apart for the first question alone."""

    def __init__(self, package: importlib.metadata.Distribution) -> None:
        self._package = package

    def __getattr__(self, name: str) -> Any:
        answer = getattr(self._package, name)
        if not callable(answer):
            setattr(self, name, answer)
        return answer


def distributions(**wanted: Any) -> list[Any]:
    """Return what ``importlib.metadata.distributions`` does, the same objects for each folder of the path."""
    return list(_distributions(**wanted)) if wanted else [package for place in sys.path for package in _in(place)]


@cache
def _in(place: str) -> list[_Asked]:
    return list(map(_Asked, _distributions(path=[place])))
