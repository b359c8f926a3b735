"""Remarks that change no verdict: disturbances of the machine while times were taken, and gaps in their facts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Union

from pytest_torchprof.reasons.nvml_silence import AnyNvmlSilence  # noqa: TC001 - msgspec reads the annotations
from pytest_torchprof.reasons.statement import Phrase, Statement
from pytest_torchprof.text import enumerated


class Brake(Phrase):
    """Something that takes speed away from a GPU."""

    POWER_LIMIT = "power-limit", "its power limit"
    HARDWARE = "hardware", "a hardware slowdown"
    OTHER_GPUS = "other-gpus", "other GPUs that it is kept in step with"
    TEMPERATURE = "temperature", "its temperature"
    HARDWARE_TEMPERATURE = "hardware-temperature", "its temperature (hardware)"
    POWER_SUPPLY = "power-supply", "the power supply"
    BOARD_LIMIT = "board-limit", "its board's limit"
    RELIABILITY_LIMIT = "reliability-limit", "its reliability limit"


class Disturbance(Statement, frozen=True, tag_field="disturbance"):
    """An event that disturbed the machine, or may have."""


class SlowedDown(Disturbance, frozen=True):
    """The GPU ran slower than it could."""

    SENTENCE = "the GPU was slowed down by {brake}"

    brake: Brake


class UsedByOthers(Disturbance, frozen=True):
    """Other processes computed on the GPU."""

    SENTENCE = "{processes:other process} used the GPU"

    processes: int


class WaitedForCpu(Disturbance, frozen=True):
    """The GPU had nothing to do within the calls whose times were taken."""

    SENTENCE = "the GPU waited for the CPU within most calls, so that their times hold more than its work"


class SlowdownUnknown(Disturbance, frozen=True):
    """Whether the GPU ran slower than it could is not known."""

    why: AnyNvmlSilence
    brakes: tuple[Brake, ...] = ()
    """The only ones of which it is not known; empty if it is of most."""

    @property
    def sentence(self) -> str:
        by = f" by {enumerated([brake.text for brake in self.brakes])}" if self.brakes else ""
        return f"nobody told whether the GPU was slowed down{by} ({self.why})"


class OthersUnknown(Disturbance, frozen=True):
    """Whether other processes computed on the GPU is not known."""

    SENTENCE = "nobody told whether the GPU was used by others ({why})"

    why: AnyNvmlSilence


class NothingKnown(Disturbance, frozen=True):
    """Nothing at all is known of what went on on the GPU."""

    SENTENCE = "nobody told whether the GPU was slowed down or used by others ({why})"

    why: AnyNvmlSilence


KINDS: Final[tuple[type[Disturbance], ...]] = tuple(Disturbance.__subclasses__())

if TYPE_CHECKING:
    AnyDisturbance = Disturbance
else:
    # A field of this type is decoded to the kind whose tag it has.
    AnyDisturbance = Union[KINDS]  # noqa: UP007 - of as many as there are
