"""The notes on a comparison beside its changes: another device or software, locked clocks, an edited test."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pytest_torchprof.reasons.statement import Statement
from pytest_torchprof.text import printable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_torchprof.compare.change import OtherEnvironment, Sides

_SWITCHES: Final[dict[object, str]] = {None: "unknown", True: "on", False: "off"}
_SPOKEN: Final = {"cuda": "CUDA", "rocm": "ROCm", "cudnn": "cuDNN", "triton": "Triton"}


class EditedTest(Statement, frozen=True):
    """The test is not the one that was recorded."""

    SENTENCE = "the test was edited after its baseline was recorded (stale)"


class OtherDeviceUsed(Statement, frozen=True):
    """The two sides ran on different devices."""

    SENTENCE = "{first} was recorded on {first_device}, {second} used {second_device}"

    first: str
    first_device: str
    second: str
    second_device: str


class OtherSoftware(Statement, frozen=True):
    """The two sides ran with different software, or flags of precision."""

    SENTENCE = (
        "{first} was recorded with {first_versions}, {second} has {second_versions}: "
        "names may differ, structure is compared"
    )

    first: str
    first_versions: str
    second: str
    second_versions: str


class UnitsSampled(Statement, frozen=True):
    """A side was recorded at locked clocks, at which nobody runs."""

    SENTENCE = "times are not compared: in {side} the GPU's units were sampled (PM sampling), at locked clocks"

    side: str
    """One of the two, or "both"."""


KINDS: Final = (EditedTest, OtherDeviceUsed, OtherSoftware, UnitsSampled)


def units_sampled(sampled: tuple[bool, bool], sides: Sides) -> UnitsSampled | None:
    """Return why times are not compared, if a side was recorded at locked clocks."""
    return UnitsSampled("both" if all(sampled) else sides[sampled[1]]) if any(sampled) else None


def environment_note(other: OtherEnvironment) -> OtherDeviceUsed | OtherSoftware:
    """Return both devices if they differ, else the software and precision flags that differ."""
    first, second = other.sides
    if other.is_other_device:
        return OtherDeviceUsed(first, _device(other.old), second, _device(other.new))
    return OtherSoftware(first, _software(other.old, other.keys), second, _software(other.new, other.keys))


def _software(environment: Mapping[str, str | bool], keys: Sequence[str]) -> str:
    values = ((_SPOKEN.get(key, key), environment.get(key)) for key in keys)
    return printable(" / ".join(f"{name} {_SWITCHES.get(value, value)}" for name, value in values))


def _device(environment: Mapping[str, str | bool]) -> str:
    gpu, capability = environment.get("gpu"), environment.get("compute_capability")
    return printable(f"{gpu} ({capability})" if capability else str(gpu or "the CPU"))
