"""The facts that the page shows of a slice besides name and time: operands, source line, module, family, step."""

from __future__ import annotations

import json
from collections import Counter
from itertools import zip_longest
from math import inf
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from pytest_torchprof.text import printable_line
from pytest_torchprof.trace.columns import KERNEL

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pytest_torchprof.analysis.analysis import Analysis
    from pytest_torchprof.analysis.origin import Origin
    from pytest_torchprof.kernels.names import KernelName

_LONGEST = 400
_LONGEST_SIZES = 100


class LaunchSettings(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The launch of a kernel, as far as recorded."""

    grid: list[int] | None = None
    block: list[int] | None = None
    registers: int | None = None
    """Per thread."""
    shared_bytes: int | None = None
    occupancy: float | None = None
    """The share of the warps that an SM can hold, 0..1."""
    blocks_per_sm: float | None = None


_NOT_RECORDED: Final = LaunchSettings()


class Facts:
    """Facts as numbers of texts, each text once: 1 is the first of a list, 0 stands for no text."""

    def __init__(self, analysis: Analysis) -> None:
        """Look up where the work comes from; all else is looked up when it is needed."""
        self._analysis = analysis
        self._trace = analysis.trace
        self._launching = analysis.launching
        self.inputs: list[str] = []
        """Types and shapes of operands."""
        self.origins: list[str] = []
        """Source lines and modules."""
        self.variants: list[tuple[str, str, str | None, str | None, str]] = []
        """Family, library, dtype, layout and short name of kernels."""
        self.shapes: list[LaunchSettings] = []
        self._shape_numbers: dict[tuple[int, float, float], int] = {}
        self._input_numbers: dict[int, int] = {}
        self._origin_numbers: dict[Origin | None, int] = {None: 0}
        self._variant_numbers: dict[KernelName, int] = {}
        self._gpu_origins, self._op_origins = _origins(analysis)
        self._computing = frozenset(op for part in self._launching.parts for op in part.operators)

    @property
    def worst_step(self) -> int:
        """The index of the longest step, to the end of its last GPU operation: the number beside its name."""
        ends = self._trace.gpu.end
        until = [
            max([step.end_ns, *map(ends.__getitem__, members)])
            for step, members in zip(self._trace.steps, (part.gpu_ops for part in self._launching.parts), strict=True)
        ]
        return max(range(len(until)), key=lambda i: (until[i] - self._trace.steps[i].start_ns, -i))

    def of_operators(self, members: Sequence[int]) -> dict[str, Iterable[int]]:
        """Return the columns that only operators have; columns of zeros are left out."""
        given, origins = self._trace.ops.inputs, self._op_origins
        columns: dict[str, Iterable[int]] = {"inputs": [self._input(given[i]) for i in members]}
        if origins:
            columns["origin"] = [self._origin(origins.get(i)) for i in members]
        if self._computing:
            decoded = self._launching.decoded_operator
            columns["variant"] = [self._variant(decoded(i)) if i in self._computing else 0 for i in members]
        return columns

    def of_gpu_ops(self, members: Sequence[int]) -> dict[str, Iterable[int]]:
        """Return the columns that only kernels, copies and fills have."""
        gpu, step_of = self._trace.gpu, self._trace.step_of_gpu_op
        decoded, origins = self._launching.decoded, self._gpu_origins
        columns: dict[str, Iterable[int]] = {
            "step": [step_of[i] + 1 for i in members],
            "variant": [self._variant(decoded(i)) if gpu.kind[i] == KERNEL else 0 for i in members],
            "bytes": [max(gpu.size[i], 0) for i in members],
            "shape": [self._shape(i) if gpu.kind[i] == KERNEL else 0 for i in members],
        }
        if origins:
            columns["origin"] = [self._origin(origins.get(i)) for i in members]
        return columns

    def _input(self, index: int) -> int:
        number = self._input_numbers.get(index)
        if number is None:
            types, shapes, _ = self._launching.operands(index)
            text = _operands_text(types, shapes)
            if text:
                self.inputs.append(text)
            number = self._input_numbers[index] = len(self.inputs) if text else 0
        return number

    def _shape(self, gpu_op: int) -> int:
        gpu = self._trace.gpu
        launched = gpu.shape[gpu_op] if gpu_op < len(gpu.shape) else 0
        key = launched, self._trace.occupancies[gpu_op], gpu.blocks_per_sm[gpu_op]
        number = self._shape_numbers.get(key)
        if number is None:
            settings = _launch_settings(self._trace.shapes[key[0]], *key[1:])
            is_known = settings != _NOT_RECORDED
            if is_known:
                self.shapes.append(settings)
            number = self._shape_numbers[key] = len(self.shapes) if is_known else 0
        return number

    def _origin(self, origin: Origin | None) -> int:
        number = self._origin_numbers.get(origin)
        if number is None:
            self.origins.append(printable_line(str(origin)))
            number = self._origin_numbers[origin] = len(self.origins)
        return number

    def _variant(self, name: KernelName) -> int:
        number = self._variant_numbers.get(name)
        if number is None:
            short = printable_line(name.short)
            self.variants.append((name.family_shown, name.library, name.dtype, name.layout, short))
            number = self._variant_numbers[name] = len(self.variants)
        return number


def _launch_settings(recorded: bytes, occupancy: float, blocks_per_sm: float) -> LaunchSettings:
    grid, block, registers, shared = map(_read, recorded.split(b"\0"))
    return LaunchSettings(
        grid=_three(grid),
        block=_three(block),
        registers=_count(registers),
        shared_bytes=_count(shared),
        occupancy=occupancy / 100 if 0 <= occupancy < inf else None,
        blocks_per_sm=blocks_per_sm if 0 <= blocks_per_sm < inf else None,
    )


def _read(text: bytes) -> object:
    # Longer texts are no sizes: what reads numbers refuses those of thousands of digits.
    return json.loads(text) if 0 < len(text) < _LONGEST_SIZES else None


def _three(value: object) -> list[int] | None:
    sizes = [_count(size) for size in value] if isinstance(value, list) and len(value) == 3 else []
    return [size for size in sizes if size is not None] if sizes and None not in sizes else None


def _count(value: object) -> int | None:
    is_count = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53
    return value if is_count and isinstance(value, int) else None


def _operands_text(types: Sequence[str] | None, shapes: Sequence[Any] | None) -> str:
    if not shapes and not types:
        return ""
    operands = [f"{kind}{_shape(shape)}" for kind, shape in zip_longest(types or (), shapes or (), fillvalue="")]
    return printable_line(", ".join(operand or "-" for operand in operands), _LONGEST)


def _shape(shape: object) -> str:
    return "" if shape == [] else str(shape).replace(" ", "")


def _origins(analysis: Analysis) -> tuple[Mapping[int, Origin], Mapping[int, Origin]]:
    """Return where GPU operations and operators come from, as far as the recording or its repeat holds it."""
    trace, launching = analysis.trace, analysis.launching
    if launching.origins.recorded:
        called = zip(trace.links.call_of, launching.op_of, strict=True)
        return (
            _known(enumerate(launching.origins.of_call(call, op) for call, op in called)),
            _known((i, launching.origins.of_operator(i)) for i in range(len(trace.ops))),
        )
    if analysis.repeat is None:
        return {}, {}
    on_gpu: list[tuple[int, Origin | None]] = []
    operators: list[tuple[int, Origin | None]] = []
    for step in analysis.steps:
        names, places, seen = trace.names, step.places.work if step.places_in_order else {}, Counter[Any]()
        work = [(op, (name, name)) for op in step.part.operators for name in (names[trace.ops.name[op]],)]
        queued = [(i, (names[trace.gpu.name[i]], launching.op_name(launching.op_of[i]))) for i in step.part.gpu_ops]
        for origins, done in ((operators, work), (on_gpu, queued)):
            for i, event in done:
                repeated = places.get(event, ())
                origins.append((i, repeated[seen[event]] if seen[event] < len(repeated) else None))
                seen[event] += 1
    return _known(on_gpu), _known(operators)


def _known(origins: Iterable[tuple[int, Origin | None]]) -> dict[int, Origin]:
    return {i: origin for i, origin in origins if origin is not None}
