"""How near the versions of a series are to one another."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from msgspec.structs import astuple
from packaging.version import InvalidVersion, Version

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_torchprof.trace.metadata import Environment

Apart = tuple[tuple[bool, int], ...]
"""For each field in which some versions of a series differ: whether one of two is a release and the other none, and how
many of those that the series has come after the one up to the other."""


class Nearness:
    """Compares versions with one another, each by its number in a sequence."""

    def __init__(self, versions: Sequence[Environment]) -> None:
        fields = [values for values in zip(*map(astuple, versions), strict=True) if any(v != values[0] for v in values)]
        self._positions = [*zip(*map(_positions, fields), strict=True)] or [()] * len(versions)

    def apart(self, first: int, second: int) -> Apart:
        """Return how far two of them are from each other."""
        return tuple(
            (before != after, abs(early - late))
            for (before, early), (after, late) in zip(self._positions[first], self._positions[second], strict=True)
        )

    def rank(self, first: int, second: int) -> tuple[int, Apart]:
        """Return a sort key, smaller for nearer ones: the fewest fields that differ, then the least differences."""
        apart = self.apart(first, second)
        return sum(map(any, apart)), apart

    def is_between(self, middle: int, first: int, second: int) -> bool:
        """Whether one is nearer to the second than the first is: in some fields, and farther in none."""
        near, far = self.apart(middle, second), self.apart(first, second)
        return near != far and all(here <= there for here, there in zip(near, far, strict=True))


def _positions(values: Sequence[object]) -> list[tuple[bool, int]]:
    """Return of each value of a field whether it is before a release, and its position among them."""
    keys = [_key(str(value)) for value in values]
    at = {key: index for index, key in enumerate(sorted(set(keys)))}
    return [(key[0] == _BEFORE_RELEASE, at[key]) for key in keys]


_NO_VERSION, _RELEASE, _BEFORE_RELEASE = range(3)


@lru_cache(maxsize=1024)
def _key(value: str) -> tuple[int, Version, str]:
    try:
        version = Version(value)
    except InvalidVersion:
        return _NO_VERSION, Version("0"), value
    return _BEFORE_RELEASE if version.is_prerelease else _RELEASE, version, value
