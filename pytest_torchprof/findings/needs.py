"""What a recording must hold so that a rule can tell anything: a finding that cannot be looked for is not absent."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_torchprof.findings.finding import Need

if TYPE_CHECKING:
    from pytest_torchprof.profile import Profile

_NO_OPERANDS = b"\0\0"


def _launches(profile: Profile) -> bool:
    return any(call >= 0 for call in profile.trace.links.call_of)


def _operators(profile: Profile) -> bool:
    return any(profile.launching.op_of[i] >= 0 for i in profile.scene.gpu_ops)


def _shapes(profile: Profile) -> bool:
    trace = profile.trace
    return any(trace.inputs[one] != _NO_OPERANDS for one in set(trace.ops.inputs))


def _blocks(profile: Profile) -> bool:
    return any(blocks >= 0 for blocks in profile.trace.gpu.blocks_per_sm)


def _occupancy(profile: Profile) -> bool:
    return any(percent >= 0 for percent in profile.trace.gpu.occupancy)


LAUNCHES = Need(missing="no operation of the GPU is linked to its launch", there=_launches)
OPERATORS = Need(missing="no operator is known to have launched anything", there=_operators)
SHAPES = Need(missing="the operators' shapes are not recorded (record_shapes=True)", there=_shapes)
BLOCKS_PER_SM = Need(missing="blocks per SM are not recorded", there=_blocks)
OCCUPANCY = Need(missing="occupancy is not recorded", there=_occupancy)
