"""The inputs of operators: types, shapes and strides of tensors, and the other values that are recorded."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Raw

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pytest_torchprof.trace import Trace

Inputs = tuple[tuple[str, ...] | None, tuple[Any, ...] | None, tuple[Any, ...] | None]
"""Types, shapes and strides, each None where it is not recorded."""
ListTypes = tuple[tuple[str, ...], ...]
"""For each list of tensors their types, or the one type that all have."""
_LIST, _FIELDS = msgspec.json.Decoder(list), msgspec.json.Decoder(list[Raw])


class OperatorInputs:
    """The inputs of a recording's operators, each decoded once."""

    def __init__(self, trace: Trace) -> None:
        """Prepare to answer."""
        self._trace = trace
        self._operands_by_index: dict[int, Inputs] = {}
        self._without_sizes_by_index: dict[int, int] = {}
        self._without_sizes: dict[tuple[object, ...], int] = {}

    def operands(self, index: int) -> Inputs:
        """Return a set of operands, by its index in ``Trace.inputs``."""
        operands = self._operands_by_index.get(index)
        if operands is None:
            shapes, types, strides = map(_decoded, self._fields(index)[:3])
            operands = (None if types is None else tuple(map(str, types)), shapes, strides)
            self._operands_by_index[index] = operands
        return operands

    def without_sizes(self, index: int) -> int:
        """Return a number that sets share which are alike but for sizes and strides.

        Types are alike, which have no dimensions, and settings.
        """
        number = self._without_sizes_by_index.get(index)
        if number is None:
            fields = self._fields(index)
            shapes, known = _decoded(fields[0]), self._without_sizes
            scalars = None if shapes is None else tuple([shape == [] for shape in shapes])
            # Texts are compared, which need not be decoded: there are thousands of sets, and a few that are alike.
            number = known.setdefault((scalars, bytes(fields[1]), *map(bytes, fields[3:])), len(known))
            self._without_sizes_by_index[index] = number
        return number

    def settings(self, index: int) -> tuple[Any, ...] | None:
        """Return the inputs other than tensors, each in its position as text; None if they are not recorded or kept."""
        fields = self._fields(index)[3:]
        return _decoded(fields[0]) if fields else None

    def _fields(self, index: int) -> Sequence[Raw]:
        return _FIELDS.decode(self._trace.inputs[index])

    def lists_of(self, op: int) -> ListTypes:
        """Return the types of tensors in the lists that an operator was given; empty if they are not known."""
        return self._lists.get(self._trace.ops.external[op], ()) if op >= 0 and self._lists else ()

    @cached_property
    def _lists(self) -> Mapping[int, ListTypes]:
        metadata = self._trace.metadata
        recorded = () if metadata is None else metadata.tensor_lists or ()
        return {number: tensor_list.types for tensor_list in recorded for number in tensor_list.operators}


def with_lists(inputs: Inputs, lists: ListTypes) -> Inputs:
    """Return operands with the tensors of each list in its place; as they are where lists and their types differ."""
    types, shapes, strides = inputs
    if not lists or types is None or shapes is None or strides is None:
        return inputs
    spread = [*_spread(zip(types, shapes, strides, strict=False), iter(lists))]
    return inputs if None in spread else tuple(zip(*spread, strict=True))  # type: ignore[return-value]


def _spread(operands: Iterator[tuple[str, Any, Any]], lists: Iterator[tuple[str, ...]]) -> Iterator[Any]:
    for kind, shape, stride in operands:
        if kind != "TensorList" or not shape:
            yield kind, shape, stride
            continue
        types = next(lists, ())
        types = types * len(shape) if len(types) == 1 else types
        if not len(types) == len(shape) == len(stride):
            yield None
            return
        yield from zip(types, shape, stride, strict=True)


def _decoded(text: Raw) -> tuple[Any, ...] | None:
    try:
        value: Sequence[Any] = _LIST.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return tuple(value)
