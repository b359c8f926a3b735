"""One difference between two measurements: its subject, both sides, and whether it fails a test."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

from msgspec import Struct

from pytest_torchprof.analysis.origin import Origin  # noqa: TC001 - msgspec reads the annotations
from pytest_torchprof.baseline.entry import KernelRecord  # noqa: TC001 - msgspec reads the annotations
from pytest_torchprof.devices.kinds import device_kinds
from pytest_torchprof.trace.compile_evidence import GraphBreak  # noqa: TC001 - msgspec reads the annotations

if TYPE_CHECKING:
    from collections.abc import Mapping

    Environment = Mapping[str, str | bool]

Sides = tuple[str, str]
"""The names of the two measurements."""

Kind = Literal["added", "removed", "changed", "renamed", "replaced", "count", "reordered", "number"]
Direction = Literal["better", "worse", "neutral", "ambiguous", "unknown"]

BETTER: Final = "better"
WORSE: Final = "worse"
NEUTRAL: Final = "neutral"
AMBIGUOUS: Final = "ambiguous"
"""The code may be worse; the samples leave that open."""
UNKNOWN: Final = "unknown"
"""It is not known whether it is the same kernel: nothing shows what it works on."""

THIS_RUN: Final = ("the baseline", "this run")
TWO_FILES: Final = ("the first", "the second")
DEVICE_KEYS: Final = ("gpu", "compute_capability")

WORTH_A_LINE: Final = 0.10
"""A number that varies from run to run gets a line only if it moved by more than this share."""


class LostFusion(Struct, frozen=True, kw_only=True):
    """Operators that one kernel carried, and several carry now."""

    ops: tuple[str, ...]
    kernels: int
    """The number of kernels that carry them now."""


class Undecided(Struct, frozen=True, kw_only=True):
    """Why times leave open whether the code became slower."""

    why: Literal["no samples", "other conditions", "not confirmed", "close samples"]
    """The baseline has no times; they were taken differently, or only once; they lie too close together."""
    conditions: tuple[tuple[str, str | int | None, str | int | None], ...] = ()
    """The conditions that differ: name, the baseline's value, this run's value."""


class LaunchPlaces(Struct, frozen=True, kw_only=True):
    """The places in the user's code at which the kernels of a change were launched."""

    places: tuple[Origin, ...]
    certain: bool = True
    """Whether it is known which launch is at which place; if not, the kernel was launched at one of these."""
    others: tuple[Origin, ...] = ()
    """The places of kernels that cannot be distinguished from these."""
    alike: int = 0
    """The number of kernels that cannot be distinguished."""

    @property
    def is_sure(self) -> bool:
        """Whether they were launched there and nowhere else."""
        return self.certain and not self.others


class Change(Struct, frozen=True, kw_only=True):
    """One difference, its direction, and whether it fails the test."""

    kind: Kind
    what: str
    """A kernel's short name, or a number's name."""
    old: int | float | None = None
    """The number, or the number of times that a step launches the kernel; None if that side has neither."""
    new: int | float | None = None
    direction: Direction = NEUTRAL
    gated: bool = False
    """Whether it decides the verdict."""
    before: tuple[KernelRecord, ...] = ()
    """The kernels on the old side: in recordings, several may have become one."""
    after: tuple[KernelRecord, ...] = ()
    times: int = 1
    """The number of launches of a step that it concerns."""
    step: int = 0
    """The index of the distinct step of the new entry that has it."""
    launches: tuple[int, ...] = ()
    """The indices in that step of the kernels that it concerns, if the step has them."""
    lost_fusion: LostFusion | None = None
    undecided: Undecided | None = None
    launched: LaunchPlaces | None = None
    """The places at which the kernels were launched; None if they were not looked up or are not known."""
    replayed: bool = False
    """Whether the replay of a CUDA graph launched those of its new kernels that have no operator."""
    breaks: tuple[GraphBreak, ...] = ()
    """The graph breaks that it concerns, if their places are known."""

    @property
    def file_line(self) -> str | None:
        """The place at which its kernels were launched first, "model.py:12"; None if it is not known for sure."""
        return self.launched.places[0].file_line if self.launched is not None and self.launched.is_sure else None

    @property
    def fails(self) -> bool:
        """Whether it fails the test."""
        return self.gated and self.direction == WORSE

    @property
    def is_number(self) -> bool:
        """Whether it concerns a number or times, and not kernels."""
        return self.kind == "number"


class OtherEnvironment(Struct, frozen=True, kw_only=True):
    """Another device or other software: how the environments of two measurements differ."""

    sides: Sides
    keys: tuple[str, ...]
    """The names of the facts that differ: "gpu", "torch", "tf32_matmul"."""
    old: dict[str, str | bool]
    new: dict[str, str | bool]

    @property
    def is_other_device(self) -> bool:
        """Whether the devices differ, and not the software alone."""
        return any(key in DEVICE_KEYS for key in self.keys)


def other_environment(old: Environment, new: Environment, sides: Sides) -> OtherEnvironment | None:
    """Return how two environments differ: by the device if that differs, else by software; None if neither does."""
    device = any(old.get(key) != new.get(key) for key in DEVICE_KEYS)
    # An entry has the facts that its own kind of device names.
    software = dict.fromkeys(key for kind in device_kinds() for key in kind.environment if key not in DEVICE_KEYS)
    keys = DEVICE_KEYS if device else tuple(key for key in software if old.get(key) != new.get(key))
    if not keys:
        return None
    kept_old, kept_new = ({key: side[key] for key in keys if key in side} for side in (old, new))
    return OtherEnvironment(sides=sides, keys=keys, old=kept_old, new=kept_new)
