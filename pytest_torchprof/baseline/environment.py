"""What differs between the machine and software of a baseline and those of this run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pytest_torchprof.devices.cuda import CUDA
from pytest_torchprof.text.escape import printable

if TYPE_CHECKING:
    from collections.abc import Mapping

    Environment = Mapping[str, str | bool]
    Sides = tuple[str, str]

SIDES: Final = ("baseline", "this run")
_DEVICE: Final = ("gpu", "compute_capability")
_SPOKEN: Final = {"cuda": "CUDA", "rocm": "ROCm", "cudnn": "cuDNN", "triton": "Triton"}


def other_device(old: Environment, new: Environment, sides: Sides = SIDES) -> str | None:
    """Return what to say where a baseline was recorded on another device, None where it was the same."""
    if all(old.get(key) == new.get(key) for key in _DEVICE):
        return None
    return f"{sides[0]} recorded on {_device(old)}, {sides[1]} used {_device(new)}"


def other_software(old: Environment, new: Environment, sides: Sides = SIDES) -> str | None:
    """Return what to say, before any verdict, where software or precision flags differ; None where they do not."""
    differ = [key for key in CUDA.environment if key not in _DEVICE and old.get(key) != new.get(key)]
    if not differ:
        return None
    return (
        f"{sides[0]} recorded with {_words(old, differ)}, {sides[1]} has {_words(new, differ)}: "
        "names may differ, structure is compared"
    )


def _words(environment: Environment, keys: list[str]) -> str:
    return " / ".join(_word(key, environment.get(key)) for key in keys)


def _word(key: str, value: str | bool | None) -> str:
    said = {None: "unknown", True: "on", False: "off"}.get(value, value)  # type: ignore[arg-type]
    return printable(f"{_SPOKEN.get(key, key)} {said}")


def _device(environment: Environment) -> str:
    gpu = environment.get("gpu")
    capability = environment.get("compute_capability")
    return printable(f"{gpu} ({capability})" if capability else str(gpu or "the CPU"))
