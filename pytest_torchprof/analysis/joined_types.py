"""The types that joined tensors may have: a recording has none for a list, but the users of the result show theirs."""

from __future__ import annotations

from collections import defaultdict
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING, Any, Final

from pytest_torchprof.kernels.operands import DTYPES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    Operands = tuple[Sequence[str] | None, Sequence[Any] | None]

_JOINS: Final = "aten::cat"


class JoinedTypes:
    """The types of a recording's tensors by how many elements they have."""

    def __init__(self, operands: Callable[[], Iterable[Operands]]) -> None:
        """Take what gives the types and shapes of all operands, which is asked when tensors are joined."""
        self._operands = operands

    @cached_property
    def _by_size(self) -> dict[int, set[str]]:
        by_size = defaultdict(set)
        for types, shapes in self._operands():
            for type_name, shape in zip(types or (), shapes or (), strict=False):
                if type_name in DTYPES and shape and all(isinstance(size, int) for size in shape):
                    by_size[prod(shape)].add(DTYPES[type_name])
        return dict(by_size)

    def of(self, op: str | None, types: Sequence[str] | None, shapes: Sequence[Any] | None) -> frozenset[str] | None:
        """Return the types that joined tensors may have; None for other operators, and if they are not known.

        An operator that uses the joined tensor was given one of its size. So of another type it can only be where
        nothing in the recording uses it, and others happen to be as large.
        """
        if (
            op != _JOINS
            or not types
            or not shapes
            or types[0] != "TensorList"
            or not isinstance(shapes[0], list | tuple)
        ):
            return None
        if not all(isinstance(shape, list | tuple) for shape in shapes[0]):
            return None
        return frozenset(self._by_size.get(sum(map(prod, shapes[0])), ())) or None
