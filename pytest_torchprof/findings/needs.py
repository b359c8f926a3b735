"""What a recording must hold so that a rule can tell anything: a finding that cannot be looked for is not absent."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_torchprof.findings.finding import Need

if TYPE_CHECKING:
    from pytest_torchprof.analysis.analysis import Analysis

_NO_OPERANDS = b"\0\0"


def _launches(analysis: Analysis) -> bool:
    return any(call >= 0 for call in analysis.trace.links.call_of)


def _operators(analysis: Analysis) -> bool:
    return any(analysis.launching.op_of[i] >= 0 for i in analysis.gpu_work.gpu_ops)


def _shapes(analysis: Analysis) -> bool:
    trace = analysis.trace
    return any(trace.inputs[one] != _NO_OPERANDS for one in set(trace.ops.inputs))


def _blocks(analysis: Analysis) -> bool:
    return any(blocks >= 0 for blocks in analysis.trace.gpu.blocks_per_sm)


def _occupancy(analysis: Analysis) -> bool:
    return any(percent >= 0 for percent in analysis.trace.gpu.occupancy)


LAUNCHES = Need(missing="no operation of the GPU is linked to its launch", there=_launches)
OPERATORS = Need(missing="no operator is known to have launched anything", there=_operators)
SHAPES = Need(missing="the operators' shapes are not recorded (record_shapes=True)", there=_shapes)
BLOCKS_PER_SM = Need(missing="blocks per SM are not recorded", there=_blocks)
OCCUPANCY = Need(missing="occupancy is not recorded", there=_occupancy)
